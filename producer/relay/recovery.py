"""Recovers a relay file: walks it from its start and cuts everything after the last whole transaction.

| a crash left                                        | after recovery                                            |
|-----------------------------------------------------|-----------------------------------------------------------|
| whole transactions                                  | the file is unchanged                                     |
| whole events of an unfinished transaction           | cut back to the end of the last whole transaction         |
| half an event, or zeros where the disk lost a block | the same: a length, position or checksum is wrong         |
| less than magic, format description, previous GTIDs | the file is removed and fetched again from its start      |
| damage at an earlier place                          | cut there; the rest is fetched again                      |

Every byte is checked (CRC-32, gigabytes per second). relay.meta may be older or newer than the file, so it is not
trusted here.

The remaining bytes are then made durable. The process that wrote them may have died before its fsync, or after a failed
fsync and before it could cut the file. After a failed fsync, the kernel still returns the lost bytes from its cache but
no longer writes them to disk. So recovery rewrites the bytes that relay.meta does not name as durable, usually those of
the last second. If the disk has no room for that (copy-on-write), the bytes are trusted: the log of a full disk must
open, so that a purge can free space.

Guarantees: idempotent; a crash inside recovery leaves one of the states above. Not done here: closed files. They were
whole and durable before the next file was created; readers walk a closed file before they use it.
"""

import errno
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from millrace.errors import Fatal
from millrace.faults import fault_point, register
from millrace.log import get_logger
from millrace.producer.binlog import transactions
from millrace.producer.binlog.compiled import Bytes, Words
from millrace.producer.binlog.crc import TABLES
from millrace.producer.binlog.events import HEADER_BYTES, MAGIC_BYTES
from millrace.producer.binlog.file_head import read_file_head
from millrace.producer.binlog.gtid_runs import advance_position, new_runs
from millrace.producer.binlog.transactions import begin_event, finish_event
from millrace.producer.binlog.walk import walk_events
from millrace.producer.relay import layout
from millrace.producer.relay.files import DISK, Files, fill, write_all
from millrace.producer.relay.large_event import has_right_sum
from millrace.producer.relay.stored_file import StoredFile, open_stored, read_stored
from millrace.schemas.gtid import Flavour, GtidPosition

BEFORE_CUT = register("relay.before_cut")
AFTER_CUT = register("relay.after_cut")

HEAD_READ_BYTES = 4096  # heads usually have a few hundred bytes
HEAD_BYTES_MAX = 64 << 20  # a GTID set of millions of intervals

WINDOW_BYTES = 4 << 20  # walked at a time; of a larger event, only the beginning is kept

log = get_logger("producer.relay")


@dataclass(frozen=True, slots=True)
class WalkResult:
    """``end`` is the end of the last whole source transaction, ``last_group_at`` its start (0: none in the file)."""

    end: int
    last_group_at: int
    position: GtidPosition
    status: int
    walked_to: int  # end of the last whole, intact event
    size: int

    @property
    def is_whole(self) -> bool:
        """Whether the file consists of whole, intact events up to its last byte."""
        return self.status == transactions.OK and self.walked_to == self.size


def recover_file(path: Path, flavour: Flavour, files: Files = DISK) -> WalkResult | None:
    """Walk ``path`` and cut it after the last whole transaction; None if nothing was left and the file was removed."""
    walked = walk_file(path, flavour, files)
    durable_end = _durable_end(path, files)
    # After the cut, relay.meta would name bytes as durable that are not.
    if durable_end > (walked.end if walked is not None else 0):
        files.unlink(path.with_name(layout.META_NAME))
    if walked is None:
        log.warning("relay file removed: its head is incomplete", file=str(path))
        files.unlink(path)
        return None
    fd = files.open(path)
    try:
        if walked.end < walked.size:
            log.warning(
                "relay file cut back",
                file=str(path),
                end=walked.end,
                cut_bytes=walked.size - walked.end,
                status=walked.status,
            )
            fault_point(BEFORE_CUT)
            files.truncate(fd, walked.end)
        _rewrite(files, fd, durable_end, walked.end)
        files.sync(fd)
    finally:
        files.close(fd)
    if walked.end < walked.size:
        fault_point(AFTER_CUT)
    return walked


def _durable_end(path: Path, files: Files) -> int:
    """The durable end according to relay.meta; 0 if it names another file."""
    try:
        meta = layout.read_meta(path.parent, files)
    except OSError as error:
        log.warning("relay.meta can't be read", directory=str(path.parent), error=error)
        return 0
    return max(0, meta.binlog_pos) if meta is not None and meta.binlog_name == path.name else 0


