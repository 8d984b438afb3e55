"""Executes DDL on the target exactly once, between two windows of rows.

    1  lock     GET_LOCK of the task; ``end_earlier_statement`` has ended the lock's session of an earlier run
    2  intent   check the fence, store the statement and its objects' state (SHOW CREATE, InnoDB's IDs), commit
    3  execute  on the lock's session, with the session variables of the record
    4  done     check the fence, move the mark over the statement, delete the intent, commit

    killed between   the next run finds                      and
    1 and 2          no intent                               begins with 2
    2 and 3          an intent and the same state            executes the statement
    3 and 4          an intent and another state             continues with 4

Refused in 3: the task stops, and the intent records the refusal. Then a change by an operator does not count as an
execution, and a resumed task begins with 2.

Killed in 3: MySQL and MariaDB 11 execute a statement on one table atomically, so the state is one of the two above.
On MariaDB a DROP of several tables can be half done: Fatal MR-5040, and an operator decides (``decision`` of the
intent). CREATE OR REPLACE TABLE can be half done too; it is executed again if the table is missing.

A statement that does not change its state (ALTERs like ANALYZE) is executed again, without effect. The state of a
sequence includes its row, which ALTER SEQUENCE changes. InnoDB assigns a new
ID to a truncated, rebuilt, renamed or exchanged table, so these states differ.

The statements run on a session of their own (``consumer.apply.ddl_session``), which holds the lock from the first
statement on.
A gap that an operator decided on the capture task (``schemas.record.gap``) is no statement: it blocks like one that is
not understood, until an operator has repaired the target.

While tables are loaded, a statement may be passed or set aside instead (``consumer.streams.statements``): the mark
moves and its tables wait for a load, in one target transaction. If the process is killed before its commit, the next
run meets the statement again; after it, the statement is passed.

Not done here: views, routines, triggers, events, accounts. They are recorded in ``left_out`` and counted.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from consumer.apply.ddl_session import default_database, entered, lock, sql_mode
from consumer.load.state import set_waiting, task_of
from consumer.route import Route
from consumer.streams.range import Range
from consumer.streams.related import related
from consumer.streams.statements import Place, Verdict, Way, verdict
from consumer.target.connection import Endpoint, TargetConnection
from consumer.target.inventory import Changed, ForeignKey, TableKey
from consumer.target.progress import DATABASE, Mark, Owner, check_fence, move_mark
from consumer.target.sessions import session_for, statement_session
from consumer.target.table_state import NO_IDS, SPACES, read_state
from consumer.window import is_covered
from millrace.errors import Fatal, MillraceError, Retryable
from millrace.faults import fault_point, register
from millrace.log import get_logger
from schemas.gtid import Flavour, parse_gtid, shortened
from schemas.record.control import DdlRecord, DdlStatement
from schemas.record.gap import gap_of
from schemas.server_version import NO_NUMBERS, ServerVersion
from schemas.sql.statement import APPLIED_KINDS, RECORDED_KINDS, Kind, Statement, classify
from schemas.sql.tokens import plain_text

BEFORE_INTENT = register("apply.ddl_before_intent")
AFTER_INTENT = register("apply.ddl_after_intent")
AFTER_EXECUTE = register("apply.ddl_after_execute")
BEFORE_ASIDE = register("streams.before_aside")
AFTER_ASIDE = register("streams.after_aside")

DONE, EXECUTE, UNDECIDED, REFUSED = "done", "execute", "", "refused"

_log = get_logger("apply.ddl")


@dataclass(frozen=True, slots=True)
class DdlPlace:
    """The marks before and after a statement."""

    before: Mark
    after: Mark


@dataclass(frozen=True, slots=True)
class Scope:
    """The tables that a stream applies, the range of its load, and the tables that the target has."""

    route: Route
    range: Range | None = None
    on_target: Collection[TableKey] = ()
    foreign_keys: Collection[ForeignKey] = ()


@dataclass(frozen=True, slots=True)
class Passed:
    """How a statement was passed. ``changed``: what may have changed; None if it was not executed.

    ``is_recorded``: it is in ``left_out``. ``waiting``: the tables that it has set aside for a load.
    """

    changed: Changed | None = None
    is_recorded: bool = False
    waiting: frozenset[TableKey] = frozenset()


def apply_ddl(
    endpoint: Endpoint, owner: Owner, record: DdlRecord, place: DdlPlace, scope: Scope
) -> Passed:
    """Apply, record or skip a statement, or set its tables aside, and move the mark over it.

    A statement about tables that the route leaves out is recorded. One that names other tables, too, blocks.
    """
    session, route = session_for(endpoint, owner), scope.route
    record = _plain(record)
    try:
        if is_covered(record, place.before):
            _skip(session, owner, place)
            return Passed()
        statement = _statement(record)
        if route.folds_names:
            statement = statement.in_lower_case()
        found = _verdict(session, record, statement, scope)
        if found.way is not Way.AS_ALWAYS:
            waiting = related(found.tables, scope.foreign_keys, route)
            _pass(session, owner, record, waiting, place)
            return Passed(waiting=waiting)
        if _is_recorded(statement, route):
            _leave_out(session, owner, record, statement, place)
            return Passed(is_recorded=True)
        if left_out := _is_understood(statement) and route.left_out(statement):
            statement = replace(statement, kind=Kind.UNKNOWN)
            doubt = f"names {', '.join(left_out)}, which the apply task leaves out"
            record = replace(record, statement=_doubted(record.statement, doubt))
        if statement.kind is Kind.SEQUENCE and session.flavour is Flavour.MYSQL:
            names = ", ".join(f"{name.database}.{name.table}" for name in statement.tables)
            what = f"{statement.verb} {names}, and the target is MySQL"
            raise Fatal("MR-5028", what, seq=record.source.seq, table=names)
        return Passed(_apply_once(session, owner, record, statement, place))
    except BaseException:
        session.rollback()
        raise


def _plain(record: DdlRecord) -> DdlRecord:
    """The record without executable comments, which an earlier version of capture recorded as they were."""
    source = ServerVersion(record.source.origin.connector, NO_NUMBERS)
    sql = plain_text(record.statement.sql, source, sql_mode(record))
    return replace(record, statement=replace(record.statement, sql=sql))


def _is_recorded(statement: Statement, route: Route) -> bool:
    if statement.kind in RECORDED_KINDS or statement.kind in (Kind.TEMPORARY, Kind.TRANSACTION):
        return True
    return _is_understood(statement) and route.skips(statement)


def _doubted(statement: DdlStatement, doubt: str) -> DdlStatement:
    return replace(statement, session={**statement.session, "in_doubt": doubt})


def _statement(record: DdlRecord) -> Statement:
    """The statement, unknown if capture did not understand it or publishes only part of its tables."""
    found = classify(record.statement.sql, default_database(record), sql_mode(record))
    is_unknown = record.statement.kind == Kind.UNKNOWN
    return replace(found, kind=Kind.UNKNOWN) if is_unknown else found


def _skip(session: TargetConnection, owner: Owner, place: DdlPlace) -> None:
    check_fence(session, owner)
    move_mark(session, owner.task, before=place.before, after=place.after)
    session.commit()


def _verdict(
    session: TargetConnection, record: DdlRecord, statement: Statement, scope: Scope
) -> Verdict:
    gtid = parse_gtid(record.source.origin.connector, record.source.place.gtid)
    is_there = scope.range is not None and any(
        read_state(session, replace(statement, tables=())).values()
    )
    met = Place(gtid, scope.on_target, is_there)
    return verdict(statement, met, route=scope.route, range_=scope.range)


def _pass(
    session: TargetConnection,
    owner: Owner,
    record: DdlRecord,
    waiting: frozenset[TableKey],
    place: DdlPlace,
) -> None:
    """Move the mark over a statement that is not executed; the tables wait for a load."""
    fault_point(BEFORE_ASIDE)
    check_fence(session, owner)
    detail = f"seq {record.source.seq}: {record.statement.sql}"
    set_waiting(session, task_of(owner.task), waiting, detail=detail)
    _forget_intent(session, owner, record)
    move_mark(session, owner.task, before=place.before, after=place.after)
    session.commit()
    fault_point(AFTER_ASIDE)


def _forget_intent(session: TargetConnection, owner: Owner, record: DdlRecord) -> None:
    session.query(
        f"DELETE FROM {DATABASE}.ddl_intent WHERE task = %s AND seq = %s",
        (owner.task, record.source.seq),
    )


def _leave_out(
    session: TargetConnection,
    owner: Owner,
    record: DdlRecord,
    statement: Statement,
    place: DdlPlace,
) -> None:
    check_fence(session, owner)
    session.query(
        f"REPLACE INTO {DATABASE}.left_out VALUES (%s, %s, %s, %s)",
        (
            owner.task,
            record.source.seq,
            str(statement.kind),
            statement.recorded_text(record.statement.sql),
        ),
    )
    # an intent remains if the statement blocked the task before its tables were left out
    _forget_intent(session, owner, record)
    move_mark(session, owner.task, before=place.before, after=place.after)
    session.commit()


def _apply_once(
    session: TargetConnection,
    owner: Owner,
    record: DdlRecord,
    statement: Statement,
    place: DdlPlace,
) -> Changed:
    seq, endpoint = record.source.seq, session.endpoint
    executing = statement_session(endpoint, owner)
    lock(executing, owner.task)
    check_fence(session, owner)
    found = session.query(
        f"SELECT state_text, decision FROM {DATABASE}.ddl_intent WHERE task = %s AND seq = %s",
        (owner.task, seq),
    )
    now = _state(session, statement)
    decided = str(found[0][1]) if found else ""
    if not found or decided == REFUSED:
        fault_point(BEFORE_INTENT)
        _store_intent(session, owner, record, now)
        decision = EXECUTE if _is_understood(statement) else UNDECIDED
    else:
        decision = decided or decide(json.loads(str(found[0][0])), now, statement, session.flavour)
    session.commit()
    if decision == UNDECIDED:
        raise _undecided(record, statement)
    fault_point(AFTER_INTENT)
    if decision == EXECUTE:
        try:
            _execute(executing, owner, record, statement)
        except Fatal:
            _store_refusal(session_for(endpoint, owner), owner, record, statement, now)
            raise
        fault_point(AFTER_EXECUTE)
        session = session_for(endpoint, owner)  # a stop may have cut the other one meanwhile
    check_fence(session, owner)
    move_mark(session, owner.task, before=place.before, after=place.after)
    _forget_intent(session, owner, record)
    session.commit()
    return Changed(
        frozenset((name.database, name.table) for name in statement.tables),
        frozenset(statement.databases),
        _alterations(statement, decision),
    )


def _alterations(statement: Statement, decision: str) -> int:
    """See ``Changed``; -1, so that everything is read again, if an operator had an unknown statement executed."""
    if decision != EXECUTE:
        return 0
    return int(statement.kind in _COUNTED_KINDS) if _is_understood(statement) else -1


# what ``inventory.alter_count`` counts
_COUNTED_KINDS = {Kind.ALTER_TABLE, Kind.CREATE_INDEX, Kind.DROP_INDEX, Kind.RENAME_TABLE}


def _store_refusal(
    session: TargetConnection,
    owner: Owner,
    record: DdlRecord,
    statement: Statement,
    before: Mapping[str, str],
) -> None:
    """Record the server's refusal if nothing has changed. A later fix by an operator does not count as execution."""
    check_fence(session, owner)
    if _state(session, statement) == before:
        session.query(
            f"UPDATE {DATABASE}.ddl_intent SET decision = %s WHERE task = %s AND seq = %s",
            (REFUSED, owner.task, record.source.seq),
        )
    session.commit()


