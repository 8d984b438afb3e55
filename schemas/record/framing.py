"""Confluent framing, and the kind of a framed record without its schema.

    offset  size  field
         0     1  0
         1     4  schema id, big-endian
         5     …  Avro body

The start of an Avro body distinguishes rows from control records (``schemas.record.control``). A row starts with the
branch of ``before`` (0 or 2). A control record starts with twice the length of its kind, then the kind.
"""

import struct

from millrace.errors import Fatal
from millrace.schemas.record.control import RecordKind

_HEADER = struct.Struct(">BI")
HEADER_BYTES = _HEADER.size
_ROW_STARTS = (0, 2)
_CONTROL_STARTS = {
    bytes([2 * len(kind)]) + kind.encode(): kind
    for kind in RecordKind
    if kind is not RecordKind.ROW
}
_RESOLVED_START = next(
    start for start, kind in _CONTROL_STARTS.items() if kind is RecordKind.RESOLVED
)


def frame(schema_id: int, body: bytes) -> bytes:
    """``body`` with the header before it."""
    return _HEADER.pack(0, schema_id) + body


def unframe(value: bytes) -> tuple[int, bytes]:
    """The schema id and the Avro body; Fatal MR-6007."""
    if len(value) <= HEADER_BYTES or value[0] != 0:
        raise Fatal("MR-6007", f"{len(value)} bytes starting with {value[:6].hex()} are not framed")
    return _HEADER.unpack_from(value)[1], value[HEADER_BYTES:]


def peek_kind(value: bytes) -> RecordKind:
    """Row, schema, ddl, resolved or fence; Fatal MR-6007."""
    if len(value) > HEADER_BYTES and value[0] == 0:
        if value[HEADER_BYTES] in _ROW_STARTS:
            return RecordKind.ROW
        for start, kind in _CONTROL_STARTS.items():
            if value.startswith(start, HEADER_BYTES):
                return kind
    raise Fatal(
        "MR-6007",
        f"{len(value)} bytes starting with {value[:12].hex()} are not a record of Millrace",
    )


def is_resolved(value: bytes) -> bool:
    """Whether it is a resolved record, the last one of each Kafka transaction of capture."""
    return value.startswith(_RESOLVED_START, HEADER_BYTES)
