"""Which tables are compared: the pairs, and what differs before a row is read.

A database is compared if the source has it or if the task has applied rows there. So databases of others on the target
are ignored, and a database that remains after a lost DROP DATABASE is found.

Tables are looked at like rows: on the source, on the target after the task has applied what the source had, and on the
source again. A table that the source has created, altered or dropped in between is no difference, nor is one that a
load copies now. The same holds for their definitions.

Under a view that changes a table, the target's table is the one that the view names, and the definitions are not
compared: only that it has the view's columns. A table of the target that the view may name is no difference without
rows of the task in it.

A server hides tables that the account may not read. If only one side shows a table, the other side is asked for it. Its
refusal is raised, before the table counts as a difference.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from millrace.consumer.compare.result import Comparison
from millrace.consumer.compare.sides import Sides
from millrace.consumer.compare.structure import (
    Change,
    Definitions,
    changes_of_databases,
    differences,
    read_definitions,
)
from millrace.consumer.compare.table import (
    Pair,
    pair_of,
    shared_columns,
    viewed_pair,
)
from millrace.consumer.compare.viewed import ViewedRows, viewed_rows
from millrace.consumer.records.row_schemas import layout_of
from millrace.consumer.tables.filter import Route
from millrace.consumer.target.progress import read_schemas
from millrace.consumer.target.stored_view import read_view
from millrace.consumer.target.streams import tables_in_loads
from millrace.drivers.mysql.catalog import (
    CatalogTable,
    Inventory,
    TableKey,
    read_collations,
    read_inventory,
)
from millrace.drivers.mysql.connection import MySqlSession, text_of
from millrace.drivers.mysql.grants import Role, as_grant_pattern, held_grants, needed_grants
from millrace.drivers.mysql.table_schema import table_schema
from millrace.errors import Fatal
from millrace.schemas.documents import ApplyTask, CaptureTask, SetDocument
from millrace.schemas.gtid import Flavour
from millrace.schemas.sql.quoting import table_name
from millrace.schemas.view.collation import CollationWeights
from millrace.schemas.view.table_view import RuleProblem
from millrace.schemas.view.view import ALL_TABLES, View, shown_name

WHOLE_TABLE = "(the whole table)"
WHOLE_VIEW = "(the whole table of the view)"
ALTERED = "it was altered meanwhile"
LOADED = "a load copies it now"
NO_COLUMN = "(no column that both sides have)"

Admits = Callable[[str, str], bool]
T = TypeVar("T")


def admitted(source: SetDocument, capture: CaptureTask, task: ApplyTask) -> Admits:
    """Whether both tasks have a table of the source set; not the heartbeat's, unless a pattern names it.

    Without the case of names, as on some targets: ``pairs`` gets the view, too, and compares as the target does.
    """
    captured = replace(capture.tables, hidden=source.heartbeat.table)
    return lambda *key: captured.admits(*key) and task.view.admits(*key, folds=True)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The tables that one server shows at one time. ``definitions`` is empty if they are not compared."""

    inventory: Inventory
    definitions: Definitions


