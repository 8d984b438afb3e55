"""Two servers of one flavour with the same rows.

Neither capture nor apply runs: the task's progress on the target has the source's position, like that of a task that
has applied everything.

    orders      6 columns: BIGINT key, INT, DECIMAL, DATETIME(3), two VARCHAR, one of them with NULLs; 90 bytes as text
    sysbench    that of sysbench: INT key, INT with an index, CHAR(120), CHAR(60); 200 bytes as text
    wide        41 columns: BIGINT key, and ten each of INT, DECIMAL, DATETIME(3), VARCHAR; 700 bytes as text
"""

import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from consumer.compare import Ends
from consumer.task.start import take_over
from deploy.servers import Account, DatabaseServer, ServerOptions
from drivers.mysql.connection import Endpoint, connect
from millrace.home_folder import home
from schemas.documents import (
    ApplyRules,
    ApplyTask,
    Brokers,
    Start,
    TableFilter,
    Tls,
    TlsMode,
    TopicAddress,
)
from schemas.gtid import Flavour

ROWS = 10_000_000
DATABASE, TASK = "bench", "bench"
ACCOUNT = Account("bench", "bench-secret")
OPTIONS = ("--innodb-buffer-pool-size=2G",)
_STEP_ROWS = 1_000_000  # the six digits of one INSERT


@dataclass(frozen=True, slots=True)
class Table:
    """``row``: its values as SQL of ``n``, which counts from 0. ``share``: of the rows of a run."""

    name: str
    columns: str
    row: str
    share: float = 1.0


ORDERS = Table(
    "orders",
    "id BIGINT NOT NULL PRIMARY KEY, k INT NOT NULL, amount DECIMAL(12,2) NOT NULL, at DATETIME(3) NOT NULL,"
    " name VARCHAR(60) NOT NULL, note VARCHAR(60)",
    "n, n * 7919 % 1000003, n DIV 7 + n % 100 / 100, '2026-01-01' + INTERVAL n % 31000000 SECOND,"
    " CONCAT('customer ', n, ' of the town'), IF(n % 4, CONCAT('left at ', n % 31007), NULL)",
)
SYSBENCH = Table(
    "sysbench",
    "id INT NOT NULL PRIMARY KEY, k INT NOT NULL, c CHAR(120) NOT NULL, pad CHAR(60) NOT NULL, KEY (k)",
    "n, n * 7919 % 1000003, LEFT(REPEAT(SHA2(n, 256), 2), 119), LEFT(SHA2(n + 7, 256), 59)",
    share=0.1,
)
WIDE = Table(
    "wide",
    "id BIGINT NOT NULL PRIMARY KEY, "
    + ", ".join(
        f"i{place} INT NOT NULL, d{place} DECIMAL(12,2), t{place} DATETIME(3) NOT NULL, v{place} VARCHAR(80)"
        for place in range(10)
    ),
    "n, "
    + ", ".join(
        f"n * {place + 3} % 1000003, IF(n % {place + 2}, n / {place + 7}, NULL),"
        f" '2026-01-01' + INTERVAL n % 31000000 SECOND, CONCAT('value {place} of ', n)"
        for place in range(10)
    ),
    share=0.02,
)
TABLES = (ORDERS, SYSBENCH, WIDE)


@dataclass(frozen=True, slots=True)
class Scene:
    """``rows``: how many each table has."""

    source: DatabaseServer
    target: DatabaseServer
    ends: Ends
    rows: dict[str, int]

    @property
    def servers(self) -> tuple[DatabaseServer, DatabaseServer]:
        return self.source, self.target

    def at_once(self, work: Callable[[DatabaseServer], object]) -> None:
        """Do something on both servers at the same time."""
        _at_once(self.servers, work)


@contextmanager
def open_scene(flavour: Flavour, scale: float) -> Iterator[Scene]:
    """Both servers with all tables. They are removed at the end."""
    folder = home() / "run"
    folder.mkdir(parents=True, exist_ok=True)
    rows = {table.name: max(int(ROWS * scale * table.share), 1_000) for table in TABLES}
    with tempfile.TemporaryDirectory(prefix="bench-", dir=folder) as name, ExitStack() as made:
        servers = []
        for number, side in ((301, "source"), (302, "target")):
            options = ServerOptions(server_id=number, extra=OPTIONS)
            server = DatabaseServer.of(flavour, Path(name) / side, options)
            made.callback(server.discard)
            server.start()
            server.create_account(ACCOUNT, "ALL PRIVILEGES")
            servers.append(server)
        _at_once(servers, lambda server: _fill(server, rows))
        yield Scene(servers[0], servers[1], _ends(servers), rows)


def say(text: str) -> None:
    """Progress, on standard error."""
    print(text, file=sys.stderr, flush=True)


def _ends(servers: Sequence[DatabaseServer]) -> Ends:
    source, target = (
        Endpoint(
            server.host,
            server.port,
            ACCOUNT.user,
            ACCOUNT.password,
            Tls(TlsMode.REQUIRE_UNVERIFIED),
        )
        for server in servers
    )
    task = ApplyTask(
        name=TASK,
        source=TopicAddress(topic=TASK, brokers=Brokers("")),
        target=TASK,
        start=Start(servers[0].gtid_position()),
        tables=TableFilter(),
        rules=ApplyRules(),
    )
    with closing(connect(target)) as session:
        take_over(session, target, task, epoch=1)
    return Ends(source, target, TASK)


def _fill(server: DatabaseServer, rows: dict[str, int]) -> None:
    server.execute(f"CREATE DATABASE {DATABASE} DEFAULT CHARSET utf8mb4")
    digits = " UNION ALL ".join(f"SELECT {digit} d" for digit in range(10))
    number = " + ".join(f"t{place}.d * {10**place}" for place in range(6))
    tables = " JOIN ".join(f"({digits}) t{place}" for place in range(6))
    for table in TABLES:
        count = rows[table.name]
        server.execute(f"CREATE TABLE {DATABASE}.{table.name} ({table.columns})")
        for first in range(0, count, _STEP_ROWS):
            say(f"filling {table.name}, {first:,} of {count:,} rows")
            server.execute(
                f"INSERT INTO {DATABASE}.{table.name} SELECT {table.row} FROM"
                f" (SELECT {number} + {first} n FROM {tables}) numbers WHERE n < {count}"
            )


def _at_once(servers: Sequence[DatabaseServer], work: Callable[[DatabaseServer], object]) -> None:
    threads = [threading.Thread(target=work, args=(server,)) for server in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
