"""Executes DDL on the target exactly once, between two windows of rows.

    1  lock     GET_LOCK of the task; a start has waited for the statement of an earlier run
    2  intent   check the fence, store the statement, its objects' state and the server that has this state, commit
    3  execute  on the lock's session, with the session variables of the record
    4  done     check the fence, move the mark over the statement, delete the intent, commit

    killed between   the next run finds                      and
    1 and 2          no intent                               begins with 2
    2 and 3          an intent, not executed                 executes the statement
    3 and 4          an intent, executed                     continues with 4
    2, or 3, and 4   an intent, and the states don't show    stops with Fatal MR-5040, which shows both states
                     whether it was executed

Refused in 3: the task stops, and the intent records the refusal. Then a change by an operator does not count as an
execution, and a resumed task begins with 2. So it does if an operator lets it execute the statement, or another text
in its place (``own_sql`` of the intent), whose states then decide.

The states decide (``consumer.write.ddl_outcome``). The next run may be on another server: a promoted replica has the
intent, other ids, and the statement's effect or not. If the intent was not replicated, neither was the statement.

A statement that failed on the source (MariaDB logs it if it had changed something before) must fail in 3 with the same
error. After a crash it is executed again. If it succeeds, an operator decides.

Killed in 3: MySQL and MariaDB 11 execute a statement on one table atomically. On MariaDB a DROP of several tables can
be half done: Fatal MR-5040, and an operator decides (``decision`` of the intent). CREATE OR REPLACE TABLE can be half
done too; it is executed again if the table is missing.

A statement that has no effect if it is executed twice may be executed twice. The state of a sequence includes its row,
which ALTER SEQUENCE changes.

The statements run on a session of their own (``consumer.write.ddl_session``), which holds the lock from the first
statement on. A statement may take days (``consumer.target.running_statement``): a stop of the task leaves it running,
and the next run begins when it has ended. Only an operator ends it, and then decides about it (``decision``). A gap
that an operator decided on the capture task (``schemas.record.gap``) is no statement: it blocks like one that is not
understood, until an operator has repaired the target.

Under a view, ``schemas.view.target_statement`` writes the statement with the names of the target. Its text is stored,
executed and decided about. With a doubt it blocks: an operator agrees (``decision`` execute), or its effect is not
known, and it is not executed.

While tables are loaded, a statement may be passed or set aside instead (``consumer.write.ddl_scope``): the mark
moves and its tables wait for a load, in one target transaction. If the process is killed before its commit, the next
run meets the statement again; after it, the statement is passed.

Not done here: views, routines, triggers, events, accounts. They are recorded in ``left_out`` and counted.
"""

import json
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace

from millrace.consumer.records.row_schemas import RowSchemas, layout_of
from millrace.consumer.tables.filter import Route
from millrace.consumer.tables.related import related
from millrace.consumer.target.aside import void_rows
from millrace.consumer.target.intents import ASKED, ENDED, REFUSED, UNEXECUTABLE, UNEXPECTED
from millrace.consumer.target.load_range import LoadRange
from millrace.consumer.target.loads import set_waiting, task_of
from millrace.consumer.target.merged_tables import merged_among, merged_in
from millrace.consumer.target.progress import DATABASE, Mark, Owner, check_fence, move_mark
from millrace.consumer.target.running_statement import lock, watched
from millrace.consumer.target.sessions import STATEMENTS, Sessions
from millrace.consumer.target.stored_view import tasks_that_write
from millrace.consumer.target.table_state import (
    check_server,
    has_rows,
    is_empty,
    read_state,
    server_of,
)
from millrace.consumer.window.window import is_covered
from millrace.consumer.write.aside import check_statement
from millrace.consumer.write.ddl_outcome import (
    DONE,
    EXECUTE,
    UNDECIDED,
    State,
    decide,
    emptied_by,
    is_understood,
)
from millrace.consumer.write.ddl_scope import Place, Verdict, Way, verdict
from millrace.consumer.write.ddl_session import (
    entered,
    run_failed_statement,
    run_statement,
)
from millrace.consumer.write.merged_ddl import MergedDdl
from millrace.drivers.mysql.catalog import Changed, ForeignKey, TableKey
from millrace.drivers.mysql.connection import MySqlSession
from millrace.errors import Fatal, MillraceError, Retryable
from millrace.faults import fault_point, register
from millrace.log import get_logger
from millrace.schemas.gtid import Flavour, parse_gtid, shortened
from millrace.schemas.record.control import DdlRecord, DdlStatement
from millrace.schemas.record.gap import gap_of
from millrace.schemas.server_version import NO_NUMBERS, ServerVersion
from millrace.schemas.sql.statement import RECORDED_KINDS, Kind, Statement, classify
from millrace.schemas.sql.tokens import plain_text
from millrace.schemas.table.structure import TableSchema
from millrace.schemas.view.target_statement import target_statement