def pairs(
    sides: Sides,
    admits: Admits,
    task: str,
    found: Comparison,
    *,
    with_structure: bool = True,
    view: View = ALL_TABLES,
) -> list[Pair]:
    """All pairs to compare, in the order of their names. Notes missing and extra tables, and other definitions.

    ``view``: that of the task. Fatal MR-5007 if an account may not read a table that the other side has, MR-5207 if the
    view names two tables alike.
    """
    earlier = _seen_on_source(sides, admits, with_structure=with_structure)
    databases = _databases(sides.source)
    collations = read_collations(sides.source) if view.as_filter is None else {}
    # asked after the read, which may have seen newer tables than its snapshot
    with sides.on_target(sides.newest()):
        inventory = read_inventory(sides.target, with_folds=False)
        written = _written(sides.target, task) if task else set()
        loaded = tables_in_loads(sides.target, sides.ends.task) if sides.ends.task else frozenset()
        weighed = replace(view, collations=_weights(sides.target, task, view))
        route = Route(weighed, inventory.folds_names)
        plan = _Plan(route, inventory, admits, sides.source.flavour, collations)
        named = {inventory.key(*key)[0] for key in earlier.inventory.tables if plan.is_plain(*key)}
        target = _seen(sides, sides.target, inventory, named if with_structure else ())
    with sides.on_source(sides.newest()):
        later = _seen_on_source(sides, admits, with_structure=with_structure)
    before, here = (_by_target_name(source.inventory, plan, found) for source in (earlier, later))
    # tables with rows of the task under a view, by their names on the target
    applied = {plan.place(*key): key for key in written if plan.changes(*key) and plan.takes(*key)}
    there = {
        key: table
        for key, table in inventory.tables.items()
        if key in here or key in before or key in applied or plan.is_plain(*key)
    }
    databases |= {name for name, _ in written}
    databases = {inventory.key(name, "")[0] for name in databases} | {key[0] for key in applied}
    flavours = {sides.source.flavour, sides.target.flavour}
    both = []
    for key in sorted(here.keys() | {key for key in there if key[0] in databases}):
        source = here.get(key)
        origin = source.key if source is not None else applied.get(key)
        if origin is not None and plan.changes(*origin):
            name = shown_name(".".join(origin), ".".join(key))
            if source is not None and key in there:
                found.tables += 1
                if before.get(key) != source:
                    found.leave_out(name, ALTERED)
                elif viewed := _viewed(source, there[key], plan, found):
                    _note_columns(viewed, there[key], found, with_structure=with_structure)
                    state = inventory.key(*origin)
                    both.append(viewed_pair(viewed, there[key], state=state, flavours=flavours))
            elif inventory.key(*origin) in loaded:
                found.leave_out(name, LOADED)
            elif (key in before) == (key in here):
                _refuse_hidden(*((sides.source, origin) if key in there else (sides.target, key)))
                found.note(name, "extra" if key in there else "missing", [WHOLE_VIEW])
        elif source is not None and key in there:
            found.tables += 1
            if not _is_settled(before.get(key), source, there[key]):
                found.leave_out(source.name, ALTERED)
            elif not shared_columns(source, there[key]):
                found.note(source.name, "different", [NO_COLUMN])
            else:
                both.append(pair_of(source, there[key], flavours=flavours))
            if with_structure and key not in loaded:
                _compare_definitions((earlier, target, later), source, key, found)
        elif key in loaded:
            found.leave_out(".".join(key), LOADED)
        elif (key in before) == (key in here):
            _refuse_hidden(sides.target if key in here else sides.source, key)
            what = "extra" if key in there else "missing"
            found.note(".".join(key), what, [WHOLE_TABLE])
    if with_structure:
        _compare_databases((earlier, target, later), plan.is_plain, found)
    sides.rollback()
    return both


@dataclass(frozen=True, slots=True)
class _Plan:
    """Which tables are compared under which names. ``route``: of the task's view, with the weights of the source.

    ``flavour``, ``collations``: of the source.
    """

    route: Route
    inventory: Inventory
    admits: Admits
    flavour: Flavour
    collations: Mapping[str, int]

    @property
    def changes_some(self) -> bool:
        """Whether the view changes names, rows or columns of any table."""
        return not self.route.only_chooses

    def changes(self, database: str, table: str) -> bool:
        """Whether the view changes this table of the source."""
        route = self.route
        return self.changes_some and route.view.changes(database, table, folds=route.folds_names)

    def takes(self, database: str, table: str) -> bool:
        """Whether the table is compared."""
        return self.admits(database, table) and self.route.chooses(database, table)

    def is_plain(self, database: str, table: str) -> bool:
        """Whether both sides have the table as it is."""
        return self.takes(database, table) and not self.changes(database, table)

    def place(self, database: str, table: str) -> TableKey:
        """The table on the target."""
        name = self.route.target_of(database, table) if self.changes_some else None
        return self.inventory.key(*(name or (database, table)))


def _viewed(
    source: CatalogTable, target: CatalogTable, plan: _Plan, found: Comparison
) -> ViewedRows | None:
    """The rows of the view; None if it does not fit the table, or no column can be compared, which is noted."""
    name, route = shown_name(source.name, target.name), plan.route
    schema = table_schema(source, plan.flavour, plan.collations)
    try:
        viewed = viewed_rows(source, schema, target, route.view, folds=route.folds_names)
    except RuleProblem as problem:
        found.leave_out(name, f"the view does not fit: {problem}")
        return None
    if not shared_columns(viewed.table, target):
        found.note(name, "different", [NO_COLUMN])
        return None
    return viewed


def _note_columns(
    viewed: ViewedRows, target: CatalogTable, found: Comparison, *, with_structure: bool
) -> None:
    """Note the columns of the view that are not compared."""
    name = shown_name(viewed.table.name, target.name)
    there = {each.lower() for each in target.columns}
    missing = [each for each in viewed.table.columns if each.lower() not in there]
    if with_structure:
        found.structure += [
            Change(name, f"column {each}", "a column of the view", "") for each in missing
        ]
    unread = (*viewed.unread, *(f"{each} (not on the target)" for each in missing))
    if unread:
        found.unread[name] = unread


