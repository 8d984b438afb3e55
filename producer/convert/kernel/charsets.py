"""Converts the text of a column to UTF-8, or finds that it is not valid in its charset.

A charset is a kind and, if it needs tables, two places in one array of code points (``codes``, uint16, NO_CODE for an
unused code). ``producer.convert.charset_tables`` builds the array:

    ASCII, UTF8MB3, UTF8MB4          checked, then copied
    SINGLE   codes[first + byte]     one byte per character
    DOUBLE   the same, else codes[second + (byte << 8 | next)]
    EUC3     DOUBLE, and after 0x8F codes[second + 65536 + (next << 8 | last)]
    GB18030  DOUBLE, and four bytes: codes[second + 65536 + linear], above it arithmetic
    UCS2, UTF16, UTF16LE, UTF32      arithmetic

Guarantees: the output is valid UTF-8 (no surrogates, nothing above U+10FFFF). One byte becomes at most EXPANSION_MAX.
"""

import numpy as np
from numpy.typing import NDArray

from millrace.producer.convert.kernel.compiled import compiled
from millrace.producer.convert.kernel.memory import (
    Bytes,
    load_i64,
    load_u8,
    load_u16,
    load_u16be,
    load_u32be,
    signed,
    store_u8,
)

ASCII, UTF8MB3, UTF8MB4, SINGLE, DOUBLE, EUC3, GB18030, UCS2, UTF16, UTF16LE, UTF32 = range(11)
NO_CODE = 0xFFFF
EXPANSION_MAX = 3
GB18030_LINEAR = 39420  # four-byte sequences of the basic plane

_HIGH_BITS = np.int64(-0x7F7F7F7F7F7F7F80)  # 0x80 in every byte

Codes = NDArray[np.uint16]


@compiled
def ascii_length(buf: Bytes, start: int, end: int) -> int:
    at = start
    while at + 32 <= end:
        both = load_i64(buf, at) | load_i64(buf, at + 8)
        if (both | load_i64(buf, at + 16) | load_i64(buf, at + 24)) & _HIGH_BITS != 0:
            break
        at += 32
    while at + 8 <= end and load_i64(buf, at) & _HIGH_BITS == 0:
        at += 8
    while at < end and load_u8(buf, at) < 128:
        at += 1
    return at - start


@compiled
def is_utf8(buf: Bytes, start: int, end: int, bytes_max: int) -> bool:
    """Whether the text is valid UTF-8 with at most `bytes_max` (1, 3 or 4) bytes per character."""
    at = start + ascii_length(buf, start, end)
    while at < end:
        first = load_u8(buf, at)
        if first < 128:
            at += 1
            continue
        if bytes_max == 1 or first < 0xC2:
            return False
        if first < 0xE0:
            if at + 2 > end or load_u8(buf, at + 1) & 0xC0 != 0x80:
                return False
            at += 2
        elif first < 0xF0:
            if at + 3 > end:
                return False
            second = load_u8(buf, at + 1)
            if second & 0xC0 != 0x80 or load_u8(buf, at + 2) & 0xC0 != 0x80:
                return False
            if (first == 0xE0 and second < 0xA0) or (first == 0xED and second >= 0xA0):
                return False
            at += 3
        else:
            if bytes_max < 4 or first > 0xF4 or at + 4 > end:
                return False
            second = load_u8(buf, at + 1)
            if second & 0xC0 != 0x80 or load_u8(buf, at + 2) & 0xC0 != 0x80:
                return False
            if load_u8(buf, at + 3) & 0xC0 != 0x80:
                return False
            if (first == 0xF0 and second < 0x90) or (first == 0xF4 and second >= 0x90):
                return False
            at += 4
    return True


@compiled
def put_code(out: Bytes, at: int, code: int) -> int:
    """Write one code point as UTF-8 and return the offset after it."""
    if code < 0x80:
        store_u8(out, at, code)
        return at + 1
    if code < 0x800:
        store_u8(out, at, 0xC0 | (code >> 6))
        store_u8(out, at + 1, 0x80 | (code & 63))
        return at + 2
    if code < 0x10000:
        store_u8(out, at, 0xE0 | (code >> 12))
        store_u8(out, at + 1, 0x80 | ((code >> 6) & 63))
        store_u8(out, at + 2, 0x80 | (code & 63))
        return at + 3
    store_u8(out, at, 0xF0 | (code >> 18))
    store_u8(out, at + 1, 0x80 | ((code >> 12) & 63))
    store_u8(out, at + 2, 0x80 | ((code >> 6) & 63))
    store_u8(out, at + 3, 0x80 | (code & 63))
    return at + 4


@compiled
def convert_text(
    out: Bytes,
    at: int,
    buf: Bytes,
    start: int,
    end: int,
    kind: int,
    first: int,
    second: int,
    codes: Codes,
) -> int:
    """Write the text as UTF-8 at `at` and return the offset after it; -1 if it is not valid. Not for ASCII and
    UTF8*."""
    if kind in (UCS2, UTF16, UTF16LE):
        return _convert_utf16(out, at, buf, start, end, kind)
    if kind == UTF32:
        if (end - start) % 4:
            return -1
        for pos in range(start, end, 4):
            code = load_u32be(buf, pos)
            if code > 0x10FFFF or 0xD800 <= code < 0xE000:
                return -1
            at = put_code(out, at, code)
        return at
    pos = start
    while pos < end:
        byte = load_u8(buf, pos)
        code = signed(codes[first + byte])
        pos += 1
        if code == NO_CODE:
            if kind == SINGLE or pos >= end:
                return -1
            follower = load_u8(buf, pos)
            pos += 1
            if kind == EUC3 and byte == 0x8F:
                if pos >= end:
                    return -1
                code = signed(codes[second + 65536 + ((follower << 8) | load_u8(buf, pos))])
                pos += 1
            elif kind == GB18030 and 0x30 <= follower <= 0x39:
                if pos + 2 > end:
                    return -1
                code = _gb18030_long(
                    byte, follower, load_u8(buf, pos), load_u8(buf, pos + 1), second, codes
                )
                pos += 2
            else:
                code = signed(codes[second + ((byte << 8) | follower)])
            if code == NO_CODE:
                return -1
        at = put_code(out, at, code)
    return at


@compiled
def _gb18030_long(one: int, two: int, three: int, four: int, second: int, codes: Codes) -> int:
    if one < 0x81 or three < 0x81 or three > 0xFE or four < 0x30 or four > 0x39:
        return NO_CODE
    linear = (((one - 0x81) * 10 + two - 0x30) * 126 + three - 0x81) * 10 + four - 0x30
    if linear < GB18030_LINEAR:
        return signed(codes[second + 65536 + linear])
    if 189000 <= linear < 189000 + 0x100000:
        return linear - 189000 + 0x10000
    return NO_CODE


@compiled
def _convert_utf16(out: Bytes, at: int, buf: Bytes, start: int, end: int, kind: int) -> int:
    if (end - start) & 1:
        return -1
    pos = start
    while pos < end:
        code = load_u16(buf, pos) if kind == UTF16LE else load_u16be(buf, pos)
        pos += 2
        if 0xD800 <= code < 0xE000:
            if kind == UCS2 or code >= 0xDC00 or pos >= end:
                return -1
            low = load_u16(buf, pos) if kind == UTF16LE else load_u16be(buf, pos)
            pos += 2
            if low < 0xDC00 or low >= 0xE000:
                return -1
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
        at = put_code(out, at, code)
    return at
