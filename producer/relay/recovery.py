"""What of a relay file can be trusted: it is walked from its start, and what follows the last whole transaction is cut.

| a crash left                                        | what stands afterwards                                    |
|-----------------------------------------------------|-----------------------------------------------------------|
| whole transactions                                  | the same                                                  |
| whole events of an unfinished transaction           | cut back to the end of the transaction before             |
| half an event, or zeros where the disk lost a block | the same: a length, position or checksum is not right     |
| less than magic, format description, previous GTIDs | the file is removed; it is fetched from its start         |
| damage further in front                             | cut there; what followed is fetched again                 |

Every byte is checked (CRC-32, gigabytes a second), so nothing rests on relay.meta, which may be older or younger.
Guarantees: idempotent; a crash inside it leaves one of the states above. Not done here: closed files, which were
whole and durable before the next one was begun; the reader checks them as it reads.
"""

import mmap
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from millrace.errors import Fatal
from millrace.faults import fault_point, register
from millrace.log import get_logger
from producer.relay import groups
from producer.relay.crc import TABLES
from producer.relay.event_types import MAGIC_BYTES
from producer.relay.prelude import read_file_prelude
from producer.relay.runs import advance_position, new_runs
from producer.relay.walk import walk_events
from schemas.gtid import Flavour, GtidPosition

BEFORE_CUT = register("relay.before_cut")
AFTER_CUT = register("relay.after_cut")

log = get_logger("producer.relay")


@dataclass(frozen=True, slots=True)
class Walked:
    """``end``: behind the last whole source transaction; ``last_group_at``: where that begins (0: none in the file)."""

    end: int
    last_group_at: int
    position: GtidPosition
    status: int
    size: int


def recover_file(path: Path, flavour: Flavour) -> Walked | None:
    """Walk ``path`` and cut what is not whole; None when nothing could be kept and the file was removed."""
    walked = walk_file(path, flavour)
    if walked is None:
        log.warning("relay file removed: its head is not whole", file=str(path))
        path.unlink()
        return None
    if walked.end < walked.size:
        log.warning(
            "relay file cut back",
            file=str(path),
            end=walked.end,
            cut_bytes=walked.size - walked.end,
            status=walked.status,
        )
        fault_point(BEFORE_CUT)
        fd = os.open(path, os.O_RDWR)
        try:
            os.ftruncate(fd, walked.end)
            os.fsync(fd)
        finally:
            os.close(fd)
        fault_point(AFTER_CUT)
    return walked


def walk_file(path: Path, flavour: Flavour, *, verify: bool = True) -> Walked | None:
    """Where the whole transactions of a file end, without changing it; None when its head is not whole."""
    size = path.stat().st_size
    if size <= MAGIC_BYTES:
        return None
    try:
        position = read_file_prelude(path, flavour)
    except Fatal:
        return None
    if position is None:
        return None
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as view:
        events = np.frombuffer(view, np.uint8)
        try:
            return _walk(events, position, verify)
        finally:
            del events


def _walk(
    events: "np.ndarray[tuple[int], np.dtype[np.uint8]]", position: GtidPosition, verify: bool
) -> Walked | None:
    state = np.zeros(groups.SLOTS, np.int64)
    state[groups.POS] = MAGIC_BYTES
    runs, folded = new_runs(), np.zeros(16, np.uint8)
    mariadb = position.flavour is Flavour.MARIADB
    at, status = MAGIC_BYTES, groups.RUNS_FULL
    while status == groups.RUNS_FULL:
        state[groups.RUN_COUNT] = 0
        status, at = walk_events(
            events, at, len(events), state, runs, TABLES, folded, mariadb, verify
        )
        position = advance_position(position, runs[: state[groups.RUN_COUNT]])
    end = int(state[groups.BOUNDARY])
    if end <= MAGIC_BYTES:
        return None
    return Walked(end, int(state[groups.LAST_GROUP_AT]), position, status, len(events))
