"""The time to loss of a task that reads a set topic: by age, by size, and while the brokers do not answer."""

import time
from dataclasses import dataclass, field, replace

import pytest

from millrace.consumer.target.progress import Mark, MarkTopic
from millrace.consumer.task.lag import End, Look
from millrace.consumer.task.loss import ASK_S, TimeToLoss
from millrace.drivers.kafka.reader import Retention, TopicSample
from millrace.drivers.kafka.retention import Growth, time_to_loss_s
from millrace.errors import Fatal
from millrace.schemas.stages import Applied, Backlog

NOW_MS = time.time_ns() // 1_000_000
HOUR_S = 3600.0
NO_END = End(0, lambda: None)


@pytest.mark.parametrize(
    ("retention", "age_s", "growth", "left_s"),
    [
        (Retention(-1, -1), 9.0, Growth(9.0, 9.0), None),
        (Retention(7200_000, -1), 0.0, Growth(), 7200.0),
        (Retention(7200_000, -1), 3600.0, Growth(), 3600.0),
        (Retention(7200_000, -1), 9000.0, Growth(), 0.0),
        (Retention(-1, 1000), 0.0, Growth(400.0, 2.0), 300.0),
        (Retention(-1, 1000), 0.0, Growth(1000.0, None), 0.0),
        (Retention(-1, 1000), 0.0, Growth(400.0, 0.0), None),
        (Retention(-1, 1000), 0.0, Growth(400.0, None), None),
        (Retention(100_000, 1000), 10.0, Growth(400.0, 2.0), 90.0),
        (Retention(900_000, 1000), 10.0, Growth(400.0, 2.0), 300.0),
    ],
)
def test_time_to_loss_is_the_sooner_of_age_and_size(
    retention: Retention, age_s: float, growth: Growth, left_s: float | None
) -> None:
    """Records beyond the size are removed at once; a topic that does not grow removes none by its size."""
    assert time_to_loss_s(retention, age_s=age_s, growth=growth) == left_s


@dataclass
class Kept:
    """A topic whose records are an hour old. ``failure`` is raised instead of an answer."""

    kept: Retention
    failure: Fatal | None = None
    asked: list[tuple[int, int]] = field(default_factory=list)

    def retention(self) -> Retention:
        """As the broker."""
        if self.failure is not None:
            raise self.failure
        return self.kept

    def sample(self, start: int, stop: int) -> TopicSample | None:
        """100 bytes an offset."""
        self.asked.append((start, stop))
        return TopicSample(time.time_ns() // 1_000_000 - 3_600_000, 100.0)


def _look(at_s: float, *, next_offset: int, end: int | None) -> Look:
    mark = Mark(0, next_offset, "", "", MarkTopic("shop", "id", 0, -1), True, 0)
    return Look(
        at_s=at_s, mark=mark, lag_s=0.0, end=None if end is None else replace(NO_END, offset=end)
    )


def _left_s(watch: TimeToLoss, look: Look, waiting: int) -> float:
    pace = watch.with_loss(Applied(backlog=Backlog(waiting, waiting, None)), look)
    return pace.loss_at_ms / 1000 - time.time()


def test_record_that_waits_has_its_age() -> None:
    """The brokers are asked once a minute. Without an answer of the end, the last time holds."""
    topic = Kept(Retention(7_200_000, -1))
    watch = TimeToLoss(topic)
    assert _left_s(watch, _look(0.0, next_offset=500, end=500), 0) == pytest.approx(7200, abs=60)
    assert _left_s(watch, _look(ASK_S, next_offset=500, end=900), 400) == pytest.approx(
        3600, abs=60
    )
    assert _left_s(watch, _look(ASK_S + 1, next_offset=700, end=900), 200) == pytest.approx(
        3600, abs=60
    )
    assert _left_s(watch, _look(ASK_S + 2, next_offset=700, end=None), 0) == pytest.approx(
        3600, abs=60
    )
    assert topic.asked == [(500, 550)]


def test_record_that_comes_after_the_question_is_younger() -> None:
    """The brokers are not asked again for it."""
    watch = TimeToLoss(Kept(Retention(7_200_000, -1)))
    assert _left_s(watch, _look(0.0, next_offset=500, end=500), 0) == pytest.approx(7200, abs=60)
    assert _left_s(watch, _look(1.0, next_offset=500, end=600), 100) == pytest.approx(7200, abs=60)


def test_growing_topic_loses_by_its_size() -> None:
    """40,000 bytes wait, 60,000 more may come, and 1,000 come in a second."""
    watch = TimeToLoss(Kept(Retention(-1, 100_000)))
    for second in range(11):
        left_s = _left_s(watch, _look(float(second), next_offset=0, end=300 + 10 * second), 400)
    assert left_s == pytest.approx(60, abs=2)


def test_settings_that_the_account_can_not_see_leave_it_unknown() -> None:
    """Also a topic that keeps all. The task runs on."""
    refused = TimeToLoss(Kept(Retention(0, 0), Fatal("MR-7010", "DescribeConfigs")))
    for watch in (refused, TimeToLoss(Kept(Retention(-1, -1)))):
        look = _look(0.0, next_offset=0, end=9)
        assert watch.with_loss(Applied(backlog=Backlog(9, 9, None)), look).loss_at_ms == 0
