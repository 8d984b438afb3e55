"""The canonical checksum of a source transaction: equal on every server that logged the same changes.

Two servers of a set log one source transaction with different bytes. These differences do not count:

    positions, server id, thread id, times, table ids     rows of one statement in another order
    the sizes of row events, their version, compression   BEGIN and COMMIT, as statements or as other events
    a statement's text after its first word: replicas of MariaDB add IF EXISTS, servers add comments

A checksum is the sum, modulo 2^128, of a hash of each change: a row with its table and operation, or a statement's
first word with its default database. It does not depend on the order of changes, because servers log the rows of a
statement on a table without a key in different orders.

Not done here: finding the events, and judging which server is right.
"""

import hashlib
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from millrace.errors import Fatal
from producer.binlog import events as t
from producer.binlog.gtid_runs import read_gtid
from producer.convert.arrays import Bytes, Numbers
from producer.convert.column_program import column_sizes
from producer.convert.event_sources import PayloadEvents
from producer.convert.kernel import program as p
from producer.convert.kernel.images import skip_image
from producer.convert.query import parse_query
from producer.convert.statements import inflated_query
from schemas.byte_reader import ByteReader
from schemas.gtid import Flavour
from schemas.place import FIRST_POS, Coordinates

INFLATED_BYTES_MAX = 64 << 20  # a larger source transaction has no checksum
_HASH_BYTES = 16
_MODULUS = 1 << (8 * _HASH_BYTES)
_UPDATE = 1
_TRANSACTION_WORDS = frozenset({"BEGIN", "COMMIT"})
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_NOWHERE = Coordinates("", "", FIRST_POS)


@dataclass(frozen=True, slots=True)
class _Table:
    name: bytes
    sizes: Numbers


def checksums(
    events: Bytes, *, flavour: Flavour, is_wanted: Callable[[str], bool] = lambda _: True
) -> dict[str, int | None]:
    """The checksums of the whole source transactions in ``events`` by GTID; None for one that can't be read here.

    ``events``: whole events with their CRC-32, which begin between two source transactions.
    """
    found: dict[str, int | None] = {}
    gtid, group = "", _Changes(flavour)
    for at, kind, size in _events(events, t.CHECKSUM_BYTES):
        end = at + size - t.CHECKSUM_BYTES
        if kind in (t.GTID, t.GTID_TAGGED, t.MARIADB_GTID):
            found_gtid = read_gtid(events[at:end])
            if found_gtid is None:
                raise Fatal("MR-6003", "a GTID event is malformed")
            gtid, group = str(found_gtid), _Changes(flavour)
            if not is_wanted(gtid):
                gtid = ""
        elif gtid:
            group.add(kind, events[at + t.HEADER_BYTES : end])
            found[gtid] = group.sum
    return found


