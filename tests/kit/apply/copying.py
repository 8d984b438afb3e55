"""Two databases between which tables are copied: on one server, or on two."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from millrace.consumer.copy import Copied, TablePair, copy_chunk
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.catalog import read_inventory
from millrace.drivers.mysql.connection import MySqlSession, Row, connect
from tests.kit.apply.local import endpoint_of

SOURCE, TARGET = "copy_source", "copy_target"  # on one server; on two, both have ``SOURCE``
ALL = "TRUE"


@dataclass(slots=True)
class Copying:
    """``source`` and ``target`` are the sessions that a copy uses; each has its database as default."""

    servers: tuple[DatabaseServer, DatabaseServer]
    source: MySqlSession
    target: MySqlSession

    def create(self, *statements: str, also: str = "") -> None:
        """Run CREATE TABLE on both sides. ``also``: on the target alone, after them."""
        for session in (self.source, self.target):
            for sql in statements:
                session.query(sql)
        if also:
            self.target.query(also)

    def fill(self, *statements: str) -> None:
        """Run and commit on the source."""
        for sql in statements:
            self.source.query(sql)
        self.source.commit()

    def pair(self, table: str, *, loads: bool = True) -> TablePair:
        """``loads``: by LOAD DATA, unless the table takes INSERT."""
        at_target = read_inventory(self.target, with_folds=False)
        at_source = read_inventory(self.source, with_folds=False)
        inventory = replace(at_target, allows_load_data=at_target.allows_load_data and loads)
        theirs = at_target.tables[_databases(self.servers)[1], table]
        return TablePair.of(at_source.tables[SOURCE, table], theirs, inventory)

    def copy(
        self, table: str, where: str = ALL, *, loads: bool = True, bytes_max: int = 1 << 20
    ) -> Copied:
        """Copy and commit."""
        pair = self.pair(table, loads=loads)
        copied = copy_chunk(self.source, self.target, pair, where, bytes_max=bytes_max)
        self.target.commit()
        return copied

    def both(self, sql: str) -> tuple[list[Row], list[Row]]:
        """The rows of a query on both sides."""
        return self.source.query(sql), self.target.query(sql)

    def are_equal(self, table: str) -> bool:
        """Whether CHECKSUM TABLE is the same. On one server, or on two of one flavour."""
        ours, theirs = self.both(f"CHECKSUM TABLE {table}")
        return ours[0][1] == theirs[0][1]


def _databases(servers: tuple[DatabaseServer, DatabaseServer]) -> tuple[str, str]:
    return SOURCE, TARGET if servers[0] is servers[1] else SOURCE


@contextmanager
def copying(source: DatabaseServer, target: DatabaseServer) -> Iterator[Copying]:
    """Both databases, empty; dropped afterwards."""
    servers = (source, target)
    places = list(zip(servers, _databases(servers), strict=True))
    for server, name in places:
        server.execute(f"DROP DATABASE IF EXISTS {name}")
        server.execute(f"CREATE DATABASE {name} DEFAULT CHARSET utf8mb4")
    ours, theirs = (connect(endpoint_of(server), database=name) for server, name in places)
    made = Copying(servers, ours, theirs)
    try:
        yield made
    finally:
        made.source.close()
        made.target.close()
        for server, name in places:
            server.execute(f"DROP DATABASE IF EXISTS {name}")
