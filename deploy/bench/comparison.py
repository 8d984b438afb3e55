"""``make bench-compare``: the figures of comparisons. What each one means is in ``docs/bench.md``.

    orders      6 columns: BIGINT key, INT, DECIMAL, DATETIME(3), two VARCHAR, one of them with NULLs; 90 bytes as text
    sysbench    that of sysbench: INT key, INT with an index, CHAR(120), CHAR(60); 200 bytes as text
    wide        41 columns: BIGINT key, and ten each of INT, DECIMAL, DATETIME(3), VARCHAR; 700 bytes as text

Peers of a comparison of equal tables are the server's CHECKSUM TABLE, and pt-table-checksum of the Percona Toolkit.
pt-table-checksum compares a source with its replicas: it sums on the source, and each replica repeats the statement. So
both servers work as much as in a comparison. Here it runs on each of them. Its sum is a CRC32 of each row.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from statistics import median

from millrace.consumer.compare import Ends, Rules, Work, compare_sets
from millrace.consumer.compare.chunk import ChunkResult
from millrace.consumer.task.start import take_over
from millrace.deploy.bench.figure import Figure, Size, say
from millrace.deploy.bench.pair import DATABASE, Pace, Pair, Table, open_pair
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.connection import connect
from millrace.errors import Fatal
from millrace.schemas.documents import (
    ApplyRules,
    ApplyTask,
    Brokers,
    Start,
    TopicAddress,
)

ROWS = 10_000_000
TASK = "bench"
OPTIONS = ("--innodb-buffer-pool-size=2G",)
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
)
SHARES = {ORDERS: 1.0, SYSBENCH: 0.1, WIDE: 0.02}  # of ``ROWS``
EQUAL, CPU, REPAIR = "compare.equal", "compare.cpu", "compare.repair"
CPU_OF = {CPU: ORDERS, "compare.sysbench.cpu": SYSBENCH, "compare.wide.cpu": WIDE}
LINES = (EQUAL, *CPU_OF, REPAIR)
_OURS = "millrace"
CHECKSUM_TABLE = "CHECKSUM TABLE on both servers"
PERCONA = "pt-table-checksum on both servers"
TIMEOUT_S = 3_600.0


def compare_figures(size: Size) -> Iterator[Figure]:
    """These lines; one for each peer."""
    with _opened(size) as (pair, ends):
        for name, table in CPU_OF.items():
            lines = (name, EQUAL) if table is ORDERS else (name,)
            if not size.wants(*lines):
                continue
            paces = _paces(pair, ends, table, size.rounds)
            ours = paces.pop(_OURS)
            for peer, theirs in paces.items():
                if table is ORDERS:
                    yield Figure(EQUAL, ours.rate, "rows/s", peer, theirs.rate)
                yield Figure(name, ours.cpu_us, "CPU us a row", peer, theirs.cpu_us)
        if size.wants(REPAIR):
            repairs = [_repair(pair, ends, number) for number in range(size.rounds)]
            yield Figure(REPAIR, median(repairs), "s")


@contextmanager
def _opened(size: Size) -> Iterator[tuple[Pair, Ends]]:
    """Both servers with the same rows. The task's progress says that it has applied everything."""
    rows = {table: max(int(ROWS * size.scale * share), 1_000) for table, share in SHARES.items()}
    with open_pair(size.flavour, rows, is_target_filled=True, options=OPTIONS) as pair:
        source, target = pair.endpoints()
        task = ApplyTask(
            name=TASK,
            source=TopicAddress(topic=TASK, brokers=Brokers("")),
            target=TASK,
            start=Start(pair.source.gtid_position()),
            rules=ApplyRules(),
        )
        with closing(connect(target)) as session:
            take_over(session, target, task, epoch=1)
        yield pair, Ends(source, target, TASK)


def _paces(pair: Pair, ends: Ends, table: Table, rounds: int) -> dict[str, Pace]:
    """The pace of Millrace and of each peer; they take turns."""
    ways: dict[str, Callable[[Pair, Table], None]] = {_OURS: partial(_equal, ends), **_peers()}
    paces: dict[str, list[Pace]] = {name: [] for name in ways}
    rows = pair.rows[table.name]
    for number in range(1, rounds + 1):
        say(f"round {number} of {rounds}: {rows:,} rows of {table.name}")
        for name, work in ways.items():
            pace = pair.pace(table, partial(work, pair, table))
            paces[name].append(pace)
            say(f"  {name}: {pace.rate:,.0f} rows/s, {pace.cpu_us:.2f} CPU us a row")
    return {name: Pace.median(each) for name, each in paces.items()}


def _equal(ends: Ends, pair: Pair, table: Table) -> None:
    """A comparison of equal tables."""
    result = compare_sets(ends, partial(_admits, table))
    if not result.is_equal or result.rows != pair.rows[table.name]:
        raise Fatal("MR-8004", f"{result.difference_count} differences in {result.rows} equal rows")


def _repair(pair: Pair, ends: Ends, number: int) -> float:
    """The seconds of the chunk that has the only difference, from its begin until the row is repaired."""
    key = (number + 1) * pair.rows[ORDERS.name] // 4
    pair.target.execute(f"UPDATE {DATABASE}.{ORDERS.name} SET k = k + 1 WHERE id = {key}")
    took_s: list[float] = []

    def note(chunk: ChunkResult) -> None:
        if chunk.part.differing:
            took_s.append(chunk.seconds)

    rules = Rules(work=Work(repairs=True), seen=note)
    result = compare_sets(ends, partial(_admits, ORDERS), rules=rules)
    if (result.difference_count, result.repaired, len(took_s)) != (1, 1, 1):
        raise Fatal("MR-8004", f"{result.repaired} of {result.difference_count} rows are repaired")
    return took_s[0]


def _admits(table: Table, database: str, name: str) -> bool:
    return (database, name) == (DATABASE, table.name)


def _peers() -> dict[str, Callable[[Pair, Table], None]]:
    """Each sums a table on both servers at the same time. Without the Percona Toolkit, one of them is missing."""
    peers: dict[str, Callable[[Pair, Table], None]] = {CHECKSUM_TABLE: _checksum_table}
    if program := shutil.which("pt-table-checksum"):
        peers[PERCONA] = partial(_percona, program)
    else:
        say("no peer pt-table-checksum: Debian's package percona-toolkit is not installed")
    return peers


def _checksum_table(pair: Pair, table: Table) -> None:
    pair.at_once(lambda server: server.execute(f"CHECKSUM TABLE {DATABASE}.{table.name}"))


def _percona(program: str, pair: Pair, table: Table) -> None:
    running = [_started(program, server, table) for server in pair.servers]
    for process in running:
        printed, _ = process.communicate(timeout=TIMEOUT_S)
        counts = [line.split() for line in printed.splitlines() if line.endswith(f".{table.name}")]
        if process.returncode or [int(one[3]) for one in counts] != [pair.rows[table.name]]:
            raise Fatal("MR-8004", f"pt-table-checksum failed: {printed[-500:]}")


def _started(program: str, server: DatabaseServer, table: Table) -> "subprocess.Popen[str]":
    command = (
        program,
        "--no-version-check",
        f"--host={server.host}",
        f"--port={server.port}",
        f"--user={server.user}",
        f"--password={server.password}",
        f"--tables={DATABASE}.{table.name}",
        "--recursion-method=none",
        "--no-check-binlog-format",
        "--set-vars=sql_log_bin=0",  # so that the source keeps the position that the target has
    )
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "HOME": str(server.folder)},  # without an option file of the user
    )
