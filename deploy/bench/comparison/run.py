"""``make bench-compare``: the figures of comparisons. What each one means is in ``docs/bench.md``.

Only JSON lines go to standard output. Progress goes to standard error.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from statistics import median

from consumer.compare import Rules, Work, compare_sets
from consumer.compare.chunk import ChunkResult
from deploy.bench.apply.size import Size
from deploy.bench.comparison.peers import peers
from deploy.bench.comparison.scene import (
    DATABASE,
    ORDERS,
    SYSBENCH,
    WIDE,
    Scene,
    Table,
    open_scene,
    say,
)
from deploy.bench.figure import Figure, Part, check_lines, print_parts
from deploy.bench.pace import Pace
from millrace.errors import Fatal

EQUAL, CPU, REPAIR = "compare.equal", "compare.cpu", "compare.repair"
CPU_OF = {CPU: ORDERS, "compare.sysbench.cpu": SYSBENCH, "compare.wide.cpu": WIDE}
LINES = (EQUAL, *CPU_OF, REPAIR)
_OURS = "millrace"


def run_bench_compare(size: Size, only: Sequence[str] = ()) -> None:
    """Measure and print the lines in ``only``, or all. Fatal MR-8004 for an unknown line."""
    check_lines(only, LINES)
    print_parts([Part(LINES, partial(compare_figures, size, only or LINES))], only)


def compare_figures(size: Size, lines: Sequence[str] = LINES) -> Iterator[Figure]:
    """These lines; one for each peer."""
    with open_scene(size.flavour, size.scale) as scene:
        for name, table in CPU_OF.items():
            wanted = {name, EQUAL} if table is ORDERS else {name}
            if not wanted & set(lines):
                continue
            paces = _paces(scene, table, size.rounds)
            ours = paces.pop(_OURS)
            for peer, theirs in paces.items():
                if table is ORDERS and EQUAL in lines:
                    yield Figure(EQUAL, ours.rate, "rows/s", peer, theirs.rate)
                if name in lines:
                    yield Figure(name, ours.cpu_us, "CPU us a row", peer, theirs.cpu_us)
        if REPAIR in lines:
            repairs = [_repair(scene, number) for number in range(size.rounds)]
            yield Figure(REPAIR, median(repairs), "s")


def _paces(scene: Scene, table: Table, rounds: int) -> dict[str, Pace]:
    """The pace of Millrace and of each peer; they take turns."""
    ways = {_OURS: _equal, **peers()}
    found: dict[str, list[Pace]] = {name: [] for name in ways}
    rows = scene.rows[table.name]
    for number in range(1, rounds + 1):
        say(f"round {number} of {rounds}: {rows:,} rows of {table.name}")
        for name, work in ways.items():
            found[name].append(Pace.of(scene.servers, rows, partial(work, scene, table)))
            pace = found[name][-1]
            say(f"  {name}: {pace.rate:,.0f} rows/s, {pace.cpu_us:.2f} CPU us a row")
    return {name: Pace.median(paces) for name, paces in found.items()}


def _equal(scene: Scene, table: Table) -> None:
    """A comparison of equal tables."""
    found = compare_sets(scene.ends, partial(_admits, table))
    if not found.is_equal or found.rows != scene.rows[table.name]:
        raise Fatal("MR-8004", f"{found.difference_count} differences in {found.rows} equal rows")


def _repair(scene: Scene, number: int) -> float:
    """The seconds of the chunk that has the only difference, from its begin until the row is repaired."""
    key = (number + 1) * scene.rows[ORDERS.name] // 4
    scene.target.execute(f"UPDATE {DATABASE}.{ORDERS.name} SET k = k + 1 WHERE id = {key}")
    took_s: list[float] = []

    def note(chunk: ChunkResult) -> None:
        if chunk.part.differing:
            took_s.append(chunk.seconds)

    rules = Rules(work=Work(repairs=True), seen=note)
    found = compare_sets(scene.ends, partial(_admits, ORDERS), rules=rules)
    if (found.difference_count, found.repaired, len(took_s)) != (1, 1, 1):
        raise Fatal("MR-8004", f"{found.repaired} of {found.difference_count} rows are repaired")
    return took_s[0]


def _admits(table: Table, database: str, name: str) -> bool:
    return (database, name) == (DATABASE, table.name)
