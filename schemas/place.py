"""A position in the relay log: sub-directory, file, byte offset.

    <server uuid or domain-server>.<6-digit seq>/<server's file name>:<pos>      ab12….000002/mysql-bin.000017:4

Ordered by the numbers (seq of the sub-directory, number of the file, offset), never by the text: ``mysql-bin.1000000``
comes after ``mysql-bin.999999``. Not done here: checking that the file exists.
"""

from dataclasses import dataclass
from functools import total_ordering

from millrace.errors import Fatal

FIRST_POS = 4  # after the magic number


@total_ordering
@dataclass(frozen=True, slots=True)
class Coordinates:
    """``pos`` is the offset of the next byte to read; ``FIRST_POS`` is the start of a file."""

    subdir: str
    file: str
    pos: int

    @classmethod
    def parse(cls, text: str) -> "Coordinates":
        """From the text that ``str`` returns; Fatal MR-6008."""
        path, colon, pos = text.rpartition(":")
        subdir, slash, file = path.rpartition("/")
        if not (colon and slash and subdir and file and pos.isascii() and pos.isdigit()):
            raise Fatal("MR-6008", f"{text!r} is not subdir/file:pos")
        return cls(subdir, file, int(pos))

    @property
    def order(self) -> tuple[int, int, int]:
        """The sort key."""
        return _trailing_number(self.subdir), _trailing_number(self.file), self.pos

    def at(self, pos: int) -> "Coordinates":
        """The same file at another offset."""
        return Coordinates(self.subdir, self.file, pos)

    def __lt__(self, other: "Coordinates") -> bool:
        return self.order < other.order

    def __str__(self) -> str:
        return f"{self.subdir}/{self.file}:{self.pos}"


def _trailing_number(name: str) -> int:
    _, dot, digits = name.rpartition(".")
    if not dot or not (digits.isascii() and digits.isdigit()):
        raise Fatal("MR-6008", f"{name!r} does not end in .<number>")
    return int(digits)