BEFORE_INTENT = register("apply.ddl_before_intent")
AFTER_INTENT = register("apply.ddl_after_intent")
AFTER_EXECUTE = register("apply.ddl_after_execute")
BEFORE_ASIDE = register("streams.before_aside")
AFTER_ASIDE = register("streams.after_aside")

IDLE_S = 30.0

_VIEWED = "the view of the task changes "
_ASKED_FIX = (
    "`millrace ddl show TASK N` shows the statement as the target gets it. `millrace ddl apply TASK N` executes it, and"
    " the rows that the target has stay as they are: correct them yourself where the view would have others now. Or"
    " `millrace task load TASK --tables DATABASE.TABLE`, with the source's name, loads the table again after that. Then"
    " `millrace task resume TASK`."
)
_VIEWED_FIX = (
    "Make the statement's effect on the target, under the names and columns that the view gives it: `millrace ddl apply"
    " TASK N --sql STATEMENT` lets the task execute yours. Or make it yourself, then `millrace ddl skip TASK N`. Or"
    " `millrace ddl skip TASK N --load DATABASE.TABLE`, with the source's name, loads the table again from here. After"
    " that, `millrace task resume TASK`."
)

_log = get_logger("apply.ddl")


@dataclass(frozen=True, slots=True)
class DdlPlace:
    """The marks before and after a statement."""

    before: Mark
    after: Mark


