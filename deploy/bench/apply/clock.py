"""The clock of the apply figures: how the binlog files of a server grow while it commits.

Every applier, ours and the peers, writes to a server whose binlog is on. The size of its binlog files is read from the
file system every ``POLL_S``. This costs the server nothing, needs no report of the applier and is one clock for all.

    begin   the first growth that is seen (the first commits), so the start of a task or a replica is not counted
    end     the first moment at which all but ``SLACK`` of the growth is there
    rate    the changes that came after ``begin``, divided by the time between the two

Changes are weighted by bytes, so a workload must be the same from its first change to its last. If the first growth
holds more than half of everything, as in a very small run, the clock starts when the applier is started.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from millrace.background import sampled
from millrace.deploy.servers import DatabaseServer
from millrace.deploy.servers.database import BINLOG_NAME
from millrace.errors import Fatal

POLL_S = 0.005
SLACK = 0.001  # progress rows that follow the last change


@dataclass(frozen=True, slots=True)
class Pace:
    """When changes were committed (monotonic clock). ``share`` of all changes came between the two moments."""

    begin_s: float
    end_s: float
    share: float

    def rate(self, changes: int) -> float:
        return changes * self.share / (self.end_s - self.begin_s)


@contextmanager
def binlog_clock(server: DatabaseServer) -> "Iterator[BinlogClock]":
    """Watches a server's binlog files for the length of the ``with`` block."""
    clock = BinlogClock(server.binlog_dir)
    with sampled("binlog clock", clock.look, every_s=POLL_S):
        yield clock


class BinlogClock:
    """The sizes of binlog files over time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._moves: list[tuple[float, int]] = []

    def pace(self) -> Pace:
        """After the block: when the growth began and ended. Fatal MR-8004 if there was none."""
        (start_s, start), *grown = self._moves
        if not grown:
            raise Fatal("MR-8004", f"nothing was committed to the binlog in {self._folder}")
        (begin_s, first), total = grown[0], grown[-1][1] - start
        if first - start > total / 2:
            begin_s, first = start_s, start
        end_s, last = next(
            (at_s, size) for at_s, size in grown if start + total - size <= SLACK * total
        )
        return Pace(begin_s, end_s, (last - first) / total)

    def look(self) -> None:
        size = _size_bytes(self._folder)
        if not self._moves or size != self._moves[-1][1]:
            self._moves.append((time.monotonic(), size))


def _size_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob(f"{BINLOG_NAME}.[0-9]*"))
