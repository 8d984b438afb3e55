"""The layout of a table's records under a view: names and types of the view, at the places of the record.

    RowLayout of the record     id   name   note
    {rename: {name: full},      id   full   (note)     hidden: the place of note
     drop: [note]}

Cells keep their numbers, so a row costs nothing more. The plan of a target's table, its keys and its statements are
made from this layout as from that of a record. Columns that the view adds come after those of the record. Their cells
are filled for each row (``consumer.view.rows``), so keys, merging and statements know them like any others.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from millrace.consumer.kernel import walk
from millrace.consumer.view.mask_keys import MaskKeys
from millrace.consumer.view.program import ViewProgram, make_view_program, view_of
from millrace.drivers.mysql.catalog import HIDDEN_PERIOD
from millrace.errors import Fatal
from millrace.schemas.record.avro_schema import column_branches
from millrace.schemas.record.names import escape_name
from millrace.schemas.record.row_layout import RowLayout
from millrace.schemas.table.structure import Column, TableSchema
from millrace.schemas.table.table_filter import SYSTEM_DATABASES
from millrace.schemas.view.condition import Op
from millrace.schemas.view.table_view import TableView
from millrace.schemas.view.view import Mask, TableRule, View, shown_name

NAME_CHARACTERS_MAX = 64  # of a database or table, as MySQL's


@dataclass(frozen=True, slots=True)
class Constant:
    """``kind`` and ``content`` of a cell, as a record has them (``kernel.walk``). ``value``: what they say."""

    kind: int
    content: bytes
    value: str | int = field(default="", compare=False)

    @classmethod
    def of(cls, value: str | int) -> "Constant":
        """A text, or a whole number."""
        if isinstance(value, str):
            return cls(walk.STRING, value.encode(), value)
        return cls(walk.INT, zigzag(value), value)


@dataclass(frozen=True, slots=True)
class ViewedTable:
    """One table in one structure. ``source``: as the record has it; ``layout``: as the view has it.

    They are equal if the view only admits the table. ``program``: if it has a condition or a mask. ``constants``: the
    values of the added columns. ``rule``: that of the view, if it changes the table.
    """

    source: TableSchema
    layout: RowLayout
    program: ViewProgram | None = None
    constants: tuple[Constant, ...] = ()
    rule: TableRule | None = None

    @classmethod
    def of(cls, layout: RowLayout) -> "ViewedTable":
        """A table that no view changes."""
        return cls(layout.table, layout)

    @property
    def is_changed(self) -> bool:
        """Whether the view changes it."""
        return self.layout.table is not self.source

    @property
    def merges(self) -> bool:
        """Whether other tables may have its name in the view."""
        return self.rule is not None and self.rule.merge

    @property
    def added(self) -> Mapping[str, Constant]:
        """The added columns by their names in lower case."""
        names = (column.name.lower() for column in self.layout.table.columns)
        return dict(zip(islice(names, len(self.source.columns), None), self.constants, strict=True))

    @property
    def masks(self) -> Iterator[tuple[int, Mask]]:
        """The masked columns by their places."""
        for column in self.program.view.columns if self.program is not None else ():
            if column.mask is not None:
                yield column.source, column.mask

    @property
    def tested(self) -> frozenset[str]:
        """The names in the view of the columns that the condition reads, in lower case."""
        condition = self.program.view.condition if self.program is not None else None
        steps = condition.steps if condition is not None else ()
        places = {step.column for step in steps if step.op in _READING}
        return frozenset(self.layout.table.columns[at].name.lower() for at in places)

    @property
    def shown(self) -> str:
        """Its name for an operator: the source's, and the view's if that is another one."""
        return shown_name(self.source.full_name, self.layout.table.full_name)


def viewed_table(
    view: View, layout: RowLayout, *, folds: bool = False, keys: MaskKeys | None = None
) -> ViewedTable | None:
    """None if the table is not in the view. ``folds`` as in ``View.match``. ``keys``: of the masks of all tables.

    Fatal MR-5201, MR-5206; errors as ``make_view_program``.
    """
    source = layout.table
    match = view.match(source.database, source.table, folds=folds)
    if match is None:
        return None
    if match.rule.only_admits:
        return ViewedTable.of(layout)
    found = view_of(view, layout, folds=folds)
    assert found is not None  # a rule matches
    _check_name(found.name, source)
    hidden = frozenset(range(len(source.columns))) - {column.source for column in found.columns}
    for place in hidden:
        if source.columns[place].name.lower() in HIDDEN_PERIOD:
            what = f"{source.full_name} is system-versioned, and the view leaves out {source.columns[place].name}"
            raise Fatal("MR-5206", what, fix=_ALL_OF_PERIOD, table=source.full_name)
    _check_octets(found, source)
    columns = list(source.columns)
    branches = list(layout.branches)
    constants = []
    for column in found.columns:
        if column.source < 0:
            assert column.value is not None  # an added column
            columns.append(column.column)
            branches.append(column_branches(column.column))
            constants.append(Constant.of(column.value))
            continue
        columns[column.source] = column.column
        if column.mask is not None:
            branches[column.source] = column_branches(column.column)
    table = replace(
        source,
        database=found.name[0],
        table=found.name[1],
        columns=tuple(columns),
        omitted=tuple(_omitted(match.rule, source)),
    )
    fields = tuple(escape_name(column.name) for column in columns)
    program = None
    if found.condition is not None or any(column.mask for column in found.columns):
        program = make_view_program(found, layout, keys)
    viewed = RowLayout(layout.set_name, table, fields, tuple(branches), hidden)
    return ViewedTable(source, viewed, program, tuple(constants), match.rule)


def _check_octets(found: TableView, source: TableSchema) -> None:
    """Fatal MR-5201 for a condition on what may be a UUID of MariaDB: the binlog has its bytes in another order."""
    for step in found.condition.steps if found.condition is not None else ():
        if step.op not in _OF_BYTES:
            continue
        column = source.columns[step.column]
        if column.type.may_be_uuid:
            found_ = f"{column.name} of 16 bytes, which may be a UUID"
            what = f"{source.full_name}: where: found {found_}, wanted another column"
            raise Fatal("MR-5201", what, table=source.full_name)


_OF_BYTES = frozenset((Op.COMPARE_OCTETS, Op.CRC_CELL, Op.NEVER_EQUAL))
_READING = frozenset(
    (
        *(Op.CELL, Op.CELL_UNSIGNED, Op.CRC_CELL, Op.COMPARE_DECIMAL, Op.COMPARE_OCTETS),
        *(Op.COMPARE_TEXT, Op.COMPARE_WEIGHTS, Op.COMPARE_LABEL, Op.NEVER_EQUAL, Op.IS_NULL_CELL),
    )
)


_ALL_OF_PERIOD = "A row that is deleted on the source is an update of its period's end, so the view needs both columns."


def _check_name(name: tuple[str, str], source: TableSchema) -> None:
    """Fatal MR-5206 for a name that no table of a target may have."""
    database, table = name
    why = ""
    if database.lower() in SYSTEM_DATABASES:
        why = f"{database} is a database of the system"
    elif not all(0 < len(part) <= NAME_CHARACTERS_MAX for part in name):
        why = f"a name has 1 to {NAME_CHARACTERS_MAX} characters"
    if why:
        what = f"the view names {source.full_name} {database}.{table}; {why}"
        raise Fatal("MR-5206", what, table=source.full_name)


def _omitted(rule: TableRule, source: TableSchema) -> Iterator[str]:
    """The names in the view of columns whose values the source does not log."""
    keep, drop = (set(map(str.lower, names)) for names in (rule.keep, rule.drop))
    renamed = {old.lower(): new for old, new in rule.rename}
    for name in source.omitted:
        folded = name.lower()
        if folded not in drop and (not keep or folded in keep):
            yield renamed.get(folded, name)


def visible_table(layout: RowLayout) -> TableSchema:
    """The table without its hidden columns: the structure of a record that has only what the view has."""
    places = [at for at in range(len(layout.table.columns)) if at not in layout.hidden]
    columns: tuple[Column, ...] = tuple(layout.table.columns[at] for at in places)
    key = tuple(places.index(at) for at in layout.table.primary_key)
    return replace(layout.table, columns=columns, primary_key=key)


def zigzag(number: int) -> bytes:
    """A number of 64 bits as Avro writes it."""
    found, left = bytearray(), number << 1 ^ number >> 63
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])