class _Changes:
    """The changes of one source transaction."""

    def __init__(self, flavour: Flavour) -> None:
        self._flavour = flavour
        self._tables: dict[int, _Table] = {}
        self.sum: int | None = 0

    def add(self, kind: int, body: Bytes) -> None:
        """Add an event without its header and checksum."""
        try:
            self._add(kind, body)
        except (Fatal, zlib.error, IndexError, ValueError):
            self.sum = None

    def _add(self, kind: int, body: Bytes) -> None:
        if kind == t.TABLE_MAP:
            content = body.tobytes()
            table_id = int.from_bytes(content[:6], "little")
            sizes = column_sizes(content, flavour=self._flavour)
            self._tables[table_id] = _Table(_table_name(content), sizes)
        elif kind in t.ROWS:
            self._add_rows(kind, body)
        elif kind in (t.QUERY, t.MARIADB_QUERY_COMPRESSED):
            content = body.tobytes()
            if kind == t.MARIADB_QUERY_COMPRESSED:
                content = inflated_query(content, _NOWHERE)
            query = parse_query(content, flavour=self._flavour)
            if query.text.upper() not in _TRANSACTION_WORDS:
                self._count(b"statement", query.database.encode(), _first_word(query.text))
        elif kind == t.TRANSACTION_PAYLOAD:
            self._add_payload(body)
        elif kind in (*t.LOADED_ROWS, t.PARTIAL_UPDATE_ROWS, t.INCIDENT):
            self.sum = None

    def _add_payload(self, body: Bytes) -> None:
        source = PayloadEvents(body.data, _NOWHERE, end_pos=0)
        inflated_bytes = 0
        while source.load_next():
            window = source.window
            inflated_bytes += len(window)
            if inflated_bytes > INFLATED_BYTES_MAX:
                self.sum = None
                return
            for at, kind, size in _events(window, 0):
                self._add(kind, window[at + t.HEADER_BYTES : at + size])
                source.offset = at + size

    def _add_rows(self, kind: int, body: Bytes) -> None:
        is_v2 = kind in (*t.ROWS_V2, *t.ROWS_COMPRESSED_V2)
        operation = _operation(kind)
        head = ByteReader(body[:1024].tobytes(), "rows event")
        known_bytes = head.left
        table = self._tables.get(head.uint(6))
        head.uint(2)
        if is_v2:
            extra_bytes = head.uint(2) - 2
            head.take(extra_bytes)
        columns = head.packed()
        images = 2 if operation == _UPDATE else 1
        bitmaps = head.take(images * ((columns + 7) // 8))
        rows = body[known_bytes - head.left :]
        if kind in (*t.ROWS_COMPRESSED_V1, *t.ROWS_COMPRESSED_V2):
            rows = np.frombuffer(_inflated(rows.tobytes()), np.uint8)
        if table is None:  # a dummy event, which only ends a statement
            return
        name = table.name + bytes([operation])
        for start, end in _row_bounds(rows, table.sizes, columns, bitmaps, images):
            self._count(b"row", name, rows[start:end].tobytes())

    def _count(self, *parts: bytes) -> None:
        if self.sum is None:
            return
        digest = hashlib.blake2b(digest_size=_HASH_BYTES)
        for part in parts:
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
        self.sum = (self.sum + int.from_bytes(digest.digest(), "little")) % _MODULUS


def _first_word(statement: str) -> bytes:
    words = _COMMENT.sub(" ", statement).split(maxsplit=1)
    return words[0].upper().encode() if words else b""


def _row_bounds(
    rows: Bytes, sizes: Numbers, columns: int, bitmaps: bytes, images: int
) -> Iterator[tuple[int, int]]:
    """The bounds of each row; of all rows together if their lengths are not known."""
    is_full = _count_bits(bitmaps) == images * columns
    if not is_full or len(sizes) != columns or (len(sizes) and int(sizes[:, p.SIZE].min()) < 0):
        yield 0, len(rows)
        return
    at = 0
    while at < len(rows):
        start = at
        for _ in range(images):
            at = skip_image(rows, at, len(rows), sizes, 0, columns)
            if at < 0:
                raise ValueError("a row ends after its event")
        yield start, at


def _count_bits(bitmap: bytes) -> int:
    return int.from_bytes(bitmap, "little").bit_count()


def _events(buffer: Bytes, checksum_bytes: int) -> Iterator[tuple[int, int, int]]:
    """(offset, type, size) of each whole event."""
    at, view = 0, buffer.data
    while at + t.HEADER_BYTES <= len(view):
        size = int.from_bytes(view[at + 9 : at + 13], "little")
        if size < t.HEADER_BYTES + checksum_bytes or at + size > len(view):
            return
        yield at, view[at + 4], size
        at += size


def _table_name(body: bytes) -> bytes:
    """Database and table as they are in the event, each with its length."""
    database_end = 9 + body[8] + 1
    return body[8 : database_end + 1 + body[database_end] + 1]


def _operation(kind: int) -> int:
    return next(
        types.index(kind)
        for types in (t.ROWS_V1, t.ROWS_V2, t.ROWS_COMPRESSED_V1, t.ROWS_COMPRESSED_V2)
        if kind in types
    )


def _inflated(content: bytes) -> bytes:
    """MariaDB's compressed part: 1 byte, whose low bits are the width of the size; the size; zlib."""
    return zlib.decompress(content[1 + (content[0] & 7) :])
