"""A driver without Spark: turns and copies run in this process, so a fault point of one kills the whole task."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from millrace.consumer.load.copy_order import CopyOrder, execute_copy
from millrace.consumer.target.loads import Amount
from millrace.consumer.topic.beginning import begin_at
from millrace.consumer.turn.executor import execute
from millrace.consumer.turn.order import Outcome, Share, ShareEnd, TurnOrder, result_of
from millrace.consumer.write.incidents import Tally
from millrace.drivers.kafka.reader import TopicIdentity
from millrace.errors import MillraceError, Retryable
from millrace.schemas.documents import TopicAddress
from tests.kit.apply.reader import ThreadQuery

LOOK_S = 0.02


@dataclass(frozen=True)
class Records:
    """See ``consumer.spark.session.Records``."""

    tally: Tally
    end: int

    def apply(self, order: TurnOrder) -> Outcome:
        """One turn."""
        answer = execute(order)
        self.tally.add(answer.task, answer.incidents)
        return result_of(answer)

    def executor_count(self) -> int:
        """This process."""
        return 1

    def apply_shares(self, shares: Sequence[Share]) -> Sequence[ShareEnd]:
        """Never, with one executor."""
        raise AssertionError(shares)


@dataclass
class Turns:
    """See ``consumer.spark.session.Turns``."""

    tally: Tally
    source: TopicAddress
    is_stopped: bool = False

    def records(self, end: int) -> Records:
        """The records below an offset."""
        if self.is_stopped:
            raise Retryable("MR-5050", "the run is ending")
        return Records(self.tally, end)

    def first_offset(self, offset: int) -> int:
        """See ``Turns``."""
        return begin_at(self.source, offset)

    def stop(self) -> None:
        """No further turn."""
        self.is_stopped = True


class Copies:
    """See ``consumer.turn.order.Calls``."""

    def call(self, order: CopyOrder) -> Amount | None:
        """Copy in the calling thread."""
        return result_of(execute_copy(order))

    def stop(self) -> None:
        """A copy is short."""


class Query(ThreadQuery):
    """See ``consumer.spark.session.TopicQuery``: a thread that looks at the topic's end."""

    def __init__(
        self, tally: Tally, address: TopicAddress, process: Callable[[Records], None]
    ) -> None:
        self._tally, self._process = tally, process
        self._topic = TopicIdentity(address.brokers, address.topic)
        self._stop = threading.Event()
        super().__init__(self._run)

    def _run(self) -> None:
        end = -1
        try:
            while not self._stop.wait(LOOK_S):
                if (now := self._topic.end()) > end:
                    end = now
                    self._process(Records(self._tally, end))
        except MillraceError:
            return  # the runner has it

    def stop(self) -> None:
        """End it after its micro-batch."""
        self._stop.set()
        super().stop()
        self._topic.close()


@dataclass
class LocalDriver:
    """See ``consumer.spark.session.SparkDriver``."""

    tally: Tally = field(default_factory=Tally)

    def query(
        self, _: str, address: TopicAddress, *, offset: int, process: Callable[[Records], None]
    ) -> Query:
        """The turns read at the offset of the mark."""
        assert offset is not None
        return Query(self.tally, address, process)

    def turns(self, _: str, source: TopicAddress) -> Turns:
        """Turns of a side stream."""
        return Turns(self.tally, source)

    def copies(self, _: str) -> Copies:
        """Copies of a load."""
        return Copies()
