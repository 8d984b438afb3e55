"""A relay log writer to be killed (``tests/kit/forked.py``): it resumes where the relay log ends, from given files.

It appends each file in small pieces, the last one in a new sub-directory, then purges all but the last, as the receiver
and a task would. After each file it waits for the sync thread, so every run passes the points of an fsync.
"""

from pathlib import Path

import numpy as np

from millrace.faults import watched
from millrace.producer.binlog import transactions
from millrace.producer.binlog.crc import TABLES
from millrace.producer.binlog.gtid_runs import new_runs
from millrace.producer.binlog.walk import walk_events
from millrace.producer.relay.durable_end import SyncPolicy
from millrace.producer.relay.purge import purge_before
from millrace.producer.relay.writer import BEFORE_FSYNC, RelayLog
from millrace.schemas.gtid import Flavour
from millrace.schemas.place import FIRST_POS
from tests.kit.waiting import eventually

REFUSED = "server-x"
PIECE_BYTES = 97  # cuts events and transactions everywhere


def main(root: Path, files: list[Path]) -> None:
    """Run until all files are written, unless a fault point ends the process."""
    relay = RelayLog.open(root, flavour=Flavour.MYSQL, policy=SyncPolicy(bytes_max=500, delay_ms=5))
    drop_refused(relay)
    end = relay.end()
    if end is None:
        relay.begin_subdir("server-a")
    names = [path.name for path in files]
    for path in files[names.index(end.file) if end is not None else 0 :]:
        if end is None or path.name != end.file:
            if path == files[-1]:
                relay.begin_subdir(REFUSED, apart="not compared yet")
                relay.begin_file(files[0].name)
                append_and_sync(relay, files[0].read_bytes())
                drop_refused(relay)
                relay.begin_subdir("server-b", apart="not compared yet")
            relay.begin_file(path.name)
        append_and_sync(relay, path.read_bytes())
    last = relay.end()
    assert last is not None
    (newest, _) = relay.list_files()[-1]
    if relay.notes.is_apart(newest):
        relay.join(newest)
    purge_before(relay, last, needed={})
    relay.close()


def drop_refused(relay: RelayLog) -> None:
    """Drop the newest sub-directory if it is that of a server that is not continued with."""
    newest = max(relay.files, key=lambda subdir: subdir.seq, default=None)
    if newest is not None and newest.server == REFUSED:
        relay.drop_subdir(newest)


def append_and_sync(relay: RelayLog, content: bytes) -> None:
    """Append, and wait until the sync thread begins an fsync of the new bytes."""
    before, passed = relay.end(), list[str]()
    with watched(passed.append):
        append_file(relay, content)
        if relay.end() != before:
            eventually(lambda: BEFORE_FSYNC in passed, what="an fsync")


def append_file(relay: RelayLog, content: bytes) -> None:
    """Append from the end of the relay log; the kernel finds the boundaries, as in the stream."""
    end = relay.end()
    assert end is not None
    data = np.frombuffer(content, np.uint8).copy()  # the kernel is compiled for writable arrays
    state, runs = np.zeros(transactions.SLOTS, np.int64), new_runs()
    state[transactions.POS] = state[transactions.BOUNDARY] = at = walked = end.pos
    while at < len(data):
        following = min(at + PIECE_BYTES, len(data))
        _, walked = walk_events(
            data, walked, following, state, runs, TABLES, np.zeros(16, np.uint8), False, True
        )
        relay.append(
            data[at:following],
            end=max(int(state[transactions.BOUNDARY]), FIRST_POS),
            last_group_at=int(state[transactions.LAST_GROUP_AT]),
            runs=runs[: state[transactions.RUN_COUNT]],
        )
        state[transactions.RUN_COUNT] = 0
        at = following
