"""The Kafka transaction under way, and the error for a row in it that is too large for the topic.

The record is refused before any record of its Kafka transaction is committed, so no row is lost: the batch comes again
when the setting is raised. The table is read from the record without its schema: the constant strings in ``source``
show where it is.
"""

from dataclasses import dataclass

from millrace.drivers.kafka.bulk import Bounds, Octets
from millrace.errors import Fatal
from millrace.schemas.record.row_end import read_row_end

_SNAPSHOT = b"\x0afalse"  # source.snapshot, the string before db and table


@dataclass(frozen=True, slots=True)
class Chunk:
    buffer: Octets
    bounds: Bounds


@dataclass(slots=True)
class OpenTransaction:
    """The queued records. Only the last chunk is kept, and a copy of the largest record."""

    is_begun: bool = False
    is_retry: bool = False  # it is sent for the second time
    chunk: Chunk | None = None
    chunk_count: int = 0
    record_count: int = 0
    largest: bytes = b""

    def note(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.chunk_count += 1
        self.record_count += len(chunk.bounds)
        sizes = chunk.bounds[:, 3] - chunk.bounds[:, 2]
        row = int(sizes.argmax())
        if sizes[row] > len(self.largest):
            start, end = chunk.bounds[row, 2:].tolist()
            self.largest = chunk.buffer[start:end].tobytes()


def oversize_error(value: bytes, *, limit_bytes: int) -> Fatal:
    """The error that names the row of this record."""
    return Fatal(
        "MR-3004",
        f"a record of {len(value)} bytes is over the topic's max.message.bytes of {limit_bytes}",
        record_bytes=len(value),
        limit_bytes=limit_bytes,
        table=_table_of(value),
        gtid=_gtid_of(value),
    )


def _gtid_of(value: bytes) -> str:
    try:
        return read_row_end(value).gtid
    except Fatal:
        return "unknown"


def _table_of(value: bytes) -> str:
    """``database.table`` from ``source``; "unknown" if the bytes are not a row record's."""
    mark = value.rfind(_SNAPSHOT)
    if mark < 0:
        return "unknown"
    names = []
    at = mark + len(_SNAPSHOT)
    for _ in range(2):
        if at >= len(value):
            return "unknown"
        length, at = value[at], at + 1
        if length & 0x80:  # a name of 64 bytes or more has two bytes of varint
            length, at = length & 0x7F | value[at] << 7, at + 1
        length >>= 1
        names.append(value[at : at + length].decode("utf-8", "replace"))
        at += length
    return ".".join(names)