@dataclass(frozen=True, slots=True)
class Scope:
    """The tables that a stream applies, the range of its load, and the tables that the target has.

    ``is_over``: no process waits for the outcome. ``schemas``: of all rows that the stream has read.
    """

    route: Route
    range: LoadRange | None = None
    on_target: Collection[TableKey] = ()
    foreign_keys: Collection[ForeignKey] = ()
    is_over: Callable[[], bool] = lambda: False
    schemas: RowSchemas = field(default_factory=RowSchemas)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The statement for the target. ``doubt``: why an operator must decide; ``is_known``: it can be executed."""

    record: DdlRecord
    statement: Statement
    doubt: str = ""
    is_known: bool = True


@dataclass(frozen=True, slots=True)
class Passed:
    """How a statement was passed. ``changed``: what may have changed; None if it was not executed.

    ``is_recorded``: it is in ``left_out``. ``waiting``: the tables that it has set aside for a load.
    """

    changed: Changed | None = None
    is_recorded: bool = False
    waiting: frozenset[TableKey] = frozenset()


def apply_ddl(sessions: Sessions, record: DdlRecord, *, place: DdlPlace, scope: Scope) -> Passed:
    """Apply, record or skip a statement, or set its tables aside, and move the mark over it.

    A statement about tables that the route leaves out is recorded. One that names other tables, too, blocks. One with
    a name that the view of the task changes is executed as ``target_statement`` makes it, or blocks.
    """
    session, owner, route = sessions.for_lane(), sessions.owner, scope.route
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
            text = _recorded_text(record, statement, route)
            detail = f"seq {record.source.seq}: {text}"
            merged = MergedDdl(owner, record, statement, route)
            _pass(session, record, waiting, place, merged, detail=detail)
            return Passed(waiting=waiting)
        wanted = None
        if not _is_recorded(statement, route):
            merged = MergedDdl(owner, record, statement, route)
            if is_understood(statement) and merged.concerns:
                return _apply_merged(sessions, merged, place=place, scope=scope)
            wanted = _wanted(session, owner, record, statement, scope)
        if wanted is None:
            text = _recorded_text(record, statement, route)
            _leave_out(session, owner, record, statement, place=place, text=text)
            return Passed(is_recorded=True)
        record, statement = wanted.record, wanted.statement
        if statement.kind is Kind.SEQUENCE and session.flavour is Flavour.MYSQL:
            names = ", ".join(f"{name.database}.{name.table}" for name in statement.tables)
            what = f"{statement.verb} {names}, and the target is MySQL"
            raise Fatal("MR-5028", what, seq=record.source.seq, table=names)
        wanted = _unless_merged(session, wanted)
        changed = _apply_once(sessions, wanted, place=place, scope=scope)
        return Passed(changed)
    except BaseException as exc:
        if isinstance(exc, Retryable) and exc.code == "MR-5001":
            session.cut()  # a lost server does not answer a ROLLBACK either
        session.rollback()
        raise


def _unless_merged(session: MySqlSession, wanted: _Wanted) -> _Wanted:
    """An operator decides about a statement whose target has rows of tables that other rules merge."""
    statement = wanted.statement
    named = {(name.database, name.table) for name in statement.tables}
    dropped = set(statement.databases) if statement.kind is Kind.DROP_DATABASE else set()
    if not (named or dropped) or not is_understood(statement):
        return wanted
    merged = merged_among(session, named).union(
        *(merged_in(session, database) for database in sorted(dropped))
    )
    if not merged:
        return wanted
    why = f"tables are merged into {', '.join(map('.'.join, sorted(merged)))}"
    return replace(wanted, doubt="; ".join(filter(None, (wanted.doubt, why))))


def _apply_merged(
    sessions: Sessions, merged: MergedDdl, *, place: DdlPlace, scope: Scope
) -> Passed:
    """A statement about tables that the view merges."""
    session, owner, route = sessions.for_lane(), merged.owner, scope.route
    record, statement = merged.record, merged.statement
    check_statement(session, owner.task, merged.on_target, record.source.seq, emptied=frozenset())
    decided = merged.decide(session)
    if decided.waits:
        doubt = f"{_VIEWED}{', '.join(route.changed(statement))}: {decided.waits}"
        unknown = replace(statement, kind=Kind.UNKNOWN)
        wanted = _not_known(record, unknown, doubt, is_shown=not route.hides(statement))
        return Passed(_apply_once(sessions, wanted, place=place, scope=scope))
    if decided.alter is not None:
        altering = replace(record, statement=decided.alter)
        wanted = _Wanted(altering, _statement(altering))
        return Passed(_apply_once(sessions, wanted, place=place, scope=scope, merged=merged))
    check_fence(session, owner)
    merged.end(session)
    _forget_intent(session, owner, record)
    move_mark(session, owner.task, before=place.before, after=place.after)
    session.commit()
    return Passed(Changed(merged.targets))


def _wanted(
    session: MySqlSession, owner: Owner, record: DdlRecord, statement: Statement, scope: Scope
) -> _Wanted | None:
    """The statement for the target; None if nothing of it is for the target."""
    route = scope.route
    doubt = record.statement.session.get("in_doubt", "")
    if not is_understood(statement):
        if gap_of(record) is not None:
            return _Wanted(record, statement, doubt, is_known=False)
        if route.only_chooses:
            return _Wanted(record, statement, doubt)
        doubt = f"{_VIEWED}names that it may have"
        return _not_known(record, statement, doubt, is_shown=not route.hides_some)
    changed, left_out = route.changed(statement), route.left_out(statement)
    if changed or (left_out and not route.only_chooses):
        return _under_view(session, owner, record, statement, scope)
    if left_out:
        doubt = f"names {', '.join(left_out)}, which the apply task leaves out"
        return _Wanted(record, replace(statement, kind=Kind.UNKNOWN), doubt)
    return _Wanted(record, statement)


def _under_view(
    session: MySqlSession, owner: Owner, record: DdlRecord, statement: Statement, scope: Scope
) -> _Wanted | None:
    """The statement with the names and columns of the view."""
    route = scope.route
    structures: dict[TableKey, list[TableSchema]] = {}
    for text in scope.schemas.texts.values():
        table = layout_of(text).table
        structures.setdefault((table.database, table.table), []).append(table)
    found = target_statement(record, route.view, structures, folds=route.folds_names)
    doubt = found.doubt
    if found.statement is None:
        if not doubt:
            return None
        concerned = ", ".join(route.changed(statement) or route.left_out(statement))
        doubt = f"{_VIEWED}{concerned}: {doubt}"
        unknown = replace(statement, kind=Kind.UNKNOWN)
        return _not_known(record, unknown, doubt, is_shown=not route.hides(statement))
    made = found.statement.in_lower_case() if route.folds_names else found.statement
    names = tuple((name.database, name.table) for name in made.tables)
    if found.removes_rows:
        doubts = [doubt, *_of_others(session, owner, statement, made, structures.keys())]
        doubt = "; ".join(filter(None, doubts))
    variables = {**record.statement.session, "default_database": names[0][0]}
    logged = DdlStatement(found.sql, record.statement.kind, names, variables)
    return _Wanted(replace(record, statement=logged), made, doubt)


def _of_others(
    session: MySqlSession,
    owner: Owner,
    source: Statement,
    target: Statement,
    known: Collection[TableKey],
) -> Iterator[str]:
    """Why rows that a statement removes may not be those of the source's tables."""
    names = [(name.database, name.table) for name in target.tables]
    if others := tasks_that_write(session, owner.task, names):
        yield f"{', '.join(others)} may write the same table"
    folded = {(database.lower(), table.lower()) for database, table in known}
    named = {(name.database.lower(), name.table.lower()) for name in source.tables}
    for name in () if named <= folded else names:
        if has_rows(session, *name):
            yield f"{'.'.join(name)} has rows, and the topic had none of it"


