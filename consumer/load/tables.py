"""The tables of a load: which, how each is read, and what is wrong with it. Pure.

    read in chunks     a table with a chunk key; its rows are applied again in safe mode up to the load's end
    in one snapshot    a table that can not be: without a chunk key, or one that safe mode refuses, or whose values
                       depend on the session, where a row could replace another that the topic does not bring
                       back. Its GTID set is known, so that later rows are applied as always. The read starts over if
                       it is interrupted

Tables that are linked by a cascade are read in the same snapshot, if the source does not log the rows that a cascade
changes. If a parent is deleted after its children were read, and before it is read itself, its DELETE finds no row on
the target, and its children stay. So are children that only refer to such a table: the target checks its DELETE, and
would refuse it for a child row of a later state.

Under a view that changes a table, states of loads still have the source's name; ``SourceTable.place`` is the table on
the target. That may have been there before, with wider or more columns: it is checked as for rows of the topic
(``consumer.tables.table_plan``). It is read in chunks only if each of its unique keys is one of the source, and if it
has no further column. Otherwise two rows of the source could have one key there, of which a REPLACE keeps the last.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from millrace.consumer.tables.filter import Route, check_not_merged
from millrace.consumer.tables.table_plan import plan_table, target_column
from millrace.consumer.view.layout import viewed_table
from millrace.consumer.view.mask_keys import MaskKeys
from millrace.consumer.view.program import view_of
from millrace.drivers.mysql.catalog import (
    CatalogColumn,
    CatalogTable,
    ForeignKey,
    Inventory,
    TableKey,
    UniqueKey,
)
from millrace.drivers.mysql.chunks.key import ChunkKey, chunk_key
from millrace.drivers.mysql.grants import as_grant_pattern
from millrace.drivers.mysql.table_schema import table_schema
from millrace.errors import Fatal
from millrace.schemas.documents import ApplyTask, CaptureTask, SetDocument, TableFilter
from millrace.schemas.record.row_layout import RowLayout
from millrace.schemas.table.structure import TableSchema
from millrace.schemas.view.table_view import TableView
from millrace.schemas.view.view import MaskKind, View, shown_name

DIFFERENCES_NAMED = 5
NO_COLLATIONS: Mapping[str, int] = MappingProxyType({})
CASCADES = "it is linked by a cascade that the source does not log"
_WIDTH = re.compile(r"(?<=int)\(\d+\)|(?<=year)\(4\)")


@dataclass(frozen=True, slots=True)
class Viewed:
    """A table under a view that changes it. ``schema``: of the source's table. ``view_of_task``: with the weights."""

    schema: TableSchema
    view: TableView
    view_of_task: View
    folds: bool

    @property
    def columns(self) -> dict[str, str]:
        """The unchanged values: their columns in the view by those of the source."""
        return {
            self.schema.columns[column.source].name: column.name
            for column in self.view.columns
            if column.source >= 0 and (column.mask is None or column.mask.kind is MaskKind.HMAC)
        }


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table to load. ``key``: the source's name, as the target writes names. ``why_snapshot``: "" if it is read in
    chunks.

    ``family``: the tables of its snapshot. ``viewed``: how a view changes it.
    """

    key: TableKey
    table: CatalogTable
    why_snapshot: str = ""
    family: tuple[TableKey, ...] = ()
    place: TableKey = ("", "")
    viewed: Viewed | None = None

    def __post_init__(self) -> None:
        if self.place == ("", ""):
            object.__setattr__(self, "place", self.key)

    @property
    def name(self) -> str:
        """As ``database.table``, on the source."""
        return self.table.name

    @property
    def shown(self) -> str:
        """The name on the target, for an operator; with the source's if a view changes the table."""
        name = ".".join(self.place)
        return shown_name(self.name, name) if self.viewed is not None else name

    @property
    def chunk_key(self) -> ChunkKey | None:
        """The key by which it is read in chunks; None if it is read in one snapshot."""
        return None if self.why_snapshot else chunk_key(self.table.columns, self.table.unique_keys)


