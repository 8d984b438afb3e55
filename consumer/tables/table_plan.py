"""The plan for rows of one schema on the target's table: columns, row identity and SQL.

    columns written     the record's columns, except those that the target generates; a missing one is Fatal MR-5013
    row identity        the target's primary key, else a unique key that is never NULL. The record must have all its
                        columns, and it must have no prefix or expression. Without one, ``identity`` is empty and all
                        columns are compared.

A generated column is never written, but it may be part of the identity: row images contain its value, even for virtual
columns, on both flavours. A key without generated columns is preferred, because the target computes them with its own
expression. Every UPDATE and DELETE names a whole unique key, or ends in LIMIT 1 (``check_names_row``).

A statement is ``lead``, rows, ``tail``. A row is ``opening``, literals, ``closing``. ``kernel.literals`` writes the
literals by the lines of ``shape``. They name the image of each literal, because the images of a merged change come from
two records.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from millrace.consumer.kernel import literals
from millrace.consumer.kernel.json_numbers import MARKS, NO_MARKS, SIGN_MARKS
from millrace.consumer.records.numbers import Ints
from millrace.consumer.view.layout import ViewedTable
from millrace.drivers.mysql.catalog import (
    HIDDEN_PERIOD,
    CatalogColumn,
    CatalogTable,
    Inventory,
    UniqueKey,
)
from millrace.errors import Fatal
from millrace.schemas.gtid import Flavour
from millrace.schemas.record.row_layout import RowLayout
from millrace.schemas.sql.quoting import charset_name, quoted, table_name
from millrace.schemas.table.structure import INTEGER_CODES, Column, TypeCode
from millrace.schemas.view.table_view import HMAC_CHARACTERS, mask_problem
from millrace.schemas.view.view import MaskKind

BEFORE, AFTER = 0, 1
Place = tuple[int, int, CatalogColumn | None]  # image, column of the record; the column written
SPATIAL_TYPES = {"geometry", "point", "linestring", "polygon", "multipoint", "multilinestring"}
SPATIAL_TYPES |= {"multipolygon", "geomcollection", "geometrycollection"}

# Columns of a MariaDB sequence. Its rows are logged like those of a table (``consumer.tables.row_statements``).
_OF_A_SEQUENCE = {
    "next_not_cached_value",
    "minimum_value",
    "maximum_value",
    "start_value",
    "increment",
    "cache_size",
    "cycle_option",
    "cycle_count",
}
_NOT_VERSIONED = (
    "The source's table is system-versioned. Create it WITH SYSTEM VERSIONING on the target (MariaDB), or add it to"
    " `exclude` in the document of the apply task and give that to `millrace task create -f FILE --replace`. Then"
    " `millrace task resume TASK`."
)
_GENERATED_ON_SOURCE = (
    "Define {name} on the target with the source's expression, then `millrace task resume TASK`."
)
_CREATE_SEQUENCE = "CREATE SEQUENCE {} on the target, then `millrace task resume TASK`. The task sets all its options."
_NO_SEQUENCE = "Drop the sequence {} on the target and create the table there, then `millrace task resume TASK`."
_OTHER_ENGINE = "ALTER TABLE {} ENGINE=InnoDB on the target, then `millrace task resume TASK`."


@dataclass(frozen=True, slots=True)
class Pieces:
    """One kind of statement over many rows."""

    lead: bytes
    opening: bytes
    closing: bytes
    tail: bytes
    shape: Ints

    @property
    def around(self) -> tuple[bytes, bytes, bytes, bytes]:
        """The texts for ``Rows.text_of``."""
        return self.lead, self.opening, self.closing, self.tail


@dataclass(frozen=True, slots=True)
class TablePlan:
    """``columns``: pairs of (column index in the record, target column) of all written columns.

    ``period``: the same pairs of the row's start and end, if both sides' tables are system-versioned.
    ``update`` and ``delete`` are None without an identity, or if it has columns that a join can not look up. Rows are
    then written one by one.
    ``verified``: the pairs of the stored columns that the target may compute otherwise than the source's session did.
    ``shown``: the table's name for an operator. ``is_viewed``: a view changes it.
    ``on_duplicate``: the end of an INSERT that overwrites a row without its ``unwritten`` columns; b"" if REPLACE does.
    """

    layout: RowLayout
    target: CatalogTable
    columns: tuple[tuple[int, CatalogColumn], ...]
    identity: tuple[int, ...]
    insert: Pieces
    delete: Pieces | None
    update: Pieces | None
    period: tuple[tuple[int, CatalogColumn], ...] = ()
    verified: tuple[tuple[int, CatalogColumn], ...] = ()
    shown: str = ""
    is_viewed: bool = False
    on_duplicate: bytes = b""

    @property
    def name(self) -> bytes:
        """The quoted name of the table."""
        return table_name(*self.target.key)

    @property
    def named(self) -> tuple[tuple[int, CatalogColumn], ...]:
        """The columns that an UPDATE or DELETE of one row compares: the identity, else all written columns."""
        key = _key_columns(self.layout, self.target, self.identity)
        return key or (*self.columns, *self.period[:1])

    @property
    def computed(self) -> tuple[tuple[int, CatalogColumn], ...]:
        """The columns that the target generates, as ``columns``."""
        found = (
            (index, target_column(self.target, column.name))
            for index, column in _visible(self.layout)
        )
        return tuple((index, column) for index, column in found if column and column.generated)

    @property
    def unwritten(self) -> list[CatalogColumn]:
        """The plain columns of the target that no record has."""
        written_names = {column.name for _, column in (*self.columns, *self.period)}
        return [
            column
            for column in self.target.columns.values()
            if not column.generated and column.name not in written_names
        ]

    @property
    def is_identity_generated(self) -> bool:
        """True if the target generates a part of the identity. The generated value is then checked."""
        return bool(self.identity) and any(column.generated for _, column in self.named)

    def pieces(self, what: str) -> Pieces | None:
        """The statement over many rows for an operation of the writer; None if there is none."""
        match what:
            case "insert":
                return self.insert
            case "replace":
                return self._replace
            case "restore":
                shape = make_shape(self.layout, written(BEFORE, self.columns))
                return replace(self._replace, shape=shape)
            case "update":
                return self.update
            case "move":
                return None
        return self.delete

    @property
    def _replace(self) -> Pieces:
        if self.on_duplicate:
            return replace(self.insert, tail=self.on_duplicate)
        return replace(self.insert, lead=self.insert.lead.replace(b"INSERT", b"REPLACE", 1))

    @property
    def documents(self) -> tuple[int, ...]:
        """The record's columns that are JSON on a MySQL source or target. MariaDB's JSON is text."""
        return tuple(
            index
            for index, column in self.columns
            if column.base_type == "json" or self.is_marked(index)
        )

    @property
    def generated_documents(self) -> tuple[int, ...]:
        """Those of ``verified``."""
        return tuple(index for index, _ in self.verified if self.is_marked(index))

    def is_marked(self, index: int) -> bool:
        """Whether capture has marked types in the JSON of a column of the record."""
        return self.layout.table.columns[index].type.code is TypeCode.JSON

    @property
    def marks(self) -> int:
        """Which marks need a statement per row (``kernel.json_numbers``).

        The sign type of an integer only shows in what the target computes of it.
        """
        if not any(self.is_marked(index) for index, _ in self.columns):
            return NO_MARKS
        is_computed = any(column.generated for column in self.target.columns.values())
        is_computed |= any("" in key.columns for key in self.target.unique_keys)
        return SIGN_MARKS if is_computed else MARKS


def _sql(target: CatalogTable) -> str:
    return table_name(*target.key).decode()


def _visible(layout: RowLayout) -> Iterator[tuple[int, Column]]:
    """The columns of a record that the view of the task has, with their places."""
    for index, column in enumerate(layout.table.columns):
        if index not in layout.hidden:
            yield index, column


def plan_table(viewed: ViewedTable, inventory: Inventory) -> TablePlan:
    """The plan of a table.

    Fatal MR-5012 if the table is missing, MR-5013 if a column is, MR-5015 if the table's engine has no rollback,
    MR-5028 for a sequence if the target is MySQL, MR-5206 if a view does not give the target what it needs.
    """
    layout, shown = viewed.layout, viewed.shown
    table = layout.table
    target = inventory.tables.get(inventory.key(table.database, table.table))
    is_sequence = {column.name for column in table.columns} == _OF_A_SEQUENCE
    if target is None:
        raise _missing(viewed, inventory.flavour, is_sequence=is_sequence)
    if target.is_sequence and not is_sequence:
        what = f"{shown} is a sequence on the target, and a table on the source"
        raise Fatal("MR-5013", what, fix=_NO_SEQUENCE.format(_sql(target)), table=shown)
    if not target.takes_rows:
        raise Fatal(
            "MR-5015",
            f"{shown} has the engine {target.engine}",
            fix=_OTHER_ENGINE.format(_sql(target)),
            table=shown,
            engine=target.engine,
        )
    period = _period(layout, target)
    columns, verified = [], []
    for index, column in _visible(layout):
        if index in [at for at, _ in period]:
            continue
        found = target_column(target, column.name)
        if found is None and column.is_key_hash:
            continue
        if found is None:
            raise _missing_column(viewed, target, column)
        if found.has_equal_labels:
            what = f"{shown}: {found.collation} calls two labels of {column.name} equal"
            raise Fatal("MR-5039", what, table=shown, column=found.name)
        if not found.generated:
            columns.append((index, found))
        elif found.by_session and found.is_stored:
            verified.append((index, found))
    _check_omitted(viewed, target)
    identity = _identity(layout, target)
    plan = TablePlan(
        layout,
        target,
        tuple(columns),
        identity,
        insert_pieces(layout, target, columns),
        _delete(layout, target, identity, inventory.flavour),
        _update(layout, target, columns, identity, inventory.flavour),
        period,
        tuple(verified),
        shown,
        viewed.is_changed,
    )
    _check_filled(plan)
    _check_masks(plan, viewed, inventory)
    _check_condition(plan, viewed, inventory)
    return replace(plan, on_duplicate=_on_duplicate(plan, inventory.flavour))


def _on_duplicate(plan: TablePlan, flavour: Flavour) -> bytes:
    """See ``TablePlan``. With a further unique key, an INSERT could update the row that has a value of that one."""
    own = {column.name for _, column in plan.named}
    keys = [set(key.columns) for key in plan.target.unique_keys if key.is_whole]
    is_sole = len(keys) == len(plan.target.unique_keys) and all(key == own for key in keys)
    if not plan.identity or plan.period or not plan.unwritten or not is_sole:
        return b""
    names = [quoted(column.name) for _, column in plan.columns]
    if flavour is Flavour.MYSQL:
        lead, given = b" AS v ON DUPLICATE KEY UPDATE ", (b"v." + name for name in names)
    else:
        lead, given = b" ON DUPLICATE KEY UPDATE ", (b"VALUES(" + name + b")" for name in names)
    return lead + b",".join(name + b"=" + value for name, value in zip(names, given, strict=True))


def _missing_column(viewed: ViewedTable, target: CatalogTable, column: Column) -> Fatal:
    """MR-5013, with the columns of the target that a rule could name."""
    fix = _NOT_VERSIONED if column.name in HIDDEN_PERIOD else ""
    if viewed.is_changed and not fix:
        has = {each.name.lower() for _, each in _visible(viewed.layout)}
        free = [name for name in target.columns if name.lower() not in has]
        other = free[0] if len(free) == 1 else "NAME"
        fix = (
            f"Add the column to {target.name}, then `millrace task resume TASK`. Or map it in the rule of a new task:"
            f" `columns: {{rename: {{{column.name}: {other}}}}}`, or `columns: {{drop: [{column.name}]}}`."
            f" Columns of {target.name} without a value: {', '.join(free) or 'none'}."
        )
    return Fatal(
        "MR-5013",
        f"{viewed.shown} has no column {column.name}",
        fix=fix,
        table=viewed.shown,
        column=column.name,
    )


def _check_filled(plan: TablePlan) -> None:
    """Fatal MR-5206 if the target needs a value that the view does not give."""
    for column in plan.unwritten if plan.is_viewed else ():
        if not (column.nullable or column.has_default or column.is_auto_increment):
            name = f"`{column.name}`"
            raise Fatal(
                "MR-5206",
                f"{plan.shown}: {column.name} of the target is NOT NULL without a default, and the view has no column"
                " of this name",
                fix=f"ALTER TABLE {_sql(plan.target)} ALTER {name} SET DEFAULT …, or MODIFY it to NULL, on the target,"
                " then `millrace task resume TASK`. Or map a column to it in the rule of a new task:"
                f" `columns: {{rename: {{NAME: {column.name}}}}}`.",
                table=plan.shown,
                column=column.name,
            )


def _check_masks(plan: TablePlan, viewed: ViewedTable, inventory: Inventory) -> None:
    """Fatal MR-5206 if masks could make two keys of the target equal, or do not fit its column."""
    target = plan.target
    keys = {name.lower() for key in target.unique_keys for name in key.columns}
    for foreign in inventory.foreign_keys:
        keys.update(map(str.lower, foreign.columns if foreign.child == target.key else ()))
        keys.update(map(str.lower, foreign.parent_columns if foreign.parent == target.key else ()))
    known = dict(plan.columns)
    for place, mask in viewed.masks:
        column = known.get(place)
        if column is None:
            continue
        problem = mask_problem(
            mask, viewed.source.columns[place], is_key=column.name.lower() in keys
        )
        if not problem and mask.kind is MaskKind.HMAC and not _takes_hmac(column):
            problem = f"a text column of {HMAC_CHARACTERS} characters on the target"
        if problem:
            raise Fatal(
                "MR-5206",
                f"{plan.shown}: mask.{column.name}: found {mask.kind} of {column.name}, {column.full_type}"
                f"{', in a key of the target' if column.name.lower() in keys else ''}; wanted {problem}",
                table=plan.shown,
                column=column.name,
            )


def _takes_hmac(column: CatalogColumn) -> bool:
    is_short = 0 < column.octets < HMAC_CHARACTERS
    return column.base_type in _STRINGS and column.base_type not in _FIXED and not is_short


_FIXED = {"binary"}  # pads


def _check_condition(plan: TablePlan, viewed: ViewedTable, inventory: Inventory) -> None:
    """Fatal MR-5206 if a cascade without records could change which rows are in the view.

    The source does not log what its cascades change (MariaDB, MySQL before 9.6). A parent that is out of the view
    deletes no child on the target, and a child whose foreign key changes there stays.
    """
    if viewed.program is None or viewed.program.view.condition is None:
        return
    for foreign in inventory.foreign_keys:
        why = ""
        if foreign.parent == plan.target.key and foreign.cascades:
            why = f"its rows cascade to {'.'.join(foreign.child)}"
        elif foreign.child == plan.target.key and foreign.cascades:
            read = viewed.tested.intersection(map(str.lower, foreign.columns))
            why = f"it reads {', '.join(sorted(read))}, which a cascade changes" if read else ""
        if why:
            raise Fatal(
                "MR-5206",
                f"{plan.shown}: where: {why}, and the source does not log rows of cascades",
                fix="Begin a task of another name without this condition. Without the foreign key on the target, rows"
                " of the child would stay that the source has deleted.",
                table=plan.shown,
            )


def _check_omitted(viewed: ViewedTable, target: CatalogTable) -> None:
    """Fatal MR-5013 if a column without logged values is plain here: an UPDATE would leave its old value."""
    for name in viewed.layout.table.omitted:
        found = target_column(target, name)
        if found is not None and not found.generated:
            raise Fatal(
                "MR-5013",
                f"{viewed.shown}: the source generates {name} and does not log its values, but on the target it"
                " is a plain column",
                fix=_GENERATED_ON_SOURCE.format(name=name),
                table=viewed.shown,
                column=name,
            )


def _missing(viewed: ViewedTable, flavour: Flavour, *, is_sequence: bool) -> Fatal:
    name, table = viewed.shown, viewed.layout.table
    if not is_sequence:
        return Fatal("MR-5012", f"there is no table {name}", table=name)
    if flavour is Flavour.MYSQL:
        return Fatal("MR-5028", f"{name} is a sequence, and the target is MySQL", table=name)
    fix = _CREATE_SEQUENCE.format(table_name(table.database, table.table).decode())
    return Fatal("MR-5012", f"there is no sequence {name}", fix=fix, table=name)


def _period(layout: RowLayout, target: CatalogTable) -> tuple[tuple[int, CatalogColumn], ...]:
    indexes = record_indexes(layout, target.period)
    if not indexes:
        return ()
    columns = (
        target_column(target, name)
        or CatalogColumn(name, "timestamp(6)", "timestamp", "", "", False, True)
        for name in target.period
    )
    return tuple(zip(indexes, columns, strict=True))


def target_column(target: CatalogTable, name: str) -> CatalogColumn | None:
    """The column of this name. MySQL ignores the case of column names."""
    if (found := target.columns.get(name)) is not None:
        return found
    folded = name.lower()
    return next((c for c in target.columns.values() if c.name.lower() == folded), None)


def record_indexes(layout: RowLayout, names: tuple[str, ...]) -> tuple[int, ...] | None:
    """The indexes of these columns in the record; None if one is missing."""
    folded = {column.name.lower(): index for index, column in _visible(layout)}
    exact = {column.name: index for index, column in _visible(layout)}
    found = [exact.get(name, folded.get(name.lower())) for name in names]
    return None if None in found else tuple(index for index in found if index is not None)


def check_names_row(
    target: CatalogTable, named: Sequence[str], *, is_limited: bool = False
) -> None:
    """Fatal MR-5019 unless these target columns contain a whole unique key that is never NULL.

    ``is_limited``: the statement ends in LIMIT 1, so at least one column of any kind is enough.
    """
    keys = (key.columns for key in target.unique_keys if _is_never_null(target, key))
    if not (named if is_limited else any(set(key) <= set(named) for key in keys)):
        what = f"{target.name}: ({', '.join(named)}) is not a whole unique key of the table"
        raise Fatal("MR-5019", what, table=target.name)


def _is_never_null(target: CatalogTable, key: UniqueKey) -> bool:
    return key.is_whole and not any(target.columns[name].nullable for name in key.columns)


def _identity(layout: RowLayout, target: CatalogTable) -> tuple[int, ...]:
    def rank(key: UniqueKey) -> tuple[bool, bool]:
        """A statement by a key that finds no rows reads the whole table."""
        return not key.finds_rows, any(target.columns[name].generated for name in key.columns)

    usable = [key for key in target.unique_keys if _is_never_null(target, key)]
    columns = layout.table.columns
    for key in sorted(usable, key=rank):
        indexes = record_indexes(layout, key.columns) or ()
        pairs = _key_columns(layout, target, indexes)
        if pairs and not any(_is_loose(columns[index], column) for index, column in pairs):
            return indexes
    return ()


def _is_loose(source: Column, column: CatalogColumn) -> bool:
    """True if the server compares a number with a text; then ``05`` and ``5a`` equal 5.

    Or if MySQL finds no row for the largest value of a FLOAT(M,D), which may be above the limit of the column.
    """
    if column.float_max:
        return True
    return source.type.code in _NUMBER_CODES and column.base_type in _STRINGS


def _key_columns(
    layout: RowLayout, target: CatalogTable, identity: tuple[int, ...]
) -> tuple[tuple[int, CatalogColumn], ...]:
    found = ((index, target_column(target, layout.table.columns[index].name)) for index in identity)
    return tuple((index, column) for index, column in found if column is not None)


def make_shape(layout: RowLayout, places: Iterable[Place]) -> Ints:
    """Lines (image, cell number in the record, form, scale or limit) for ``kernel.literals``."""
    columns = layout.table.columns
    lines = []
    for image, index, target in places:
        column = columns[index]
        is_bit = column.type.code is TypeCode.BIT
        form = literals.BITS if is_bit else literals.PLAIN, column.type.scale
        if target is not None and column.type.code is TypeCode.FLOAT and target.float_max:
            form = literals.BOUNDED, int(np.float64(target.float_max).view(np.int64))
        lines.append((image, image * len(columns) + index, *form))
    return np.array(lines, np.int64).reshape(-1, 4)


def compared(image: int, indexes: Iterable[int]) -> list[Place]:
    """Values of one image that are compared with the target's."""
    return [(image, index, None) for index in indexes]