def _not_known(record: DdlRecord, statement: Statement, doubt: str, *, is_shown: bool) -> _Wanted:
    """A statement that is not executed. A text that may show what the view hides is neither stored nor shown."""
    if not is_shown:
        record = replace(record, statement=replace(record.statement, sql=f"{statement.verb} …"))
    return _Wanted(record, statement, doubt, is_known=False)


def _recorded_text(record: DdlRecord, statement: Statement, route: Route) -> str:
    """The text of a statement that is not executed, without what the view hides or may hide."""
    names = (*statement.tables, *statement.references)
    hides = route.hides(statement) if names else route.hides_some
    return f"{statement.verb} …" if hides else statement.recorded_text(record.statement.sql)


def _own(record: DdlRecord, sql: str, route: Route) -> _Wanted:
    """The operator's text in place of the record's, without its session and database."""
    statement = classify(sql, "")
    if route.folds_names:
        statement = statement.in_lower_case()
    names = tuple((name.database, name.table) for name in statement.tables)
    own = DdlStatement(sql, str(statement.kind), names, {})
    return _Wanted(replace(record, statement=own), statement)


def _plain(record: DdlRecord) -> DdlRecord:
    """The record without executable comments, which an earlier version of capture recorded as they were."""
    source = ServerVersion(record.source.origin.connector, NO_NUMBERS)
    sql = plain_text(record.statement.sql, source, record.statement.sql_mode)
    return replace(record, statement=replace(record.statement, sql=sql))


def _is_recorded(statement: Statement, route: Route) -> bool:
    if statement.kind in RECORDED_KINDS or statement.kind in (Kind.TEMPORARY, Kind.TRANSACTION):
        return True
    return is_understood(statement) and route.skips(statement)


def _succeeding(statement: DdlStatement) -> DdlStatement:
    session = {name: value for name, value in statement.session.items() if name != "error_code"}
    return replace(statement, session=session)


