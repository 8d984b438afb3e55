"""The tables of a load: which, how each is read, and what is wrong with it. Pure.

    read in chunks     a table with a chunk key; its rows are applied again in safe mode up to the load's end
    in one snapshot    a table that can not be: without a chunk key, or one that safe mode refuses, or whose values
                       depend on the session, where a row could replace another that the topic does not bring
                       back. Its GTID set is known, so that later rows are applied as always. The read starts over if
                       it is interrupted

Tables that are linked by a cascade are read in the same snapshot, if the source does not log the rows that a cascade
changes. If a parent is deleted after its children were read, and before it is read itself, its DELETE finds no row on
the target, and its children stay.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from millrace.consumer.tables.filter import Route, check_same_rows
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
from millrace.errors import Fatal
from millrace.schemas.documents import ApplyTask, CaptureTask, SetDocument, TableFilter
from millrace.schemas.view.view import View

DIFFERENCES_NAMED = 5
CASCADES = "it is linked by a cascade that the source does not log"
_WIDTH = re.compile(r"(?<=int)\(\d+\)|(?<=year)\(4\)")


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table to load. ``key``: its name on the target. ``why_snapshot``: "" if it is read in chunks.

    ``family``: the tables of its snapshot.
    """

    key: TableKey
    table: CatalogTable
    why_snapshot: str = ""
    family: tuple[TableKey, ...] = ()

    @property
    def name(self) -> str:
        """As ``database.table``, on the source."""
        return self.table.name

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
        check_same_rows(task, "a load")
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
    source: Inventory, target: Inventory, admission: Admission, *, logs_cascades: bool
) -> list[SourceTable]:
    """The admitted tables of the source, by their names on the target. Fatal MR-5095 for one that can't be read."""
    admits = admission.admits(source, target)
    found: dict[TableKey, CatalogTable] = {}
    for key, table in source.tables.items():
        if not admits(key):
            continue
        check_engine(".".join(key), table)
        if (other := found.setdefault(target.key(*key), table)) is not table:
            what = f"the target has one table for {other.name} and {table.name} of the source"
            raise Fatal("MR-5092", what, table=other.name)
    tables = [
        SourceTable(key, table, why_snapshot(table, target.tables.get(key), target))
        for key, table in sorted(found.items())
    ]
    return tables if logs_cascades else linked(tables, on_target(source.foreign_keys, target))


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
    links = [
        foreign
        for foreign in foreign_keys
        if foreign.cascades and {foreign.child, foreign.parent} <= by_key.keys()
    ]
    found = dict(by_key)
    for family in families(links):
        for key in family:
            table = by_key[key]
            found[key] = replace(table, why_snapshot=table.why_snapshot or CASCADES, family=family)
    return [found[table.key] for table in tables]


def why_snapshot(table: CatalogTable, there: CatalogTable | None, target: Inventory) -> str:
    """Why a table is read in one snapshot; "" if it is read in chunks. ``there``: that of the target, if it exists.

    See ``consumer.window.safe_mode`` for the tables that it refuses.
    """
    same = there or table
    if table.is_sequence:
        return ""
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
    return ""


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
    raise Fatal("MR-5092", f"{'.'.join(table.key)}: {named}", table=".".join(table.key))


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
    return [table for table in tables if table.key not in target.tables]
