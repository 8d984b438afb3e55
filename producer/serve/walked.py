"""Walks relay files for the positions that they reach: closed ones once, the newest one as it grows."""

import threading
from dataclasses import dataclass, field

import numpy as np

from millrace.errors import Fatal
from millrace.producer.binlog import transactions
from millrace.producer.binlog.compiled import Words
from millrace.producer.binlog.crc import TABLES
from millrace.producer.binlog.events import HEADER_BYTES
from millrace.producer.binlog.gtid_runs import advance_position, new_runs
from millrace.producer.binlog.walk import walk_events
from millrace.producer.relay.recovery import WINDOW_BYTES
from millrace.producer.relay.stored_file import StoredFile
from millrace.schemas.gtid import Flavour, GtidPosition
from millrace.schemas.place import FIRST_POS

_MASK = (1 << 64) - 1


@dataclass(slots=True)
class Walk:
    """A walk over the whole source transactions of the file ``name``, which ``advance`` continues.

    ``lasts``: MariaDB's last sequence by domain and server, of the transactions in the file.
    """

    name: str
    position: GtidPosition
    pos: int = FIRST_POS
    lasts: dict[tuple[int, int], int] = field(default_factory=dict)
    _state: Words = field(init=False)

    def __post_init__(self) -> None:
        self._state = np.zeros(transactions.SLOTS, np.int64)
        self._state[transactions.POS] = self._state[transactions.BOUNDARY] = FIRST_POS

    @property
    def end(self) -> int:
        """The end of the last whole source transaction."""
        return int(self._state[transactions.BOUNDARY])

    def advance(self, file: StoredFile, end: int) -> None:
        """Walk up to the offset ``end``. Fatal MR-2004 at a damaged event."""
        if self.pos >= end:
            return
        window = np.empty(min(end - self.pos, WINDOW_BYTES), np.uint8)
        runs, folded = new_runs(), np.zeros(16, np.uint8)
        mariadb = self.position.flavour is Flavour.MARIADB
        while self.pos < end:
            length = file.fill(window[: end - self.pos].data, self.pos)
            at, status = 0, transactions.RUNS_FULL
            while status == transactions.RUNS_FULL:
                self._state[transactions.RUN_COUNT] = 0
                status, at = walk_events(
                    window, at, length, self._state, runs, TABLES, folded, mariadb, True
                )
                found = runs[: self._state[transactions.RUN_COUNT]].copy()
                if len(found):
                    self.position = advance_position(self.position, found)
                    if mariadb:
                        self.lasts.update(
                            ((domain, server), last & _MASK)
                            for domain, server, *_, last in found.tolist()
                        )
            self.pos += at
            if status != transactions.OK:
                raise Fatal("MR-2004", f"{self.name} is damaged at {self.pos}")
            if at == 0:  # the event is larger than the window: its head gives the size
                wanted = int.from_bytes(window[9:13].tobytes(), "little")
                if length < HEADER_BYTES or self.pos + wanted > end:
                    return
                window = np.empty(wanted, np.uint8)


class Walks:
    """The walks of all files of a relay log, each taken once. Any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._walks: dict[tuple[str, str], tuple[threading.Lock, Walk]] = {}

    def up_to(
        self, key: tuple[str, str], file: StoredFile, *, before: GtidPosition, end: int
    ) -> Walk:
        """The walk over a file (sub-directory, name) up to ``end`` or further. Fatal MR-2004."""
        with self._lock:
            lock, walk = self._walks.setdefault(key, (threading.Lock(), Walk(key[1], before)))
        with lock:
            walk.advance(file, end)
        return walk

    def keep(self, known: set[tuple[str, str]]) -> None:
        """Forget the walks of other files."""
        with self._lock:
            self._walks = {key: walk for key, walk in self._walks.items() if key in known}