def _state(session: TargetConnection, statement: Statement) -> dict[str, str]:
    """The state of what the statement changes; empty if only an operator decides about the statement.

    A statement that is not understood may name tables that the target's account has no privilege on. An attempt to read
    them would report the missing privilege (MR-5007) instead of the reason for the block (MR-5042).
    """
    return read_state(session, statement) if _is_understood(statement) else {}


def _is_understood(statement: Statement) -> bool:
    return statement.kind in APPLIED_KINDS and not statement.selects_rows


def _undecided(record: DdlRecord, statement: Statement) -> Fatal:
    if (gap := gap_of(record)) is not None:
        missing = shortened(gap.missing) or "nothing that the task has not applied"
        what = f"a gap in the topic ({gap.kind}, {gap.reason}): it misses {missing}"
        return Fatal("MR-5042", what, seq=record.source.seq)
    code = "MR-5040" if _is_understood(statement) else "MR-5042"
    doubt = record.statement.session.get("in_doubt", "")
    what = f"{statement.verb} ({doubt})" if doubt else statement.verb
    return Fatal(code, f"{what}: {record.statement.sql[:200]}", seq=record.source.seq)


def _store_intent(
    session: TargetConnection, owner: Owner, record: DdlRecord, state: Mapping[str, str]
) -> None:
    session.query(
        f"REPLACE INTO {DATABASE}.ddl_intent VALUES (%s, %s, %s, %s, '')",
        (owner.task, record.source.seq, record.statement.sql, json.dumps(state, sort_keys=True)),
    )


