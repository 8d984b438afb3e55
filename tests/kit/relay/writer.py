"""A writer that fills a relay log from given files, as the receiver does, and resumes at its end."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from millrace.errors import MillraceError
from millrace.producer.binlog import transactions
from millrace.producer.binlog.crc import TABLES
from millrace.producer.binlog.gtid_runs import new_runs
from millrace.producer.binlog.walk import walk_events
from millrace.producer.relay.durable_end import SyncPolicy
from millrace.producer.relay.files import DISK, Files
from millrace.producer.relay.purge import purge_before
from millrace.producer.relay.writer import RelayLog
from millrace.schemas.gtid import Flavour
from millrace.schemas.place import FIRST_POS
from tests.kit.binlog.plain_files import BinlogFile

NAMES = ("mysql-bin.000001", "mysql-bin.000002", "mysql-bin.000003")
REFUSED = "server-x"


def three_files(*, mariadb: bool = False) -> dict[str, bytes]:
    """A server's files: two closed ones and the current one."""
    made = {}
    number = 1
    for name, following in zip(NAMES, (*NAMES[1:], ""), strict=True):
        file = BinlogFile(mariadb=mariadb, first_number=number)
        for ending in ("xid", "ddl"):
            file.transaction(ending=ending, rows_bytes=60)
        number += 2
        made[name] = (file.rotate(following) if following else file).data
    return made


def whole_ends(content: bytes, *, mariadb: bool = False) -> list[int]:
    """Where a log may end: after the magic, each event of the head, and each whole source transaction."""
    state, runs = np.zeros(transactions.SLOTS, np.int64), new_runs()
    state[transactions.POS] = state[transactions.BOUNDARY] = at = FIRST_POS
    data, ends = np.frombuffer(content, np.uint8).copy(), [FIRST_POS]
    while at < len(data):
        size = int.from_bytes(content[at + 9 : at + 13], "little")
        folded = np.zeros(16, np.uint8)
        status, at = walk_events(data, at, at + size, state, runs, TABLES, folded, mariadb, True)
        assert status == transactions.OK
        if state[transactions.BOUNDARY] != ends[-1]:
            ends.append(int(state[transactions.BOUNDARY]))
    return ends


@dataclass
class StepSync:
    """Replaces the sync thread: syncs at every third write in the writer's thread, so runs are repeatable."""

    policy: SyncPolicy
    sync: Callable[[], None]
    writes: int = 0
    error: MillraceError | None = None

    def count_written(self, count_bytes: int) -> None:
        """See ``SyncThread``."""
        self.raise_failure()
        self.writes += 1
        if self.writes % 3 == 0:
            try:
                self.sync()
            except MillraceError as error:
                self.error = error

    def raise_failure(self) -> None:
        """See ``SyncThread``."""
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        """There is no thread to stop."""


@dataclass(frozen=True)
class Writer:
    """Writes ``files`` into ``root``; with ``is_split`` the last one goes into a new sub-directory."""

    root: Path
    files: Mapping[str, bytes]
    disk: Files = DISK
    mariadb: bool = False
    piece_bytes: int = 131  # cuts events and transactions everywhere
    is_split: bool = True
    is_interrupted: bool = False  # once per file, a partly written transaction is cut and repeated
    drops: bool = False  # before the new sub-directory, one of a server that is refused is written and dropped

    @property
    def flavour(self) -> Flavour:
        """The flavour of the files."""
        return Flavour.MARIADB if self.mariadb else Flavour.MYSQL

    def run(self, *, with_purge: bool = False) -> None:
        """Write from the end of the relay log to the end of the last file; always closes the log."""
        relay = RelayLog.open(self.root, flavour=self.flavour, disk=self.disk)
        try:
            self.append_files(relay)
            end = relay.end()
            assert end is not None
            if with_purge:
                purge_before(relay, end, needed={})
        finally:
            relay.close()

    def append_files(self, relay: RelayLog) -> None:
        """Write without opening and closing the log."""
        end = relay.end()
        if end is None:
            relay.begin_subdir("server-a")
        names = list(self.files)
        for name in names[names.index(end.file) if end is not None else 0 :]:
            if end is None or name != end.file:
                if name == names[-1] and self.drops:
                    self._write_and_drop(relay)
                if name == names[-1] and self.is_split:
                    relay.begin_subdir("server-b")
                relay.begin_file(name)
            content = self.files[name]
            if self.is_interrupted:
                self._append(relay, content[: len(content) * 3 // 4])
                relay.cut_back()
            self._append(relay, content)

    def _write_and_drop(self, relay: RelayLog) -> None:
        before = relay.end(), relay.position()
        subdir = relay.begin_subdir(REFUSED, apart="not compared yet")
        for name in NAMES[:2]:
            relay.begin_file(name)
            self._append(relay, self.files[name])
        relay.drop_subdir(subdir)
        assert (relay.end(), relay.position()) == before

    def _append(self, relay: RelayLog, content: bytes) -> None:
        end = relay.end()
        assert end is not None
        data = np.frombuffer(content, np.uint8).copy()  # the kernel is compiled for writable arrays
        state, runs = np.zeros(transactions.SLOTS, np.int64), new_runs()
        state[transactions.POS] = state[transactions.BOUNDARY] = at = walked = end.pos
        while at < len(data):
            following = min(at + self.piece_bytes, len(data))
            folded = np.zeros(16, np.uint8)
            _, walked = walk_events(
                data, walked, following, state, runs, TABLES, folded, self.mariadb, True
            )
            relay.append(
                data[at:following],
                end=max(int(state[transactions.BOUNDARY]), FIRST_POS),
                last_group_at=int(state[transactions.LAST_GROUP_AT]),
                runs=runs[: state[transactions.RUN_COUNT]],
            )
            state[transactions.RUN_COUNT] = 0
            at = following
