"""The charsets of columns in the kernel's form: a kind, and two places in one array of code points.

Built from ``schemas.table.charset`` (which lists the servers' conversions) when a column first uses the charset.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from millrace.producer.convert.kernel import charsets as kind
from millrace.schemas.table.charset import characters, gb18030_character

_BYTE_MAX = {"ascii": 1, "utf8mb3": 3, "utf8mb4": 4}
_ARITHMETIC = {
    "ucs2": kind.UCS2,
    "utf16": kind.UTF16,
    "utf16le": kind.UTF16LE,
    "utf32": kind.UTF32,
}
_CHECKED = {"ascii": kind.ASCII, "utf8mb3": kind.UTF8MB3, "utf8mb4": kind.UTF8MB4}
_PLANE = 65536


@dataclass(frozen=True, slots=True)
class CharsetEntry:
    """A charset. ``kind`` is the kernel's; ``first`` and ``second`` are the places of its tables in ``codes``.

    ``bytes_max``: of one character, in a checked charset. ``has_ascii``: bytes below 128 are ASCII.
    """

    kind: int
    bytes_max: int = 0
    first: int = 0
    second: int = 0
    has_ascii: bool = False


class CharsetTables:
    """All charsets in use. ``codes`` grows with each charset that needs a table (256 to 131,328 numbers of 2 bytes)."""

    def __init__(self) -> None:
        self.codes: NDArray[np.uint16] = np.full(1, kind.NO_CODE, np.uint16)
        self._entries: dict[str, CharsetEntry] = {}

    def entry(self, charset: str) -> CharsetEntry:
        """The entry of a charset. Fatal MR-6006 for an unknown one."""
        found = self._entries.get(charset)
        if found is None:
            found = self._entries[charset] = self._make(charset)
        return found

    def _make(self, charset: str) -> CharsetEntry:
        if charset in _CHECKED:
            return CharsetEntry(_CHECKED[charset], bytes_max=_BYTE_MAX[charset])
        if charset in _ARITHMETIC:
            return CharsetEntry(_ARITHMETIC[charset])
        table = characters(charset)
        longest = max(map(len, table))
        which = kind.SINGLE if longest == 1 else kind.EUC3 if longest == 3 else kind.DOUBLE
        if charset == "gb18030":
            which = kind.GB18030
        single = np.full(256, kind.NO_CODE, np.uint16)
        planes = 0 if longest == 1 else 2 if which in (kind.EUC3, kind.GB18030) else 1
        plane = np.full(planes * _PLANE, kind.NO_CODE, np.uint16)
        for code, character in table.items():
            point = ord(character)
            if len(code) == 1:
                single[code[0]] = point
            elif len(code) == 2:
                plane[int.from_bytes(code, "big")] = point
            else:
                plane[_PLANE + int.from_bytes(code[1:], "big")] = point
        if which == kind.GB18030:
            _fill_long_codes(plane)
        first = self.codes.size
        self.codes = np.concatenate([self.codes, single, plane])
        has_ascii = bool((single[:128] == np.arange(128)).all())
        return CharsetEntry(which, 0, first, first + 256, has_ascii)


def _fill_long_codes(plane: NDArray[np.uint16]) -> None:
    for linear in range(kind.GB18030_LINEAR):
        rest, four = divmod(linear, 10)
        rest, three = divmod(rest, 126)
        one, two = divmod(rest, 10)
        character = gb18030_character(bytes([one + 0x81, two + 0x30, three + 0x81, four + 0x30]))
        if character is not None:
            plane[_PLANE + linear] = ord(character)