def decide(
    before: Mapping[str, str], now: Mapping[str, str], statement: Statement, flavour: Flavour
) -> str:
    """After a crash: DONE, EXECUTE or UNDECIDED, from the states of its objects before and now ("": missing)."""
    if not _is_understood(statement):
        return UNDECIDED
    if statement.kind is Kind.DROP_DATABASE:
        return EXECUTE if any(now.values()) else DONE  # a half dropped database is dropped again
    creates, drops = ({f"{verb} TABLE", f"{verb} SEQUENCE"} for verb in ("CREATE", "DROP"))
    if statement.verb in creates and not all(now.values()):
        return EXECUTE  # MariaDB can die between the two halves of CREATE OR REPLACE
    if statement.verb in drops and flavour is Flavour.MARIADB:
        left = [name for name, state in before.items() if state and now.get(name)]
        there = [name for name, state in before.items() if state]
        return EXECUTE if left == there else UNDECIDED if left else DONE
    if any(
        state and now[name] and _ids_of(state) != _ids_of(now[name])
        for name, state in before.items()
    ):
        return UNDECIDED  # an earlier version of Millrace wrote the intent
    if before != now:
        return DONE
    # without IDs, swapped tables of equal structure look unchanged
    swaps = len(statement.tables) > 1 and any(NO_IDS in state for state in now.values())
    return UNDECIDED if swaps else EXECUTE


def _ids_of(state: str) -> bool:
    """The kind of ids in a table's state, which can only be compared with the same kind."""
    return f"\n-- {SPACES}" in state


def _execute(
    session: TargetConnection, owner: Owner, record: DdlRecord, statement: Statement
) -> None:
    sql = record.statement.sql
    if statement.opens_transaction:  # the rows of CREATE TABLE … SELECT follow as records
        head, _, _ = sql.rstrip().rstrip(";").rpartition("START")
        sql = head
    try:
        entered(session, owner, record).query(sql.encode())
    except MillraceError as exc:
        if isinstance(exc, Retryable):
            raise
        raise Fatal(
            "MR-5041",
            f"{statement.verb}: {exc.message}",
            seq=record.source.seq,
            sql=sql[:200],
            **dict(exc.context),
        ) from exc
