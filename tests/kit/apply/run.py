"""Doubles around an ``ApplyRun``: a Spark driver without Spark, and appliers without a target."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from millrace.consumer.spark.session import FIRST_OFFSET
from millrace.consumer.target.progress import Mark, Owner
from millrace.consumer.turn.driver import Figures
from millrace.consumer.turn.order import Assignment, Rules
from millrace.consumer.write.incidents import Tally
from millrace.drivers.mysql.connection import Endpoint
from millrace.errors import MillraceError
from millrace.schemas.documents import Brokers, ConflictPolicy, TopicAddress

SHOP = TopicAddress(topic="shop", brokers=Brokers("broker:9092"))
GIVEN = Assignment(
    endpoint=Endpoint("t1", 0, "", ""),
    source=SHOP,
    rules=Rules(policy=ConflictPolicy.STOP, lane_count=4),
)


@dataclass
class SilentQuery:
    """A query whose thread died silently: it neither runs nor ends."""

    stopped: bool = False
    asks: bool = False

    def is_asking(self) -> bool:
        return self.asks

    def wait(self, timeout_s: float) -> bool:
        threading.Event().wait(min(timeout_s, 0.01))
        return False

    def stop(self) -> None:
        self.stopped = True


@dataclass
class QueryDriver:
    made: SilentQuery = field(default_factory=SilentQuery)
    tally: Tally = field(default_factory=Tally)
    process: Callable[[object], None] = print

    def query(self, *_: object, process: Callable[[object], None], **__: object) -> SilentQuery:
        self.process = process
        return self.made


@dataclass
class QuietApplier:
    """The parts of an applier that a run reads, besides the mark."""

    read_to: int = -1
    owner: Owner = field(default_factory=lambda: Owner("task", 1, 1))
    assignment: Assignment = field(default_factory=lambda: GIVEN)
    is_partial: bool = False


@dataclass
class CountingApplier(QuietApplier):
    mark: Mark = field(default_factory=lambda: Mark(0, FIRST_OFFSET))
    batches: int = 0
    figures: Figures = field(default_factory=Figures)

    def warning(self) -> MillraceError | None:
        return None

    def process(self, *_: object) -> None:
        self.batches += 1


@dataclass(frozen=True)
class NamedTask:
    name: str = "shop-to-warehouse"
    source: TopicAddress = SHOP


def ignore_report(_: object) -> None:
    """A listener that ignores each report or mark."""