def _statement(record: DdlRecord) -> Statement:
    """The statement, unknown if capture did not understand it or publishes only part of its tables."""
    found = classify(
        record.statement.sql, record.statement.default_database, record.statement.sql_mode
    )
    is_unknown = record.statement.kind == Kind.UNKNOWN
    return replace(found, kind=Kind.UNKNOWN) if is_unknown else found


def _skip(session: MySqlSession, owner: Owner, place: DdlPlace) -> None:
    check_fence(session, owner)
    move_mark(session, owner.task, before=place.before, after=place.after)
    session.commit()


def _verdict(
    session: MySqlSession, record: DdlRecord, statement: Statement, scope: Scope
) -> Verdict:
    gtid = parse_gtid(record.source.origin.connector, record.source.place.gtid)
    is_there = scope.range is not None and any(
        read_state(session, replace(statement, tables=())).values()
    )
    met = Place(gtid, scope.on_target, is_there)
    return verdict(statement, met, route=scope.route, range_=scope.range)


def _pass(
    session: MySqlSession,
    record: DdlRecord,
    waiting: frozenset[TableKey],
    place: DdlPlace,
    merged: MergedDdl,
    *,
    detail: str,
) -> None:
    """Move the mark over a statement that is not executed; the tables wait for a load."""
    owner = merged.owner
    fault_point(BEFORE_ASIDE)
    check_fence(session, owner)
    set_waiting(session, task_of(owner.task), waiting, detail=detail)
    merged.leave(session)
    _forget_intent(session, owner, record)
    move_mark(session, owner.task, before=place.before, after=place.after)
    session.commit()
    fault_point(AFTER_ASIDE)


def _forget_intent(session: MySqlSession, owner: Owner, record: DdlRecord) -> None:
    session.query(
        f"DELETE FROM {DATABASE}.ddl_intent WHERE task = %s AND seq = %s",
        (owner.task, record.source.seq),
    )


def _leave_out(
    session: MySqlSession,
    owner: Owner,
    record: DdlRecord,
    statement: Statement,
    *,
    place: DdlPlace,
    text: str,
) -> None:
    check_fence(session, owner)
    session.query(
        f"REPLACE INTO {DATABASE}.left_out VALUES (%s, %s, %s, %s)",
        (owner.task, record.source.seq, str(statement.kind), text),
    )
    # an intent remains if the statement blocked the task before its tables were left out
    _forget_intent(session, owner, record)
    move_mark(session, owner.task, before=place.before, after=place.after)
    session.commit()


