"""What of a relay file can be trusted: it is walked from its start, and what follows the last whole transaction is cut.

| a crash left                                        | what stands afterwards                                    |
|-----------------------------------------------------|-----------------------------------------------------------|
| whole transactions                                  | the same                                                  |
| whole events of an unfinished transaction           | cut back to the end of the transaction before             |
| half an event, or zeros where the disk lost a block | the same: a length, position or checksum is not right     |
| less than magic, format description, previous GTIDs | the file is removed; it is fetched from its start         |
| damage further in front                             | cut there; what followed is fetched again                 |

Every byte is checked (CRC-32, gigabytes a second), so nothing rests on relay.meta, which may be older or younger. What
stands is made durable once: whoever wrote it may have died before, or have seen an fsync fail and died before the cut.
The system shows what a failed fsync was for as if it were there, and has forgotten that it must be written. So what
relay.meta does not name as durable, usually of the last second, is first written again as it is; only where there is no
room for that (copy-on-write) is it believed, for the log of a full disk opens, so that a purge can make room.
Guarantees: idempotent; a crash inside it leaves one of the states above. Not done here: closed files, which were
whole and durable before the next one was begun; who reads one walks it first.
"""

import errno
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from millrace.errors import Fatal
from millrace.faults import fault_point, register
from millrace.log import get_logger
from producer.binlog import transactions
from producer.binlog.crc import TABLES
from producer.binlog.events import HEADER_BYTES, MAGIC_BYTES
from producer.binlog.file_head import read_file_head
from producer.binlog.gtid_runs import advance_position, new_runs
from producer.binlog.walk import walk_events
from producer.relay import layout
from producer.relay.files import DISK, Files, fill, read_range, write_all
from schemas.gtid import Flavour, GtidPosition

BEFORE_CUT = register("relay.before_cut")
AFTER_CUT = register("relay.after_cut")

HEAD_READ_BYTES = 4096  # a few hundred bytes are usual
HEAD_BYTES_MAX = 64 << 20  # a GTID set of millions of intervals

WINDOW_BYTES = 4 << 20  # walked at a time; grows for a larger event

log = get_logger("producer.relay")


@dataclass(frozen=True, slots=True)
class WalkResult:
    """``end``: behind the last whole source transaction; ``last_group_at``: where that begins (0: none in the file)."""

    end: int
    last_group_at: int
    position: GtidPosition
    status: int
    walked_to: int  # behind the last whole and intact event
    size: int

    @property
    def is_whole(self) -> bool:
        """Whole, intact events to the last byte."""
        return self.status == transactions.OK and self.walked_to == self.size


def recover_file(path: Path, flavour: Flavour, files: Files = DISK) -> WalkResult | None:
    """Walk ``path`` and cut what is not whole; None when nothing could be kept and the file was removed."""
    walked = walk_file(path, flavour, files)
    durable_end = _durable_end(path, files)
    if durable_end > (walked.end if walked is not None else 0):  # what comes there is not durable
        files.unlink(path.with_name(layout.META_NAME))
    if walked is None:
        log.warning("relay file removed: its head is not whole", file=str(path))
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
    """As relay.meta says; 0 when it says nothing of this file."""
    try:
        meta = layout.read_meta(path.parent, files)
    except OSError as error:
        log.warning("relay.meta can't be read", directory=str(path.parent), error=error)
        return 0
    return max(0, meta.binlog_pos) if meta is not None and meta.binlog_name == path.name else 0


def _rewrite(files: Files, fd: int, begin: int, end: int) -> None:
    """The same bytes, so that the next fsync is for them."""
    try:
        for at in range(begin, end, WINDOW_BYTES):
            window = memoryview(bytearray(min(WINDOW_BYTES, end - at)))
            write_all(files, fd, window[: fill(files, fd, window, at)], at)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        log.warning("no room to write the end of a relay file again", begin=begin, end=end)


def walk_file(
    path: Path, flavour: Flavour, files: Files = DISK, *, verify: bool = True
) -> WalkResult | None:
    """Where the whole transactions of a file end, without changing it; None when its head is not whole."""
    fd = files.open(path, is_read_only=True)
    try:
        size = files.size(fd)
        if size <= MAGIC_BYTES:
            return None
        position = read_position_before(path, flavour, files)
        return _walk(files, fd, size, position, verify) if position is not None else None
    except Fatal as error:
        log.warning("a relay file can't be walked", file=str(path), error=error)
        return None
    finally:
        files.close(fd)


def _walk(
    files: Files, fd: int, size: int, position: GtidPosition, verify: bool
) -> WalkResult | None:
    state = np.zeros(transactions.SLOTS, np.int64)
    state[transactions.POS] = MAGIC_BYTES
    runs, folded = new_runs(), np.zeros(16, np.uint8)
    mariadb = position.flavour is Flavour.MARIADB
    window = np.empty(min(size, WINDOW_BYTES), np.uint8)
    begin, status = MAGIC_BYTES, transactions.OK  # file offset of the window
    while True:
        length = fill(files, fd, window[: size - begin].data, begin)
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
        if at == 0:  # an event larger than the window, of which there must be a head
            wanted = int.from_bytes(window[9:13].tobytes(), "little")
            if length < HEADER_BYTES or begin + wanted > size:
                break
            window = np.empty(wanted, np.uint8)
    end = int(state[transactions.BOUNDARY])
    if end <= MAGIC_BYTES:
        return None
    return WalkResult(end, int(state[transactions.LAST_GROUP_AT]), position, status, begin, size)


def read_position_before(path: Path, flavour: Flavour, files: Files = DISK) -> GtidPosition | None:
    """``read_file_head`` of a file, reading as much of it as is needed."""
    fd = files.open(path, is_read_only=True)
    try:
        wanted = HEAD_READ_BYTES
        while True:
            head = read_range(files, fd, 0, wanted)
            position = read_file_head(head, flavour)
            if position is not None or len(head) < wanted or wanted > HEAD_BYTES_MAX:
                return position
            wanted *= 8
    finally:
        files.close(fd)
