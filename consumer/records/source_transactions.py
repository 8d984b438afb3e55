"""Reads records in pieces that end where a source transaction ends, for ``consistency: transactional``.

A source transaction ends

    after     its row with ``last``
    after     a ``resolved`` or ``fence`` record that names no open transaction
    before    a DDL statement, and after it

A transaction whose end has not come is kept here with its records, up to the limits of a piece. One that is larger is
read to its end without being kept. Then ``large`` names it, and ``read_large`` reads it again from its first record. So
its reader knows that the end is there and never waits for a capture task that stopped in the middle of it.

A missed end joins a transaction with the next one, which is only coarser. Damaged records count as ends: the caller
checks and reports them.
Not done here: applying.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from millrace.consumer.records.pieces import Size, Source, Taken, joined
from millrace.consumer.records.rows import Values
from millrace.errors import Fatal, Retryable
from millrace.schemas.record.control import (
    DdlRecord,
    FenceRecord,
    ResolvedRecord,
    SchemaRecord,
    SnapshotRecord,
)
from millrace.schemas.record.record import decode_control

_BODY = 5  # the first byte of the Avro body: 0 or 2 for a row


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets ``begin`` to ``end - 1``."""

    begin: int
    end: int


class WholeReader:
    """A source of whole transactions. ``large``: the offsets of one that is too large to be kept."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._ready: Taken | None = None
        self._rest: Taken | None = None
        self._scan_begin: int | None = None
        self.large: Range | None = None

    @property
    def is_scanning(self) -> bool:
        """Whether it reads for the end of a large transaction."""
        return self._scan_begin is not None

    def seek(self, offset: int) -> None:
        """See ``Source``."""
        self._ready = self._rest = self._scan_begin = self.large = None
        self._source.seek(offset)

    def take(self, size: Size, *, wait_s: float) -> Taken | None:
        """The next whole transactions. No record if those that came are a part of one. None if none came in time."""
        if self._ready is not None:
            ready, self._ready = self._ready, None
            return ready
        if self._scan_begin is not None:
            return self._scan(self._scan_begin, size, wait_s)
        rest = self._rest
        left = size.without([rest]) if rest is not None else size
        assert left is not None, "a rest that fills a piece is not kept"
        taken = self._source.take(left, wait_s=wait_s)
        if taken is None:
            return None
        return self._split(taken if rest is None else joined([rest, taken]), size)

    def _split(self, taken: Taken, size: Size) -> Taken:
        end = last_end(taken.values)
        self._rest = taken.part(end, len(taken.offsets)) if end < len(taken.offsets) else None
        if self._rest is not None and size.without([self._rest]) is None:
            self._scan_begin, self._rest = int(self._rest.offsets[0]), None
        return taken.part(0, end)

    def _scan(self, begin: int, size: Size, wait_s: float) -> Taken | None:
        taken = self._source.take(size, wait_s=wait_s)
        if taken is None:
            return None
        end = first_end(taken.values)
        if end is not None:
            after = int(taken.offsets[end]) if end < len(taken.offsets) else taken.offsets[-1] + 1
            self._scan_begin, self.large = None, Range(begin, int(after))
        return taken.part(0, 0)

    def read_large(
        self, size: Size, *, wait_s: float, is_over: Callable[[], bool]
    ) -> Iterator[Taken]:
        """The records of ``large`` in pieces. Later records are kept for ``take``.

        Retryable MR-5052 if no record came for ``wait_s`` seconds, MR-5050 if ``is_over``.
        """
        assert self.large is not None
        given, self.large = self.large, None
        self._source.seek(given.begin)
        at, fed_s = given.begin, time.monotonic()
        while at < given.end:
            taken = self._source.take(size, wait_s=min(wait_s, 1.0))
            if is_over():
                raise Retryable("MR-5050", "the run is ending")
            if taken is None:
                if time.monotonic() - fed_s >= wait_s:
                    raise Retryable("MR-5052", f"no record came for {wait_s:g} s at offset {at}")
                continue
            fed_s = time.monotonic()
            first, end = (int(np.searchsorted(taken.offsets, edge)) for edge in (at, given.end))
            if end < len(taken.offsets):
                self._ready = self._split(taken.part(end, len(taken.offsets)), size)
            if end:
                at = int(taken.offsets[end - 1]) + 1
            if taken.offsets[-1] + 1 >= given.end:
                at = given.end
            yield taken.part(first, end)


def last_end(values: Values) -> int:
    """The number of records after which no transaction is open; the first record begins one, if it is a row."""
    is_row, is_last = _rows(values)
    ends = np.flatnonzero(is_last)
    end = int(ends[-1]) + 1 if len(ends) else 0
    for number in map(int, np.flatnonzero(~is_row[end:]) + end):
        if _ends(values.value(number)):
            end = number + 1
    rows = np.flatnonzero(is_row[end:])
    return end + int(rows[0]) if len(rows) else len(values)


def first_end(values: Values) -> int | None:
    """The number of records up to the end of the transaction that is open before them; None if it has no end here."""
    is_row, is_last = _rows(values)
    ends = np.flatnonzero(is_last)
    end = int(ends[0]) + 1 if len(ends) else None
    for number in map(int, np.flatnonzero(~is_row[:end])):
        value = values.value(number)
        if _ends(value):
            return number if _is_ddl(value) else number + 1
    return end


def first_transaction(taken: Taken) -> Taken:
    """The records up to the end of the first source transaction, which ``last_end`` has found to be there."""
    end = first_end(taken.values)
    return taken if end is None else taken.part(0, end)


def _rows(
    values: Values,
) -> tuple[
    "np.ndarray[tuple[int], np.dtype[np.bool_]]", "np.ndarray[tuple[int], np.dtype[np.bool_]]"
]:
    """Whether each value is a row, and whether it is the last of its transaction: the last byte of a row."""
    ends = values.offsets[1:].astype(np.int64)
    long = np.flatnonzero(values.sizes() > _BODY)
    is_row, is_last = np.zeros((2, len(values)), np.bool_)
    heads = values.payload[values.offsets[long] + _BODY]
    is_row[long] = (heads == 0) | (heads == 2)
    is_last[long] = is_row[long] & (values.payload[ends[long] - 1] == 1)
    return is_row, is_last


def _ends(value: bytes) -> bool:
    """Whether no transaction is open after this control record."""
    try:
        record = decode_control(value)
    except Fatal:
        return True
    match record:
        case SchemaRecord():
            return False
        case DdlRecord() | SnapshotRecord():  # a snapshot's records are between source transactions
            return True
        case ResolvedRecord() | FenceRecord():
            return record.progress.open is None


def _is_ddl(value: bytes) -> bool:
    try:
        return isinstance(decode_control(value), DdlRecord)
    except Fatal:
        return False