def _apply_once(
    sessions: Sessions,
    wanted: _Wanted,
    *,
    place: DdlPlace,
    scope: Scope,
    merged: MergedDdl | None = None,
) -> Changed:
    session, owner, seq = sessions.for_lane(), sessions.owner, wanted.record.source.seq
    executing = sessions.for_lane(STATEMENTS)
    lock(executing, owner.task)
    check_fence(session, owner)
    found = session.query(
        f"SELECT state_text, server, decision, own_sql FROM {DATABASE}.ddl_intent WHERE task = %s AND seq = %s",
        (owner.task, seq),
    )
    shown = wanted.record.statement.sql
    own_sql = str(found[0][3] or "") if found else ""
    if own_sql:
        wanted = _own(wanted.record, own_sql, scope.route)
    record, statement = wanted.record, wanted.statement
    decided = str(found[0][2]) if found else ""
    is_asked = bool(own_sql) or decided not in ("", REFUSED)
    emptied = frozenset[TableKey]() if is_asked else _emptied(wanted, scope)
    check_statement(session, owner.task, statement, seq, emptied=emptied)
    before = now = _state(session, record, statement)
    check_server(executing, now.server)
    is_first = not found or decided in (REFUSED, EXECUTE, UNEXECUTABLE, ASKED)
    if is_first:
        fault_point(BEFORE_INTENT)
        _store_intent(session, owner, seq, shown, now)  # an operator's decision counts once
        if merged is not None:
            merged.begin(session, record.statement)
        if own_sql:
            _set_in_intent(session, owner, seq, own_sql=own_sql)
        decision = _first_decision(wanted, decided)
        if decision == UNDECIDED and (not wanted.is_known or is_understood(statement)):
            kept = ASKED if wanted.is_known else UNEXECUTABLE
            _set_in_intent(session, owner, seq, decision=kept)
    else:
        before = State(str(found[0][1]), json.loads(str(found[0][0])))
        again = EXECUTE if "error_code" in record.statement.session else ""
        sql, mode = record.statement.sql, record.statement.sql_mode
        judged = again or decide(before, now, statement, sql, mode)
        if decided == ENDED:  # it may have ended by itself before the operator's KILL
            decision = DONE if judged == DONE else UNDECIDED
        else:
            decision = decided or judged
    if decision in (UNDECIDED, UNEXPECTED):
        reason = (
            _blocked(wanted)
            if is_first or not is_understood(statement)
            else _undecided(wanted, before, now, is_ended=decided == ENDED)
        )
        _set_in_intent(session, owner, seq, reason=f"{reason.code} {reason.message}")
        session.commit()
        raise reason
    session.commit()
    fault_point(AFTER_INTENT)
    begun_s = time.monotonic()
    if decision == EXECUTE:
        if decided == EXECUTE:  # an operator wants it executed, whatever happened on the source
            record = replace(record, statement=_succeeding(record.statement))
        try:
            _execute(executing, sessions, record, statement, is_over=scope.is_over)
        except Fatal as exc:
            session = sessions.for_lane(is_checked=True)
            check_fence(session, owner)
            _set_in_intent(session, owner, seq, reason=f"{exc.code} {exc.message}")
            if exc.code == "MR-5040":
                _set_in_intent(session, owner, seq, decision=UNEXPECTED)
            elif _is_unchanged(session, record, statement, now):
                _set_in_intent(session, owner, seq, decision=REFUSED)
            session.commit()
            raise
        fault_point(AFTER_EXECUTE)
        # the server may have ended the idle session meanwhile
        session = sessions.for_lane(is_checked=time.monotonic() - begun_s > IDLE_S)
        check_server(session, now.server)  # another one may not have executed it
    check_fence(session, owner)
    void_rows(session, owner.task, emptied)
    if merged is not None:
        merged.end(session)
    move_mark(session, owner.task, before=place.before, after=place.after)
    _forget_intent(session, owner, record)
    session.commit()
    return Changed(
        frozenset((name.database, name.table) for name in statement.tables),
        frozenset(statement.databases),
        _alterations(statement, decision),
    )


def _emptied(wanted: _Wanted, scope: Scope) -> frozenset[TableKey]:
    """The tables whose kept rows are void after the statement. Without foreign keys, it has no effect elsewhere."""
    statement = wanted.statement
    if statement.kind not in (Kind.TRUNCATE_TABLE, Kind.DROP_TABLE):
        return frozenset()
    # under a view, the table may have rows of others; MariaDB logs a DROP that failed for some of its tables
    if not scope.route.only_chooses or "error_code" in wanted.record.statement.session:
        return frozenset()
    related_tables = {table for key in scope.foreign_keys for table in (key.child, key.parent)}
    return frozenset((name.database, name.table) for name in statement.tables) - related_tables


def _first_decision(wanted: _Wanted, decided: str) -> str:
    """EXECUTE or UNDECIDED, for a statement that was not executed.

    The target has refused it only after an operator had agreed, if there is a doubt.
    """
    if decided == EXECUTE and wanted.is_known:
        return EXECUTE
    is_agreed = not wanted.doubt or decided == REFUSED
    return EXECUTE if is_understood(wanted.statement) and is_agreed else UNDECIDED


def _alterations(statement: Statement, decision: str) -> int:
    """See ``Changed``; -1, so that everything is read again, if an operator had an unknown statement executed."""
    if decision != EXECUTE:
        return 0
    return int(statement.kind in _COUNTED_KINDS) if is_understood(statement) else -1


# what ``Inventory.alter_count`` of drivers.mysql.catalog counts
_COUNTED_KINDS = {Kind.ALTER_TABLE, Kind.CREATE_INDEX, Kind.DROP_INDEX, Kind.RENAME_TABLE}


