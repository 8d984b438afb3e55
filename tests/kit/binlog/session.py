"""A root session whose changes stand in a binlog file of their own, and that file's conversion."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pymysql

from deploy.servers import DatabaseServer
from schemas.documents import TableFilter
from schemas.place import FIRST_POS, Coordinates
from tests.kit.capture.converter import SUBDIR, Conversion, FileReader

Cursor = pymysql.cursors.Cursor


@contextmanager
def session(server: DatabaseServer) -> Iterator[Cursor]:
    """A connection as root that takes any value, in UTC."""
    connection = pymysql.connect(
        unix_socket=str(server.socket), user="root", charset="utf8mb4", autocommit=True
    )
    with connection, connection.cursor() as cursor:
        cursor.execute(
            "SET sql_mode='NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES', time_zone='+00:00'"
        )
        yield cursor


@dataclass
class LoggedSession:
    """``cursor`` works in ``database``, logged from the start of ``file`` on."""

    server: DatabaseServer
    cursor: Cursor
    database: str
    file: str

    def run(self, *statements: str) -> None:
        """One after the other."""
        for statement in statements:
            self.cursor.execute(statement)

    def rows(self, query: str) -> list[tuple[object, ...]]:
        """All rows of a query."""
        self.cursor.execute(query)
        return list(self.cursor.fetchall())

    def conversion(self) -> Conversion:
        """Of everything logged so far, of this database."""
        self.cursor.execute("FLUSH BINARY LOGS")
        return Conversion(
            FileReader.of_server(self.server.binlog_dir),
            flavour=self.server.flavour,
            filter=TableFilter(include=(f"{self.database}.*",)),
            at=Coordinates(SUBDIR, self.file, FIRST_POS),
        )


@contextmanager
def logged(server: DatabaseServer, database: str) -> Iterator[LoggedSession]:
    """A fresh database; dropped behind the block."""
    with session(server) as cursor:
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute("SHOW BINARY LOGS")
        made = LoggedSession(server, cursor, database, str(cursor.fetchall()[-1][0]))
        made.run(f"CREATE DATABASE {database} CHARACTER SET utf8mb4", f"USE {database}")
        try:
            yield made
        finally:  # also where a guard was taken away and the block fails
            cursor.execute(f"DROP DATABASE IF EXISTS {database}")