@dataclass(frozen=True, slots=True)
class Admission:
    """A load's tables are those of both. ``captured`` has the heartbeat's table as ``hidden``."""

    captured: TableFilter
    applied: View

    @classmethod
    def of(cls, source: SetDocument, capture: CaptureTask, task: ApplyTask) -> "Admission":
        """Those of both tasks; ``source`` names the heartbeat's table. Fatal MR-4116."""
        check_not_merged(task.view, task.name)
        return cls(replace(capture.tables, hidden=source.heartbeat.table), task.view)

    @property
    def databases(self) -> tuple[str, ...]:
        """The databases that one of both names, as patterns of GRANT; none if both include all."""
        for patterns in (self.applied.patterns, self.captured.include):
            names = [pattern.partition(".")[0] for pattern in patterns]
            if "*" not in names:
                return tuple(dict.fromkeys(map(as_grant_pattern, names)))
        return ()

    def admits(self, source: Inventory, target: Inventory) -> Callable[[TableKey], bool]:
        """Whether the topic has a table of the source, and the task applies it."""
        captured = _lower(self.captured) if source.folds_names else self.captured
        route = Route(self.applied, target.folds_names)

        def is_admitted(key: TableKey) -> bool:
            return captured.admits(*source.key(*key)) and route.admits(*key)

        return is_admitted


def _lower(tables: TableFilter) -> TableFilter:
    include, exclude = (
        tuple(map(str.lower, patterns)) for patterns in (tables.include, tables.exclude)
    )
    return TableFilter(include, exclude, tables.hidden.lower())


def tables_to_load(
    source: Inventory,
    target: Inventory,
    admission: Admission,
    *,
    logs_cascades: bool,
    collations: Mapping[str, int] = NO_COLLATIONS,
) -> list[SourceTable]:
    """The admitted tables of the source, by their names on the target. Fatal MR-5095 for one that can't be read.

    ``collations``: the numbers of those of the source, for a view. Fatal MR-5092 or MR-5207 if two tables have one name
    on the target, MR-5092 or MR-5201 if a table can't be read under its view.
    """
    admits = admission.admits(source, target)
    found: dict[TableKey, SourceTable] = {}
    route = Route(admission.applied, target.folds_names)
    for key, table in source.tables.items():
        if not admits(key):
            continue
        check_engine(".".join(key), table)
        made = SourceTable(target.key(*key), table)
        if _is_changed(made, route, source.foreign_keys):
            made = _under_view(made, route, source, target, collations)
        if (other := found.setdefault(made.place, made)) is not made:
            if made.viewed is None and other.viewed is None:
                what = f"the target has one table for {other.name} and {table.name} of the source"
                raise Fatal("MR-5092", what, table=other.name)
            what = f"the view names {table.name} {'.'.join(made.place)}, as it names {other.name}"
            raise Fatal("MR-5207", what, table=table.name)
    tables = [
        replace(table, why_snapshot=why_snapshot(table, target))
        for table in sorted(found.values(), key=lambda table: table.key)
    ]
    return tables if logs_cascades else linked(tables, on_target(source.foreign_keys, target))


def _is_changed(table: SourceTable, route: Route, foreign_keys: Iterable[ForeignKey]) -> bool:
    """Whether a view changes the table, or a table that a foreign key of it refers to."""
    if route.only_chooses:
        return False
    kin = (foreign.parent for foreign in foreign_keys if foreign.child == table.table.key)
    is_plain = not (table.table.is_sequence or table.table.is_versioned)
    return any(
        route.view.changes(*key, folds=route.folds_names)
        for key in (table.table.key, *(kin if is_plain else ()))
    )


