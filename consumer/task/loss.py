"""Time to loss: how long until retention may remove the record of the set topic that a task must read next.

It is computed by ``drivers.kafka.retention``, unknown while the account may not see the topic's settings
(DescribeConfigs), and there is none without a limit.

``TimeToLoss`` asks the brokers once a minute, in the thread that looks. A failure leaves the time unknown until then.
"""

import time
from dataclasses import dataclass, field, replace
from typing import Protocol

from millrace.consumer.task.lag import Look
from millrace.drivers.kafka.reader import Retention, TopicSample
from millrace.drivers.kafka.retention import Growth, time_to_loss_s
from millrace.errors import MillraceError
from millrace.log import get_logger
from millrace.metrics.rates import LONG_S, Meter
from millrace.schemas.stages import Applied

ASK_S = 60.0
SAMPLE_OFFSETS = 50

_log = get_logger("retention")


class KeptTopic(Protocol):
    """Implemented by ``TopicIdentity``."""

    def retention(self) -> Retention:
        """The topic's settings."""

    def sample(self, start: int, stop: int) -> TopicSample | None:
        """A sample of these offsets; None without records."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """``waits_since_ms``: the time of the first record that waited when the brokers were asked, or of the question."""

    retention: Retention
    waits_since_ms: int
    bytes_per_offset: float = 0.0


@dataclass(slots=True)
class TimeToLoss:
    """Follows one task on its topic. For one thread."""

    topic: KeptTopic
    _answer: _Answer | None = None
    _asked_at_s: float = float("-inf")
    _ends: Meter = field(default_factory=Meter)
    _loss_at_ms: int = 0

    def with_loss(self, pace: Applied, look: Look) -> Applied:
        """The pace with the time after which the task may miss a record."""
        if look.end is not None:
            end, waiting = look.end.offset, pace.backlog.records or 0
            self._ends.note(end, at_s=look.at_s)
            if look.at_s - self._asked_at_s >= ASK_S:
                self._asked_at_s = look.at_s
                self._answer = self._ask(end, waiting, next_offset=look.mark.next_offset)
            self._loss_at_ms = self._time(waiting)
        return replace(pace, loss_at_ms=self._loss_at_ms)

    def _time(self, waiting: int) -> int:
        """In Unix time; 0: unknown, or never."""
        answer, now_ms = self._answer, time.time_ns() // 1_000_000
        if answer is None:
            return 0
        offsets_s = self._ends.over(LONG_S)
        bytes_s = None if offsets_s is None else offsets_s * answer.bytes_per_offset
        growth = Growth(waiting * answer.bytes_per_offset, bytes_s)
        age_s = max(now_ms - answer.waits_since_ms, 0) / 1000 if waiting else 0.0
        left_s = time_to_loss_s(answer.retention, age_s=age_s, growth=growth)
        return 0 if left_s is None else now_ms + round(left_s * 1000)

    def _ask(self, end: int, waiting: int, *, next_offset: int) -> _Answer | None:
        try:
            retention = self.topic.retention()
            answer = _Answer(retention, time.time_ns() // 1_000_000)
            if not waiting and retention.bytes < 0:
                return answer
            start = max(next_offset if waiting else end - SAMPLE_OFFSETS, 0)
            sample = self.topic.sample(start, min(start + SAMPLE_OFFSETS, end))
        except MillraceError as error:  # the run itself reports what stops it
            _log.info("the time to loss is not known", error=error)
            return None
        if sample is None:
            return None if waiting else answer
        since_ms = sample.at_ms if waiting else answer.waits_since_ms
        return replace(answer, waits_since_ms=since_ms, bytes_per_offset=sample.bytes_per_offset)
