"""Queries that only `millrace check` sends to a source member: privileges, clock, server id, tables.

They need no privilege. Without SELECT the account does not see the tables.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from millrace.checks.clock import CLOCK_SQL, Clock, read_clock
from millrace.drivers.mysql.catalog import read_databases
from millrace.drivers.mysql.connection import MySqlSession
from millrace.drivers.mysql.grants import HeldGrants, held_grants
from millrace.drivers.mysql.members import ask_binlog_filters, ask_each
from millrace.errors import MillraceError
from millrace.producer.source.connection import Login, connect_member
from millrace.schemas.documents.model import Member
from millrace.schemas.table.table_filter import SYSTEM_DATABASES, TableFilter


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of the tasks that the account sees. ``keyless``: those without a primary key.

    ``row_bytes_max``: the widest row that the columns of ``widest`` allow.
    """

    count: int
    keyless: tuple[str, ...] = ()
    widest: str = ""
    row_bytes_max: int = 0


@dataclass(frozen=True, slots=True)
class Answers:
    member: Member
    grants: HeldGrants
    clock: Clock
    server_id: str
    databases: frozenset[str]
    binlog_filters: tuple[str, ...] = ()


def ask_answers(
    members: Sequence[Member], login: Login, *, timeout_s: float
) -> list[Answers | MillraceError]:
    """Ask all these members at the same time; the result has the same order."""

    def ask(member: Member) -> Answers:
        with connect_member(member, login, timeout_s=timeout_s) as connection:
            return ask_member_answers(connection)

    return ask_each(members, ask)


def ask_member_answers(connection: MySqlSession) -> Answers:
    """Ask one member. Errors: see ``connection``."""
    (row,) = connection.named("SELECT @@server_id AS id")

    def server_time() -> float:
        (row,) = connection.named(CLOCK_SQL)
        return float(row["now_s"] or 0)

    return Answers(
        connection.member,
        held_grants(connection),
        read_clock(server_time),
        str(row["id"]),
        frozenset(read_databases(connection)),
        tuple(ask_binlog_filters(connection)),
    )


def ask_tables(connection: MySqlSession, admitted: Sequence[TableFilter]) -> Tables:
    """The tables that one of the filters admits. One query per database: MariaDB opens every table that it lists."""
    visible = sorted(read_databases(connection) - SYSTEM_DATABASES)
    (row,) = connection.named("SELECT @@max_allowed_packet AS bytes")
    packet_bytes = int(row["bytes"] or 0)
    keyless: list[str] = []
    count = 0
    widest, widest_bytes = "", 0
    for database in visible:
        for table in connection.named(_TABLES, (database,)):
            name = str(table["name"])
            if not any(tables.admits(database, name) for tables in admitted):
                continue
            count += 1
            if not int(table["keys_"] or 0):
                keyless.append(f"{database}.{name}")
            row_bytes = min(int(table["bytes_"] or 0), packet_bytes)
            if row_bytes > widest_bytes:
                widest, widest_bytes = f"{database}.{name}", row_bytes
    return Tables(count, tuple(keyless), widest, widest_bytes)


# MariaDB hides TABLE_CONSTRAINTS from an account with SELECT alone. PRI also marks a unique key that is never NULL in a
# table without a primary key. The type of a JSON document has no maximum. Eight bytes are enough for each value of
# another type.
_TABLES = """
SELECT t.TABLE_NAME AS name,
       CAST(SUM(c.COLUMN_KEY = 'PRI') AS UNSIGNED) AS keys_,
       CAST(SUM(IF(c.DATA_TYPE = 'json', 4294967295, COALESCE(c.CHARACTER_OCTET_LENGTH, 8))) AS UNSIGNED) AS bytes_
FROM information_schema.TABLES t
  JOIN information_schema.COLUMNS c ON c.TABLE_SCHEMA = t.TABLE_SCHEMA AND c.TABLE_NAME = t.TABLE_NAME
WHERE t.TABLE_SCHEMA = %s AND t.TABLE_TYPE = 'BASE TABLE' GROUP BY t.TABLE_NAME ORDER BY t.TABLE_NAME
"""