def _under_view(
    table: SourceTable,
    route: Route,
    source: Inventory,
    target: Inventory,
    collations: Mapping[str, int],
) -> SourceTable:
    """The table under the rule that changes it."""
    name = table.name
    if table.table.is_sequence or table.table.is_versioned:
        kind = "a sequence" if table.table.is_sequence else "system-versioned"
        fix = f"Load it by an operator's SQL, or let a rule before the others take {name} as it is."
        raise Fatal("MR-5092", f"{name} is {kind}, and the view changes it", fix=fix, table=name)
    schema = table_schema(table.table, source.flavour, collations)
    view = view_of(route.view, RowLayout.of("", schema), folds=route.folds_names)
    assert view is not None  # it is admitted
    viewed = Viewed(schema, view, route.view, route.folds_names)
    return replace(table, place=target.key(*view.name), viewed=viewed)


def check_viewed(table: SourceTable, target: Inventory) -> None:
    """Fatal MR-5013, MR-5015, MR-5092, MR-5206, … if the target's table does not take the rows of the view."""
    assert table.viewed is not None  # a view changes it
    viewed, there = table.viewed, target.tables[table.place]
    layout = RowLayout.of("", viewed.schema)
    made = viewed_table(
        viewed.view_of_task, layout, folds=viewed.folds, keys=MaskKeys(is_read=False)
    )
    assert made is not None  # it is in the view
    plan = plan_table(made, target)
    if there.is_versioned or plan.period:
        what = f"{table.shown} is system-versioned only on the target"
        raise Fatal("MR-5092", what, table=table.shown)
    if plan.verified:
        names = ", ".join(column.name for _, column in plan.verified)
        what = f"{table.shown}: the target stores values of {names} that depend on the session"
        raise Fatal("MR-5092", what, table=table.shown)


def check_engine(name: str, table: CatalogTable) -> None:
    """Fatal MR-5095 for a table of the source that can't be read; ``name``: for the operator."""
    if not table.takes_rows:
        raise Fatal("MR-5095", f"{name} has the engine {table.engine}", table=name)


def on_target(foreign_keys: Iterable[ForeignKey], target: Inventory) -> list[ForeignKey]:
    """Foreign keys of the source with the names that the target has for their tables."""
    return [
        replace(foreign, child=target.key(*foreign.child), parent=target.key(*foreign.parent))
        for foreign in foreign_keys
    ]


def linked(tables: Sequence[SourceTable], foreign_keys: Iterable[ForeignKey]) -> list[SourceTable]:
    """The tables with what cascades between them require; see the module."""
    by_key = {table.key: table for table in tables}
    inside = [one for one in foreign_keys if {one.child, one.parent} <= by_key.keys()]
    deleting = _deleting(inside)
    links = [foreign for foreign in inside if foreign.cascades or foreign.parent in deleting]
    found = dict(by_key)
    for family in families(links):
        for key in family:
            table = by_key[key]
            found[key] = replace(table, why_snapshot=table.why_snapshot or CASCADES, family=family)
    return [found[table.key] for table in tables]


def _deleting(foreign_keys: Collection[ForeignKey]) -> set[TableKey]:
    """The tables whose deletions are checked on the target: a cascade begins there, or reaches them."""
    links = [foreign for foreign in foreign_keys if foreign.cascades]
    return {key for foreign in links for key in (foreign.parent, foreign.child)}


def why_snapshot(source: SourceTable, target: Inventory) -> str:
    """Why a table is read in one snapshot; "" if it is read in chunks.

    See ``consumer.window.safe_mode`` for the tables that it refuses.
    """
    table, there = source.table, target.tables.get(source.place)
    if table.is_sequence:
        return ""
    same = there or table
    if there is None and source.viewed is not None:
        same = _as_viewed(table, source.viewed)
    if chunk_key(table.columns, table.unique_keys) is None or not any(
        map(_identifies(same), same.unique_keys)
    ):
        return "it has no usable key"
    if table.is_versioned or same.is_versioned:
        return "it keeps its history"
    if any(key.has_period for key in same.unique_keys):
        return "it has a key WITHOUT OVERLAPS"
    if any(key.by_session for key in same.unique_keys):
        return "it has a unique key whose values depend on the session"
    if any(column.by_session and column.is_stored for column in same.columns.values()):
        return "it stores generated values that depend on the session"
    if there is not None and target.triggers.get(there.key):
        return "it has triggers on the target"
    if source.viewed is not None:
        return _why_hidden(source, source.viewed) or _why_apart(source, source.viewed, there)
    return ""


