"""The turns of a side stream in Spark. Apart: the query of a task does not need them."""

from dataclasses import dataclass

from consumer.spark.session import Records, Turns
from consumer.topic.topic_wait import begin_at
from schemas.documents import TopicAddress


@dataclass(frozen=True, slots=True)
class SideTurns:
    """The turns of a side stream in Spark; see ``consumer.backfill.threads``."""

    turns: Turns
    source: TopicAddress

    def records(self, end: int) -> Records:
        """See ``Turns``."""
        return self.turns.records(end)

    def first_offset(self, offset: int) -> int:
        """See ``Turns``."""
        return begin_at(self.source, offset)

    def stop(self) -> None:
        """See ``Turns``."""
        self.turns.stop()