def _seen_on_source(sides: Sides, admits: Admits, *, with_structure: bool) -> _Seen:
    inventory = read_inventory(sides.source, with_folds=False)
    databases = {key[0] for key in inventory.tables if with_structure and admits(*key)}
    return _seen(sides, sides.source, inventory, databases)


def _seen(
    sides: Sides, session: MySqlSession, inventory: Inventory, databases: Collection[str]
) -> _Seen:
    is_mixed = sides.source.flavour is not sides.target.flavour
    read = read_definitions(session, inventory, databases, is_mixed=is_mixed)
    return _Seen(inventory, read)


def _by_target_name(
    source: Inventory, plan: _Plan, found: Comparison
) -> dict[TableKey, CatalogTable]:
    """The admitted tables by their names on the target. Fatal MR-5207 if the view gives two tables one name."""
    named: dict[TableKey, CatalogTable] = {}
    for key, table in source.tables.items():
        if not plan.takes(*key):
            continue
        place = plan.place(*key)
        other = named.setdefault(place, table)
        if other is not table and (plan.changes(*key) or plan.changes(*other.key)):
            what = f"the view names {table.name} {'.'.join(place)}, as it names {other.name}"
            raise Fatal("MR-5207", what, table=table.name)
        if other is not table:
            found.note_once(".".join(key), "missing", "(the target has one table for two)")
    return named


def _is_settled(before: CatalogTable | None, source: CatalogTable, target: CatalogTable) -> bool:
    """Whether rows can be compared: columns that only one side has are no trace of a statement under way."""
    if source.columns.keys() == target.columns.keys():
        return True
    return before is not None and before.columns.keys() == source.columns.keys()


def _compare_definitions(
    seen: tuple[_Seen, _Seen, _Seen], source: CatalogTable, key: TableKey, found: Comparison
) -> None:
    """Note how the definitions of a table differ, unless the source altered it meanwhile."""
    before, there, here = (
        each.definitions.tables.get(at, {})
        for each, at in zip(seen, (source.key, key, source.key), strict=True)
    )
    target = seen[1].inventory.tables[key]
    changes = [
        Change(source.name, *change)
        for change in differences(here, there, shared_columns(source, target))
    ]
    if changes and before != here:
        found.leave_out(source.name, ALTERED)
        return
    found.structure += changes


def _compare_databases(seen: tuple[_Seen, _Seen, _Seen], admits: Admits, found: Comparison) -> None:
    """Note how databases and what else is in them differ, as far as the source did not change them meanwhile."""
    before, there, here = (each.definitions for each in seen)
    fold = seen[1].inventory.key
    changes = changes_of_databases(here, there, lambda name: fold(name, "")[0], admits)
    stable = changes_of_databases(before, there, lambda name: fold(name, "")[0], admits)
    found.structure += [change for change in changes if change in stable]


def _refuse_hidden(session: MySqlSession, key: TableKey) -> None:
    """Fatal MR-5007 with the GRANT if the account may not read the table. Returns if the table does not exist."""
    try:
        session.query(f"SELECT 1 FROM {table_name(*key).decode()} LIMIT 0")
    except Fatal as exc:
        if exc.code == "MR-5012":
            return
        if exc.code != "MR-5007":
            raise
        needed = needed_grants(Role.COMPARE, session.flavour, (as_grant_pattern(key[0]),))
        raise Fatal(
            exc.code,
            f"{session.name}: {exc.message}",
            fix=f"{held_grants(session).missing(needed).fix} (A comparison reads every row of both sides.)",
            **exc.context,
        ) from exc


def _databases(session: MySqlSession) -> set[str]:
    names = session.query("SELECT SCHEMA_NAME FROM information_schema.SCHEMATA")
    return {text_of(name) for (name,) in names}


def _weights(session: MySqlSession, task: str, view: View) -> tuple[CollationWeights, ...]:
    """How the source weighs the literals of the view's conditions, as the task has asked."""
    if not task or view.as_filter is not None:
        return ()
    stored = _stored(read_view, session, task)
    return stored.weights if stored is not None else ()


def _written(session: MySqlSession, task: str) -> set[TableKey]:
    """The tables of all row schemas that the task has stored; empty before its first start."""
    schemas = _stored(read_schemas, session, task)
    texts = schemas.texts.values() if schemas is not None else ()
    tables = (layout_of(text).table for text in texts)
    return {(table.database, table.table) for table in tables}


def _stored(read: Callable[[MySqlSession, str], T], session: MySqlSession, task: str) -> T | None:
    """The answer of ``read``; None before any task has run on the target."""
    try:
        return read(session, task)
    except Fatal as exc:
        if exc.code != "MR-5012":
            raise
        return None
