"""``apply.ddl``: CREATE TABLE, ``TABLES`` times in one database, then a row in each table.

    apply.ddl        all these statements per second, from the first to the last; the peer is the native replica
    apply.ddl.last   CREATE TABLE per second in the last fifth; the peer is the first fifth of the same run

A table exists on a server when its ``.ibd`` file does: both flavours give each table one. The files are counted in the
file system, so no query of the benchmark loads the server, and the last row is seen by the clock of all figures.
"""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from millrace.background import Background
from millrace.deploy.bench.apply.backlogs import REPLICA
from millrace.deploy.bench.apply.clock import binlog_clock
from millrace.deploy.bench.apply.workloads import create_tables, fill_tables
from millrace.deploy.bench.figure import Figure, Size, announced_rounds, say
from millrace.deploy.bench.scene import WAIT_S, Scene, open_scene
from millrace.deploy.local.services import APPLY_TASK
from millrace.deploy.servers import DatabaseServer
from millrace.errors import Fatal

LINES = ("apply.ddl", "apply.ddl.last")
DATABASE = "bench_ddl"
TABLES = 5_000
WARM_UP = 0.02
PARTS = 5
POLL_S = 0.05


def ddl_figures(size: Size) -> Iterator[Figure]:
    tables = max(round(TABLES * size.scale / PARTS), 2) * PARTS
    runs: dict[str, list[tuple[float, float, float]]] = {"ours": [], "replica": []}
    with open_scene(size.flavour, has_peer=True) as scene:
        for number in announced_rounds(size):
            count = tables if number else max(round(tables * WARM_UP / PARTS), 2) * PARTS
            _prepare(scene, count)
            replica = _measure(scene.replica.server, count, scene.replica.catch_up)
            ours = _measure(scene.stack.target, count, scene.resume_apply)
            say(f"  statements/s, first and last fifth: {ours}, replica {replica}")
            if number:
                runs["ours"].append(ours)
                runs["replica"].append(replica)
    all_ours, first, last = (median(values) for values in zip(*runs["ours"], strict=True))
    theirs = median(values[0] for values in runs["replica"])
    yield Figure("apply.ddl", all_ours, "statements/s", REPLICA, theirs)
    yield Figure("apply.ddl.last", last, "statements/s", "the first fifth of the same run", first)


def _prepare(scene: Scene, tables: int) -> None:
    """An empty database on every server, then the statements on the source alone."""
    scene.source.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
    scene.source.execute(f"CREATE DATABASE {DATABASE}")
    scene.wait_followed()
    scene.pause(APPLY_TASK)
    begin_s = time.monotonic()
    create_tables(scene.connect, 0, tables, database=DATABASE)
    fill_tables(scene.connect, 0, tables, database=DATABASE)
    say(f"  {tables:,} tables made and filled in {time.monotonic() - begin_s:.0f} s")
    scene.wait_captured()


def _measure(
    server: DatabaseServer, tables: int, catch_up: Callable[[], None]
) -> tuple[float, float, float]:
    """Statements per second over all, and CREATE TABLE per second in the first and the last fifth."""
    seen: list[tuple[float, int]] = []

    def watch(stop: threading.Event) -> None:
        while not stop.wait(POLL_S):
            seen.append((time.monotonic(), _table_count(server.data_dir / DATABASE)))

    with binlog_clock(server) as clock, Background("table files", watch):
        catch_up()
        _wait_for_files(seen, tables)
    part = tables // PARTS
    marks = [_reached(seen, count) for count in (1, part, tables - part, tables)]
    whole_s = clock.pace().end_s - marks[0]
    ends = [part / (marks[at + 1] - marks[at]) for at in (0, 2)]
    return 2 * tables / whole_s, ends[0], ends[1]


def _wait_for_files(seen: list[tuple[float, int]], tables: int) -> None:
    """Wait until a sample has all tables: the last one may be older than the end of ``catch_up``. Fatal MR-8004."""
    deadline = time.monotonic() + WAIT_S
    while not seen or seen[-1][1] < tables:
        if time.monotonic() > deadline:
            raise Fatal("MR-8004", f"there are {seen[-1][1] if seen else 0} tables, not {tables}")
        time.sleep(POLL_S)


def _reached(seen: list[tuple[float, int]], count: int) -> float:
    """When that many tables were seen, between two samples in proportion. Fatal MR-8004 if they never were."""
    before_s, before = seen[0]
    for at_s, tables in seen:
        if tables >= count:
            return before_s + (at_s - before_s) * (count - before) / max(tables - before, 1)
        before_s, before = at_s, tables
    raise Fatal("MR-8004", f"there are {before} tables, not {count}")


def _table_count(folder: Path) -> int:
    return sum(1 for _ in folder.glob("*.ibd"))
