"""Names the row that is too large for the topic, so that an operator can find it. Apart: it decodes.

The record is refused before any record of its Kafka transaction is committed, so no row is lost: the batch comes again
when the setting is raised. The table is read from the record without its schema: the constant strings in ``source``
show where it is.
"""

from drivers.kafka.bulk import Bounds, Octets
from millrace.errors import Fatal
from schemas.record.row_end import read_row_end

_SNAPSHOT = b"\x0afalse"  # source.snapshot, the string before db and table


def oversize_error(buffer: Octets, bounds: Bounds, *, limit_bytes: int) -> Fatal:
    """The error for the largest record of ``bounds``."""
    sizes = bounds[:, 3] - bounds[:, 2]
    _, _, start, stop = bounds[int(sizes.argmax())].tolist()
    value = buffer[start:stop].tobytes()
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
    found = value.rfind(_SNAPSHOT)
    if found < 0:
        return "unknown"
    names = []
    at = found + len(_SNAPSHOT)
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
