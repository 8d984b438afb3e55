"""Two servers of one flavour, the first with a table of 10 columns and about 200 bytes a row.

id, customer     integers; ``id`` is the primary key, and rows are 1, 2, 3, …
state            ENUM
total, weight    DECIMAL, DOUBLE
placed, shipped  DATETIME(6), DATETIME; two thirds NULL
note, body       VARCHAR; a quarter NULL, 128 characters
region           CHAR
"""

import secrets
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from consumer.copy import TablePair
from deploy.servers import Account, DatabaseServer, ServerOptions
from drivers.mysql.catalog import read_inventory
from drivers.mysql.connection import Endpoint, connect
from millrace.errors import Fatal
from millrace.home_folder import home
from schemas.documents import Tls, TlsMode
from schemas.gtid import Flavour

DATABASE, TABLE = "bench", "orders"
ROWS = 2_000_000
_STEP = 100_000  # rows that one statement makes
_DIGITS = "(SELECT 0 d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4"
_DIGITS += " UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)"
_CREATE = (
    f"CREATE TABLE {DATABASE}.{TABLE} (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, customer INT UNSIGNED NOT NULL,"
    " state ENUM('open','paid','shipped') NOT NULL, total DECIMAL(14,2) NOT NULL, weight DOUBLE,"
    " placed DATETIME(6) NOT NULL, shipped DATETIME, note VARCHAR(100), body VARCHAR(200) NOT NULL,"
    " region CHAR(2) NOT NULL) DEFAULT CHARSET=utf8mb4"
)


@dataclass(frozen=True, slots=True)
class Scene:
    """``rows``: how many the source has."""

    source: DatabaseServer
    target: DatabaseServer
    rows: int

    def endpoints(self) -> tuple[Endpoint, Endpoint]:
        """Where the copy logs in."""
        ours, theirs = (
            Endpoint(s.host, s.port, s.user, s.password, Tls(TlsMode.REQUIRE_UNVERIFIED))
            for s in (self.source, self.target)
        )
        return ours, theirs

    def pair(self) -> TablePair:
        """The table on both servers."""
        inventories = []
        for endpoint in self.endpoints():
            session = connect(endpoint)
            inventories.append(read_inventory(session, with_folds=False))
            session.close()
        source, target = (inventory.tables[DATABASE, TABLE] for inventory in inventories)
        return TablePair.of(source, target, inventories[1])

    def empty_target(self) -> None:
        self.target.execute(f"TRUNCATE TABLE {DATABASE}.{TABLE}")

    def check(self) -> None:
        """Fatal MR-8004 unless the target has the source's rows."""
        sums = [
            server.execute(f"CHECKSUM TABLE {DATABASE}.{TABLE}")[0][1]
            for server in (self.source, self.target)
        ]
        if sums[0] != sums[1]:
            raise Fatal("MR-8004", "the copy differs from the source's table")


@contextmanager
def open_scene(flavour: Flavour, rows: int) -> Iterator[Scene]:
    """Both servers; the target's table is empty. They are removed at the end."""
    folder = home() / "run"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=folder) as name, ExitStack() as made:
        servers = []
        for number, what in enumerate(("source", "target"), 1):
            options = ServerOptions(server_id=number)
            server = DatabaseServer.of(flavour, Path(name) / what, options)
            made.callback(server.discard)
            server.start()
            server.create_account(Account("bench", secrets.token_hex(12)), "ALL PRIVILEGES")
            server.execute(f"CREATE DATABASE {DATABASE}")
            server.execute(_CREATE)
            servers.append(server)
        say(f"making {rows:,} rows")
        for first in range(0, rows, _STEP):
            servers[0].execute(_rows(first, min(_STEP, rows - first)))
        yield Scene(servers[0], servers[1], rows)


def _rows(first: int, count: int) -> str:
    digits = ", ".join(f"{_DIGITS} d{place}" for place in range(5))
    number = " + ".join(f"d{place}.d * {10**place}" for place in range(5))
    return (
        f"INSERT INTO {DATABASE}.{TABLE} SELECT n, n * 7919 % 100000, n % 3 + 1, n * 1.25, n / 7,"
        " '2026-01-01' + INTERVAL n SECOND + INTERVAL n % 1000 MICROSECOND,"
        " IF(n % 3, NULL, '2026-02-01' + INTERVAL n SECOND), IF(n % 4, CONCAT('left at ', n), NULL),"
        f" REPEAT(SHA2(n, 256), 2), CONCAT('D', n % 10) FROM (SELECT {first} + 1 + {number} n FROM {digits}) q"
        f" WHERE n <= {first + count}"
    )


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