def _rewrite(files: Files, fd: int, begin: int, end: int) -> None:
    """Write the same bytes again, so that the next fsync covers them."""
    try:
        for at in range(begin, end, WINDOW_BYTES):
            window = memoryview(bytearray(min(WINDOW_BYTES, end - at)))
            write_all(files, fd, window[: fill(files, fd, window, at)], at)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        log.warning("no space to rewrite the end of a relay file", begin=begin, end=end)


def walk_file(
    path: Path, flavour: Flavour, files: Files = DISK, *, verify: bool = True
) -> WalkResult | None:
    """Find the end of the whole transactions of a file without changing it; None if its head is incomplete."""
    try:
        file = open_stored(path, files)
    except Fatal as error:
        log.warning("relay file can't be walked", file=str(path), error=error)
        return None
    try:
        return walk_stored(file, flavour, verify=verify)
    except Fatal as error:
        log.warning("relay file can't be walked", file=str(path), error=error)
        return None
    finally:
        file.close()


def walk_stored(file: StoredFile, flavour: Flavour, *, verify: bool = True) -> WalkResult | None:
    """The same for an open file. Fatal MR-2004, MR-2008 for a damaged head or compressed frame."""
    size = file.size()
    if size <= MAGIC_BYTES:
        return None
    position = _position_before(file, flavour)
    return _walk(file, size, position, verify) if position is not None else None


def _walk(file: StoredFile, size: int, position: GtidPosition, verify: bool) -> WalkResult | None:
    state = np.zeros(transactions.SLOTS, np.int64)
    state[transactions.POS] = MAGIC_BYTES
    runs, folded = new_runs(), np.zeros(16, np.uint8)
    mariadb = position.flavour is Flavour.MARIADB
    window = np.empty(min(size, WINDOW_BYTES), np.uint8)
    begin, status = MAGIC_BYTES, transactions.OK  # file offset of the window
    while True:
        length = file.fill(window[: size - begin].data, begin)
        at, status = 0, transactions.RUNS_FULL
        while status == transactions.RUNS_FULL:
            state[transactions.RUN_COUNT] = 0
            status, at = walk_events(
                window, at, length, state, runs, TABLES, folded, mariadb, verify
            )
            position = advance_position(position, runs[: state[transactions.RUN_COUNT]])
        begin += at
        if status != transactions.OK or begin + length - at >= size or length < len(window):
            break
        if at == 0:  # the event is larger than the window: its head gives the size
            wanted = int.from_bytes(window[9:13].tobytes(), "little")
            if length < HEADER_BYTES or begin + wanted > size:
                break
            state[transactions.RUN_COUNT] = 0
            status = _walk_large(file, begin, window[:length], state, runs, mariadb, verify)
            if status != transactions.OK:
                break
            position = advance_position(position, runs[: state[transactions.RUN_COUNT]])
            begin += wanted
    end = int(state[transactions.BOUNDARY])
    if end <= MAGIC_BYTES:
        return None
    return WalkResult(end, int(state[transactions.LAST_GROUP_AT]), position, status, begin, size)


def _walk_large(
    file: StoredFile,
    begin: int,
    head: Bytes,
    state: Words,
    runs: Words,
    mariadb: bool,
    verify: bool,
) -> int:
    """``walk_events`` for one event at the file offset ``begin``, of which only ``head`` is in memory."""
    size, next_pos = (int.from_bytes(head[at : at + 4].tobytes(), "little") for at in (9, 13))
    if next_pos != (begin + size) & 0xFFFFFFFF and not (mariadb and next_pos == 0):
        return transactions.BAD_POSITION
    if verify and not has_right_sum(partial(_fetch, file), begin, size):
        return transactions.BAD_CHECKSUM
    status: int = begin_event(state, runs, head, 0, size, mariadb)
    if status == transactions.OK:
        finish_event(state, runs, size)
    return status


def _fetch(file: StoredFile, pos: int, count: int) -> Bytes:
    piece = np.empty(count, np.uint8)
    return piece[: file.fill(piece.data, pos)]


def read_position_before(path: Path, flavour: Flavour, files: Files = DISK) -> GtidPosition | None:
    """The GTIDs executed before a file, from its head (``read_file_head``). It reads only as much as needed."""
    file = open_stored(path, files)
    try:
        return _position_before(file, flavour)
    finally:
        file.close()


def _position_before(file: StoredFile, flavour: Flavour) -> GtidPosition | None:
    wanted = HEAD_READ_BYTES
    while True:
        head = read_stored(file, 0, wanted)
        position = read_file_head(head, flavour)
        if position is not None or len(head) < wanted or wanted > HEAD_BYTES_MAX:
            return position
        wanted *= 8
