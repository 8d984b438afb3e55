"""The session that executes DDL statements of a task, under the source's session variables, with the lock of the task.

A run keeps two sessions for all of its statements. The driver's own runs the target transactions around a statement.
This one holds the lock from the first statement on. Its variables stay as the last statement set them, so a statement
that sets fewer of them gets a new session.
Not done here: deciding whether a statement is executed (``consumer.apply.ddl``).
"""

from dataclasses import dataclass
from decimal import Decimal
from hashlib import blake2b
from weakref import WeakKeyDictionary

from consumer.target.connection import TargetConnection
from consumer.target.progress import Owner
from consumer.target.sessions import statement_session
from millrace.errors import Fatal, Retryable
from millrace.log import get_logger
from schemas.gtid import Flavour
from schemas.record.control import DdlRecord
from schemas.sql.quoting import quoted
from schemas.sql.tokens import SqlMode

LOCK_S = 30

_log = get_logger("apply.ddl")

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


def default_database(record: DdlRecord) -> str:
    """The statement's default database; "" if it had none."""
    return record.statement.session.get("default_database", "")


def _modes(record: DdlRecord) -> list[str]:
    return [mode for mode in record.statement.session.get("sql_mode", "").split(",") if mode]


def sql_mode(record: DdlRecord) -> SqlMode:
    """The parts of ``sql_mode`` that the classifier needs."""
    modes = _modes(record)
    return SqlMode("ANSI_QUOTES" in modes, "NO_BACKSLASH_ESCAPES" in modes)


@dataclass(frozen=True, slots=True)
class _Left:
    """Leftovers of earlier statements in their session: the names of variables, the database, default collations."""

    names: frozenset[str] = frozenset()
    database: str = ""
    collations: str | None = None


_left: WeakKeyDictionary[TargetConnection, _Left] = WeakKeyDictionary()


def entered(session: TargetConnection, owner: Owner, record: DdlRecord) -> TargetConnection:
    """The session, or a new one, with the source's values of all variables that affect the statement's meaning."""
    values, database = record.statement.session, default_database(record)
    variables = _variables(session, record)
    left = _left.get(session, _Left())
    if left.names - variables.keys() or (
        not _use(session, database) and left.database
    ):  # what is left would affect the statement
        endpoint = session.endpoint
        session.close()
        session, left = statement_session(endpoint, owner), _Left()
        lock(session, owner.task)
        _use(session, database)
    if not left.names:
        # otherwise MariaDB's EXCHANGE PARTITION waits for itself; MySQL sets some variables only without a transaction
        session.commit()
        session.query("SET SESSION autocommit = 1")
    collations = values.get("character_set_collations")
    if record.source.origin.connector is session.flavour and collations not in (
        None,
        left.collations,
    ):
        assert collations is not None
        _set_default_collations(session, collations)
    session.query(
        "SET SESSION " + ", ".join(f"{name} = %s" for name in variables),
        list(variables.values()),
    )
    _left[session] = _Left(frozenset(variables), database, collations)
    return session


def _variables(session: TargetConnection, record: DdlRecord) -> dict[str, object]:
    values = record.statement.session
    is_same = record.source.origin.connector is session.flavour
    names = (*_ANYWHERE, *(_SAME_FLAVOUR if is_same else ()))
    found: dict[str, object] = {name: _value(values[name]) for name in names if name in values}
    if not is_same and "sql_mode" in values:
        found["sql_mode"] = ",".join(mode for mode in _modes(record) if mode in _COMMON_MODES)
    # DEFAULT CURRENT_TIMESTAMP of a new column gives old rows the statement's time. A double can not hold it exactly.
    # MySQL rounds it to microseconds and MariaDB truncates it; adding 0.3 microseconds is right for both.
    seconds, micros = record.source.place.ts_ms // 1000, int(values.get("microseconds", "0"))
    if session.flavour is Flavour.MARIADB:  # the source has accepted the statement
        found["system_versioning_alter_history"] = "KEEP"
    return found | {"timestamp": Decimal(f"{seconds}.{micros:06}3")}


def _use(session: TargetConnection, database: str) -> bool:
    """Whether the database is now the session's default; False if it does not exist or is not accessible."""
    if not database:
        return False
    try:
        session.query(b"USE " + quoted(database))
    except Fatal as exc:
        if exc.code in ("MR-5012", "MR-5007"):
            return False
        raise
    return True


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
    return int(text) if text.isascii() and text.removeprefix("-").isdigit() else text


# ---- the lock of a task's DDL ---------------------------------------------------------------------


def _lock_name(task: str) -> str:
    """A lock name of at most 64 characters. Servers ignore its case."""
    return f"millrace.ddl.{blake2b(task.encode(), digest_size=16).hexdigest()}"


def lock(session: TargetConnection, task: str) -> None:
    """Take the lock; Retryable MR-5005 if another session keeps it."""
    if session.query("SELECT GET_LOCK(%s, %s)", (_lock_name(task), LOCK_S)) != [(1,)]:
        raise Retryable("MR-5005", f"another session is executing a statement of {task}", task=task)


def end_earlier_statement(session: TargetConnection, task: str) -> None:
    """After raising the fence, or after a stream's end: end the session that has the lock, and wait for its end."""
    ((holder,),) = session.query("SELECT IS_USED_LOCK(%s)", (_lock_name(task),))
    if holder is not None and holder != session.id:
        _log.info("ending an earlier DDL session", session=holder)
        try:
            session.query(f"KILL {holder}")
        except Fatal as exc:  # it has ended meanwhile
            _log.info("the session has ended", error=str(exc))
    lock(session, task)
    session.query("SELECT RELEASE_LOCK(%s)", (_lock_name(task),))
    session.commit()
