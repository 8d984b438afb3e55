"""``make bench-load``: how fast rows of a table are copied. ``docs/bench.md`` describes the lines.

The table has 10 columns and about 200 bytes a row:

id, customer     integers; ``id`` is the primary key, and rows are 0, 1, 2, …
state            ENUM
total, weight    DECIMAL, DOUBLE
placed, shipped  DATETIME(6), DATETIME; two thirds NULL
note, body       VARCHAR; a quarter NULL, 128 characters
region           CHAR

Peers are the servers' own dump program, and mydumper, which writes files, with myloader, which reads them. The latter
two use 2 threads and TLS. As with the others, the target writes its binlog, and a chunk has as many rows as in our
copy.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

from millrace.consumer.copy import TablePair, copy_chunk
from millrace.deploy.bench.figure import Figure, Size, say
from millrace.deploy.bench.pair import DATABASE, Pace, Pair, Table, open_pair
from millrace.deploy.servers import DatabaseServer
from millrace.deploy.servers.client import client_command, dump_command
from millrace.drivers.mysql.catalog import read_inventory
from millrace.drivers.mysql.connection import Endpoint, connect
from millrace.errors import Fatal

COPY, COPY_TWO, CPU = "load.copy", "load.copy.two", "load.copy.cpu"
RSS = "load.rss"
LINES = (COPY, COPY_TWO, CPU, RSS)
ROWS = 2_000_000
CHUNK_ROWS = 100_000
WARM_UP_ROWS = 1_000
ORDERS = Table(
    "orders",
    "id BIGINT UNSIGNED NOT NULL PRIMARY KEY, customer INT UNSIGNED NOT NULL,"
    " state ENUM('open','paid','shipped') NOT NULL, total DECIMAL(14,2) NOT NULL, weight DOUBLE,"
    " placed DATETIME(6) NOT NULL, shipped DATETIME, note VARCHAR(100), body VARCHAR(200) NOT NULL,"
    " region CHAR(2) NOT NULL",
    "n, n * 7919 % 100000, n % 3 + 1, n * 1.25, n / 7,"
    " '2026-01-01' + INTERVAL n SECOND + INTERVAL n % 1000 MICROSECOND,"
    " IF(n % 3, NULL, '2026-02-01' + INTERVAL n SECOND), IF(n % 4, CONCAT('left at ', n), NULL),"
    " REPEAT(SHA2(n, 256), 2), CONCAT('D', n % 10)",
)
DUMP = "mysqldump | mysql"
MYDUMPER = "mydumper, myloader"
TIMEOUT_S = 3_600.0
_THREADS = 2


def copy_figures(size: Size) -> Iterator[Figure]:
    """All lines; those with a peer once for each. Each round measures one process, two, and each peer in turn."""
    rows = max(int(ROWS * size.scale), 2 * WARM_UP_ROWS)
    peers = _peers(CHUNK_ROWS)
    paces: dict[str, list[Pace]] = {name: [] for name in (COPY, COPY_TWO, *peers)}
    with open_pair(size.flavour, {ORDERS: rows}) as pair, _workers() as workers:
        ends, tables = pair.endpoints(), _table_pair(pair)
        chunks = [
            f"id >= {first} AND id < {first + CHUNK_ROWS}" for first in range(0, rows, CHUNK_ROWS)
        ]
        warm = [f"id < {WARM_UP_ROWS}"], [f"id >= {rows - WARM_UP_ROWS}"]
        _share(workers, ends, tables, warm)
        _empty_target(pair)
        copy_chunks(ends, tables, warm[0])
        two = partial(_share, workers, ends, tables, (chunks[0::2], chunks[1::2]))
        ways = {COPY: partial(copy_chunks, ends, tables, chunks), COPY_TWO: two}
        ways |= {name: partial(copy, pair) for name, copy in peers.items()}
        for number in range(1, size.rounds + 1):
            say(f"round {number} of {size.rounds}")
            for name, copy in ways.items():
                paces[name].append(_pace(pair, copy))
                say(f"  {name}: {paces[name][-1].rate:,.0f} rows/s")
        peak_mb = max(workers.map(_peak_mb, range(2)))
    middle = {name: Pace.median(each) for name, each in paces.items()}
    for peer in peers:
        yield Figure(COPY, middle[COPY].rate, "rows/s", peer, middle[peer].rate)
        yield Figure(COPY_TWO, middle[COPY_TWO].rate, "rows/s", peer, middle[peer].rate)
        yield Figure(CPU, middle[COPY].cpu_us, "CPU us a row", peer, middle[peer].cpu_us)
    yield Figure(RSS, peak_mb, "MB")


def copy_chunks(ends: tuple[Endpoint, Endpoint], tables: TablePair, chunks: Sequence[str]) -> None:
    source, target = (connect(end) for end in ends)
    for where in chunks:
        copy_chunk(source, target, tables, where)
        target.commit()
    source.close()
    target.close()


def _share(
    workers: ProcessPoolExecutor,
    ends: tuple[Endpoint, Endpoint],
    tables: TablePair,
    shares: tuple[Sequence[str], Sequence[str]],
) -> None:
    list(workers.map(copy_chunks, repeat(ends), repeat(tables), shares))


def _workers() -> ProcessPoolExecutor:
    """As Spark's Python workers: processes without anything in common."""
    return ProcessPoolExecutor(2, mp_context=get_context("spawn"))


