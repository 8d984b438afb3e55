"""The state of the tables and databases that a DDL statement names, to detect later whether it was executed.

A table's state is its definition from SHOW CREATE, without AUTO_INCREMENT, and InnoDB's ids of the table and its
partitions. An id changes when the table is truncated, rebuilt or exchanged, and stays the same when it is renamed. A
missing table or database has the state "".
"""

import re

from consumer.target.connection import TargetConnection
from millrace.errors import Fatal
from schemas.gtid import Flavour
from schemas.sql.statement import Statement

_AUTO_INCREMENT = re.compile(r" AUTO_INCREMENT=\d+")
_NO_SUCH_DATABASE = 1049
NO_IDS = "ids unknown"  # for a name that is not ASCII, whose file name has another encoding


def read_state(connection: TargetConnection, statement: Statement) -> dict[str, str]:
    """The state of each table and database that the statement changes, by name."""
    found = {}
    for name in statement.tables:
        found[f"{name.database}.{name.table}"] = _table_state(connection, name.database, name.table)
    for database in statement.databases:
        found[database] = _database_state(connection, database)
    return found


def _table_state(connection: TargetConnection, database: str, table: str) -> str:
    name = f"`{database.replace('`', '``')}`.`{table.replace('`', '``')}`"
    try:
        rows = connection.query(f"SHOW CREATE TABLE {name}")
    except Fatal as exc:
        if exc.code == "MR-5012":
            return ""
        raise
    definition = _AUTO_INCREMENT.sub("", str(rows[0][1]))
    return f"{definition}\n-- {_table_ids(connection, database, table)}"


def _table_ids(connection: TargetConnection, database: str, table: str) -> str:
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
    return ", ".join(f"{name}={number}" for name, number in sorted(rows, key=str))


def _file_name(name: str) -> str:
    """The name as InnoDB writes it: ``a-b`` is ``a@002db``; "" for names that are not ASCII."""
    if not name.isascii():
        return ""
    return "".join(c if c.isalnum() or c == "_" else f"@{ord(c):04x}" for c in name)


def _database_state(connection: TargetConnection, database: str) -> str:
    try:
        rows = connection.query(f"SHOW CREATE DATABASE `{database.replace('`', '``')}`")
    except Fatal as exc:
        if exc.context.get("errno") == str(_NO_SUCH_DATABASE):
            return ""
        raise
    return str(rows[0][1])
