"""Binlog files made event by event, as MySQL 8 and later write them, for tests without a server.

    builder = BinlogBuilder()
    builder.gtid(1); builder.query("BEGIN"); builder.map_shop_table("t", table_id=7)
    builder.insert(7, [(1, "a"), (2, None)]); builder.xid()

Tables are ``shop.<name> (id INT PRIMARY KEY, v VARCHAR(20) CHARACTER SET utf8mb4)``. Layouts: mysql-server
``libs/mysql/binlog/event``; every event ends in its CRC32.
"""

import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

MAGIC = b"\xfebin"
SOURCE_UUID = bytes.fromhex("3e11fa4771ca11e19e33c80aa9429562")
SERVER_ID = 11
TIME_S = 1_700_000_000

Row = tuple[int, str | None]


def packed_row(row: Row) -> bytes:
    """One image: null bits, id, length of v, v."""
    number, text = row
    nulls = bytes([0b10 if text is None else 0])
    value = b"" if text is None else bytes([len(text.encode())]) + text.encode()
    return nulls + struct.pack("<i", number) + value


def shop_table_map(name: str, table_id: int, *, database: str = "shop") -> bytes:
    """The body of a TABLE_MAP with full metadata."""
    names = b"".join(bytes([len(n)]) + n.encode() + b"\0" for n in (database, name))
    columns = bytes([2, 3, 15])  # LONG, VARCHAR
    metadata = bytes([2]) + struct.pack("<H", 80)
    optional = (
        bytes([1, 1, 0])  # signedness: id is signed
        + bytes([2, 3, 0xFC, 255, 0])  # default charset: 255, utf8mb4_0900_ai_ci
        + bytes([4, 5, 2])
        + b"id"
        + bytes([1])
        + b"v"
        + bytes([8, 1, 0])  # primary key: column 0
    )
    return table_id.to_bytes(6, "little") + b"\1\0" + names + columns + metadata + b"\2" + optional


def format_body(version: str) -> bytes:
    """The body of a FORMAT_DESCRIPTION with checksums."""
    return struct.pack("<H50sIB", 4, version.encode(), 0, 19) + bytes(44) + b"\1"


@dataclass
class BinlogBuilder:
    """``content`` is the file so far. The next event has ``server``, and its position if ``is_placed``."""

    version: str = "9.7.4"
    content: bytearray = field(default_factory=lambda: bytearray(MAGIC))
    server: int = SERVER_ID
    is_placed: bool = True

    def __post_init__(self) -> None:
        self.event(15, format_body(self.version))

    def event(self, kind: int, body: bytes, *, flags: int = 0, time_s: int = TIME_S) -> int:
        """Append an event; returns its offset."""
        start = len(self.content)
        size = 19 + len(body) + 4
        next_pos = start + size if self.is_placed else 0
        head = struct.pack("<IBIIIH", time_s, kind, self.server, size, next_pos, flags)
        self.content += head + body + struct.pack("<I", zlib.crc32(head + body))
        return start

    def gtid(
        self, number: int, *, commit_us: int = TIME_S * 1_000_000, uuid: bytes = SOURCE_UUID
    ) -> int:
        """A GTID event."""
        body = b"\0" + uuid + struct.pack("<QBQQ", number, 2, 0, 1)
        return self.event(33, body + commit_us.to_bytes(7, "little") + b"\xfc\0\1" + bytes(4))

    def query(self, text: str, *, database: str = "shop", status: bytes = b"") -> int:
        """A QUERY event."""
        head = struct.pack("<IIBHH", 1, 0, len(database), 0, len(status))
        return self.event(2, head + status + database.encode() + b"\0" + text.encode())

    def map_shop_table(self, name: str, *, table_id: int, database: str = "shop") -> int:
        """A TABLE_MAP event."""
        return self.event(19, shop_table_map(name, table_id, database=database))

    def insert(self, table_id: int, rows: Iterable[Row], *, flags: int = 1) -> int:
        """A WRITE_ROWS event."""
        return self._rows(30, table_id, b"\xff", map(packed_row, rows), flags)

    def delete(self, table_id: int, rows: Iterable[Row]) -> int:
        """A DELETE_ROWS event."""
        return self._rows(32, table_id, b"\xff", map(packed_row, rows))

    def update(self, table_id: int, pairs: Sequence[tuple[Row, Row]]) -> int:
        """An UPDATE_ROWS event."""
        return self._rows(
            31, table_id, b"\xff\xff", (packed_row(b) + packed_row(a) for b, a in pairs)
        )

    def xid(self) -> int:
        """An XID event: a commit."""
        return self.event(16, bytes(8))

    def transaction(self, number: int, table_id: int, name: str, rows: Sequence[Row]) -> None:
        """A whole source transaction: GTID, BEGIN, one INSERT, commit."""
        self.gtid(number)
        self.query("BEGIN")
        self.map_shop_table(name, table_id=table_id)
        self.insert(table_id, rows)
        self.xid()

    def _rows(
        self, kind: int, table_id: int, present: bytes, images: Iterable[bytes], flags: int = 1
    ) -> int:
        head = table_id.to_bytes(6, "little") + struct.pack("<HH", flags, 2) + bytes([2]) + present
        return self.event(kind, head + b"".join(images))
