"""Reads the end of a row record backwards, without its schema.

In the envelope the fields that order a stream come last, after the images, so they can be read without a schema:

    …  source…      set, ts_ms, server_id, gtid, file, pos, row, event_flags: where and when the row was logged
       source.seq   long     zigzag varint
       op           string   0x02, then one of c u d r
       ts_ms        long     zigzag varint
       id           string   length, then the GTID's text          ─┐
       total_order  long     zigzag varint                          ├ transaction
       last         boolean  0x00 or 0x01, the record's last byte  ─┘

A varint can be read backwards here: its last byte has the high bit clear, its other bytes have it set, and the byte
before each of these fields has it clear. The length of ``id`` is found by trying each length: exactly one matches both
the length prefix and the grammar of GTIDs.

Guarantees: bytes of another form raise Fatal MR-6007. Not done here: control records (``schemas.record.record``),
checking that the rest of the record is well-formed.
"""

import re
from dataclasses import dataclass

from millrace.errors import Fatal

_FRAMING_BYTES = 5
_VARINT_BYTES_MAX = 10
_ID_BYTES_MAX = 36 + 1 + 32 + 1 + 20  # uuid:tag:number
_FILE_BYTES_MAX = 512
SNAPSHOT_OP = "r"
_OPS = (b"c", b"u", b"d", SNAPSHOT_OP.encode())
_GTID = re.compile(
    rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}:(?:[a-z_][a-z0-9_]{0,31}:)?\d+|\d+-\d+-\d+"
)


@dataclass(frozen=True, slots=True)
class RowEnd:
    """A row's position in its stream and in its source transaction; ``total_order`` counts from 1."""

    seq: int
    op: str
    ts_ms: int
    gtid: str
    total_order: int
    last: bool


def read_row_end(value: bytes, *, likely_id_bytes: int = 0) -> RowEnd:
    """The end of a row record's framed value; Fatal MR-6007.

    ``likely_id_bytes`` is tried first: the length of the previous record's GTID, which is usually the same.
    """
    if len(value) < _FRAMING_BYTES or value[-1] > 1:
        raise Fatal("MR-6007", f"a row record of {len(value)} bytes does not end in a boolean")
    total_order, id_end = _varint_before(value, len(value) - 1)
    gtid, ts_end = _gtid_before(value, id_end, likely_id_bytes)
    ts_ms, op_end = _varint_before(value, ts_end)
    op = value[op_end - 1 : op_end]
    if op not in _OPS or value[op_end - 2] != 2:
        raise Fatal("MR-6007", "a row record has no valid op before its commit time")
    seq, _ = _varint_before(value, op_end - 2)
    return RowEnd(seq, op.decode(), ts_ms, gtid.decode(), total_order, value[-1] == 1)


def read_content(value: bytes, row: RowEnd) -> bytes:
    """The part of a row record that does not depend on the logging server: images, task, table and set. Fatal MR-6007.

    It excludes schema id, place and times, so two servers give equal bytes if and only if they hold the same row.
    """
    _, at = _varint_before(value, len(value) - 1)
    gtid = _prefixed(row.gtid.encode())
    _, at = _varint_before(value, at - len(gtid))
    at -= len(b"\2c")
    for _field in ("seq", "event_flags", "row", "pos"):
        _, at = _varint_before(value, at)
    at = _file_before(value, at, gtid) - len(gtid)
    for _field in ("server_id", "ts_ms"):
        _, at = _varint_before(value, at)
    return value[_FRAMING_BYTES:at]


def read_place(value: bytes, row: RowEnd) -> tuple[int, int]:
    """``source.pos`` and ``source.row`` of a row record: of a snapshot's row its chunk, and its number in it."""
    _, at = _varint_before(value, len(value) - 1)
    _, at = _varint_before(value, at - len(_prefixed(row.gtid.encode())))
    at -= len(b"\2c")
    for _field in ("seq", "event_flags"):
        _, at = _varint_before(value, at)
    number, at = _varint_before(value, at)
    return _varint_before(value, at)[0], number


def _varint_before(value: bytes, end: int) -> tuple[int, int]:
    """The zigzag varint whose last byte is before ``end``, and where it starts."""
    start = end - 1
    while start - 1 >= _FRAMING_BYTES and value[start - 1] & 0x80:
        start -= 1
    if start < _FRAMING_BYTES or value[end - 1] & 0x80 or end - start > _VARINT_BYTES_MAX:
        raise Fatal("MR-6007", f"a row record has no number before byte {end}")
    number = 0
    for octet in reversed(value[start:end]):
        number = number << 7 | octet & 0x7F
    return number >> 1 ^ -(number & 1), start


def _gtid_before(value: bytes, end: int, likely: int) -> tuple[bytes, int]:
    """The length-prefixed GTID that ends before ``end``, and where its length starts."""
    if likely and (found := _gtid_of_length(value, end, likely)) is not None:
        return found
    for length in range(_ID_BYTES_MAX, 0, -1):
        if (found := _gtid_of_length(value, end, length)) is not None:
            return found
    raise Fatal("MR-6007", f"a row record has no GTID before byte {end}")


def _gtid_of_length(value: bytes, end: int, length: int) -> tuple[bytes, int] | None:
    start = end - length
    zigzag = length << 1
    before = start - (1 if zigzag < 0x80 else 2)
    if before < _FRAMING_BYTES:
        return None
    if zigzag < 0x80:
        is_prefixed = value[before] == zigzag
    else:
        is_prefixed = value[before] == zigzag & 0x7F | 0x80 and value[before + 1] == zigzag >> 7
    if is_prefixed and _GTID.fullmatch(value, start, end):
        return value[start:end], before
    return None


def _file_before(value: bytes, end: int, gtid: bytes) -> int:
    """The start of the file name (its length prefix) that ends before ``end`` and follows the row's GTID."""
    for length in range(_FILE_BYTES_MAX):
        start = end - length - (1 if length < 0x40 else 2)
        if value.endswith(gtid, 0, max(start, 0)) and value[start:end] == _prefixed(
            value[end - length : end]
        ):
            return start
    raise Fatal("MR-6007", f"a row record has no file name after its GTID before byte {end}")


def _prefixed(text: bytes) -> bytes:
    """``text``, shorter than 8 KiB, as an Avro string."""
    zigzag = len(text) << 1
    if zigzag < 0x80:
        return bytes([zigzag]) + text
    return bytes([zigzag & 0x7F | 0x80, zigzag >> 7]) + text
