"""The session that executes DDL statements of a task, under the source's session variables, with the lock of the task.

A run keeps two sessions for all of its statements. The driver's own runs the target transactions around a statement.
This one holds the lock from the first statement on. Its variables stay as the last statement set them, so a statement
that sets fewer of them gets a new session.
Not done here: deciding whether a statement is executed (``consumer.write.ddl``).
"""

from contextlib import suppress
from decimal import Decimal

from millrace.consumer.target.progress import check_fence
from millrace.consumer.target.running_statement import lock
from millrace.consumer.target.sessions import STATEMENTS, Leftovers, Sessions
from millrace.consumer.target.table_state import check_server, server_of
from millrace.drivers.mysql.connection import MySqlSession
from millrace.errors import Fatal, MillraceError
from millrace.log import get_logger
from millrace.schemas.gtid import Flavour
from millrace.schemas.record.control import DdlRecord
from millrace.schemas.sql.quoting import quoted

_log = get_logger("apply.ddl")

_ANYWHERE = ("time_zone", "foreign_key_checks", "unique_checks", "explicit_defaults_for_timestamp")
_SAME_FLAVOUR = (
    "sql_mode",
    "collation_server",
    "collation_connection",
    "default_collation_for_utf8mb4",
)
# The servers log these only with another value, and records of older versions do not have them.
_DEFAULTS = {"auto_increment_increment": "1", "auto_increment_offset": "1", "lc_time_names": "0"}
_MARIADB_DEFAULTS = {"check_constraint_checks": "1", "sql_if_exists": "0"}
# The modes of both flavours. Without NO_ENGINE_SUBSTITUTION an engine of the other flavour becomes InnoDB.
_COMMON_MODES = {
    *("ANSI_QUOTES", "PIPES_AS_CONCAT", "IGNORE_SPACE", "NO_BACKSLASH_ESCAPES", "REAL_AS_FLOAT"),
    *("NO_ZERO_DATE", "NO_ZERO_IN_DATE", "STRICT_TRANS_TABLES", "STRICT_ALL_TABLES"),
    *("ALLOW_INVALID_DATES", "ERROR_FOR_DIVISION_BY_ZERO", "NO_AUTO_VALUE_ON_ZERO"),
    *("HIGH_NOT_PRECEDENCE", "NO_UNSIGNED_SUBTRACTION", "PAD_CHAR_TO_FULL_LENGTH"),
}
# With one of these modes, which MySQL does not have, a statement has another meaning.
_ONLY_MARIADB_MODES = {"ORACLE", "EMPTY_STRING_IS_NULL", "MAXDB"}
_UTF8_IS_UTF8MB4 = "INTERPRET_UTF8_AS_UTF8MB4"  # of MySQL; in MariaDB a matter of old_mode
# A target that is told not to use the directories in statements does not, whatever its source does.
_VALUES = {
    "sql_mode": "CONCAT_WS(',', NULLIF(%s, ''),"
    " IF(FIND_IN_SET('NO_DIR_IN_CREATE', @@GLOBAL.sql_mode), 'NO_DIR_IN_CREATE', NULL))"
}
_GENERATED_KEYS_FROM = (8, 0, 30)  # sql_generate_invisible_primary_key of MySQL
_IF_EXISTS_FROM = (10, 5, 2)  # sql_if_exists of MariaDB
_OLD_MODES_FROM = (10, 6, 1)  # old_mode UTF8_IS_UTF8MB3 of MariaDB

# Settings of a session that no log has, by the errors of statements that they refuse: options and row sizes; foreign
# keys that refer to a key that is not unique (MySQL).
_REFUSING = {
    **dict.fromkeys((1005, 1031, 1118, 1478), "innodb_strict_mode"),
    6125: "restrict_fk_on_non_standard_key",
}
_DUPLICATES = {1022, 1062, 1467, 1586}  # a replica takes one for the other


def _modes(record: DdlRecord) -> list[str]:
    return [mode for mode in record.statement.session.get("sql_mode", "").split(",") if mode]


def entered(session: MySqlSession, sessions: Sessions, record: DdlRecord) -> MySqlSession:
    """The session, or a new one, with the source's values of all variables that affect the statement's meaning."""
    values, database = record.statement.session, record.statement.default_database
    variables = _variables(session, record)
    left = sessions.leftovers.get(session, Leftovers())
    if left.names - variables.keys() or (
        not _use(session, database) and left.database
    ):  # what is left would affect the statement
        server = server_of(session)
        session.close()
        session, left = sessions.for_lane(STATEMENTS), Leftovers()
        lock(session, sessions.owner.task)
        check_server(session, server)
        check_fence(session, sessions.owner)  # another run may have had the lock meanwhile
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
        "SET SESSION " + ", ".join(f"{name} = {_VALUES.get(name, '%s')}" for name in variables),
        list(variables.values()),
    )
    if session.flavour is Flavour.MYSQL and record.statement.kind in (
        "create_table",
        "alter_table",
    ):
        _set_key_rules_aside(session)
    sessions.leftovers[session] = Leftovers(frozenset(variables), database, collations)
    return session