def _peak_mb(_: int) -> float:
    """The peak of the resident memory of this process."""
    return getrusage(RUSAGE_SELF).ru_maxrss / 1024


def _table_pair(pair: Pair) -> TablePair:
    """The table on both servers."""
    inventories = []
    for endpoint in pair.endpoints():
        session = connect(endpoint)
        inventories.append(read_inventory(session, with_folds=False))
        session.close()
    source, target = (inventory.tables[DATABASE, ORDERS.name] for inventory in inventories)
    return TablePair.of(source, target, inventories[1])


def _empty_target(pair: Pair) -> None:
    pair.target.execute(f"TRUNCATE TABLE {DATABASE}.{ORDERS.name}")


def _pace(pair: Pair, copy: Callable[[], object]) -> Pace:
    """Copy into the empty table. Fatal MR-8004 unless the target then has the source's rows."""
    _empty_target(pair)
    pace = pair.pace(ORDERS, copy)
    query = f"CHECKSUM TABLE {DATABASE}.{ORDERS.name}"
    if pair.source.execute(query) != pair.target.execute(query):
        raise Fatal("MR-8004", "the copy differs from the source's table")
    return pace


def _peers(chunk_rows: int) -> dict[str, Callable[[Pair], None]]:
    """Each fills the empty table. Without mydumper, one of them is missing."""
    peers: dict[str, Callable[[Pair], None]] = {DUMP: _dump}
    if all(map(shutil.which, ("mydumper", "myloader"))):
        peers[MYDUMPER] = partial(_mydumper, chunk_rows)
    else:
        say("no peer mydumper: Debian's package mydumper is not installed")
    return peers


def _dump(pair: Pair) -> None:
    programs = [Path(server.dialect.command()[0]) for server in (pair.source, pair.target)]
    source, target = pair.source, pair.target
    read = dump_command(programs[0], source.host, source.port, user=source.user)
    write = client_command(programs[1], target.host, target.port, user=target.user)
    with subprocess.Popen(
        (*read, DATABASE, ORDERS.name),
        stdout=subprocess.PIPE,
        env=os.environ | {"MYSQL_PWD": source.password},
    ) as dump:
        subprocess.run(
            (*write, DATABASE),
            stdin=dump.stdout,
            env=os.environ | {"MYSQL_PWD": target.password},
            check=True,
        )
    if dump.returncode:
        raise Fatal("MR-8004", f"{read[0]} ended with status {dump.returncode}")


def _mydumper(chunk_rows: int, pair: Pair) -> None:
    with tempfile.TemporaryDirectory(dir=pair.source.folder) as folder:
        dump = ("--no-schemas", "--no-locks", "--trx-consistency-only", f"--rows={chunk_rows}")
        only = (f"--tables-list={ORDERS.name}", f"--outputdir={folder}")
        _run("mydumper", pair.source, (*dump, *only))
        _run("myloader", pair.target, (f"--directory={folder}", "--enable-binlog"))


def _run(program: str, server: DatabaseServer, options: Sequence[str]) -> None:
    command = (
        program,
        f"--host={server.host}",
        f"--port={server.port}",
        f"--user={server.user}",
        f"--password={server.password}",
        f"--database={DATABASE}",
        f"--threads={_THREADS}",
        "--ssl",
    )
    done = subprocess.run(
        (*command, *options), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    if done.returncode:
        raise Fatal("MR-8004", f"{program} failed: {done.stderr[-500:]}")
