"""The head of a rows event: table, operation, columns, which columns are present; and the bounds of its rows."""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from millrace.errors import Fatal
from millrace.producer.binlog import events as t
from millrace.producer.convert.arrays import Bytes, Numbers
from millrace.producer.convert.kernel import program as p
from millrace.producer.convert.kernel.images import skip_image
from millrace.schemas.byte_reader import ByteReader

INSERT, UPDATE, DELETE = range(3)  # the order in each tuple of ``_OPERATIONS``
_OPERATIONS = (t.ROWS_V1, t.ROWS_V2, t.ROWS_COMPRESSED_V1, t.ROWS_COMPRESSED_V2)
_HEAD_BYTES_MAX = 66_000  # extra data of at most 64 KiB, bitmaps of 4096 columns


@dataclass(frozen=True, slots=True)
class RowsHead:
    """``present``: per image of a row, whether each column is in it. ``rows``: their bytes, inflated."""

    table_id: int
    operation: int  # INSERT, UPDATE, DELETE
    columns: int
    present: tuple[tuple[bool, ...], ...]
    rows: Bytes


def read_rows_head(kind: int, body: Bytes) -> RowsHead:
    """Read an event without its header and checksum. Fatal MR-6003 if it is cut or can't be inflated."""
    return _read(kind, body, is_inflated=True)


def read_present(kind: int, body: Bytes) -> tuple[int, tuple[tuple[bool, ...], ...]]:
    """``operation`` and ``present`` of ``RowsHead``. Fatal MR-6003 if they are cut."""
    head = _read(kind, body, is_inflated=False)
    return head.operation, head.present


def _read(kind: int, body: Bytes, *, is_inflated: bool) -> RowsHead:
    head = ByteReader(body[:_HEAD_BYTES_MAX].tobytes(), "rows event")
    known_bytes = head.left
    table_id = head.uint(6)
    head.uint(2)
    if kind in (*t.ROWS_V2, *t.ROWS_COMPRESSED_V2):
        head.take(head.uint(2) - 2)
    operation = next(kinds.index(kind) for kinds in _OPERATIONS if kind in kinds)
    columns = head.packed()
    present = []
    for _ in range(2 if operation == UPDATE else 1):
        bits = np.frombuffer(head.take((columns + 7) // 8), np.uint8)
        present.append(
            tuple(np.unpackbits(bits, bitorder="little")[:columns].astype(bool).tolist())
        )
    rows = body[known_bytes - head.left :]
    if is_inflated and kind in (*t.ROWS_COMPRESSED_V1, *t.ROWS_COMPRESSED_V2):
        rows = np.frombuffer(bytearray(_inflated(rows.tobytes())), np.uint8)
    return RowsHead(table_id, operation, columns, tuple(present), rows)


def row_bounds(head: RowsHead, sizes: Numbers) -> Iterator[tuple[int, int]] | None:
    """The bounds of each row in ``head.rows``; None if the length of a column is not known.

    ``sizes``: of ``column_program.column_sizes``. The iterator raises Fatal MR-6003 if a row is cut.
    """
    if not len(head.rows):
        return iter(())
    if len(sizes) != head.columns:
        return None
    images = [np.ascontiguousarray(sizes[np.array(present, bool)]) for present in head.present]
    if any(len(image) and int(image[:, p.SIZE].min()) < 0 for image in images):
        return None
    return _walk(head.rows, images)


def _walk(rows: Bytes, images: Sequence[Numbers]) -> Iterator[tuple[int, int]]:
    at = 0
    while at < len(rows):
        start = at
        for image in images:
            at = skip_image(rows, at, len(rows), image, 0, len(image))
            if at < 0:
                break
        if at <= start:  # a row has at least one byte
            raise Fatal("MR-6003", "a row ends after its event")
        yield start, at


def _inflated(content: bytes) -> bytes:
    """MariaDB's compressed part: 1 byte, whose low bits are the width of the size; the size; zlib."""
    try:
        return zlib.decompress(content[1 + (content[0] & 7) :])
    except (IndexError, zlib.error) as error:
        raise Fatal("MR-6003", f"a compressed rows event cannot be inflated: {error}") from error
