"""Executes DDL on the target exactly once, between two windows of rows.

    1  lock     GET_LOCK of the task; ``end_earlier_statement`` has ended a statement of an earlier run
    2  intent   check the fence, store the statement and its objects' state (SHOW CREATE, InnoDB's table IDs), commit
    3  execute  on the same session, with the session variables of the record
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

A statement that does not change its state (ALTERs like ANALYZE) is executed again, without effect. InnoDB assigns a new
table ID to a truncated, rebuilt, renamed or exchanged table, so these states differ.
Not done here: views, routines, triggers, events, accounts. They are recorded in ``left_out`` and counted.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b

from consumer.sql.table_plan import quoted
from consumer.target.connection import Endpoint, TargetConnection
from consumer.target.progress import DATABASE, Mark, Owner, check_fence, move_mark
from consumer.target.sessions import open_session
from consumer.target.table_state import NO_IDS, read_state
from consumer.window import is_covered
from millrace.errors import Fatal, MillraceError, Retryable
from millrace.faults import fault_point, register
from millrace.log import get_logger
from schemas.gtid import Flavour
from schemas.record.control import DdlRecord
from schemas.sql.statement import APPLIED_KINDS, RECORDED_KINDS, Kind, Statement, classify
from schemas.sql.tokens import SqlMode

BEFORE_INTENT = register("apply.ddl_before_intent")
AFTER_INTENT = register("apply.ddl_after_intent")
AFTER_EXECUTE = register("apply.ddl_after_execute")

LOCK_S = 30
DONE, EXECUTE, UNDECIDED, REFUSED = "done", "execute", "", "refused"

_log = get_logger("apply.ddl")


@dataclass(frozen=True, slots=True)
class DdlPlace:
    """The marks before and after a statement."""

    before: Mark
    after: Mark


def apply_ddl(endpoint: Endpoint, owner: Owner, record: DdlRecord, place: DdlPlace) -> set[str]:
    """Apply, record or skip a statement and move the mark over it. Returns the databases that may have changed."""
    session = open_session(endpoint, owner)
    try:
        if is_covered(record, place.before):
            return _skip(session, owner, place)
        statement = _in_target_case(session, _statement(record))
        if statement.kind in RECORDED_KINDS or statement.kind in (Kind.TEMPORARY, Kind.TRANSACTION):
            return _leave_out(session, owner, record, statement, place)
        _lock(session, owner.task)
        return _apply_once(session, owner, record, statement, place)
    finally:
        session.close()


def _statement(record: DdlRecord) -> Statement:
    """The statement, unknown if capture did not understand it or publishes only part of its tables."""
    found = classify(record.statement.sql, _default_database(record), _mode(record))
    is_unknown = record.statement.kind == Kind.UNKNOWN
    return replace(found, kind=Kind.UNKNOWN) if is_unknown else found


def _in_target_case(session: TargetConnection, statement: Statement) -> Statement:
    ((folds,),) = session.query("SELECT @@lower_case_table_names")
    return statement.in_lower_case() if folds == 1 else statement


def _skip(session: TargetConnection, owner: Owner, place: DdlPlace) -> set[str]:
    check_fence(session, owner)
    move_mark(session, owner.task, before=place.before, after=place.after)
    session.commit()
    return set()


def _leave_out(
    session: TargetConnection,
    owner: Owner,
    record: DdlRecord,
    statement: Statement,
    place: DdlPlace,
) -> set[str]:
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
    move_mark(session, owner.task, before=place.before, after=place.after)
    session.commit()
    return set()


def _apply_once(
    session: TargetConnection,
    owner: Owner,
    record: DdlRecord,
    statement: Statement,
    place: DdlPlace,
) -> set[str]:
    seq = record.source.seq
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
            _execute(session, record, statement)
        except Fatal:
            _store_refusal(session.endpoint, owner, record, statement, now)
            raise
        fault_point(AFTER_EXECUTE)
        session.close()
        session = open_session(session.endpoint, owner)
    check_fence(session, owner)
    move_mark(session, owner.task, before=place.before, after=place.after)
    session.query(
        f"DELETE FROM {DATABASE}.ddl_intent WHERE task = %s AND seq = %s",
        (owner.task, seq),
    )
    session.commit()
    session.close()
    return {name.database for name in statement.tables} | set(statement.databases)


def _store_refusal(
    endpoint: Endpoint,
    owner: Owner,
    record: DdlRecord,
    statement: Statement,
    before: Mapping[str, str],
) -> None:
    """Record the server's refusal if nothing has changed. A later fix by an operator does not count as execution."""
    session = open_session(endpoint, owner)
    try:
        check_fence(session, owner)
        if _state(session, statement) == before:
            session.query(
                f"UPDATE {DATABASE}.ddl_intent SET decision = %s WHERE task = %s AND seq = %s",
                (REFUSED, owner.task, record.source.seq),
            )
        session.commit()
    finally:
        session.close()


def _state(session: TargetConnection, statement: Statement) -> dict[str, str]:
    """The state of what the statement changes; empty if only an operator decides about the statement.

    A statement that is not understood may name tables that the target's account has no privilege on. An attempt to read
    them would report the missing privilege (MR-5007) instead of the reason for the block (MR-5042).
    """
    return read_state(session, statement) if _is_understood(statement) else {}


def _is_understood(statement: Statement) -> bool:
    return statement.kind in APPLIED_KINDS and not statement.selects_rows


