"""Inflates (RFC 1950 and 1951) columns and events that MariaDB compressed; the output is bounded.

    zlib    CMF FLG | deflate blocks | adler32, big-endian
    raw     only deflate blocks (a compressed column without its zlib header)
    block   1 bit last, 2 bits kind: 0 stored, 1 fixed codes, 2 dynamic codes

Guarantees: it reads inside ``buf[pos:end]``, writes inside ``out[at:limit]``, and checks the Adler-32 of a zlib stream.
It decodes canonical codes by counting (as zlib's puff does): slower than tables but small, with loops of at most 15
bits.
"""

import numpy as np
from numpy.typing import NDArray

from millrace.producer.convert.kernel.compiled import compiled
from millrace.producer.convert.kernel.memory import Bytes, load_u8, load_u16, load_u32be, store_u8

LENGTH_BASE = np.array(
    [*range(3, 11), *(2**bits * step + 3 for bits in range(1, 6) for step in (4, 5, 6, 7)), 258],
    np.int64,
)
LENGTH_EXTRA = np.array([0] * 8 + [1] * 4 + [2] * 4 + [3] * 4 + [4] * 4 + [5] * 4 + [0], np.int64)
DISTANCE_BASE = np.array(
    [1, 2, *(2**bits * half + 1 for bits in range(14) for half in (2, 3))], np.int64
)
DISTANCE_EXTRA = np.array([max(0, n // 2 - 1) for n in range(30)], np.int64)
CODE_ORDER = np.array([16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15], np.int64)

_BITS, _COUNT, _POS, _END = 0, 1, 2, 3  # the bit reader: bits held, how many, next byte, end


@compiled
def _bits(reader: NDArray[np.int64], buf: Bytes, need: int) -> int:
    while reader[_COUNT] < need:
        if reader[_POS] >= reader[_END]:
            return -1
        reader[_BITS] |= load_u8(buf, reader[_POS]) << reader[_COUNT]
        reader[_POS] += 1
        reader[_COUNT] += 8
    value: int = reader[_BITS] & ((1 << need) - 1)
    reader[_BITS] >>= need
    reader[_COUNT] -= need
    return value


@compiled
def _build(
    counts: NDArray[np.int64],
    symbols: NDArray[np.int64],
    lengths: NDArray[np.int64],
    start: int,
    size: int,
) -> bool:
    """Fill `counts` (codes of n bits) and `symbols` (ordered by code). False if there are more codes than fit."""
    offsets = np.zeros(17, np.int64)
    for bits in range(16):
        counts[bits] = 0
    for symbol in range(size):
        counts[lengths[start + symbol]] += 1
    left = 1
    for bits in range(1, 16):
        left = (left << 1) - counts[bits]
        if left < 0:
            return False
        offsets[bits + 1] = offsets[bits] + counts[bits]
    for symbol in range(size):
        bits = lengths[start + symbol]
        if bits != 0:
            symbols[offsets[bits]] = symbol
            offsets[bits] += 1
    return True


@compiled
def _symbol(
    reader: NDArray[np.int64], buf: Bytes, counts: NDArray[np.int64], symbols: NDArray[np.int64]
) -> int:
    code = first = index = 0
    for bits in range(1, 16):
        bit = _bits(reader, buf, 1)
        if bit < 0:
            return -1
        code |= bit
        count = counts[bits]
        if code - count < first:
            found: int = symbols[index + (code - first)]
            return found
        index += count
        first = (first + count) << 1
        code <<= 1
    return -1


@compiled
def _read_dynamic(
    reader: NDArray[np.int64],
    buf: Bytes,
    lengths: NDArray[np.int64],
    counts: NDArray[np.int64],
    symbols: NDArray[np.int64],
) -> int:
    """Read the code lengths of a dynamic block into `lengths` (distances from 288 on) and return the number of
    literal codes; -1 if they are broken."""
    head = _bits(reader, buf, 14)
    if head < 0:
        return -1
    literal_count = (head & 31) + 257
    distance_count = ((head >> 5) & 31) + 1
    code_count = (head >> 10) + 4
    if literal_count > 286 or distance_count > 30:
        return -1
    for place in range(320):
        lengths[place] = 0
    for place in range(code_count):
        length = _bits(reader, buf, 3)
        if length < 0:
            return -1
        lengths[CODE_ORDER[place]] = length
    if not _build(counts, symbols, lengths, 0, 19):
        return -1
    read = np.zeros(320, np.int64)
    place = 0
    while place < literal_count + distance_count:
        symbol = _symbol(reader, buf, counts, symbols)
        if symbol < 0:
            return -1
        if symbol < 16:
            read[place] = symbol
            place += 1
            continue
        if symbol == 16 and place == 0:
            return -1
        value = read[place - 1] if symbol == 16 else 0
        extra = _bits(reader, buf, 2 if symbol == 16 else 3 if symbol == 17 else 7)
        repeat = extra + (11 if symbol == 18 else 3)
        if extra < 0 or place + repeat > literal_count + distance_count:
            return -1
        for _ in range(repeat):
            read[place] = value
            place += 1
    for place in range(320):
        lengths[place] = 0
    for place in range(literal_count):
        lengths[place] = read[place]
    for place in range(distance_count):
        lengths[288 + place] = read[literal_count + place]
    return literal_count


@compiled
def inflate(out: Bytes, at: int, limit: int, buf: Bytes, pos: int, end: int, is_raw: bool) -> int:
    """Inflate the stream in ``buf[pos:end]`` to ``out[at:limit]`` and return the offset after it; -1: broken, -2:
    too long."""
    start = at
    if not is_raw:
        if (
            end - pos < 6
            or load_u8(buf, pos) & 15 != 8
            or (load_u8(buf, pos) * 256 + load_u8(buf, pos + 1)) % 31
        ):
            return -1
        if load_u8(buf, pos + 1) & 32:
            return -1
        pos += 2
    reader = np.zeros(4, np.int64)
    reader[_POS] = pos
    reader[_END] = end
    lengths = np.zeros(320, np.int64)
    literal_counts, literal_symbols = np.zeros(16, np.int64), np.zeros(288, np.int64)
    distance_counts, distance_symbols = np.zeros(16, np.int64), np.zeros(32, np.int64)
    last = 0
    while last == 0:
        head = _bits(reader, buf, 3)
        if head < 0:
            return -1
        last = head & 1
        kind = head >> 1
        if kind == 0:
            reader[_BITS] = reader[_COUNT] = 0
            pos = reader[_POS]
            if pos + 4 > end:
                return -1
            size = load_u16(buf, pos)
            if size != load_u16(buf, pos + 2) ^ 0xFFFF or pos + 4 + size > end:
                return -1
            if at + size > limit:
                return -2
            for place in range(size):
                store_u8(out, at + place, load_u8(buf, pos + 4 + place))
            at += size
            reader[_POS] = pos + 4 + size
            continue
        if kind == 3:
            return -1
        if kind == 1:
            for place in range(288):
                lengths[place] = 8 if place < 144 else 9 if place < 256 else 7 if place < 280 else 8
            for place in range(30):
                lengths[288 + place] = 5
            lengths[318] = lengths[319] = 0
        elif _read_dynamic(reader, buf, lengths, literal_counts, literal_symbols) < 0:
            return -1
        if not _build(literal_counts, literal_symbols, lengths, 0, 288):
            return -1
        if not _build(distance_counts, distance_symbols, lengths, 288, 32):
            return -1
        while True:
            symbol = _symbol(reader, buf, literal_counts, literal_symbols)
            if symbol < 0:
                return -1
            if symbol < 256:
                if at >= limit:
                    return -2
                store_u8(out, at, symbol)
                at += 1
                continue
            if symbol == 256:
                break
            symbol -= 257
            if symbol >= 29:
                return -1
            extra = _bits(reader, buf, LENGTH_EXTRA[symbol])
            length = LENGTH_BASE[symbol] + extra
            code = _symbol(reader, buf, distance_counts, distance_symbols)
            if extra < 0 or code < 0 or code >= 30:
                return -1
            extra = _bits(reader, buf, DISTANCE_EXTRA[code])
            distance = DISTANCE_BASE[code] + extra
            if extra < 0 or distance > at - start:
                return -1
            if at + length > limit:
                return -2
            for _ in range(length):
                store_u8(out, at, load_u8(out, at - distance))
                at += 1
    if not is_raw:
        pos = reader[_POS] - reader[_COUNT] // 8
        if pos + 4 > end or load_u32be(buf, pos) != _adler32(out, start, at):
            return -1
    return at


@compiled
def _adler32(out: Bytes, start: int, end: int) -> int:
    low = 1
    high = 0
    for place in range(start, end):
        low += load_u8(out, place)
        high += low
        if (place & 2047) == 0:
            low %= 65521
            high %= 65521
    return ((high % 65521) << 16) | (low % 65521)
