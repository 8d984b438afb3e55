"""The end of a row record, read backwards without its schema.

The envelope is laid out so that what orders a stream stands last, behind the images whatever their schema:

    …  source…      set, ts_ms, server_id, gtid, file, pos, row, event_flags: where and when it was logged
       source.seq   long     zigzag varint
       op           string   0x02, then one of c u d
       ts_ms        long     zigzag varint
       id           string   length, then the GTID's text          ─┐
       total_order  long     zigzag varint                          ├ transaction
       last         boolean  0x00 or 0x01, the record's last byte  ─┘

A varint can be read backwards here: its last byte has the high bit clear and the others have it set, and the byte
before each of these fields has it clear. The length of ``id`` is found by trying: exactly one prefix agrees with both
the length and the grammar of GTIDs.

Guarantees: MR-6007 for bytes that don't have this form. Not done here: control records (``schemas.record``); checking
that the rest of the record is well-formed.
"""

import re
from dataclasses import dataclass

from millrace.errors import Fatal

_FRAMING_BYTES = 5
_VARINT_BYTES_MAX = 10
_ID_BYTES_MAX = 36 + 1 + 32 + 1 + 20  # uuid:tag:number
_FILE_BYTES_MAX = 512
_OPS = (b"c", b"u", b"d")
_GTID = re.compile(
    rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}:(?:[a-z_][a-z0-9_]{0,31}:)?\d+|\d+-\d+-\d+"
)


@dataclass(frozen=True, slots=True)
class RowSuffix:
    """Where a row stands in its stream and in its source transaction (``total_order`` counts from 1)."""

    seq: int
    op: str
    ts_ms: int
    gtid: str
    total_order: int
    last: bool


def read_suffix(value: bytes, *, likely_id_bytes: int = 0) -> RowSuffix:
    """The suffix of a row record's value (framing included); Fatal MR-6007.

    ``likely_id_bytes`` is tried first: the length of the former record's GTID, as a rule this one's too.
    """
    if len(value) < _FRAMING_BYTES or value[-1] > 1:
        raise Fatal("MR-6007", f"a row record of {len(value)} bytes does not end in a boolean")
    total_order, id_end = _varint_before(value, len(value) - 1)
    gtid, ts_end = _gtid_before(value, id_end, likely_id_bytes)
    ts_ms, op_end = _varint_before(value, ts_end)
    op = value[op_end - 1 : op_end]
    if op not in _OPS or value[op_end - 2] != 2:
        raise Fatal("MR-6007", "a row record has no op where it belongs")
    seq, _ = _varint_before(value, op_end - 2)
    return RowSuffix(seq, op.decode(), ts_ms, gtid.decode(), total_order, value[-1] == 1)


def read_content(value: bytes, suffix: RowSuffix) -> bytes:
    """What the row says, whoever logged it: images, task, table and set; Fatal MR-6007.

    Without schema id, place and times: two servers that hold the same row give equal bytes, and only those.
    """
    _, at = _varint_before(value, len(value) - 1)
    gtid = _prefixed(suffix.gtid.encode())
    _, at = _varint_before(value, at - len(gtid))
    at -= len(b"\2c")
    for _field in ("seq", "event_flags", "row", "pos"):
        _, at = _varint_before(value, at)
    at = _file_before(value, at, gtid) - len(gtid)
    for _field in ("server_id", "ts_ms"):
        _, at = _varint_before(value, at)
    return value[_FRAMING_BYTES:at]


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
    """Where the file's name that ends before ``end`` starts, length included: behind its row's GTID."""
    for length in range(_FILE_BYTES_MAX):
        start = end - length - (1 if length < 0x40 else 2)
        if value.endswith(gtid, 0, max(start, 0)) and value[start:end] == _prefixed(
            value[end - length : end]
        ):
            return start
    raise Fatal("MR-6007", f"a row record names no file behind its GTID before byte {end}")


def _prefixed(text: bytes) -> bytes:
    """An Avro string below 8 KiB."""
    zigzag = len(text) << 1
    if zigzag < 0x80:
        return bytes([zigzag]) + text
    return bytes([zigzag & 0x7F | 0x80, zigzag >> 7]) + text
