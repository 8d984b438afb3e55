"""Reads numbers and lengths from the front of some bytes, and never past their end.

Everything the binlog says is checked here: a length that points outside, a packed integer cut short, bytes left over.
What is wrong is Fatal MR-6003 with the offset. Packed integers are MySQL's length-encoded ones:

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
    """A cursor over ``content``; ``what`` names it in errors."""

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
            self.refuse(f"{count} bytes wanted, {self.left} left")
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
            self.refuse(f"{first:#x} starts no packed integer")
        return self.uint(_WIDTHS[first])

    def end(self) -> None:
        """Refuse bytes that are left over."""
        if self.left:
            self.refuse(f"{self.left} bytes too many")

    def refuse(self, why: str) -> NoReturn:
        """Fatal MR-6003 for what stands here."""
        raise Fatal(
            "MR-6003", f"{self._what} of {len(self._content)} bytes at offset {self._at}: {why}"
        )