def _why_hidden(source: SourceTable, viewed: Viewed) -> str:
    """Why the borders of chunks can't be stored on the target; "" if they can."""
    key = chunk_key(source.table.columns, source.table.unique_keys)
    shown = viewed.columns
    names = [] if key is None else key.names
    if all(name in shown and not _is_masked(viewed, name) for name in names):
        return ""
    return "the view masks or leaves out a column of its key"


def _as_viewed(table: CatalogTable, viewed: Viewed) -> CatalogTable:
    """The table with the columns and unique keys that the load creates."""
    names = viewed.columns
    keys = (
        replace(key, columns=tuple(names[name] for name in key.columns))
        for key in table.unique_keys
        if all(name in names for name in key.columns)
    )
    columns = {names[name]: column for name, column in table.columns.items() if name in names}
    return replace(table, columns=columns, unique_keys=tuple(keys))


def _why_apart(source: SourceTable, viewed: Viewed, there: CatalogTable | None) -> str:
    """Why rows of the target's table can't be replaced by others of its view; "" if they can."""
    if there is None:  # it gets the source's keys
        return ""
    names = {column.name.lower() for column in viewed.view.columns}
    own = [
        column.name
        for column in there.columns.values()
        if not column.generated and column.name.lower() not in names
    ]
    if own:
        return f"only the target has the column {own[0]}"
    for key in there.unique_keys:
        if not any(
            _implies(each, key, source.table, there, viewed) for each in source.table.unique_keys
        ):
            return f"only the target has the unique key {key.name}"
    return ""


def _implies(
    key: UniqueKey, other: UniqueKey, table: CatalogTable, there: CatalogTable, viewed: Viewed
) -> bool:
    """Whether rows that differ in a key of the source differ in that key of the target, too."""
    if not (key.is_whole and other.is_whole) or key.has_period:
        return False
    names = viewed.columns
    wanted = {name.lower() for name in other.columns}
    return all(
        name in names
        and names[name].lower() in wanted
        and (column := target_column(there, names[name])) is not None
        and _distinguishes(column, table.columns[name], is_masked=_is_masked(viewed, name))
        for name in key.columns
    )


def _is_masked(viewed: Viewed, name: str) -> bool:
    return any(
        column.mask is not None and viewed.schema.columns[column.source].name == name
        for column in viewed.view.columns
        if column.source >= 0
    )


def _distinguishes(column: CatalogColumn, source: CatalogColumn, *, is_masked: bool) -> bool:
    """Whether the target's column calls no two values equal that the source's calls different."""
    if is_masked:  # 64 hex digits, of which no collation calls two equal
        return True
    bases = {column.base_type, source.base_type}
    is_alike = len(bases) == 1 or bases <= _INTEGERS
    return is_alike and column.collation == source.collation


_INTEGERS = {"tinyint", "smallint", "mediumint", "int", "bigint"}


def _identifies(table: CatalogTable) -> Callable[[UniqueKey], bool]:
    """Whether a key names one row."""

    def identifies(key: UniqueKey) -> bool:
        columns = [table.columns.get(name) for name in key.columns]
        return (
            key.is_whole
            and not key.has_period
            and all(column is not None and not column.nullable for column in columns)
        )

    return identifies


def families(foreign_keys: Iterable[ForeignKey]) -> list[tuple[TableKey, ...]]:
    """The sets of tables that these foreign keys link, each sorted."""
    found: dict[TableKey, set[TableKey]] = {}
    for foreign in foreign_keys:
        both = (foreign.child, foreign.parent)
        joined = set(both).union(*(found.get(key, set()) for key in both))
        found |= dict.fromkeys(joined, joined)
    return sorted({tuple(sorted(members)) for members in found.values()})