def written(image: int, columns: Iterable[tuple[int, CatalogColumn]]) -> list[Place]:
    """Values of one image that are written to these columns of the target."""
    return [(image, index, column) for index, column in columns]


def insert_pieces(
    layout: RowLayout, target: CatalogTable, columns: list[tuple[int, CatalogColumn]]
) -> Pieces:
    """INSERT of these columns."""
    names = b",".join(quoted(column.name) for _, column in columns)
    lead = b"INSERT INTO " + table_name(*target.key) + b" (" + names + b") VALUES "
    return Pieces(lead, b"(", b")", b"", make_shape(layout, written(AFTER, columns)))


def _delete(
    layout: RowLayout, target: CatalogTable, identity: tuple[int, ...], flavour: Flavour
) -> Pieces | None:
    """DELETE … IN, or a join: MariaDB finds no row by ``(a, b) IN ((1, 2))``, but scans the table.

    MySQL looks up such a list, and takes less time for it than for a join.
    """
    key = _key_columns(layout, target, identity)
    if not key:
        return None
    check_names_row(target, [column.name for _, column in key])
    name = table_name(*target.key)
    names = [quoted(column.name) for _, column in key]
    shape = make_shape(layout, compared(BEFORE, identity))
    lead = b"DELETE FROM " + name + b" WHERE "
    if len(names) == 1:
        return Pieces(lead + names[0] + b" IN (", b"", b"", b")", shape)
    if flavour is Flavour.MYSQL:
        return Pieces(lead + b"(" + b",".join(names) + b") IN (", b"(", b")", b")", shape)
    matches = key_matches(layout, target, identity)
    if matches is None:
        return None
    return joined(b"DELETE " + name + b" FROM ", key_names(identity), matches, shape, flavour)


