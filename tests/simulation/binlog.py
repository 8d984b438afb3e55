"""The binlog of a server of each flavour, and its answers to queries about it. The rows are the same.

    MySQL      one uuid numbers all             GTID, BEGIN, table maps and rows (30 to 32), XID
    MariaDB    in turns, four own ones and      GTID, which is the BEGIN, the statement's text, table maps and rows (23
               four from another server,        to 25), XID; only the first and the last event contain their position in
               in a separate domain             the file (since 11.4)

The head of each file has the state before it. ``number`` counts source transactions from 1.
"""

import struct
from typing import Protocol
from uuid import UUID

from millrace.schemas.gtid import Flavour
from tests.kit.binlog.builder import SERVER_ID, SOURCE_UUID, BinlogBuilder

Events = list[tuple[int, bytes]]  # type, body
Answer = dict[str, object]

DATABASE = "shop"
TURN = 4


class Binlog(Protocol):
    """The format of one flavour.

    ``row_types`` are those of WRITE, UPDATE, DELETE; ``row_extra`` precedes the columns of such an event.
    """

    flavour: Flavour
    version: str
    row_types: tuple[int, int, int]
    row_extra: bytes

    def gtid(self, number: int) -> str:
        """The GTID of one source transaction."""
        ...

    def executed(self, number: int) -> str:
        """The GTID set of the first ``number`` source transactions."""
        ...

    def head(self, number: int) -> Events:
        """The head of a file that follows ``number`` source transactions."""
        ...

    def begin(self, file: BinlogBuilder, number: int) -> None:
        """A source transaction of rows."""
        ...

    def commit(self, file: BinlogBuilder) -> None:
        """The end of a source transaction."""
        ...

    def state(self, file: BinlogBuilder, number: int, sql: str) -> None:
        """A statement, as a separate source transaction."""
        ...

    def answers(self, number: int) -> dict[str, Answer]:
        """The server's identity and executed GTIDs, by words of the query."""
        ...

    def shown_head(self, number: int) -> Answer:
        """The head in SHOW BINLOG EVENTS."""
        ...


class MysqlBinlog:
    """The format of MySQL."""

    flavour = Flavour.MYSQL
    version = "9.7.4"
    row_types = 30, 31, 32
    row_extra = struct.pack("<H", 2)
    _uuid = str(UUID(bytes=SOURCE_UUID))

    def gtid(self, number: int) -> str:
        return f"{self._uuid}:{number}"

    def executed(self, number: int) -> str:
        last = f"-{number}" if number > 1 else ""
        return f"{self._uuid}:1{last}" if number else ""

    def head(self, number: int) -> Events:
        intervals = SOURCE_UUID + struct.pack("<QQQ", 1, 1, number + 1)
        return [(35, struct.pack("<Q", bool(number)) + (intervals if number else b""))]

    def begin(self, file: BinlogBuilder, number: int) -> None:
        file.gtid(number)
        file.query("BEGIN", database=DATABASE)

    def commit(self, file: BinlogBuilder) -> None:
        file.xid()

    def state(self, file: BinlogBuilder, number: int, sql: str) -> None:
        file.gtid(number)
        file.query(sql, database=DATABASE)

    def answers(self, number: int) -> dict[str, Answer]:
        return {"server_uuid": {"Value": self._uuid}, "gtid_purged": {"gtids": ""}}

    def shown_head(self, number: int) -> Answer:
        return {"Event_type": "Previous_gtids", "Info": self.executed(number)}


class MariadbBinlog:
    """The format of MariaDB."""

    flavour = Flavour.MARIADB
    version = "11.8.3-MariaDB"
    row_types = 23, 24, 25
    row_extra = b""
    _servers = SERVER_ID, SERVER_ID + 1  # of domains 0 and 1

    def gtid(self, number: int) -> str:
        domain = self._domain(number)
        return self._text(domain, self._sequences(number)[domain])

    def executed(self, number: int) -> str:
        last = enumerate(self._sequences(number))
        return ",".join(self._text(domain, sequence) for domain, sequence in last if sequence)

    def head(self, number: int) -> Events:
        last = [
            struct.pack("<IIQ", domain, self._servers[domain], sequence)
            for domain, sequence in enumerate(self._sequences(number))
            if sequence
        ]
        oldest = b"mysql-bin.000001"
        return [
            (163, struct.pack("<I", len(last)) + b"".join(last)),
            (161, struct.pack("<I", len(oldest)) + oldest),
        ]

    def begin(self, file: BinlogBuilder, number: int) -> None:
        self._begin(file, number, flags=0)
        file.is_placed = False
        file.event(160, b"a statement")

    def commit(self, file: BinlogBuilder) -> None:
        file.is_placed = True
        file.xid()
        file.server = SERVER_ID

    def state(self, file: BinlogBuilder, number: int, sql: str) -> None:
        self._begin(file, number, flags=1)
        file.query(sql, database=DATABASE)
        file.server = SERVER_ID

    def answers(self, number: int) -> dict[str, Answer]:
        received = self._sequences(number)[1]
        executed: Answer = {"gtids": self.executed(number)}
        return {
            "gtid_domain_id": {"domain": 0, "server": SERVER_ID},
            "gtid_slave_pos": {"gtids": self._text(1, received) if received else ""},
            "gtid_binlog_pos": executed,
            "gtid_binlog_state": executed,
        }

    def shown_head(self, number: int) -> Answer:
        return {"Event_type": "Gtid_list", "Info": f"[{self.executed(number)}]"}

    def _begin(self, file: BinlogBuilder, number: int, *, flags: int) -> None:
        domain = self._domain(number)
        file.server = self._servers[domain]
        sequence = self._sequences(number)[domain]
        file.event(162, struct.pack("<QIB", sequence, domain, flags) + bytes(6))

    def _text(self, domain: int, sequence: int) -> str:
        return f"{domain}-{self._servers[domain]}-{sequence}"

    @staticmethod
    def _domain(number: int) -> int:
        return (number - 1) // TURN % 2

    @staticmethod
    def _sequences(number: int) -> tuple[int, int]:
        """The last GTID of each domain."""
        rounds, rest = divmod(number, 2 * TURN)
        received = rounds * TURN + max(rest - TURN, 0)
        return number - received, received


BINLOGS: dict[Flavour, Binlog] = {made.flavour: made for made in (MysqlBinlog(), MariadbBinlog())}


def last_number(gtid_set: str) -> int:
    """The number of source transactions in a GTID set of one uuid, or of any domains; each starts at 1."""
    return sum(int(_last_of(item)) for item in gtid_set.split(",") if item)


def _last_of(item: str) -> str:
    return item.rpartition(":")[2].rpartition("-")[2]
