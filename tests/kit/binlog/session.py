"""A root session whose changes are in a separate binlog file, and the conversion of that file."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pymysql

from millrace.deploy.servers import DatabaseServer
from millrace.schemas.documents import TableFilter
from millrace.schemas.place import FIRST_POS, Coordinates
from tests.kit.capture.converter import SUBDIR, Conversion, FileReader, raw_records

Cursor = pymysql.cursors.Cursor


@contextmanager
def session(server: DatabaseServer) -> Iterator[Cursor]:
    """A root connection in UTC that accepts any value."""
    connection = pymysql.connect(
        unix_socket=str(server.socket),
        user="root",
        charset="utf8mb4",
        autocommit=True,
        ssl_disabled=True,  # else each connection loads the system's CAs
    )
    with connection, connection.cursor() as cursor:
        cursor.execute(
            "SET sql_mode='NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES', time_zone='+00:00'"
        )
        yield cursor


@dataclass
class LoggedSession:
    """``cursor`` works in ``database``; its changes are logged from the start of ``file`` on."""

    server: DatabaseServer
    cursor: Cursor
    database: str
    file: str

    def run(self, *statements: str) -> None:
        """Run statements one after the other."""
        for statement in statements:
            self.cursor.execute(statement)

    def rows(self, query: str) -> list[tuple[object, ...]]:
        """All rows of a query."""
        self.cursor.execute(query)
        return list(self.cursor.fetchall())

    def record_values(self) -> list[bytes]:
        """The values of a topic with all changes so far, also those of other databases."""
        whole = self.conversion()
        found = Conversion(whole.reader, flavour=whole.flavour, filter=TableFilter(), at=whole.at)
        return [value for batch in found.batches() for _, value in raw_records(batch)]

    def conversion(self) -> Conversion:
        """The conversion of this database's changes so far."""
        self.cursor.execute("FLUSH BINARY LOGS")
        return Conversion(
            FileReader.of_server(self.server.binlog_dir),
            flavour=self.server.flavour,
            filter=TableFilter(include=(f"{self.database}.*",)),
            at=Coordinates(SUBDIR, self.file, FIRST_POS),
        )


@contextmanager
def logged(server: DatabaseServer, database: str) -> Iterator[LoggedSession]:
    """A new database, dropped after the block."""
    with session(server) as cursor:
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute("SHOW BINARY LOGS")
        made = LoggedSession(server, cursor, database, str(cursor.fetchall()[-1][0]))
        made.run(f"CREATE DATABASE {database} CHARACTER SET utf8mb4", f"USE {database}")
        try:
            yield made
        finally:  # even if the block fails, as it does in mutants
            cursor.execute(f"DROP DATABASE IF EXISTS {database}")
