"""The state of the tables and databases that a DDL statement names, to detect later whether it was executed.

InnoDB's ids have a meaning only on the server that they were read on (``server_of``): a replica has others.

A table's state is its definition from SHOW CREATE, without AUTO_INCREMENT, and InnoDB's ids of the table and its
partitions. An id changes when the table is truncated, rebuilt or exchanged, and stays the same when it is renamed. A
missing table or database has the state "". The state of a sequence includes its row.

On MySQL the ids are those of the tablespaces, found through an index. Ids of tables are only read for a table in a
shared tablespace: at 5,000 tables that takes more than a second, because the server opens each of them. MariaDB
looks through its tables in one pass, which takes 5 ms for 5,000.
"""

import re
from collections.abc import Sequence

from millrace.consumer.target.progress import DATABASE
from millrace.drivers.mysql.connection import MySqlSession, Row, stored_text
from millrace.drivers.mysql.errors import NO_DATABASE
from millrace.errors import Fatal, Retryable
from millrace.schemas.gtid import Flavour
from millrace.schemas.sql.quoting import quoted, table_name
from millrace.schemas.sql.statement import Statement, TableName

_AUTO_INCREMENT = re.compile(r" AUTO_INCREMENT=\d+")
_SEQUENCE = re.compile(r"^\) ENGINE=\S+ SEQUENCE=1", re.MULTILINE)
SPACES = "tablespaces "
# for a name that is not ASCII, whose file name has another encoding, and for another engine than InnoDB
NO_IDS = "ids unknown"


def read_state(connection: MySqlSession, statement: Statement) -> dict[str, str]:
    """The state of each table and database that the statement changes, by name."""
    found = {}
    for name in statement.tables:
        found[f"{name.database}.{name.table}"] = _table_state(connection, name.database, name.table)
    for database in statement.databases:
        found[database] = _database_state(connection, database)
    return found


def read_objects(connection: MySqlSession, names: Sequence[str]) -> dict[str, str]:
    """The state of tables and databases now, by the names that ``read_state`` gave them."""
    return {name: _object_state(connection, name) for name in names}


def _object_state(connection: MySqlSession, name: str) -> str:
    """A name of a database or table may have a dot, so each place for one is tried."""
    for at in (at for at, character in enumerate(name) if character == "."):
        if 0 < at < len(name) - 1 and (
            state := _table_state(connection, name[:at], name[at + 1 :])
        ):
            return state
    return "" if "." in name else _database_state(connection, name)


def server_of(connection: MySqlSession) -> str:
    """Names the server, with its files: MySQL's UUID. MariaDB has none: its server_id, and when a file was made."""
    if not connection.server:
        if connection.flavour is Flavour.MYSQL:
            ((name,),) = connection.query("SELECT @@server_uuid")
        else:  # restored from a backup, or copied from another server, the file has another time
            rows = connection.query(SERVER_SQL)
            if not rows:  # the account does not see the table
                connection.query(f"SELECT 1 FROM {DATABASE}.fence LIMIT 0")  # MR-5007 or MR-5012
                rows = connection.query(SERVER_SQL)
            ((name,),) = rows
        connection.server = str(name)
    return connection.server


def check_server(connection: MySqlSession, server: str) -> None:
    """Retryable MR-5001 if the session's address leads to another server than it did."""
    if server_of(connection) != server:
        what = f"{connection.endpoint.name} is another server now"
        raise Retryable("MR-5001", what)


SERVER_SQL = (
    "SELECT CONCAT(@@global.server_id, ' since ', CREATE_TIME) FROM information_schema.TABLES"
    f" WHERE TABLE_SCHEMA = '{DATABASE}' AND TABLE_NAME = 'fence'"
)


def is_empty(connection: MySqlSession, table: TableName, partitions: Sequence[str]) -> bool:
    """Whether these partitions have no row; (): whether the table is as TRUNCATE leaves it, or is missing."""
    name = table_name(table.database, table.table).decode()
    of = (
        f" PARTITION ({', '.join(quoted(part).decode() for part in partitions)})"
        if partitions
        else ""
    )
    try:
        if connection.query(f"SELECT 1 FROM {name}{of} LIMIT 1"):
            return False
        ((_, text),) = connection.query(f"SHOW CREATE TABLE {name}")
    except Fatal as exc:
        if exc.code == "MR-5012":
            return True
        raise
    return bool(partitions) or _AUTO_INCREMENT.search(str(text)) is None


def has_rows(connection: MySqlSession, database: str, table: str) -> bool:
    """Whether the table is there and has a row."""
    try:
        name = table_name(database, table).decode()
        return bool(connection.query(f"SELECT 1 FROM {name} LIMIT 1"))
    except Fatal as exc:
        if exc.code == "MR-5012":
            return False
        raise


def _table_state(connection: MySqlSession, database: str, table: str) -> str:
    name = table_name(database, table).decode()
    try:
        rows = connection.query(f"SHOW CREATE TABLE {name}")
    except Fatal as exc:
        if exc.code == "MR-5012":
            return ""
        raise
    definition = stored_text(_AUTO_INCREMENT.sub("", str(rows[0][1])))
    if connection.flavour is Flavour.MARIADB and _SEQUENCE.search(definition):
        definition += f"\n-- {connection.query(f'SELECT * FROM {name}')}"
    return f"{definition}\n-- {_table_ids(connection, database, table)}"


def _table_ids(connection: MySqlSession, database: str, table: str) -> str:
    spaces = _spaces(connection, database, table) if connection.flavour is Flavour.MYSQL else []
    if spaces:
        return SPACES + _listed(spaces)
    file = _file_name(database), _file_name(table)
    if "" in file:
        return NO_IDS
    source = "INNODB_TABLES" if connection.flavour is Flavour.MYSQL else "INNODB_SYS_TABLES"
    name = "/".join(file)
    rows = connection.query(
        f"SELECT NAME, TABLE_ID FROM information_schema.{source}"
        " WHERE NAME = %s OR LEFT(NAME, %s) = %s",
        (name, len(name) + 1, f"{name}#"),
    )
    return _listed(rows) or NO_IDS


def _spaces(connection: MySqlSession, database: str, table: str) -> list[Row]:
    """Names and ids of the tablespaces of a table's own; the names are not encoded."""
    name = f"{database}/{table}"
    partitions = re.sub(r"([\\%_])", r"\\\1", name) + "#%"
    return connection.query(
        "SELECT NAME, CAST(SPACE AS UNSIGNED) FROM information_schema.INNODB_TABLESPACES_BRIEF"
        " WHERE NAME = %s OR NAME LIKE %s",
        (name, partitions),
    )


def _listed(rows: list[Row]) -> str:
    return ", ".join(f"{name}={number}" for name, number in sorted(rows, key=str))


def _file_name(name: str) -> str:
    """The name as InnoDB writes it: ``a-b`` is ``a@002db``; "" for names that are not ASCII."""
    if not name.isascii():
        return ""
    return "".join(c if c.isalnum() or c == "_" else f"@{ord(c):04x}" for c in name)


def _database_state(connection: MySqlSession, database: str) -> str:
    try:
        rows = connection.query(f"SHOW CREATE DATABASE {quoted(database).decode()}")
    except Fatal as exc:
        if exc.errno == NO_DATABASE:
            return ""
        raise
    return str(rows[0][1])
