"""Resumes inside a source transaction that was published in part, if the relay log has the same rows as the topic.

Two servers may log the rows of one source transaction in different orders (seen on tables without a key), and progress
inside a transaction is a count of rows. So the count is used only if the rows of the relay log, converted again, equal
the rows in the topic. Rows are compared one by one by content (images, table, operation, number in the transaction),
not by where they were logged. The rows that follow are then the unpublished ones, whichever server logged them.

    places tried       each sub-directory of the relay log that holds the transaction, newest first
    none matches       Retryable MR-6508: another member is tried, which sends the whole transaction
    no published row   (all were filtered): the transaction is converted again from its start, at any place

Guarantees: nothing is published before the rows match. Memory is bounded, because both sides are streams. Not done
here: reading the topic (``publisher.published_part``), choosing the member (``producer.source``).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from millrace.errors import Retryable
from millrace.log import get_logger
from millrace.producer.task.pipeline import BatchSource
from millrace.schemas.gtid import parse_gtid
from millrace.schemas.place import Coordinates
from millrace.schemas.progress import OpenTransaction, Progress
from millrace.schemas.record.control import DdlRecord, RecordKind
from millrace.schemas.record.framing import HEADER_BYTES, peek_kind
from millrace.schemas.record.record import decode_control
from millrace.schemas.record.row_end import read_content, read_row_end

# Compared batches are dropped at once. They have the size of published batches, so the converter's buffers fit both.
ROWS_MAX = 50_000
BYTES_MAX = 16 << 20
WAIT_S = 0.1  # time to wait for the relay log before `may_wait` is called again

log = get_logger("producer.task.resume")


class PublishedRows(Protocol):
    """The published part of a source transaction (``publisher.published_part``)."""

    def units(self) -> Iterator[bytes]:
        """The values of rows and statements, in order; each call reads the topic again."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """The place from which to convert, and the progress there."""

    at: Coordinates
    progress: Progress


def resume_inside(
    part: PublishedRows,
    places: Sequence[Coordinates],
    progress: Progress,
    *,
    convert: Callable[[Progress, Coordinates], BatchSource],
    may_wait: Callable[[], bool],
) -> Resumed | None:
    """The first of ``places`` that matches ``part``; None if ``may_wait`` returned False. Retryable MR-6508."""
    opened = progress.open
    assert opened is not None
    if (first := next(part.units(), None)) is None:
        return Resumed(places[0], replace(progress, open=None))
    before = replace(progress, open=None, seq=_read_place(first).seq - 1)
    differences = []
    for at in places:
        fresh = _ConvertedRows(convert(before, at), opened, progress, may_wait)
        difference = _find_difference(part.units(), fresh, opened)
        if fresh.is_interrupted:
            return None
        if difference is None:
            log.info("resuming inside a source transaction", gtid=opened.gtid, rows=opened.rows)
            return Resumed(at, progress)
        differences.append(f"{at.subdir}: {difference}")
    raise Retryable("MR-6508", "; ".join(differences), gtid=opened.gtid, rows=opened.rows)


class _ConvertedRows:
    """The converted rows and statements, up to the end of the batch that completes the open transaction."""

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
        """The values of rows and statements; ends after the transaction or when waiting was interrupted."""
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


def _find_difference(
    known: Iterable[bytes], fresh: _ConvertedRows, opened: OpenTransaction
) -> str | None:
    """Describe the first difference; None if ``fresh`` starts with all of ``known`` and only new rows follow."""
    units = fresh.units()
    for count, value in enumerate(known, 1):
        unit = next(units, None)
        if unit is None:
            return f"it has only {count - 1} of the published rows of {opened.gtid}"
        if not is_same_change(value, unit):
            return f"row {_read_place(value).row} of {opened.gtid} differs"
    following = next(units, None)
    if following is not None:
        place = _read_place(following)
        if place.gtid == opened.gtid and place.row <= opened.rows:
            return f"row {place.row} of {opened.gtid} was not published"
    return None


def is_same_change(known: bytes, fresh: bytes) -> bool:
    """Whether two values are the same change at the same place of their source transaction, on whichever server."""
    if known[HEADER_BYTES:] == fresh[HEADER_BYTES:]:
        return True
    kind = peek_kind(known)
    if kind is not peek_kind(fresh) or _read_place(known) != _read_place(fresh):
        return False
    if kind is RecordKind.ROW:
        old, new = read_row_end(known), read_row_end(fresh)
        return old.op == new.op and read_content(known, old) == read_content(fresh, new)
    statements = [decode_control(value) for value in (known, fresh)]
    texts = [found.statement.sql for found in statements if isinstance(found, DdlRecord)]
    return len(texts) == 2 and texts[0] == texts[1]


@dataclass(frozen=True, slots=True)
class _Place:
    gtid: str
    row: int  # from 1, before any filter
    seq: int


def _read_place(value: bytes) -> _Place:
    if peek_kind(value) is RecordKind.ROW:
        row_end = read_row_end(value)
        return _Place(row_end.gtid, row_end.total_order, row_end.seq)
    record = decode_control(value)
    assert isinstance(record, DdlRecord)
    return _Place(record.transaction.gtid, record.transaction.total_order, record.source.seq)
