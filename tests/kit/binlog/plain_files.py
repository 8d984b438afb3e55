"""Binlog files made event by event from the format's description and ``zlib``, without Millrace's code.

Layouts: MySQL ``libs/mysql/binlog/event``, MariaDB ``log_event.h``. Only fields that the relay reads are meaningful.
"""

import struct
import zlib
from dataclasses import dataclass, field
from uuid import UUID

MAGIC = b"\xfebin"
SERVER = UUID("3e11fa47-71ca-11e1-9e33-c80aa9429562")


def event(
    kind: int, body: bytes, *, pos: int, timestamp: int = 1, server: int = 1, flags: int = 0
) -> bytes:
    """One event at file offset ``pos``."""
    size = 19 + len(body) + 4
    head = struct.pack("<IBIIIH", timestamp, kind, server, size, (pos + size) & 0xFFFFFFFF, flags)
    return head + body + struct.pack("<I", zlib.crc32(head + body))


def artificial(kind: int, body: bytes) -> bytes:
    """An artificial event of the server."""
    size = 19 + len(body) + 4
    head = struct.pack("<IBIIIH", 0, kind, 1, size, 0, 0x20)
    return head + body + struct.pack("<I", zlib.crc32(head + body))


def packet(payload: bytes, sequence: int) -> bytes:
    """A payload as packets, split at 16 MiB - 1."""
    out = []
    while True:
        piece, payload = payload[:0xFFFFFF], payload[0xFFFFFF:]
        out.append(struct.pack("<I", len(piece))[:3] + bytes([sequence & 255]) + piece)
        sequence += 1
        if len(piece) < 0xFFFFFF:
            return b"".join(out)


@dataclass
class BinlogFile:
    """A growing file; ``ends`` are the offsets after the head and after each whole source transaction."""

    mariadb: bool = False
    first_number: int = 1
    checksum_algorithm: int = 1
    server: int = 1
    data: bytes = MAGIC
    events: list[bytes] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    number: int = field(init=False)

    def __post_init__(self) -> None:
        self.number = self.first_number - 1
        self.add(
            15,
            struct.pack("<H50sIB", 4, b"9.7.0", 0, 19)
            + bytes(40)
            + bytes([self.checksum_algorithm]),
        )
        if self.mariadb:
            before = struct.pack("<IQ", self.server, self.number)
            count = 1 if self.number else 0
            self.add(163, struct.pack("<I", count) + (struct.pack("<I", 0) + before) * count)
        else:
            intervals = struct.pack("<QQQ", 1, 1, self.number + 1)
            self.add(
                35,
                struct.pack("<Q", 1) + SERVER.bytes + intervals
                if self.number
                else struct.pack("<Q", 0),
            )
        self.ends.append(len(self.data))

    def add(self, kind: int, body: bytes, *, is_placed: bool = True) -> None:
        """Append an event; MariaDB writes no position into events inside a transaction."""
        made = event(kind, body, pos=len(self.data), server=self.server)
        if not is_placed:
            head = made[:13] + bytes(4) + made[17:-4]
            made = head + struct.pack("<I", zlib.crc32(head))
        self.data += made
        self.events.append(made)

    def query(self, sql: str) -> None:
        """A QUERY event."""
        self.add(2, struct.pack("<IIBHH", 1, 0, 1, 0, 3) + b"abc" + b"d\0" + sql.encode())

    def gtid(self, *, standalone: bool = False) -> None:
        """A GTID event with the next number."""
        self.number += 1
        if self.mariadb:
            self.add(162, struct.pack("<QIB", self.number, 0, 1 if standalone else 0) + bytes(6))
        else:
            self.add(33, b"\1" + SERVER.bytes + struct.pack("<Q", self.number) + bytes(17))

    def transaction(self, *, rows_bytes: int = 30, ending: str = "xid") -> "BinlogFile":
        """One source transaction."""
        self.gtid(standalone=ending == "ddl")
        if ending == "ddl":
            self.query("CREATE TABLE t (a INT)")
        elif ending == "payload":
            self.add(40, bytes(rows_bytes))
        else:
            if not self.mariadb:
                self.query("BEGIN" if ending != "xa" else "XA START X'01',X'',1")
            self.add(19, b"table map", is_placed=not self.mariadb)
            self.add(30, bytes(rows_bytes), is_placed=not self.mariadb)
            match ending:
                case "xid":
                    self.add(16, struct.pack("<Q", self.number))
                case "commit":
                    self.query("COMMIT")
                case "xa":
                    self.query("XA END X'01',X'',1")
                    self.add(38, bytes(12))
        self.ends.append(len(self.data))
        return self

    def rotate(self, following: str) -> "BinlogFile":
        """End the file with a ROTATE event."""
        self.add(4, struct.pack("<Q", 4) + following.encode())
        self.ends.append(len(self.data))
        return self
