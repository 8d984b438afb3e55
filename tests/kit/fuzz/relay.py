"""Damages events and walks them as receiver and relay log do, in memory between two forbidden pages.

    python -m tests.kit.fuzz.relay SEED ROUNDS

A read or write before or after a buffer ends the process (SIGSEGV), also in ordinary machine code and for accesses by
address, which no index check sees. With MILLRACE_KERNEL_CHECKED=1 indexes are checked as well. With NUMBA_DISABLE_JIT=1
the kernels run as plain Python, where an index below zero is an error too. Events are cut to any length, and their
types, lengths, positions, flags and bodies are changed. Checksums, and mostly positions, are corrected afterwards,
otherwise only wrong checksums would be found. Prints the count of each status.
"""

import random
import struct
import sys
import zlib
from collections import Counter
from typing import Any

import numpy as np

from millrace.compiled import IS_INTERPRETED
from millrace.producer.binlog import packets, transactions
from millrace.producer.binlog.crc import TABLES
from millrace.producer.binlog.events import CHECKSUM_BYTES, HEADER_BYTES
from millrace.producer.binlog.gtid_runs import new_runs
from millrace.producer.binlog.walk import scan_events, walk_events
from millrace.schemas.place import FIRST_POS
from tests.kit.binlog.plain_files import BinlogFile, packet
from tests.kit.fuzz.guarded_memory import Area, Guarded, assert_guarded

PIECE_BYTES_MAX = 500
# The body of a GTID_TAGGED event (a small number is twice itself): version, size, last field; flags 0, uuid, 5, "ab".
TAGGED = b"\2\2\2" + b"\0\0" + b"\2" + bytes(range(0, 32, 2)) + b"\4\x14" + b"\6\4ab"


def sample(chance: random.Random, *, mariadb: bool) -> list[bytes]:
    """Events of a file with every form of source transaction."""
    file = BinlogFile(mariadb=mariadb)
    endings = ["xid", "ddl", "commit", *([] if mariadb else ["xa", "payload"])]
    for ending in chance.choices(endings, k=4):
        file.transaction(ending=ending, rows_bytes=chance.randrange(300))
    if not mariadb and chance.random() < 1 / 2:
        file.add(42, TAGGED)
        file.query("DROP TABLE t")
    return list(file.events)


def damaged(events: list[bytes], chance: random.Random) -> list[bytes]:
    """Some events cut or changed; all have correct checksums, and correct positions unless those were changed."""
    made, pos = [], FIRST_POS
    victims = set(chance.sample(range(len(events)), chance.randint(1, 4)))
    for number, event in enumerate(events):
        body = bytearray(event[:-CHECKSUM_BYTES])
        is_placed = any(body[13:17])
        if number in victims and chance.random() < 1 / 2:
            del body[chance.randint(HEADER_BYTES, len(body)) :]
        size = len(body) + CHECKSUM_BYTES
        struct.pack_into("<II", body, 9, size, pos + size if is_placed else 0)
        if number in victims:
            for _ in range(chance.randint(0, 3)):
                place = chance.randrange(HEADER_BYTES if chance.random() < 1 / 3 else len(body))
                flipped = body[place] ^ 1 << chance.randrange(8)
                body[place] = chance.choice((0, 255, 127, 128, flipped, chance.randrange(256)))
        made.append(bytes(body) + struct.pack("<I", zlib.crc32(body)))
        pos += size
    return made


def watched(array: Any) -> Any:
    """The array; in plain Python it refuses an index below zero."""
    return array.view(Guarded) if IS_INTERPRETED else array


class Round:
    """One file in guarded memory."""

    def __init__(self, areas: tuple[Area, Area], chance: random.Random) -> None:
        self._wire, self._out = areas
        self._chance = chance
        self._is_at_end = chance.random() < 3 / 4
        self.mariadb = chance.random() < 1 / 2
        self.events = damaged(sample(chance, mariadb=self.mariadb), chance)

    def walk(self) -> int:
        """Walk as opening a relay log does."""
        content = b"".join(self.events)
        octets = self._lay(self._wire, content)
        state, runs, folded = _scratch(transactions.SLOTS)
        state[transactions.POS] = state[transactions.BOUNDARY] = FIRST_POS
        status, at = walk_events(
            octets, 0, len(content), state, runs, TABLES, folded, self.mariadb, True
        )
        assert 0 <= at <= len(content)
        assert (
            FIRST_POS <= state[transactions.BOUNDARY] <= state[transactions.POS] == FIRST_POS + at
        )
        return int(status)

    def scan(self) -> int:
        """Scan as a reader does, from any byte on."""
        content = b"".join(self.events)[self._chance.randrange(40) :]
        octets = self._lay(self._wire, content)
        folded = np.zeros(16, np.uint8)
        status, at = scan_events(octets, len(content), FIRST_POS, TABLES, folded, self.mariadb)
        assert 0 <= at <= len(content)
        return int(status)

    def strip(self) -> int:
        """Strip packets as the receiver does, in pieces."""
        stream = b"".join(
            packet(b"\0" + event, number & 255) for number, event in enumerate(self.events)
        )
        state, runs, folded = _scratch(packets.STATE_SLOTS)
        state[transactions.POS] = state[transactions.BOUNDARY] = FIRST_POS
        left, status, written = b"", transactions.OK, 0
        while status == transactions.OK and stream:
            count = self._chance.randint(1, PIECE_BYTES_MAX)
            left, stream = left + stream[:count], stream[count:]
            octets = self._lay(self._wire, left)
            room = self._lay(self._out, bytes(len(left)))
            status, at, more = packets.strip_packets(
                octets, 0, len(left), room, state, runs, TABLES, folded, self.mariadb, -1
            )
            assert 0 <= at <= len(left)
            assert more <= len(left)
            left, written = left[at:], written + more
        assert state[transactions.POS] <= FIRST_POS + written
        return int(status)

    def _lay(self, area: Area, octets: bytes) -> Any:
        return watched(area.lay(octets, is_at_end=self._is_at_end))


def _scratch(slots: int) -> tuple[Any, Any, Any]:
    """State, runs, and the buffer for a checksum."""
    return watched(np.zeros(slots, np.int64)), watched(new_runs()), np.zeros(16, np.uint8)


def main() -> int:
    """See the module."""
    chance = random.Random(int(sys.argv[1]))
    areas = Area(), Area()
    assert_guarded(areas[0])
    seen: Counter[int] = Counter()
    for _ in range(int(sys.argv[2])):
        made = Round(areas, chance)
        seen.update((made.walk(), made.scan(), made.strip()))
    print(dict(sorted(seen.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
