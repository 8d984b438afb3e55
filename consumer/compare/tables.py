"""Which tables are compared: the pairs, and what differs before a row is read.

A database is compared if the source has it or if the task has applied rows there. So databases of others on the target
are ignored, and a database that remains after a lost DROP DATABASE is found.

Tables are looked at like rows: on the source, on the target after the task has applied what the source had, and on the
source again. A table that the source has created, altered or dropped in between is no difference, nor is one that a
load copies now. The same holds for their definitions.

A server hides tables that the account may not read. If only one side shows a table, the other side is asked for it. Its
refusal is raised, before the table counts as a difference.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from millrace.consumer.compare.result import Comparison
from millrace.consumer.compare.sides import Sides
from millrace.consumer.compare.structure import (
    Change,
    Definitions,
    changes_of_databases,
    differences,
    read_definitions,
)
from millrace.consumer.compare.table import Pair, pair_of, shared_columns
from millrace.consumer.records.row_schemas import layout_of
from millrace.consumer.tables.filter import check_same_rows
from millrace.consumer.target.progress import read_schemas
from millrace.consumer.target.streams import tables_in_loads
from millrace.drivers.mysql.catalog import CatalogTable, Inventory, TableKey, read_inventory
from millrace.drivers.mysql.connection import MySqlSession, text_of
from millrace.drivers.mysql.grants import Role, as_grant_pattern, held_grants, needed_grants
from millrace.errors import Fatal
from millrace.schemas.documents import ApplyTask, CaptureTask, SetDocument
from millrace.schemas.sql.quoting import table_name

WHOLE_TABLE = "(the whole table)"
ALTERED = "it was altered meanwhile"
LOADED = "a load copies it now"
NO_COLUMN = "(no column that both sides have)"

Admits = Callable[[str, str], bool]


def admitted(source: SetDocument, capture: CaptureTask, task: ApplyTask) -> Admits:
    """Whether both tasks have a table of the source set; not the heartbeat's, unless a pattern names it."""
    check_same_rows(task, "a comparison")
    captured = replace(capture.tables, hidden=source.heartbeat.table)
    return lambda *key: captured.admits(*key) and task.view.admits(*key)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The tables that one server shows at one time. ``definitions`` is empty if they are not compared."""

    inventory: Inventory
    definitions: Definitions


def pairs(
    sides: Sides, admits: Admits, task: str, found: Comparison, *, with_structure: bool = True
) -> list[Pair]:
    """All pairs to compare, in the order of their names. Notes missing and extra tables, and other definitions.

    Fatal MR-5007 if an account may not read a table that the other side has.
    """
    earlier = _seen_on_source(sides, admits, with_structure=with_structure)
    databases = _databases(sides.source)
    # asked after the read, which may have seen newer tables than its snapshot
    with sides.on_target(sides.newest()):
        inventory = read_inventory(sides.target, with_folds=False)
        databases |= _written(sides.target, task) if task else set()
        loaded = tables_in_loads(sides.target, sides.ends.task) if sides.ends.task else frozenset()
        named = {inventory.key(*key)[0] for key in earlier.inventory.tables if admits(*key)}
        target = _seen(sides, sides.target, inventory, named if with_structure else ())
    with sides.on_source(sides.newest()):
        later = _seen_on_source(sides, admits, with_structure=with_structure)
    before, here = (
        _by_target_name(source.inventory, inventory, admits, found) for source in (earlier, later)
    )
    there = {k: t for k, t in inventory.tables.items() if k in here or k in before or admits(*k)}
    databases = {inventory.key(name, "")[0] for name in databases}
    flavours = {sides.source.flavour, sides.target.flavour}
    both = []
    for key in sorted(here.keys() | {key for key in there if key[0] in databases}):
        if key in here and key in there:
            found.tables += 1
            if not _is_settled(before.get(key), here[key], there[key]):
                found.leave_out(here[key].name, ALTERED)
            elif not shared_columns(here[key], there[key]):
                found.note(here[key].name, "different", [NO_COLUMN])
            else:
                both.append(pair_of(here[key], there[key], flavours=flavours))
            if with_structure and key not in loaded:
                _compare_definitions((earlier, target, later), here[key], key, found)
        elif key in loaded:
            found.leave_out(".".join(key), LOADED)
        elif (key in before) == (key in here):
            _refuse_hidden(sides.target if key in here else sides.source, key)
            what = "extra" if key in there else "missing"
            found.note(".".join(key), what, [WHOLE_TABLE])
    if with_structure:
        _compare_databases((earlier, target, later), admits, found)
    sides.rollback()
    return both


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
    source: Inventory, target: Inventory, admits: Admits, found: Comparison
) -> dict[TableKey, CatalogTable]:
    """The admitted tables by their names on the target."""
    named: dict[TableKey, CatalogTable] = {}
    for key, table in source.tables.items():
        if admits(*key) and named.setdefault(target.key(*key), table) is not table:
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


def _written(session: MySqlSession, task: str) -> set[str]:
    """The databases of all row schemas that the task has stored; empty before its first start."""
    try:
        texts = read_schemas(session, task).texts.values()
    except Fatal as exc:
        if exc.code != "MR-5012":
            raise
        return set()
    return {layout_of(text).table.database for text in texts}