def _update(
    layout: RowLayout,
    target: CatalogTable,
    columns: list[tuple[int, CatalogColumn]],
    identity: tuple[int, ...],
    flavour: Flavour,
) -> Pieces | None:
    matches = key_matches(layout, target, identity)
    others = [(index, column) for index, column in columns if index not in identity]
    if matches is None or not others:
        return None
    name = table_name(*target.key)
    sets = [
        name + b"." + quoted(column.name) + b" = v.c%d" % at
        for at, (_, column) in enumerate(others)
    ]
    names = [*key_names(identity), *(b"c%d" % at for at in range(len(others)))]
    shape = make_shape(layout, [*compared(BEFORE, identity), *written(AFTER, others)])
    return joined(b"UPDATE ", names, matches + b" SET " + b", ".join(sets), shape, flavour)


def key_names(identity: tuple[int, ...]) -> list[bytes]:
    """The names of the columns of ``joined`` that have the key."""
    return [b"k%d" % at for at in range(len(identity))]


def joined(verb: bytes, names: list[bytes], tail: bytes, shape: Ints, flavour: Flavour) -> Pieces:
    """A statement with the rows as the derived table ``v``, which is read first. Its columns have these names."""
    if flavour is Flavour.MYSQL:
        columns = b") AS v (" + b",".join(names) + b")"
        return Pieces(verb + b"(VALUES ", b"ROW(", b")", columns + tail, shape)
    lead = verb + b"(SELECT " + b",".join(b"NULL AS " + name for name in names)
    return Pieces(
        lead + b" FROM DUAL WHERE 0 UNION ALL VALUES ", b"(", b")", b") AS v" + tail, shape
    )