def _variables(session: MySqlSession, record: DdlRecord) -> dict[str, object]:
    is_mariadb = session.flavour is Flavour.MARIADB
    is_same = record.source.origin.connector is session.flavour
    has_all = is_mariadb and session.version.numbers >= _IF_EXISTS_FROM
    defaults = _DEFAULTS | (_MARIADB_DEFAULTS if has_all else {})
    values = {**defaults, **record.statement.session}
    names = (*_ANYWHERE, *defaults, *(_SAME_FLAVOUR if is_same else ()))
    found: dict[str, object] = {name: _value(values[name]) for name in names if name in values}
    if "sql_if_exists" in found and is_same and _may_name_missing_tables(record):
        found["sql_if_exists"] = 1
    if not is_same and "sql_mode" in values:
        found |= _translated_modes(session, _modes(record))
    # DEFAULT CURRENT_TIMESTAMP of a new column gives old rows the statement's time. A double can not hold it exactly.
    # MySQL rounds it to microseconds and MariaDB truncates it; adding 0.3 microseconds is right for both.
    seconds, micros = record.source.place.ts_ms // 1000, int(values.get("microseconds", "0"))
    if is_mariadb:  # the source has accepted the statement
        found["system_versioning_alter_history"] = "KEEP"
    return found | {"timestamp": Decimal(f"{seconds}.{micros:06}3")}


def _may_name_missing_tables(record: DdlRecord) -> bool:
    """Whether it is a DROP of several tables: MariaDB drops those that exist, and logs all names without an error."""
    statement = record.statement
    return statement.kind in ("drop_table", "sequence") and len(statement.tables) > 1


def _translated_modes(session: MySqlSession, modes: list[str]) -> dict[str, object]:
    """The modes of a source of the other flavour. Fatal MR-5041 if the target has no equal.

    By default MySQL rounds the fraction of a second that a column has no place for, and MariaDB cuts it off.
    """
    taken = [mode for mode in modes if mode in _COMMON_MODES]
    if session.flavour is Flavour.MYSQL:
        if missing := _ONLY_MARIADB_MODES.intersection(modes):
            names = ", ".join(sorted(missing))
            raise Fatal("MR-5041", f"MySQL does not have the source's sql_mode {names}")
        if "TIME_ROUND_FRACTIONAL" not in modes:
            taken.append("TIME_TRUNCATE_FRACTIONAL")
        return {"sql_mode": ",".join(taken)}
    if "TIME_TRUNCATE_FRACTIONAL" not in modes:
        taken.append("TIME_ROUND_FRACTIONAL")
    found: dict[str, object] = {"sql_mode": ",".join(taken)}
    if session.version.numbers >= _OLD_MODES_FROM:
        found["old_mode"] = "" if _UTF8_IS_UTF8MB4 in modes else "UTF8_IS_UTF8MB3"
    return found


def _set_key_rules_aside(session: MySqlSession) -> None:
    """The target's own rules for tables without a primary key are not the source's.

    Without the privilege, a required key is left to the server, which says that it is missing; but a generated one
    would be a column that the source does not have.
    """
    if session.version.numbers < _GENERATED_KEYS_FROM:
        return
    generates, requires = "sql_generate_invisible_primary_key", "sql_require_primary_key"
    ((is_generated, is_required),) = session.query(
        f"SELECT @@SESSION.{generates}, @@SESSION.{requires}"
    )
    if is_generated:
        session.query(f"SET SESSION {generates} = 0")
    if is_required:
        with suppress(Fatal):
            session.query(f"SET SESSION {requires} = 0")


def _use(session: MySqlSession, database: str) -> bool:
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


def _set_default_collations(session: MySqlSession, pairs: str) -> None:
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


# ---- execution ------------------------------------------------------------------------------------


def run_statement(session: MySqlSession, sql: str) -> None:
    """Run a statement. If a setting of ``_REFUSING`` refuses it, it is run without, as the source must have done.

    Without the privilege to change the setting (MySQL), the error is the server's, with a fix that says so.
    """
    try:
        session.query(sql.encode(errors="surrogateescape"))
    except Fatal as exc:
        setting = _REFUSING.get(exc.errno or 0, "")
        if not setting or session.query(f"SELECT @@SESSION.{setting}") != [(1,)]:
            raise
        try:
            session.query(f"SET SESSION {setting} = 0")
        except Fatal as denied:
            exc.fix = (
                f"The source may have accepted it with {setting}=OFF. Then let the task's account set this:"
                f" {denied.fix.partition(';')[0]}; and `millrace task resume TASK`. Otherwise: {exc.fix}"
            )
            raise exc from denied
        _log.info("a setting refused a statement", setting=setting, error=exc.message)
        try:
            session.query(sql.encode(errors="surrogateescape"))
        finally:
            if session.is_open:  # otherwise the first error must remain the reason
                session.query(f"SET SESSION {setting} = 1")


def run_failed_statement(session: MySqlSession, sql: str, errno: int) -> None:
    """Run a statement that failed on the source, after changes that it left. It must fail here with the same error.

    Fatal MR-5040 if it succeeds; another error is raised.
    """
    try:
        session.query(sql.encode(errors="surrogateescape"))
    except MillraceError as exc:
        if exc.errno != errno and not {exc.errno, errno} <= _DUPLICATES:
            raise
        return
    raise Fatal("MR-5040", f"it failed on the source with error {errno}, and not on the target")
