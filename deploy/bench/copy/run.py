"""``make bench-load``: how fast rows of a table are copied. ``docs/bench.md`` describes the lines.

Only JSON lines go to standard output. Progress goes to standard error.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import repeat
from multiprocessing import get_context
from resource import RUSAGE_SELF, getrusage

from consumer.copy import TablePair, copy_chunk
from deploy.bench.apply.size import Size
from deploy.bench.copy.peers import peers
from deploy.bench.copy.scene import ROWS, Scene, open_scene, say
from deploy.bench.figure import Figure, Part, check_lines, print_parts
from deploy.bench.pace import Pace
from drivers.mysql.connection import Endpoint, connect

COPY, COPY_TWO, CPU = "load.copy", "load.copy.two", "load.copy.cpu"
RSS = "load.rss"
LINES = (COPY, COPY_TWO, CPU, RSS)
CHUNK_ROWS = 100_000
WARM_UP_ROWS = 1_000


def run_bench_load(size: Size, only: Sequence[str] = ()) -> None:
    """Measure and print the lines in ``only``, or all. Fatal MR-8004 for an unknown line."""
    check_lines(only, LINES)
    print_parts([Part(LINES, partial(copy_figures, size))], only)


def copy_figures(size: Size) -> Iterator[Figure]:
    """All lines; those with a peer once for each. Each round measures one process, two, and each peer in turn."""
    rows = max(int(ROWS * size.scale), 2 * WARM_UP_ROWS)
    others = peers(CHUNK_ROWS)
    found: dict[str, list[Pace]] = {name: [] for name in (COPY, COPY_TWO, *others)}
    with open_scene(size.flavour, rows) as scene, _workers() as workers:
        pair, ends = scene.pair(), scene.endpoints()
        chunks = [
            f"id > {first} AND id <= {first + CHUNK_ROWS}" for first in range(0, rows, CHUNK_ROWS)
        ]
        warm = [f"id <= {WARM_UP_ROWS}"], [f"id > {rows - WARM_UP_ROWS}"]
        _share(workers, ends, pair, warm)
        scene.empty_target()
        copy_chunks(ends, pair, warm[0])
        two = partial(_share, workers, ends, pair, (chunks[0::2], chunks[1::2]))
        ways = {COPY: partial(copy_chunks, ends, pair, chunks), COPY_TWO: two}
        ways |= {name: partial(copy, scene) for name, copy in others.items()}
        for number in range(1, size.rounds + 1):
            say(f"round {number} of {size.rounds}")
            for name, copy in ways.items():
                found[name].append(_pace(scene, copy))
                say(f"  {name}: {found[name][-1].rate:,.0f} rows/s")
        peak_mb = max(workers.map(_peak_mb, range(2)))
    paces = {name: Pace.median(each) for name, each in found.items()}
    for peer in others:
        yield Figure(COPY, paces[COPY].rate, "rows/s", peer, paces[peer].rate)
        yield Figure(COPY_TWO, paces[COPY_TWO].rate, "rows/s", peer, paces[peer].rate)
        yield Figure(CPU, paces[COPY].cpu_us, "CPU us a row", peer, paces[peer].cpu_us)
    yield Figure(RSS, peak_mb, "MB")


def copy_chunks(ends: tuple[Endpoint, Endpoint], pair: TablePair, chunks: Sequence[str]) -> None:
    source, target = (connect(end) for end in ends)
    for where in chunks:
        copy_chunk(source, target, pair, where)
        target.commit()
    source.close()
    target.close()


def _share(
    workers: ProcessPoolExecutor,
    ends: tuple[Endpoint, Endpoint],
    pair: TablePair,
    shares: tuple[Sequence[str], Sequence[str]],
) -> None:
    list(workers.map(copy_chunks, repeat(ends), repeat(pair), shares))


def _workers() -> ProcessPoolExecutor:
    """As Spark's Python workers: processes without anything in common."""
    return ProcessPoolExecutor(2, mp_context=get_context("spawn"))


def _peak_mb(_: int) -> float:
    """The peak of the resident memory of this process."""
    return getrusage(RUSAGE_SELF).ru_maxrss / 1024


def _pace(scene: Scene, copy: Callable[[], object]) -> Pace:
    """Copy into the empty table, and check that the tables are equal."""
    scene.empty_target()
    pace = Pace.of((scene.source, scene.target), scene.rows, copy)
    scene.check()
    return pace