def key_matches(layout: RowLayout, target: CatalogTable, identity: tuple[int, ...]) -> bytes | None:
    """The join of ``v`` and the target's table by its key; None if a column can't be looked up.

    The index is forced: otherwise the servers scan a table that has few rows by their statistics. Only a primary key
    is, because the servers refuse to force a key that an administrator has hidden.
    """
    key = _key_columns(layout, target, identity)
    if not key:
        return None
    check_names_row(target, [column.name for _, column in key])
    name = table_name(*target.key)
    matches = []
    for place, (index, column) in enumerate(key):
        operand = join_operand(layout.table.columns[index], column, b"v.k%d" % place)
        if operand is None:
            return None
        matches.append(name + b"." + quoted(column.name) + b" = " + operand)
    names = {column.name for _, column in key}
    is_primary = any(
        each.name == "PRIMARY" and set(each.columns) == names for each in target.unique_keys
    )
    forced = b" FORCE INDEX (PRIMARY)" if is_primary else b""
    return b" STRAIGHT_JOIN " + name + forced + b" ON " + b" AND ".join(matches)


_INTEGERS = {"tinyint", "smallint", "mediumint", "int", "bigint", "year"}
_BINARIES = {"binary", "varbinary"}
_TEXTS = {"char", "varchar"}
_STRINGS = _TEXTS | _BINARIES
_STRINGS |= {
    f"{size}{kind}" for size in ("tiny", "", "medium", "long") for kind in ("text", "blob")
}
_NUMBER_CODES = INTEGER_CODES | {TypeCode.FLOAT, TypeCode.DOUBLE, TypeCode.NEWDECIMAL}
_NUMBER_CODES |= {TypeCode.YEAR, TypeCode.BIT}
_FLOATS = {TypeCode.FLOAT, TypeCode.DOUBLE}
_ADDRESSES = {"uuid", "inet4", "inet6"}
# (type of the target, type of the source): the literals have the type of the target
_LIKE_LITERALS = {("decimal", TypeCode.NEWDECIMAL)}
_LIKE_LITERALS |= {(base, code) for base in ("float", "double") for code in _FLOATS}
_LIKE_LITERALS |= {(base, TypeCode.STRING) for base in _ADDRESSES}
_CASTS = {
    ("bit", TypeCode.BIT): b"UNSIGNED",
    ("date", TypeCode.DATE): b"DATE",
    ("time", TypeCode.TIME2): b"TIME",
    ("datetime", TypeCode.DATETIME2): b"DATETIME",
    ("timestamp", TypeCode.TIMESTAMP2): b"DATETIME",
}


def join_operand(column: Column, target: CatalogColumn, operand: bytes) -> bytes | None:
    """A column of the derived table in a form that the target's index can look up; None if there is no safe form."""
    code, base = column.type.code, target.base_type
    if base == "bigint" and "unsigned" in target.type_text:
        # a column with values below and above 2**63 is DECIMAL
        return b"CAST(" + operand + b" AS UNSIGNED)"
    if base in _INTEGERS and code is not TypeCode.BIT:
        return operand
    if (base, code) in _LIKE_LITERALS or base in _BINARIES:
        return operand
    if (cast := _CASTS.get((base, code))) is not None:
        digits = b"(%d)" % column.type.fraction_digits if column.type.fraction_digits else b""
        return b"CAST(" + operand + b" AS " + cast + digits + b")"
    is_label = target.is_labelled and code.name.lower() == base
    if target.charset and (is_label or (base in _TEXTS and column.type.is_text)):
        charset, collation = (
            charset_name(name).encode() for name in (target.charset, target.collation)
        )
        return b"CONVERT(" + operand + b" USING " + charset + b") COLLATE " + collation
    return None
