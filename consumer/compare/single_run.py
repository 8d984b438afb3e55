"""One comparison of an apply task, in the process that runs the task, which can end it at any moment.

The sessions are those of ``consumer.compare``. To end a comparison, all of them are broken: whatever waits for a server
fails at once, and what was compared is on the target. So a comparison ends within the second in which it pauses, and a
session that is opened later is broken as well. The member of the source set is chosen each time, a replica if possible.
"""

import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field

from millrace.consumer.compare.chunk import ChunkResult
from millrace.consumer.compare.compare import Rules, Throttle, Work, compare_sets
from millrace.consumer.compare.members import Watch, choose_origin
from millrace.consumer.compare.pool import Threads
from millrace.consumer.compare.schedule import Last
from millrace.consumer.compare.sides import Ends, Sides
from millrace.consumer.compare.stored import State, read_last
from millrace.consumer.compare.tables import admitted
from millrace.consumer.load.load import RowSource
from millrace.drivers.mysql.connection import Endpoint, connect
from millrace.schemas.documents import ApplyTask, StructureRule

THREADS = 1  # the rows are needed by others; a server has time until the next comparison is due
# beyond ``max_lag_s``, until MR-5120: the source keeps old versions of rows meanwhile
WAIT_S = 60.0


@dataclass(slots=True)
class Breaker:
    """Breaks sessions: those that are open, and each that is opened afterwards."""

    is_over: bool = False
    _cuts: list[Callable[[], None]] = field(default_factory=list)
    _changing: threading.Lock = field(default_factory=threading.Lock)

    def add(self, cut: Callable[[], None]) -> None:
        """``cut`` breaks a session from any thread."""
        with self._changing:
            self._cuts.append(cut)
            is_over = self.is_over
        if is_over:
            cut()

    def forget(self) -> None:
        """Forget sessions that are closed."""
        with self._changing:
            self._cuts.clear()

    def end(self) -> None:
        """Break all of them."""
        with self._changing:
            self.is_over = True
            cuts = list(self._cuts)
        for cut in cuts:
            cut()


@dataclass(frozen=True, slots=True)
class TaskComparer:
    """Implements ``consumer.compare.task_comparison.Comparer``. ``find_target``: with the password as it is now."""

    task: ApplyTask
    find_origin: Callable[[], RowSource]
    find_target: Callable[[], Endpoint]
    breaker: Breaker = field(default_factory=Breaker)

    def last(self) -> Last:
        """See ``Comparer``."""
        with connect(self.find_target()) as session:
            self.breaker.forget()
            self.breaker.add(session.cut)
            return read_last(session, self.task.name)

    def compare(self, *, resumes: bool, seen: Callable[[ChunkResult], None]) -> None:
        """See ``Comparer``."""
        origin, target = self.find_origin(), self.find_target()
        name, rules = self.task.name, self.task.rules.compare
        wait_s = rules.max_lag_s + WAIT_S
        throttle = Throttle(rules.max_lag_s, rules.max_threads_running)
        self.breaker.forget()
        with closing(State.begin(target, name, resumes=resumes)) as state:
            self.breaker.add(state.session.cut)
            member = choose_origin(origin.document, origin.wishes, wait_s=rules.max_lag_s)
            watch = Watch(member, origin.wishes)

            def saw(chunk: ChunkResult) -> None:
                seen(chunk)
                watch.look()

            ends = Ends(member.source, target, name, wait_s, member.primary, self._opened)
            work = Work(throttle, repairs=rules.repair)
            given = Rules(
                work=work,
                pool=Threads(ends, THREADS),
                state=state,
                seen=saw,
                with_structure=rules.structure is not StructureRule.IGNORE,
                view=self.task.view,
            )
            admits = admitted(origin.document, origin.capture, self.task)
            compare_sets(ends, admits, written_by=name, rules=given)

    def _opened(self, sides: Sides) -> None:
        self.breaker.add(sides.cut)

    def end(self) -> None:
        """See ``Comparer``."""
        self.breaker.end()
