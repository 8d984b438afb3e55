"""Several tables of the source in one table of the target: how their rows differ, and what is refused.

    source           target      PRIMARY KEY (shard, id)
    shop_1.orders    w.orders    ('1', 7)
    shop_2.orders                ('2', 7)

Each unique key of the target must have an added column whose constants differ, as the target compares them, from those
of each other source of the table. Then no two sources have a row with an equal key, so no change of one source can be
refused by, or meet, a row of another one. Everything that could still join them is refused (MR-5208):

    a table without an identity        equal rows of two sources would be one row
    a prefix or an expression          of a key does not have the whole constant
    a foreign key that cascades        it changes rows that its table's source did not change
    a sequence, system versioning      their state is one for all sources

Two sources whose rules do not both say ``merge`` are MR-5207. Apart: no plan of one table can compare constants.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from millrace.consumer.tables.causality_keys import constant_hash
from millrace.consumer.tables.table_plan import TablePlan, target_column
from millrace.consumer.view.layout import Constant, ViewedTable
from millrace.drivers.mysql.catalog import CatalogTable, Inventory, TableKey, UniqueKey
from millrace.drivers.mysql.collation import Codes
from millrace.errors import Fatal
from millrace.schemas.sql.quoting import characters, charset_name, quoted
from millrace.schemas.table.structure import Column
from millrace.schemas.view.view import places_of, star_count


@dataclass(frozen=True, slots=True)
class Source:
    """One table of the source by its name, with the constants of its added columns.

    ``merges``: its rule says so. ``of``: the other task that has it.
    """

    name: TableKey
    constants: Mapping[str, Constant]
    merges: bool = True
    of: str = ""

    @property
    def shown(self) -> str:
        """For an operator."""
        return ".".join(self.name) + (f" (task {self.of})" if self.of else "")


@dataclass(slots=True)
class ConstantMarks:
    """How the target compares constants. ``folds``: those of the inventory."""

    inventory: Inventory
    folds: Codes
    _known: dict[tuple[object, ...], int | None] = field(default_factory=dict)

    def of(self, plan: TablePlan, name: str, constant: Constant) -> int | None:
        """Equal for constants that this column of the target calls equal. None: it is not comparable."""
        source, target = _column(plan, name), target_column(plan.target, name)
        if source is None or target is None:
            return None
        place = (target, source.type, constant)
        if place not in self._known:
            found = constant_hash((source, target), constant, self.inventory, self.folds)
            self._known[place] = found
        return self._known[place]

    def of_identity(self, plan: TablePlan, viewed: ViewedTable) -> Mapping[str, int]:
        """The same for all constants in the identity of the rows, by column; only comparable ones."""
        names = {plan.layout.table.columns[at].name.lower() for at in plan.identity}
        marks = (
            (name, self.of(plan, name, constant))
            for name, constant in viewed.added.items()
            if name in names
        )
        return {name: mark for name, mark in marks if mark is not None}


def check_merged(
    plan: TablePlan, viewed: ViewedTable, others: Iterable[Source], marks: ConstantMarks
) -> None:
    """Fatal MR-5208 if a change of one of these sources could meet a row of another one."""
    if (why := _whole_table(plan, marks.inventory)) is not None:
        raise _refused(viewed, why)
    parted = {key.name: _parting(key, viewed) for key in plan.target.unique_keys}
    for key, names in parted.items():
        if not names:
            raise _refused(
                viewed,
                f"the unique key {key} of the target has no added column that differs between tables",
            )
    for other in others:
        for key, names in parted.items():
            if not any(_differs(plan, name, viewed, other, marks) for name in names):
                shown = ", ".join(f"{name} {viewed.added[name].value!r}" for name in names)
                raise _refused(
                    viewed,
                    f"its rows and those of {other.shown} are not apart in the unique key {key} of the"
                    f" target: both may have {shown}",
                )


def _whole_table(plan: TablePlan, inventory: Inventory) -> str | None:
    target = plan.target
    if target.is_sequence:
        return "the target's is a sequence"
    if target.is_versioned or plan.period:
        return "the target keeps its history (system versioning)"
    if not plan.identity:
        return "the target has no key that identifies a row"
    for foreign in inventory.foreign_keys:
        if target.key in (foreign.child, foreign.parent) and foreign.cascades:
            return f"the foreign key of {'.'.join(foreign.child)} on the target cascades"
    return None


def _parting(key: UniqueKey, viewed: ViewedTable) -> list[str]:
    """The added columns that are wholly in the key; none if the rule gives all tables that it matches the same ones."""
    lengths = key.lengths or (0,) * len(key.columns)
    whole = {name.lower() for name, length in zip(key.columns, lengths, strict=True) if not length}
    assert viewed.rule is not None  # it merges
    placed = {
        name.lower()
        for name, value in viewed.rule.add
        if not star_count(viewed.rule.source) or (isinstance(value, str) and places_of(value))
    }
    return [name for name in viewed.added if name in whole] if whole & placed else []


def _differs(
    plan: TablePlan, name: str, viewed: ViewedTable, other: Source, marks: ConstantMarks
) -> bool:
    theirs = other.constants.get(name)
    if theirs is None:
        return False
    pair = (marks.of(plan, name, viewed.added[name]), marks.of(plan, name, theirs))
    return None not in pair and pair[0] != pair[1]


def _column(plan: TablePlan, name: str) -> Column | None:
    columns = plan.layout.table.columns
    return next((column for column in reversed(columns) if column.name.lower() == name), None)


def _refused(viewed: ViewedTable, why: str) -> Fatal:
    name = viewed.shown
    return Fatal("MR-5208", f"{name}: {why}", table=name)


def rows_condition(target: CatalogTable, constants: Mapping[str, str | int]) -> str | None:
    """The condition of the rows that have these constants, as SQL; None if a column can't have them.

    Equal bytes, also where a collation calls more texts equal, but an index finds them. A column may lose spaces at the
    end of a text, so a constant that ends with one has no condition: it could be that of another source.
    """
    found = []
    for name, value in sorted(constants.items()):
        column = target_column(target, name)
        if column is None:
            return None
        at = quoted(column.name).decode()
        if isinstance(value, int) and column.base_type in _INTEGERS:
            found.append(f"{at} = {value}")
        elif isinstance(value, str) and value.endswith(" "):
            return None
        elif isinstance(value, str) and column.base_type in _TEXTS and column.charset:
            charset, collation = (charset_name(one) for one in (column.charset, column.collation))
            octets = characters(value.encode().hex(), "utf8mb4")
            found.append(f"{at} = CONVERT({octets} USING {charset}) COLLATE {collation}")
            trimmed = f"TRIM(TRAILING ' ' FROM CONVERT({at} USING utf8mb4))"
            found.append(f"CAST({trimmed} AS BINARY) = CAST({octets} AS BINARY)")
        else:
            return None
    return " AND ".join(found) or None


_INTEGERS = {"tinyint", "smallint", "mediumint", "int", "bigint"}
_TEXTS = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext"}
