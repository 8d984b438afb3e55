"""Writes a geometry as WKT in a JSON string: ``"POLYGON ((0 0, 1 0, 1 1, 0 0))"``.

    SRID                4 bytes, as MySQL stores it; it is not written
    geometry            byte order (1), type: 4 bytes, then by type
    1 POINT             x y: doubles
    2 LINESTRING        count: 4 bytes, points
    3 POLYGON           count, then of each ring the count and the points
    4 to 7              count, then whole geometries: points, lines, polygons, of any type

All numbers are little-endian, as both servers store them. A coordinate has the shortest digits that are read as the
same double. A value that is not of this form, or in more than 60 collections, is written as hexadecimal digits.
"""

import numpy as np

from millrace.characters import COMMA, POINT, QUOTE, SPACE, ZERO
from millrace.consumer.kernel.compiled import Bytes, Hashes, compiled_plain, int64
from millrace.consumer.kernel.json_doubles import put_floating
from millrace.consumer.kernel.json_text import put_bytes, put_hex
from millrace.consumer.kernel.walk import DOUBLE

_NAMES = (
    b"POINT ",
    b"LINESTRING ",
    b"POLYGON ",
    b"MULTIPOINT ",
    b"MULTILINESTRING ",
    b"MULTIPOLYGON ",
    b"GEOMETRYCOLLECTION ",
)
_TEXT = np.frombuffer(b"".join(_NAMES) + b"EMPTY", np.uint8)
_ENDS = np.cumsum(np.array([0, *map(len, _NAMES), len(b"EMPTY")], np.int64))
_POINT, _LINE, _POLYGON, _COLLECTION = 1, 2, 3, 7
_EMPTY = 7  # the place of the word
_OPENING, _CLOSING = 40, 41
_DEPTH_MAX = 60
_HEAD_BYTES, _COUNT_BYTES, _POINT_BYTES = 5, 4, 16


@compiled_plain
def _count(data: Bytes, at: int, end: int) -> int:
    """A number of 4 bytes; -1 if it is truncated or larger than the rest can be."""
    if end - at < _COUNT_BYTES:
        return int64(-1)
    value = int64(0)
    for place in range(_COUNT_BYTES):
        value |= int64(data[at + place]) << (8 * place)
    return value if value <= end - at else int64(-1)


@compiled_plain
def _put_number(out: Bytes, at: int, data: Bytes, start: int) -> int:
    end = put_floating(out, at, data, start, DOUBLE)
    if end - at > 2 and out[end - 2] == POINT and out[end - 1] == ZERO:
        return end - 2
    return end


@compiled_plain
def _put_points(out: Bytes, at: int, data: Bytes, start: int, count: int) -> int:
    out[at] = _OPENING
    at += 1
    for number in range(count):
        if number > 0:
            out[at] = COMMA
            out[at + 1] = SPACE
            at += 2
        at = _put_number(out, at, data, start)
        out[at] = SPACE
        at = _put_number(out, at + 1, data, start + _POINT_BYTES // 2)
        start += _POINT_BYTES
    out[at] = _CLOSING
    return at + 1


@compiled_plain
def _put_word(out: Bytes, at: int, word: int) -> int:
    return put_bytes(out, at, _TEXT, _ENDS[word], _ENDS[word + 1])


@compiled_plain
def _put_line(out: Bytes, at: int, data: Bytes, place: int, end: int) -> tuple[int, int]:
    """Points with their count: (position after them, place after them or -1)."""
    count = _count(data, place, end)
    place += _COUNT_BYTES
    if count < 0 or count * _POINT_BYTES > end - place:
        return at, -1
    if count == 0:
        return _put_word(out, at, _EMPTY), place
    return _put_points(out, at, data, place, count), place + count * _POINT_BYTES


@compiled_plain
def _put_polygon(out: Bytes, at: int, data: Bytes, place: int, end: int) -> tuple[int, int]:
    rings = _count(data, place, end)
    place += _COUNT_BYTES
    if rings < 0:
        return at, -1
    if rings == 0:
        return _put_word(out, at, _EMPTY), place
    out[at] = _OPENING
    at += 1
    for ring in range(rings):
        if ring > 0:
            out[at] = COMMA
            out[at + 1] = SPACE
            at += 2
        at, place = _put_line(out, at, data, place, end)
        if place < 0:
            return at, -1
    out[at] = _CLOSING
    return at + 1, place


@compiled_plain
def _put_geometries(
    out: Bytes, at: int, data: Bytes, place: int, end: int, work: Hashes
) -> tuple[int, int]:
    """One geometry with all that it has. ``work``: type and rest of each open collection."""
    depth = 0
    while True:
        if end - place < _HEAD_BYTES or data[place] != 1:
            return at, -1
        kind = int64(data[place + 1])
        if kind < _POINT or kind > _COLLECTION or data[place + 2] != 0:
            return at, -1
        place += _HEAD_BYTES
        if depth == 0 or work[2 * depth - 2] == _COLLECTION:
            at = _put_word(out, at, kind - 1)
        is_open = False
        if kind == _POINT:
            if end - place < _POINT_BYTES:
                return at, -1
            at = _put_points(out, at, data, place, 1)
            place += _POINT_BYTES
        elif kind == _LINE:
            at, place = _put_line(out, at, data, place, end)
        elif kind == _POLYGON:
            at, place = _put_polygon(out, at, data, place, end)
        else:
            count = _count(data, place, end)
            place += _COUNT_BYTES
            if count < 0 or depth == _DEPTH_MAX:
                return at, -1
            if count == 0:
                at = _put_word(out, at, _EMPTY)
            else:
                out[at] = _OPENING
                at += 1
                work[2 * depth], work[2 * depth + 1] = np.uint64(kind), np.uint64(count)
                depth += 1
                is_open = True
        if place < 0:
            return at, -1
        while not is_open and depth > 0:
            work[2 * depth - 1] -= np.uint64(1)
            if work[2 * depth - 1] > 0:
                out[at] = COMMA
                out[at + 1] = SPACE
                at += 2
                is_open = True
            else:
                out[at] = _CLOSING
                at += 1
                depth -= 1
        if depth == 0:
            return at, place


@compiled_plain
def put_wkt(out: Bytes, at: int, data: Bytes, start: int, end: int, work: Hashes) -> int:
    """Write it with its quotes. ``work``: as for ``put_decimal_with``."""
    out[at] = QUOTE
    after, place = _put_geometries(out, at + 1, data, start + _COUNT_BYTES, end, work)
    if place != end:
        return put_hex(out, at, data, start, end)
    out[after] = QUOTE
    return after + 1
