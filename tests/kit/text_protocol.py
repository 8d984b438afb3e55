"""Results of the text protocol, as a server sends them."""

from collections.abc import Sequence

EOF, ERROR = b"\xfe\0\0\2\0", b"\xff\x25\x05#HY000late"
FIRST = 250  # the sequence number of the first row: the numbers begin again soon


def packet(payload: bytes, sequence: int) -> bytes:
    """One packet."""
    return len(payload).to_bytes(3, "little") + bytes([sequence % 256]) + payload


def encoded_row(row: Sequence[bytes | None]) -> bytes:
    """A row."""
    return b"".join(b"\xfb" if value is None else _length(len(value)) + value for value in row)


def result(rows: Sequence[Sequence[bytes | None]], last: bytes = EOF) -> bytes:
    """The packets of rows, and the last one."""
    packets = [packet(encoded_row(row), FIRST + number) for number, row in enumerate(rows)]
    return b"".join(packets) + packet(last, FIRST + len(rows))


def _length(size: int) -> bytes:
    if size < 251:
        return bytes([size])
    for mark, width in ((0xFC, 2), (0xFD, 3), (0xFE, 8)):
        if size < 1 << 8 * width:
            return bytes([mark]) + size.to_bytes(width, "little")
    raise AssertionError(size)
