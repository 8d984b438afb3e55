"""Which tables are compared: the pairs, and what differs before a row is read.

A database is compared if the source has it or if the task has applied rows there. So databases of others on the target
are ignored, and a database that remains after a lost DROP DATABASE is found.

Tables are looked at like rows: on the source, on the target after the task has applied what the source had, and on the
source again. A table that the source has created, altered or dropped in between is no difference, nor is one that a
load copies now.

A server hides tables that the account may not read. If only one side shows a table, the other side is asked for it. Its
refusal is raised, before the table counts as a difference.
"""

from collections.abc import Callable
from dataclasses import replace

from consumer.compare.loads import loading
from consumer.compare.result import Comparison
from consumer.compare.sides import Sides
from consumer.compare.table import Pair, pair_of
from consumer.row_schemas import layout_of
from consumer.target.connection import TargetConnection, text_of
from consumer.target.inventory import Inventory, TableKey, TargetTable, read_inventory
from consumer.target.progress import read_schemas
from millrace.errors import Fatal
from schemas.documents import ApplyTask, CaptureTask, SetDocument
from schemas.grant_fix import grantee
from schemas.grants import Role, needed_grants
from schemas.sql.quoting import table_name

WHOLE_TABLE = "(the whole table)"

Admits = Callable[[str, str], bool]


def admitted(source: SetDocument, capture: CaptureTask, task: ApplyTask) -> Admits:
    """Whether both tasks have a table of the source set; not the heartbeat's, unless a pattern names it."""
    captured = replace(capture.tables, hidden=source.heartbeat.table)
    return lambda *key: captured.admits(*key) and task.tables.admits(*key)


def pairs(sides: Sides, admits: Admits, task: str, found: Comparison) -> list[Pair]:
    """All pairs to compare, in the order of their names. Notes missing and extra tables and columns.

    Fatal MR-5007 if an account may not read a table that the other side has.
    """
    with sides.on_source() as position:
        earlier = read_inventory(sides.source, with_folds=False)
        databases = _databases(sides.source)
    with sides.on_target(position):
        target = read_inventory(sides.target, with_folds=False)
        databases |= _written(sides.target, task) if task else set()
        loaded = loading(sides.target, sides.ends.task) if sides.ends.task else frozenset()
    with sides.on_source(sides.newest()):
        later = read_inventory(sides.source, with_folds=False)
    before, here = (_by_target_name(source, target, admits, found) for source in (earlier, later))
    there = {k: t for k, t in target.tables.items() if k in here or k in before or admits(*k)}
    databases = {target.key(name, "")[0] for name in databases}
    flavours = {sides.source.flavour, sides.target.flavour}
    both = []
    for key in sorted(here.keys() | {key for key in there if key[0] in databases}):
        if key in here and key in there:
            found.tables += 1
            if _has_same_columns(before.get(key), here[key], there[key], found):
                both.append(pair_of(here[key], there[key], flavours=flavours))
        elif key in loaded:
            found.unsettled += 1
        elif (key in before) == (key in here):
            _refuse_hidden(sides.target if key in here else sides.source, key)
            what = "extra" if key in there else "missing"
            found.note(".".join(key), what, [WHOLE_TABLE])
    sides.rollback()
    return both


def _by_target_name(
    source: Inventory, target: Inventory, admits: Admits, found: Comparison
) -> dict[TableKey, TargetTable]:
    """The admitted tables by their names on the target."""
    named: dict[TableKey, TargetTable] = {}
    for key, table in source.tables.items():
        if admits(*key) and named.setdefault(target.key(*key), table) is not table:
            found.note_once(".".join(key), "missing", "(the target has one table for two)")
    return named


def _has_same_columns(
    before: TargetTable | None, source: TargetTable, target: TargetTable, found: Comparison
) -> bool:
    """Whether rows can be compared. Notes columns that only one side has."""
    unequal = sorted(set(source.columns) ^ set(target.columns))
    if unequal:
        name = f"{source.database}.{source.table}"
        if before is None or set(before.columns) != set(source.columns):
            found.unsettled += 1
        else:
            found.note(name, "different", [f"(column {column})" for column in unequal])
    return not unequal


def _refuse_hidden(session: TargetConnection, key: TableKey) -> None:
    """Fatal MR-5007 with the GRANT if the account may not read the table. Returns if the table does not exist."""
    try:
        session.query(f"SELECT 1 FROM {table_name(*key).decode()} LIMIT 0")
    except Fatal as exc:
        if exc.code == "MR-5012":
            return
        if exc.code != "MR-5007":
            raise
        at = session.endpoint
        (needed,) = needed_grants(Role.COMPARE, session.flavour, (key[0],))
        statement = needed.sql(grantee(session.account(), at.user))
        raise Fatal(
            exc.code,
            f"{at.name}: {exc.message}",
            fix=f"{statement} (A comparison reads every row of both sides.)",
            **exc.context,
        ) from exc


def _databases(session: TargetConnection) -> set[str]:
    names = session.query("SELECT SCHEMA_NAME FROM information_schema.SCHEMATA")
    return {text_of(name) for (name,) in names}


def _written(session: TargetConnection, task: str) -> set[str]:
    """The databases of all row schemas that the task has stored; empty before its first start."""
    try:
        texts = read_schemas(session, task).texts.values()
    except Fatal as exc:
        if exc.code != "MR-5012":
            raise
        return set()
    return {layout_of(text).table.database for text in texts}
