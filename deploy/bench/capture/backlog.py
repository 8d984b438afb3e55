"""A backlog waits in the source's binlog while the capture task is paused; then capture catches up.

The clock is the readable end of the topic, asked every ``POLL_S``: it starts when the end first moves and stops when it
moves last, and the offsets between are counted. So a start is not counted, and neither is the first Kafka transaction.
Offsets include one marker and one ``resolved`` record for each Kafka transaction.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from millrace.background import sampled
from millrace.deploy.bench.apply.clock import Pace
from millrace.deploy.bench.apply.workloads import Workload
from millrace.deploy.bench.figure import say
from millrace.deploy.bench.scene import Scene
from millrace.deploy.local.services import CAPTURE_TASK, TOPIC
from millrace.drivers.kafka.reader import TopicReader
from millrace.errors import Fatal, MillraceError
from millrace.schemas.documents import Brokers

POLL_S = 0.01
END_S = 600.0


@dataclass(frozen=True, slots=True)
class Backlog:
    """A captured backlog: its offsets in the topic, and how many of them were readable a second."""

    first: int
    end: int
    rate: float


class EndClock:
    """``read_end``: the readable end of a topic, or the sum of several."""

    def __init__(self, read_end: Callable[[], int]) -> None:
        self._read_end = read_end
        self._is_known = True
        self.begin = self.end = self._first_end()
        self._began_s = time.monotonic()
        self._moves: list[tuple[float, int]] = []

    def _first_end(self) -> int:
        deadline = time.monotonic() + END_S
        while (end := self._ask()) is None:
            if time.monotonic() > deadline:
                raise Fatal("MR-8004", "the topic's end is not known")
            time.sleep(POLL_S)
        return end

    def _ask(self) -> int | None:
        """The end; None if the broker does not answer or does not lead the partitions yet."""
        try:
            end = self._read_end()
        except MillraceError as error:
            if self._is_known:
                say(f"  the end is not known: {error}")
            self._is_known = False
            return None
        self._is_known = True
        return end

    def look(self) -> None:
        """Ask for the end once."""
        end = self._ask()
        if end is not None and end != self.end:
            self._moves.append((time.monotonic(), end))
            self.end = end

    def wait_for(self, is_complete: Callable[[int], bool]) -> None:
        """Wait until the end is complete. Fatal MR-8004 if it does not move for ``END_S``."""
        while not is_complete(self.end):
            last_s = self._moves[-1][0] if self._moves else time.monotonic()
            if time.monotonic() - last_s > END_S:
                raise Fatal("MR-8004", f"the topic's end stays at {self.end}")
            time.sleep(POLL_S)

    def rate(self) -> float:
        """Offsets per second between the first and the last move. Fatal MR-8004 if there was none."""
        return self.pace().rate(self.end - self.begin)

    def pace(self) -> Pace:
        """The first and the last move. Fatal MR-8004 if there was none.

        Of a very small backlog, all records may arrive at once. Then the start counts too.
        """
        if not self._moves:
            raise Fatal("MR-8004", "no record arrived")
        (begin_s, first), (end_s, last) = self._moves[0], self._moves[-1]
        if len(self._moves) == 1:
            say("  all records arrived at once: the rate includes the start")
            begin_s, first = self._began_s, self.begin
        return Pace(begin_s, end_s, (last - first) / (self.end - self.begin))


@contextmanager
def end_clock(bootstrap: str, topic: str) -> Iterator[EndClock]:
    """A clock that looks for the length of the ``with`` block."""
    reader = TopicReader(Brokers(bootstrap), topic)
    with closing(reader), clock_of(lambda: reader.ends().stable) as clock:
        yield clock


@contextmanager
def clock_of(read_end: Callable[[], int]) -> Iterator[EndClock]:
    """The same for any end."""
    clock = EndClock(read_end)
    with sampled("end of a topic", clock.look, every_s=POLL_S):
        yield clock


def write_backlog(scene: Scene, workload: Workload, changes: int) -> int:
    """Pause the task and write the changes to a separate database. Returns their number."""
    scene.source.execute(f"DROP DATABASE IF EXISTS {workload.database}")
    workload.create(scene.connect)
    scene.wait_captured()
    return scene.write(workload, changes, CAPTURE_TASK)


def capture_backlog(scene: Scene, changes: int) -> Backlog:
    """Resume the task and time it until it has reported all ``changes``."""
    wanted = scene.seq() + changes
    with end_clock(scene.bootstrap, TOPIC) as clock:
        scene.resume()
        scene.wait_seq(wanted)
        ends = clock.begin, clock.end
    backlog = Backlog(*ends, clock.rate())
    say(f"  capture {backlog.rate:,.0f}/s")
    return backlog
