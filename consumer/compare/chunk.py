"""Compares one chunk of a table. A plain function of two sessions, so that threads and Spark tasks can run it.

    1  each server sums the digests of the chunk's rows: the source in a snapshot at h, the target after it has
       applied h. Equal sums end here
    2  each server sums parts of ``PART_ROWS`` rows. Where the sums differ, both read (digest, key) of each row, in the
       order of the digests: what one side has alone is a suspect
    3  each suspect is looked at until it is equal, different or unsettled (``consumer.compare.settle``)

Memory holds the suspects only. Rows that are equal never leave the servers, except in step 2 of a part that differs.
A row that one side has in another chunk is no special case: in each chunk it is missing or extra.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from millrace.consumer.compare.gaps import Gap, gaps_of
from millrace.consumer.compare.result import Part
from millrace.consumer.compare.settle import LOOKS_MAX, Suspect, look, unmatched
from millrace.consumer.compare.show import shown, with_left
from millrace.consumer.compare.sides import Sides, batches, rows, states
from millrace.consumer.compare.table import Name, Pair, Side
from millrace.drivers.mysql.chunks.borders import parts
from millrace.drivers.mysql.chunks.chunk import Chunk
from millrace.drivers.mysql.connection import MySqlSession

SUSPECTS_MAX = 200_000  # of each side, about 40 MB; the rest is only counted

Hashed = tuple[bytes, Name]  # the digest of a row, and its name


@dataclass(slots=True)
class Unmatched:
    """The rows of one side without a row on the other. ``more``: how many are not in ``rows``."""

    rows: list[Hashed] = field(default_factory=list)
    more: int = 0

    def add(self, row: Hashed) -> None:
        """Keep or count a row."""
        if len(self.rows) < SUSPECTS_MAX:
            self.rows.append(row)
        else:
            self.more += 1

    def add_all(self, other: "Unmatched") -> None:
        """Add those of another range of rows."""
        for row in other.rows:
            self.add(row)
        self.more += other.more


def unmatched_rows(
    source: Iterator[Hashed], target: Iterator[Hashed]
) -> tuple[Unmatched, Unmatched]:
    """Both sides without the rows that they share. Equal rows are matched as often as both sides have them."""
    left, right = Unmatched(), Unmatched()
    one, other = next(source, None), next(target, None)
    while one is not None or other is not None:
        if other is None or (one is not None and one[0] < other[0]):
            assert one is not None
            left.add(one)
            one = next(source, None)
        elif one is None or one[0] > other[0]:
            right.add(other)
            other = next(target, None)
        else:
            one, other = next(source, None), next(target, None)
    return left, right


PART_ROWS = 5_000  # to sum 20 parts of a chunk and read one costs a third of reading all its rows
KEYED_BATCH, DIGEST_BATCH = (
    500,
    10_000,
)  # rows of one look; without a key each look reads the whole table
PAUSE_S = 0.2  # before a further look at rows that are being written


@dataclass(frozen=True, slots=True)
class Job:
    """One chunk to compare."""

    pair: Pair
    chunk: Chunk


@dataclass(frozen=True, slots=True)
class ChunkResult:
    """``digests``: their sum on the source, as the server prints it."""

    job: Job
    part: Part
    digests: str
    seconds: float = 0.0


@dataclass(slots=True)
class _Settled:
    different: list[Suspect] = field(default_factory=list)
    unsettled: int = 0


Repair = Callable[[Sides, Pair, Sequence[Gap]], Sequence[bool]]


def compare_chunk(sides: Sides, job: Job, repair: Repair | None = None) -> ChunkResult:
    """Compare a chunk, and repair its differences with ``repair``, which returns for each whether it is repaired."""
    start_s = time.monotonic()
    pair, chunk = job.pair, job.chunk
    with sides.on_source() as position:
        sums = _sums(sides.source, pair.source, chunk)
    with sides.on_target(position):
        other = _sums(sides.target, pair.target, chunk)
    if sums == other:
        return ChunkResult(job, Part(sums[0]), sums[1], time.monotonic() - start_s)
    left, right = _suspects(sides, job)
    settled = _settled(sides, pair, _as_suspects(pair, left, right))
    gaps = gaps_of(sides, pair, settled.different)
    done: Sequence[bool] = ()
    listed = shown(sides, pair, gaps)
    if repair is not None:
        done = repair(sides, pair, gaps)
        listed = with_left(listed, gaps, done)
    part = Part(
        sums[0],
        sum(gap.count for gap in gaps) + left.more + right.more,
        settled.unsettled,
        sum(gap.count for gap, is_done in zip(gaps, done, strict=False) if is_done),
        tuple(listed),
    )
    return ChunkResult(job, part, sums[1], time.monotonic() - start_s)


def _sums(session: MySqlSession, side: Side, chunk: Chunk) -> tuple[int, str]:
    """(rows, sum of digests). Without rows "": a server may print a longer neutral value than any sum."""
    ((count, digests),) = session.query(side.sums(chunk))
    return int(str(count)), str(digests) if count else ""


def _suspects(sides: Sides, job: Job) -> tuple[Unmatched, Unmatched]:
    pair = job.pair
    left, right = Unmatched(), Unmatched()
    with sides.on_source() as position, sides.on_target(position):
        for part in _different_parts(sides, job):
            found = unmatched_rows(
                rows(sides.source, pair.source.all_rows(part)),
                rows(sides.target, pair.target.all_rows(part)),
            )
            left.add_all(found[0])
            right.add_all(found[1])
    return left, right


def _different_parts(sides: Sides, job: Job) -> Iterator[Chunk]:
    """The parts whose sums differ, in the current snapshots; without a key, the whole."""
    source, target = job.pair.source, job.pair.target
    if source.key is None:
        yield job.chunk
        return
    query, table = sides.source.query, source.digest.table
    for part in parts(query, table, source.key, job.chunk, rows=lambda: PART_ROWS):
        if _sums(sides.source, source, part) != _sums(sides.target, target, part):
            yield part


def _as_suspects(pair: Pair, left: Unmatched, right: Unmatched) -> list[Suspect]:
    if pair.is_keyed:
        return unmatched(left.rows, right.rows)
    digests: dict[Name, None] = {_by_digest(row): None for row in (*left.rows, *right.rows)}
    return [Suspect(name) for name in digests]


def _by_digest(row: Hashed) -> Name:
    return (row[0].hex().upper(),)


def _settled(sides: Sides, pair: Pair, suspects: Sequence[Suspect]) -> _Settled:
    found = _Settled()
    for batch in batches(suspects, KEYED_BATCH if pair.is_keyed else DIGEST_BATCH):
        _settle(sides, pair, batch, found)
    return found


def _settle(sides: Sides, pair: Pair, suspects: Sequence[Suspect], found: _Settled) -> None:
    names = [suspect.name for suspect in suspects]
    with sides.on_source() as position:
        before = states(sides.source, pair.source.states, names)
    for number in range(LOOKS_MAX):
        with sides.on_target(position):
            there = states(sides.target, pair.target.states, names)
        with sides.on_source(sides.newest()) as position:
            after = states(sides.source, pair.source.states, names)
        looked = look(suspects, before, there, after)
        found.different += looked.different
        suspects, before = looked.again, after
        if not suspects:
            return
        names = [suspect.name for suspect in suspects]
        if number and sides.ends.task:
            time.sleep(PAUSE_S)
    found.unsettled += len(suspects)