def with_linked(
    keys: Collection[TableKey], foreign_keys: Iterable[ForeignKey]
) -> frozenset[TableKey]:
    """These tables and all that foreign keys of any kind link with them, directly or not.

    A later load has them all: otherwise rows would come before the rows that they refer to.
    """
    return frozenset(keys).union(
        *(f for f in families(foreign_keys) if not set(f).isdisjoint(keys))
    )


def groups(tables: Sequence[SourceTable]) -> list[tuple[SourceTable, ...]]:
    """The tables that are read together: a table alone, or those of one snapshot."""
    by_key = {table.key: table for table in tables}
    found: list[tuple[SourceTable, ...]] = []
    taken: set[TableKey] = set()
    for table in tables:
        if table.key not in taken:
            family = sorted(set(table.family) & by_key.keys()) or [table.key]
            members = tuple(by_key[key] for key in family)
            taken.update(member.key for member in members)
            found.append(members)
    return found


def check_same(table: SourceTable, there: CatalogTable, *, is_same_flavour: bool) -> None:
    """Fatal MR-5092 with the differences if the target's table has another structure."""
    found = differences(table.table, there, is_same_flavour=is_same_flavour)
    if not found:
        return
    more = len(found) - DIFFERENCES_NAMED
    named = "; ".join([*found[:DIFFERENCES_NAMED], *([f"and {more} more"] if more > 0 else [])])
    raise Fatal("MR-5092", f"{table.shown}: {named}", table=table.shown)


def differences(
    source: CatalogTable, target: CatalogTable, *, is_same_flavour: bool = True
) -> list[str]:
    """The differences of two tables, for the operator. Types of two flavours are not compared."""
    found = []
    for name in dict.fromkeys((*source.columns, *target.columns)):
        here, there = source.columns.get(name), target.columns.get(name)
        if here is None or there is None:
            found.append(f"only the {'target' if here is None else 'source'} has column {name}")
        elif is_same_flavour and _type(_plain(here, there)) != _type(there):
            found.append(f"column {name} is {_shown(here)}, on the target {_shown(there)}")
    for what, one, other in (
        ("source", source.unique_keys, target.unique_keys),
        ("target", target.unique_keys, source.unique_keys),
    ):
        found += [
            f"only the {what} has the unique key ({', '.join(key.columns)})"
            for key in one
            if not (key.by_session and what == "source")  # which may be dropped on the target
            and _parts(key) not in [_parts(known) for known in other]
        ]
    if (source.is_sequence, source.is_versioned) != (target.is_sequence, target.is_versioned):
        found.append("one is a sequence or system-versioned, the other is not")
    if not target.takes_rows:
        found.append(f"its engine on the target is {target.engine}")
    return found


def _parts(key: UniqueKey) -> tuple[frozenset[str], tuple[int, ...], bool]:
    return frozenset(key.columns), tuple(sorted(key.lengths)), key.has_period


def _plain(column: CatalogColumn, other: CatalogColumn) -> CatalogColumn:
    """The source's column; not generated if the target may have the source's values only in a plain column."""
    if column.by_session and column.is_stored and not other.generated:
        return replace(column, generated=False)
    return column


def _type(column: CatalogColumn) -> tuple[object, ...]:
    text = _WIDTH.sub("", column.type_text)
    return text, column.collation, column.nullable, column.generated


def _shown(column: CatalogColumn) -> str:
    text = f"{column.type_text} {column.collation}".strip()
    null = "" if column.nullable else " NOT NULL"
    return text + null + (" (generated)" if column.generated else "")


def missing_on(target: Inventory, tables: Collection[SourceTable]) -> list[SourceTable]:
    """Those that the target does not have."""
    return [table for table in tables if table.place not in target.tables]
