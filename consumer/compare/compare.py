"""Compares all tables of two sets, chunk by chunk, under writes.

Chunks are found one by one on the source, as they are needed. The sessions that compare them are those of a pool; one
further session on each side reads the structure and finds the borders, and one stores what has been compared.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from millrace.consumer.compare.chunk import ChunkResult, Job, compare_chunk
from millrace.consumer.compare.pool import Pool, Threads
from millrace.consumer.compare.repair import repair
from millrace.consumer.compare.result import Comparison, Part
from millrace.consumer.compare.sides import Ends, Sides
from millrace.consumer.compare.stored import State
from millrace.consumer.compare.table import Pair
from millrace.consumer.compare.tables import ALTERED, LOADED, Admits, pairs
from millrace.consumer.load.throttle import threads_running
from millrace.consumer.target.aside import kept_tables
from millrace.consumer.target.streams import tables_in_loads
from millrace.drivers.mysql.catalog import TableKey
from millrace.drivers.mysql.chunks.borders import chunks
from millrace.drivers.mysql.chunks.chunk import Chunk
from millrace.drivers.mysql.errors import TABLE_CHANGED
from millrace.errors import MillraceError
from millrace.schemas.view.view import ALL_TABLES, View

CHUNK_ROWS = 100_000  # about 0.1 s on each side
PAUSE_S = 1.0  # between two looks at the limits
THREADS = 4  # two keep both servers busy; the others wait for the target


@dataclass(frozen=True, slots=True)
class Throttle:
    """When a comparison pauses: the target is late, or a server is busy. A limit is None for no limit.

    ``lag_s_max``: how long the target may take to contain what the source has now. ``threads_max``: Threads_running of
    either server, with the sessions of the comparison.
    """

    lag_s_max: float | None = None
    threads_max: int | None = None

    def wait(self, sides: Sides) -> None:
        """Return when no limit is exceeded."""
        while self._is_exceeded(sides):
            time.sleep(PAUSE_S)

    def _is_exceeded(self, sides: Sides) -> bool:
        if self.threads_max is not None and any(
            threads_running(session) > self.threads_max for session in (sides.source, sides.target)
        ):
            return True
        if self.lag_s_max is None or not sides.ends.task:
            return False
        return sides.reach(sides.position()) > self.lag_s_max


@dataclass(frozen=True, slots=True)
class Work:
    """Compares a chunk, and repairs it if it is asked to."""

    throttle: Throttle = field(default_factory=Throttle)
    repairs: bool = False

    def __call__(self, sides: Sides, job: Job) -> ChunkResult:
        """Compare the chunk when the servers have time."""
        self.throttle.wait(sides)
        before = _loading(sides)
        try:
            found = compare_chunk(sides, job, repair if self.repairs else None)
        except MillraceError as exc:
            if not _was_altered(exc):
                raise
            sides.rollback()
            return ChunkResult(job, Part(0, unsettled=1, left_out=ALTERED), "")
        if found.part.differing and job.pair.loaded_as in before | _loading(sides):
            return ChunkResult(job, Part(0, unsettled=1, left_out=LOADED), "")
        return found


def _loading(sides: Sides) -> frozenset[TableKey]:
    found = tables_in_loads(sides.target, sides.ends.task) if sides.ends.task else frozenset()
    sides.target.rollback()
    return found


def _was_altered(exc: MillraceError) -> bool:
    """Whether the error is that of a table that was dropped or altered meanwhile."""
    return exc.code in ("MR-5012", "MR-5013") or exc.errno == TABLE_CHANGED


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How to compare. ``pool`` None: ``THREADS`` threads. ``state`` None: nothing is stored.

    ``seen`` gets each chunk that has ended. ``with_structure``: definitions are compared, too. ``view``: the task's.
    """

    chunk_rows: int = CHUNK_ROWS
    work: Work = Work()
    pool: Pool | None = None
    state: State | None = None
    seen: Callable[[ChunkResult], None] = field(default=lambda _: None)
    with_structure: bool = True
    view: View = ALL_TABLES


def compare_sets(
    ends: Ends, admits: Admits, *, written_by: str = "", rules: Rules | None = None
) -> Comparison:
    """Compare all admitted tables of the source, and tables of the same databases that only the target has.

    A database that the source no longer has is compared if the apply task ``written_by`` has applied rows there. Fatal
    MR-5007 if an account may not read a table that the other side has.
    """
    given = rules or Rules()
    found = Comparison()
    with closing(Sides(ends)) as sides:
        shall = given.with_structure
        both = pairs(sides, admits, written_by, found, with_structure=shall, view=given.view)
        begun = [_Table(pair, given.state) for pair in both]
        for table in begun:
            for result in table.compared:
                found.add(table.pair.name, result.part)
        pool = given.pool or Threads(ends, THREADS)
        altered: list[Pair] = []  # of the pool's threads
        jobs = _jobs(sides, begun, given.chunk_rows, altered)
        with closing(pool.run(given.work, jobs)) as results:
            for result in results:
                if given.state is not None:
                    given.state.save(result)
                found.add(result.job.pair.name, result.part)
                given.seen(result)
        found.kept = _kept(sides, ends.task or written_by, [table.pair for table in begun])
    for pair in altered:
        found.leave_out(pair.name, ALTERED)
    found.differences.sort(key=lambda one: one.table)
    if given.state is not None:
        given.state.end(found)
    return found


def _kept(sides: Sides, task: str, compared: Sequence[Pair]) -> dict[str, int]:
    """How many rows of these tables the task keeps aside, by name."""
    if not task:
        return {}
    found = kept_tables(sides.target, task)
    sides.target.rollback()
    return {pair.name: found[pair.place] for pair in compared if pair.place in found}


class _Table:
    """A table to compare, and its chunks that an earlier comparison has compared."""

    def __init__(self, pair: Pair, state: State | None) -> None:
        self.pair = pair
        self.compared = state.compared(pair) if state is not None else []


def _jobs(sides: Sides, begun: list[_Table], chunk_rows: int, altered: list[Pair]) -> Iterator[Job]:
    """Every chunk of every table. The threads of the pool take turns. ``altered``: tables whose rest is left out."""
    for table in begun:
        last = table.compared[-1].job.chunk if table.compared else None
        try:
            for chunk in _chunks(sides, table.pair, last, chunk_rows):
                yield Job(table.pair, chunk)
        except MillraceError as exc:
            if not _was_altered(exc):
                raise
            sides.rollback()
            altered.append(table.pair)


def _chunks(sides: Sides, pair: Pair, last: Chunk | None, chunk_rows: int) -> Iterator[Chunk]:
    key = pair.source.key
    if key is None:
        if last is None:
            yield Chunk(0)
        return

    def query(sql: str) -> list[tuple[object, ...]]:
        found = sides.source.query(sql)
        sides.source.rollback()  # the next border is found in newer rows
        return found

    table = pair.source.digest.table
    yield from chunks(query, table, key, rows=lambda: chunk_rows, begin=last)