def _undecided(record: DdlRecord, statement: Statement) -> Fatal:
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
    if statement.kind is Kind.CREATE_TABLE and not all(now.values()):
        return EXECUTE  # MariaDB can die between the two halves of CREATE OR REPLACE
    if statement.kind is Kind.DROP_TABLE and flavour is Flavour.MARIADB:
        left = [name for name, state in before.items() if state and now.get(name)]
        there = [name for name, state in before.items() if state]
        return EXECUTE if left == there else UNDECIDED if left else DONE
    if before != now:
        return DONE
    # without IDs, swapped tables of equal structure look unchanged
    swaps = len(statement.tables) > 1 and any(NO_IDS in state for state in now.values())
    return UNDECIDED if swaps else EXECUTE


def _execute(session: TargetConnection, record: DdlRecord, statement: Statement) -> None:
    sql = record.statement.sql
    if statement.opens_transaction:  # the rows of CREATE TABLE … SELECT follow as records
        head, _, _ = sql.rstrip().rstrip(";").rpartition("START")
        sql = head
    try:
        _enter_session(session, record)
        session.query(sql.encode())
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


_ANYWHERE = ("time_zone", "foreign_key_checks", "unique_checks", "explicit_defaults_for_timestamp")
_SAME_FLAVOUR = (
    "sql_mode",
    "collation_server",
    "collation_connection",
    "default_collation_for_utf8mb4",
)
_COMMON_MODES = {
    "ANSI_QUOTES",
    "PIPES_AS_CONCAT",
    "IGNORE_SPACE",
    "NO_BACKSLASH_ESCAPES",
    "NO_ZERO_DATE",
}
_COMMON_MODES |= {
    "NO_ZERO_IN_DATE",
    "STRICT_TRANS_TABLES",
    "STRICT_ALL_TABLES",
    "ALLOW_INVALID_DATES",
}


def _default_database(record: DdlRecord) -> str:
    return record.statement.session.get("default_database", "")


def _modes(record: DdlRecord) -> list[str]:
    return [mode for mode in record.statement.session.get("sql_mode", "").split(",") if mode]


def _mode(record: DdlRecord) -> SqlMode:
    modes = _modes(record)
    return SqlMode("ANSI_QUOTES" in modes, "NO_BACKSLASH_ESCAPES" in modes)


def _enter_session(session: TargetConnection, record: DdlRecord) -> None:
    """Set the variables that affect the statement's meaning to the source's values."""
    values = record.statement.session
    database = _default_database(record)
    known = "SELECT 1 FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = %s"
    if database and session.query(known, (database,)):
        session.query(b"USE " + quoted(database))
    session.commit()  # MySQL sets explicit_defaults_for_timestamp only outside a transaction
    session.query(
        "SET SESSION autocommit = 1"
    )  # otherwise MariaDB's EXCHANGE PARTITION waits for itself
    is_same = record.source.origin.connector is session.flavour
    for name in (*_ANYWHERE, *(_SAME_FLAVOUR if is_same else ())):
        if name in values:
            session.query(f"SET SESSION {name} = %s", (_value(values[name]),))
    if not is_same and "sql_mode" in values:
        modes = ",".join(mode for mode in _modes(record) if mode in _COMMON_MODES)
        session.query("SET SESSION sql_mode = %s", (modes,))
    if is_same and "character_set_collations" in values:
        _set_default_collations(session, values["character_set_collations"])
    # DEFAULT CURRENT_TIMESTAMP of a new column gives old rows the statement's time. A double can not hold it exactly.
    # MySQL rounds it to microseconds and MariaDB truncates it; adding 0.3 microseconds is right for both.
    seconds, micros = record.source.place.ts_ms // 1000, int(values.get("microseconds", "0"))
    session.query(f"SET SESSION timestamp = {seconds}.{micros:06}3")


def _set_default_collations(session: TargetConnection, pairs: str) -> None:
    """Set MariaDB's default collations of character sets. `pairs`: name=id,… of the source."""
    if not pairs and not session.query("SHOW VARIABLES LIKE 'character_set_collations'"):
        return
    names = []
    for pair in filter(None, pairs.split(",")):
        charset, _, id_ = pair.partition("=")
        found = session.query(
            "SELECT FULL_COLLATION_NAME FROM information_schema"
            ".COLLATION_CHARACTER_SET_APPLICABILITY WHERE ID = %s AND CHARACTER_SET_NAME = %s",
            (int(id_), charset),
        )
        if not found:
            raise Fatal("MR-5041", f"the target does not have collation id {id_} of {charset}")
        names.append(f"{charset}={found[0][0]}")
    session.query("SET SESSION character_set_collations = %s", (",".join(names),))


def _value(text: str) -> object:
    return int(text) if text.lstrip("-").isdigit() else text


# ---- the lock of a task's DDL ---------------------------------------------------------------------


def _lock_name(task: str) -> str:
    """A lock name of at most 64 characters. Servers ignore its case."""
    return f"millrace.ddl.{blake2b(task.encode(), digest_size=16).hexdigest()}"


def _lock(session: TargetConnection, task: str) -> None:
    if session.query("SELECT GET_LOCK(%s, %s)", (_lock_name(task), LOCK_S)) != [(1,)]:
        raise Retryable("MR-5005", f"another session is executing a statement of {task}", task=task)


def end_earlier_statement(session: TargetConnection, task: str) -> None:
    """After raising the fence: end a statement that an earlier run still executes, and wait for its end."""
    ((holder,),) = session.query("SELECT IS_USED_LOCK(%s)", (_lock_name(task),))
    if holder is not None and holder != session.id:
        _log.warning("ending a statement of an earlier run", session=holder)
        try:
            session.query(f"KILL {holder}")
        except Fatal as exc:  # it has ended meanwhile
            _log.info("the session has ended", error=str(exc))
    _lock(session, task)
    session.query("SELECT RELEASE_LOCK(%s)", (_lock_name(task),))
    session.commit()
