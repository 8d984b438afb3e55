"""SQL on the local servers. The only module of ``deploy`` that imports PyMySQL.

Statements go over the server's socket file, as root. Not for servers that others run.
"""

import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pymysql
from pymysql.connections import Connection
from pymysql.constants import CLIENT, ER
from pymysql.cursors import Cursor, DictCursor

from millrace.errors import Fatal

Arguments = Sequence[object] | Mapping[str, object] | None
Row = tuple[object, ...]
CONNECT_S = 5
# TLS has no use on a socket file, and PyMySQL would load the system's CAs for each connection: 20 ms
_unconnected = partial(
    pymysql.connect, user="root", charset="utf8mb4", ssl_disabled=True, defer_connect=True
)
_OVERTAKEN = (ER.LOCK_DEADLOCK, ER.LOCK_WAIT_TIMEOUT, ER.NO_SUCH_TABLE, ER.TABLE_DEF_CHANGED)


@contextmanager
def root_connection(path: Path, *, database: str | None = None) -> Iterator["Connection[Cursor]"]:
    """A connection as root with autocommit, closed at the end of the block.

    We open the socket ourselves, because PyMySQL does not close it when the connection is refused.
    """
    with socket.socket(socket.AF_UNIX) as wire:
        wire.settimeout(CONNECT_S)
        wire.connect(str(path))
        connection = _unconnected(database=database, autocommit=True)
        connection.connect(wire)
        try:
            yield connection
        finally:
            connection.close()


def execute(
    path: Path, sql: str, arguments: Arguments = None, *, database: str | None = None
) -> list[Row]:
    """Run one statement as root and return all rows. Raises the server's own error (pymysql.Error)."""
    with root_connection(path, database=database) as connection, connection.cursor() as cursor:
        cursor.execute(sql, arguments)
        return list(cursor.fetchall())


def execute_named(path: Path, sql: str) -> list[dict[str, object]]:
    """Run one statement as root and return its rows by column name."""
    with (
        root_connection(path) as connection,
        connection.cursor(DictCursor) as cursor,
    ):
        cursor.execute(sql)
        return list(cursor.fetchall())


def execute_unlogged(path: Path, statements: Sequence[str]) -> None:
    """Run statements as root without logging them in the binlog. Fatal MR-8007 names the one that failed."""
    with root_connection(path) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_log_bin = 0")
        for statement in statements:
            try:
                cursor.execute(statement)
            except pymysql.Error as error:
                head = " ".join(statement.split()[:3])
                raise Fatal("MR-8007", f"{head} …: {error}") from error


def answers(path: Path) -> bool:
    try:
        execute(path, "SELECT 1")
    except (pymysql.Error, OSError):
        return False
    return True


def open_root(path: Path, *, database: str | None = None) -> "Connection[Cursor]":
    """A connection as root without autocommit; a query may be several statements. The caller closes it."""
    connection = _unconnected(
        database=database, autocommit=False, client_flag=CLIENT.MULTI_STATEMENTS
    )
    with ExitStack() as undo:
        wire = undo.enter_context(socket.socket(socket.AF_UNIX))
        wire.connect(str(path))
        connection.connect(wire)
        undo.pop_all()
    return connection


class Deadlock(Exception):
    """The server rolled this source transaction back to resolve a deadlock or a lock timeout."""


class Overtaken(Exception):
    """Another session was faster: a deadlock, a lock timeout, or a table that DDL has moved or changed."""


@contextmanager
def raising_overtaken() -> Iterator[None]:
    """Raise such a driver error in the block as ``Overtaken``. The caller rolls back."""
    try:
        yield
    except pymysql.Error as error:
        if error.args[0] in _OVERTAKEN:
            raise Overtaken(str(error)) from error
        raise


@contextmanager
def raising_deadlock() -> Iterator[None]:
    """Raise a driver's deadlock or lock timeout in the block as ``Deadlock``."""
    try:
        yield
    except pymysql.OperationalError as error:
        if error.args[0] in (ER.LOCK_DEADLOCK, ER.LOCK_WAIT_TIMEOUT):
            raise Deadlock(str(error)) from error
        raise