def _is_unchanged(
    session: MySqlSession, record: DdlRecord, statement: Statement, before: State
) -> bool:
    """Whether a refused statement changed nothing. Then a later fix by an operator does not count as execution."""
    found = _state(session, record, statement)
    return (found.server, found.objects) == (before.server, before.objects)


def _set_in_intent(session: MySqlSession, owner: Owner, seq: int, **values: str) -> None:
    for column, value in values.items():
        session.query(
            f"UPDATE {DATABASE}.ddl_intent SET {column} = %s WHERE task = %s AND seq = %s",
            (value, owner.task, seq),
        )


def _state(session: MySqlSession, record: DdlRecord, statement: Statement) -> State:
    """The state of what the statement changes; empty if only an operator decides about the statement.

    A statement that is not understood may name tables that the target's account has no privilege on. An attempt to read
    them would report the missing privilege (MR-5007) instead of the reason for the block (MR-5042).
    """
    server = server_of(session)
    if not is_understood(statement):
        return State(server, {})
    emptied = emptied_by(statement, record.statement.sql, record.statement.sql_mode)
    empty = emptied is not None and is_empty(session, statement.tables[0], emptied)
    return State(server, read_state(session, statement), empty)


_GAP_FIX = (
    "`millrace compare TASK --now` lists the rows that differ, with the SQL that repairs each. It also lists rows that"
    " are still on their way. Repair the target, then `millrace ddl skip TASK N`, `millrace task resume TASK`."
    " After that, `millrace compare TASK --repair` repairs the rest."
)


def _blocked(wanted: _Wanted) -> Fatal:
    """It is not executed before an operator has decided."""
    record, seq = wanted.record, wanted.record.source.seq
    if (gap := gap_of(record)) is not None:
        missing = shortened(gap.missing) or "nothing that the task has not applied"
        what = f"a gap in the topic ({gap.kind}, {gap.reason}): it misses {missing}"
        return Fatal("MR-5042", what, fix=_GAP_FIX, seq=seq)
    fix = _ASKED_FIX if is_understood(wanted.statement) else "" if wanted.is_known else _VIEWED_FIX
    return Fatal("MR-5042", _described(wanted), fix=fix, seq=seq)


def _undecided(wanted: _Wanted, before: State, now: State, *, is_ended: bool) -> Fatal:
    """It may have been executed."""
    what = _described(wanted)
    if is_ended:
        what = f"an operator has ended {what}"
    states = f"Before, {before.shown()}\nNow, {now.shown()}"
    return Fatal("MR-5040", f"{what}\n{states}", seq=wanted.record.source.seq)


def _described(wanted: _Wanted) -> str:
    verb, sql = wanted.statement.verb, wanted.record.statement.sql
    what = f"{verb} ({wanted.doubt})" if wanted.doubt else verb
    return f"{what}: {sql[:200]}"


def _store_intent(session: MySqlSession, owner: Owner, seq: int, sql: str, state: State) -> None:
    objects = json.dumps(dict(state.objects), sort_keys=True)
    session.query(
        f"REPLACE INTO {DATABASE}.ddl_intent (task, seq, sql_text, state_text, server, decision)"
        " VALUES (%s, %s, %s, %s, %s, '')",
        (owner.task, seq, sql, objects, state.server),
    )


def _execute(
    session: MySqlSession,
    sessions: Sessions,
    record: DdlRecord,
    statement: Statement,
    *,
    is_over: Callable[[], bool],
) -> None:
    sql = statement.without_opening(record.statement.sql)  # the rows follow as records
    try:
        session = entered(session, sessions, record)
        with watched(session, sessions.owner.task, is_over=is_over):
            if error_code := record.statement.session.get("error_code"):
                run_failed_statement(session, sql, int(error_code))
            else:
                run_statement(session, sql)
    except MillraceError as exc:
        if isinstance(exc, Retryable):
            raise
        raise Fatal(
            "MR-5040" if exc.code == "MR-5040" else "MR-5041",
            f"{statement.verb}: {exc.message}",
            fix=exc.own_fix,
            seq=record.source.seq,
            sql=sql[:200],
            **dict(exc.context),
        ) from exc
