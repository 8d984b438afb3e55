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
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from millrace.errors import Fatal
from millrace.producer.binlog import events as t
from millrace.producer.binlog.gtid_runs import read_gtid
from millrace.producer.convert.arrays import Bytes, Numbers
from millrace.producer.convert.column_program import column_sizes
from millrace.producer.convert.event_sources import PayloadEvents
from millrace.producer.convert.query import parse_query
from millrace.producer.convert.rows_head import read_rows_head, row_bounds
from millrace.producer.convert.statements import inflated_query
from millrace.producer.convert.tables import table_names
from millrace.schemas.gtid import Flavour
from millrace.schemas.place import FIRST_POS, Coordinates

INFLATED_BYTES_MAX = 64 << 20  # a larger source transaction has no checksum
_HASH_BYTES = 16
_MODULUS = 1 << (8 * _HASH_BYTES)
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
    for event in _events(events):
        if int(event[4]) in (t.GTID, t.GTID_TAGGED, t.MARIADB_GTID):
            found_gtid = read_gtid(event)
            if found_gtid is None:
                raise Fatal("MR-6003", "a GTID event is malformed")
            gtid, group = str(found_gtid), _Changes(flavour)
            if not is_wanted(gtid):
                gtid = ""
        elif gtid:
            group.add(event)
            found[gtid] = group.sum
    return found


class _Changes:
    """The changes of one source transaction."""

    def __init__(self, flavour: Flavour) -> None:
        self._flavour = flavour
        self._tables: dict[int, _Table] = {}
        self.sum: int | None = 0

    def add(self, event: Bytes) -> None:
        try:
            self._add(event)
        except (Fatal, IndexError, ValueError):
            self.sum = None

    def _add(self, event: Bytes) -> None:
        kind, body = int(event[4]), event[t.HEADER_BYTES :]
        if kind == t.TABLE_MAP:
            content = body.tobytes()
            table_id = int.from_bytes(content[:6], "little")
            sizes = column_sizes(content, flavour=self._flavour)
            self._tables[table_id] = _Table("\0".join(table_names(content)).encode(), sizes)
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
        inflated_bytes = 0
        for event in PayloadEvents(body.data, _NOWHERE, end_pos=0).events():
            inflated_bytes += len(event)
            if inflated_bytes > INFLATED_BYTES_MAX:
                self.sum = None
                return
            self._add(event)

    def _add_rows(self, kind: int, body: Bytes) -> None:
        head = read_rows_head(kind, body)
        table = self._tables.get(head.table_id)
        if table is None:  # a dummy event, which only ends a statement
            return
        name = table.name + bytes([head.operation])
        bounds = row_bounds(head, table.sizes)
        for start, end in bounds if bounds is not None else ((0, len(head.rows)),):
            self._count(b"row", name, head.rows[start:end].tobytes())

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


def _events(buffer: Bytes) -> Iterator[Bytes]:
    """Each whole event without its checksum."""
    at, view = 0, buffer.data
    while at + t.HEADER_BYTES <= len(view):
        size = int.from_bytes(view[at + 9 : at + 13], "little")
        if size < t.HEADER_BYTES + t.CHECKSUM_BYTES or at + size > len(view):
            return
        yield buffer[at : at + size - t.CHECKSUM_BYTES]
        at += size
