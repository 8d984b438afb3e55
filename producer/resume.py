"""Going on inside a source transaction that stands in the topic in part: only where its rows are the same ones.

Two servers may log the rows of one source transaction in different order (seen on tables without a key), and what has
been published is known by a count. So the count is believed only of a place in the relay log whose rows, converted
anew, are those that stand in the topic: compared one by one, by what they say (images, table, operation, number in
their transaction), not by where they were logged. Then what follows is what has not been published, whoever the server.

    places tried    each sub-directory of the relay log that holds the transaction, the newest first
    none agrees     Retryable MR-6508: another member is tried, from which the transaction is received whole
    no row stands   (all of them were filtered): the transaction is begun anew, anywhere

Guarantees: nothing is published before the rows agree. Memory is bounded: both sides are streams. Not done here:
reading the topic (``publisher.published_part``), choosing the member (``set_stream``).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from millrace.errors import Retryable
from millrace.log import get_logger
from producer.convert.batch import RecordBatch
from schemas.gtid import parse_gtid
from schemas.place import Coordinates
from schemas.progress import OpenTransaction, Progress
from schemas.record.control import DdlRecord, RecordKind
from schemas.record.framing import HEADER_BYTES, peek_kind
from schemas.record.record import decode_control
from schemas.record.row_end import read_content, read_row_end

# What is compared is dropped at once: as large as the batches of a run, so that the converter's buffers are.
ROWS_MAX = 50_000
BYTES_MAX = 16 << 20
WAIT_S = 0.1  # how often is looked whether to go on waiting for the relay log

log = get_logger("producer.resume")


class BatchSource(Protocol):
    """A converter."""

    def next_batch(self, *, rows_max: int, bytes_max: int, timeout_s: float) -> RecordBatch | None:
        """The next batch, None when nothing came in time."""


class Part(Protocol):
    """What stands in the topic (``publisher.published_part``)."""

    def units(self) -> Iterator[bytes]:
        """Values of rows and statements, in order; each call reads anew."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """Where to convert from, and behind what."""

    at: Coordinates
    progress: Progress


def resume_inside(
    part: Part,
    places: Sequence[Coordinates],
    progress: Progress,
    *,
    convert: Callable[[Progress, Coordinates], BatchSource],
    may_wait: Callable[[], bool],
) -> Resumed | None:
    """The first of ``places`` that agrees with ``part``; None when ``may_wait`` said no. Retryable MR-6508."""
    opened = progress.open
    assert opened is not None
    if (first := next(part.units(), None)) is None:
        return Resumed(places[0], replace(progress, open=None))
    before = Progress(progress.gtid_set, None, _place_of(first).seq - 1)
    differences = []
    for at in places:
        fresh = _Fresh(convert(before, at), opened, progress, may_wait)
        difference = _difference(part.units(), fresh, opened)
        if fresh.is_interrupted:
            return None
        if difference is None:
            log.info("going on inside a source transaction", gtid=opened.gtid, rows=opened.rows)
            return Resumed(at, progress)
        differences.append(f"{at.subdir}: {difference}")
    raise Retryable("MR-6508", "; ".join(differences), gtid=opened.gtid, rows=opened.rows)


class _Fresh:
    """Rows and statements as they are converted, up to the end of the open transaction's batch."""

    def __init__(
        self,
        source: BatchSource,
        opened: OpenTransaction,
        progress: Progress,
        may_wait: Callable[[], bool],
    ) -> None:
        self._source = source
        self._gtid = parse_gtid(progress.gtid_set.flavour, opened.gtid)
        self._may_wait = may_wait
        self.is_interrupted = False

    def units(self) -> Iterator[bytes]:
        """Values; ends behind the transaction, or when waiting was interrupted."""
        while True:
            batch = self._source.next_batch(
                rows_max=ROWS_MAX, bytes_max=BYTES_MAX, timeout_s=WAIT_S
            )
            if (batch is None or not len(batch.bounds)) and not self._may_wait():
                self.is_interrupted = True
                return
            if batch is None:
                continue
            for _, _, start, end in batch.bounds.tolist():
                value = batch.buffer[start:end].tobytes()
                if peek_kind(value) is not RecordKind.SCHEMA:
                    yield value
            if batch.progress.gtid_set.covers(self._gtid):
                return


def _difference(known: Iterable[bytes], fresh: _Fresh, opened: OpenTransaction) -> str | None:
    """None when ``fresh`` begins with all of ``known``, and goes on behind it."""
    units = fresh.units()
    for count, value in enumerate(known, 1):
        unit = next(units, None)
        if unit is None:
            return f"it has {count - 1} of the rows published of {opened.gtid}"
        if not is_same(value, unit):
            return f"row {_place_of(value).row} of {opened.gtid} is another one there"
    following = next(units, None)
    if following is not None:
        place = _place_of(following)
        if place.gtid == opened.gtid and place.row <= opened.rows:
            return f"row {place.row} of {opened.gtid} was not published"
    return None


def is_same(known: bytes, fresh: bytes) -> bool:
    """Whether two values say the same in the same place of their source transaction, whoever logged them."""
    if known[HEADER_BYTES:] == fresh[HEADER_BYTES:]:
        return True
    kind = peek_kind(known)
    if kind is not peek_kind(fresh) or _place_of(known) != _place_of(fresh):
        return False
    if kind is RecordKind.ROW:
        ours, theirs = read_row_end(known), read_row_end(fresh)
        return ours.op == theirs.op and read_content(known, ours) == read_content(fresh, theirs)
    statements = [decode_control(value) for value in (known, fresh)]
    texts = [found.statement.sql for found in statements if isinstance(found, DdlRecord)]
    return len(texts) == 2 and texts[0] == texts[1]


@dataclass(frozen=True, slots=True)
class _Place:
    gtid: str
    row: int  # from 1, before any filter
    seq: int


def _place_of(value: bytes) -> _Place:
    if peek_kind(value) is RecordKind.ROW:
        suffix = read_row_end(value)
        return _Place(suffix.gtid, suffix.total_order, suffix.seq)
    record = decode_control(value)
    assert isinstance(record, DdlRecord)
    return _Place(record.transaction.gtid, record.transaction.total_order, record.source.seq)
