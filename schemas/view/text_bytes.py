"""How the kernel gets a text's bytes in its column's character set, for CRC32: records have texts in UTF-8.

    UTF8, UTF16, UTF16_LITTLE, UTF32   arithmetic
    BY_TABLE                           ranges of characters whose codes count up; ``table_octets`` has the layout

gb18030 has no form: its codes of four bytes do not count up as numbers do.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from functools import lru_cache

from millrace.schemas.table.charset import TABLE_CHARSETS, characters

_WITHOUT = "gb18030"


class TextBytes(IntEnum):
    """The numbers are those of ``kernel.conditions``."""

    RAW = 0  # the bytes of the record's value
    UTF8 = 1  # the same, of a text
    BY_TABLE = 2
    UTF16 = 3
    UTF16_LITTLE = 4
    UTF32 = 5


_UNICODE = {
    "ascii": TextBytes.UTF8,
    "utf8mb3": TextBytes.UTF8,
    "utf8mb4": TextBytes.UTF8,
    "ucs2": TextBytes.UTF16,
    "utf16": TextBytes.UTF16,
    "utf16le": TextBytes.UTF16_LITTLE,
    "utf32": TextBytes.UTF32,
}


def text_bytes(charset: str) -> tuple[TextBytes, bytes] | None:
    """The form, and the table of BY_TABLE. None for a character set without a form."""
    form = _UNICODE.get(charset)
    if form is not None:
        return form, b""
    if charset in TABLE_CHARSETS and charset != _WITHOUT:
        return TextBytes.BY_TABLE, table_octets(charset)
    return None


@lru_cache(maxsize=8)
def table_octets(charset: str) -> bytes:
    """Words of 32 bits, big-endian: the number of ranges; of each the first code point; the last; the first code."""
    ranges = list(_ranges(charset))
    words = [len(ranges), *(number for column in zip(*ranges, strict=True) for number in column)]
    return struct.pack(f">{len(words)}I", *words)


def _ranges(charset: str) -> Iterator[tuple[int, int, int]]:
    codes = sorted(
        (ord(character), int.from_bytes(code, "big"))
        for code, character in characters(charset).items()
    )
    first, last, first_code = codes[0][0], codes[0][0], codes[0][1]
    for point, code in codes[1:]:
        if point != last + 1 or code != first_code + point - first:
            yield first, last, first_code
            first, first_code = point, code
        last = point
    yield first, last, first_code
