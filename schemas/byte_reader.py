"""Reads numbers and byte strings from the start of a buffer, and never past its end.

Every length in a binlog event is checked here. A length beyond the end, a truncated packed integer and trailing bytes
raise Fatal MR-6003 with the offset. Packed integers are MySQL's length-encoded integers:

    0x00-0xfa        the number itself
    0xfc             2 bytes follow, little-endian
    0xfd             3 bytes
    0xfe             8 bytes
    0xfb, 0xff       not a number (NULL, an error)
"""

from typing import NoReturn

from millrace.errors import Fatal

_WIDTHS = {0xFC: 2, 0xFD: 3, 0xFE: 8}


class ByteReader:
    """A cursor over ``content``; errors name it as ``what``."""

    def __init__(self, content: bytes, what: str) -> None:
        self._content = content
        self._what = what
        self._at = 0

    @property
    def left(self) -> int:
        """Bytes not read yet."""
        return len(self._content) - self._at

    def take(self, count: int) -> bytes:
        """The next ``count`` bytes."""
        if count > self.left:
            self.refuse(f"{count} bytes needed, {self.left} left")
        taken = self._content[self._at : self._at + count]
        self._at += count
        return taken

    def uint(self, width: int) -> int:
        """A little-endian number of ``width`` bytes."""
        return int.from_bytes(self.take(width), "little")

    def packed(self) -> int:
        """A length-encoded integer."""
        first = self.uint(1)
        if first < 0xFB:
            return first
        if first not in _WIDTHS:
            self.refuse(f"{first:#x} does not start a packed integer")
        return self.uint(_WIDTHS[first])

    def end(self) -> None:
        """Raise Fatal MR-6003 if bytes are left over."""
        if self.left:
            self.refuse(f"{self.left} bytes too many")

    def refuse(self, why: str) -> NoReturn:
        """Raise Fatal MR-6003 at the current offset."""
        raise Fatal(
            "MR-6003", f"{self._what} of {len(self._content)} bytes at offset {self._at}: {why}"
        )
