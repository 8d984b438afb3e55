"""The head of a rows event: table, columns, which columns are present, and the bytes of its rows."""

import zlib
from dataclasses import dataclass

import numpy as np

from producer.binlog import events as t
from producer.convert.arrays import Bytes
from schemas.byte_reader import ByteReader

_UPDATES = (
    t.UPDATE_ROWS_V1,
    t.UPDATE_ROWS,
    t.MARIADB_UPDATE_ROWS_COMPRESSED_V1,
    t.MARIADB_UPDATE_ROWS_COMPRESSED,
)
_HEAD_BYTES_MAX = 66_000  # extra data of at most 64 KiB, bitmaps of 4096 columns


@dataclass(frozen=True, slots=True)
class RowsHead:
    """``present``: per image of a row, whether each column is in it. ``rows``: their bytes, inflated."""

    table_id: int
    columns: int
    present: tuple[tuple[bool, ...], ...]
    rows: Bytes


def read_rows_head(kind: int, body: Bytes) -> RowsHead:
    """Read an event without its header and checksum. Fatal MR-6003 if it is cut."""
    head = ByteReader(body[:_HEAD_BYTES_MAX].tobytes(), "rows event")
    known_bytes = head.left
    table_id = head.uint(6)
    head.uint(2)
    if kind in (*t.ROWS_V2, *t.ROWS_COMPRESSED_V2):
        head.take(head.uint(2) - 2)
    columns = head.packed()
    present = []
    for _ in range(2 if kind in _UPDATES else 1):
        bits = np.frombuffer(head.take((columns + 7) // 8), np.uint8)
        present.append(
            tuple(np.unpackbits(bits, bitorder="little")[:columns].astype(bool).tolist())
        )
    rows = body[known_bytes - head.left :]
    if kind in (*t.ROWS_COMPRESSED_V1, *t.ROWS_COMPRESSED_V2):
        content = rows.tobytes()
        rows = np.frombuffer(bytearray(zlib.decompress(content[1 + (content[0] & 7) :])), np.uint8)
    return RowsHead(table_id, columns, tuple(present), rows)
