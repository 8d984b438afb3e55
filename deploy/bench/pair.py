"""Two servers of one flavour with the same tables, and how fast a piece of work on them is.

Neither capture nor apply runs.
"""

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Self

from millrace.deploy.bench.apply.processes import uses
from millrace.deploy.bench.figure import bench_folder, say
from millrace.deploy.servers import Account, DatabaseServer, ServerOptions
from millrace.drivers.mysql.connection import Endpoint
from millrace.schemas.documents import Tls, TlsMode
from millrace.schemas.gtid import Flavour

DATABASE = "bench"
_STEP_ROWS = 1_000_000  # the six digits of one INSERT


@dataclass(frozen=True, slots=True)
class Table:
    """``row``: its values as SQL of ``n``, which counts from 0."""

    name: str
    columns: str
    row: str


@dataclass(frozen=True, slots=True)
class Pair:
    """``rows``: how many each table of the source has."""

    source: DatabaseServer
    target: DatabaseServer
    rows: Mapping[str, int]

    @property
    def servers(self) -> tuple[DatabaseServer, DatabaseServer]:
        return self.source, self.target

    def endpoints(self) -> tuple[Endpoint, Endpoint]:
        """Where Millrace logs in."""
        source, target = (
            Endpoint(s.host, s.port, s.user, s.password, Tls(TlsMode.REQUIRE_UNVERIFIED))
            for s in self.servers
        )
        return source, target

    def pace(self, table: Table, work: Callable[[], object]) -> "Pace":
        """Do the work once. Its processes other than the servers must have ended when it returns."""
        rows = self.rows[table.name]
        begin_s, cpu_s = time.monotonic(), _cpu_s(self.servers)
        work()
        rate = rows / (time.monotonic() - begin_s)
        return Pace(rate, (_cpu_s(self.servers) - cpu_s) / rows * 1e6)

    def at_once(self, work: Callable[[DatabaseServer], object]) -> None:
        """Do something on both servers at the same time."""
        _at_once(self.servers, work)


@dataclass(frozen=True, slots=True)
class Pace:
    """Rows per second, and the CPU time of clients and servers for a row."""

    rate: float
    cpu_us: float

    @classmethod
    def median(cls, paces: Sequence[Self]) -> Self:
        return cls(median(pace.rate for pace in paces), median(pace.cpu_us for pace in paces))


@contextmanager
def open_pair(
    flavour: Flavour,
    tables: Mapping[Table, int],
    *,
    is_target_filled: bool = False,
    options: Sequence[str] = (),
) -> Iterator[Pair]:
    """Both servers with these tables; the source's have so many rows. They are removed at the end."""
    with bench_folder() as folder, ExitStack() as undo:
        servers = []
        for number, side in ((301, "source"), (302, "target")):
            settings = ServerOptions(server_id=number, extra=tuple(options))
            server = DatabaseServer.of(flavour, folder / side, settings)
            undo.callback(server.discard)
            server.start()
            server.create_account(Account("bench", secrets.token_hex(12)), "ALL PRIVILEGES")
            server.execute(f"CREATE DATABASE {DATABASE} DEFAULT CHARSET utf8mb4")
            for table in tables:
                server.execute(f"CREATE TABLE {DATABASE}.{table.name} ({table.columns})")
            servers.append(server)
        _at_once(
            servers if is_target_filled else servers[:1],
            lambda server: _fill(server, tables),
        )
        yield Pair(servers[0], servers[1], {table.name: rows for table, rows in tables.items()})


def _at_once(servers: Sequence[DatabaseServer], work: Callable[[DatabaseServer], object]) -> None:
    threads = [threading.Thread(target=work, args=(server,)) for server in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _fill(server: DatabaseServer, tables: Mapping[Table, int]) -> None:
    digits = " UNION ALL ".join(f"SELECT {digit} d" for digit in range(10))
    number = " + ".join(f"t{place}.d * {10**place}" for place in range(6))
    numbers = " JOIN ".join(f"({digits}) t{place}" for place in range(6))
    for table, rows in tables.items():
        for first in range(0, rows, _STEP_ROWS):
            say(f"filling {table.name}, {first:,} of {rows:,} rows")
            server.execute(
                f"INSERT INTO {DATABASE}.{table.name} SELECT {table.row} FROM"
                f" (SELECT {number} + {first} n FROM {numbers}) numbers WHERE n < {rows}"
            )


def _cpu_s(servers: Sequence[DatabaseServer]) -> float:
    """CPU seconds of the servers, this process and its children that have ended."""
    used = (use for server in servers for use in uses(server.process))
    return sum(os.times()[:4]) + sum(use.cpu_s for use in used)
