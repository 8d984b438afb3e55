"""The loop of a capture task: what ends it, and what it reports."""

import threading
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from millrace.errors import Retryable
from millrace.producer.task.capture import PublishLoop
from millrace.schemas.gtid import Flavour, parse_gtid_set
from millrace.schemas.progress import Progress
from millrace.schemas.stages import Captured, SourceView
from millrace.schemas.status import TaskReport
from tests.kit.waiting import PATIENCE_S

START = Progress(parse_gtid_set(Flavour.MARIADB, "0-1-100"), None, 0)
PUBLISHED_MAX = 20  # batches after which a loop that should have ended is stopped


class _Release:
    """Holds nothing."""

    def recycle(self) -> None:
        pass

    def __call__(self) -> None:
        pass


def made_batch() -> Any:
    """Return a batch without records, after which the source transaction is complete."""
    return SimpleNamespace(
        bounds=np.empty((0, 4)),
        rows=1,
        coordinates=None,
        release=_Release(),
        progress=SimpleNamespace(open=None),
    )


class _Backlog:
    """A converter that always has another batch."""

    filter_warning = ""
    is_caught_up = False

    def next_batch(self, **_: object) -> Any:
        time.sleep(0.001)
        return made_batch()


class _Stream:
    """An upstream that fails on request."""

    def __init__(self) -> None:
        self.failure: Retryable | None = None
        self.heartbeat_warning = ""

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def purge_if_due(self, _needed: object) -> None:
        pass

    paused_by = ""

    def relayed(self) -> None:
        pass

    def captured(self) -> Captured:
        return Captured(
            source=SourceView(
                host="db",
                port=1,
                role="replica",
                lag_s=0.0,
                missing=0,
                still_s=0.0,
                since="",
                why="",
            )
        )


class _Publisher:
    """A publisher that discards batches and calls ``published`` after each."""

    def __init__(self, published: Any, **properties: object) -> None:
        self.hint = SimpleNamespace(progress=START, end_offset=1)
        self.topic, self.commit_s, self.renewed_count = "shop", 0.001, 0
        self.slow_path = self.topic_warning = ""
        self._published = published
        self.request_since_s: float | None = None
        self.__dict__.update(properties)

    def add(self, batch: object) -> None:
        pass

    def commit(self) -> None:
        self._published()

    def wait_visible(self) -> bool:
        return True

    def idle(self) -> None:
        pass


def _loop(stream: Any, publisher: Any, reports: list[TaskReport]) -> PublishLoop:
    reader: Any = SimpleNamespace(release=lambda _: None)
    return PublishLoop(stream, reader, publisher, reports.append, dict)


def test_failed_stream_ends_a_task_that_is_catching_up() -> None:
    """The set's other tasks cannot attach again until every task of the failed stream has detached."""
    stream, stop, published = _Stream(), threading.Event(), [0]

    def one_more() -> None:
        published[0] += 1
        stream.failure = Retryable("MR-1006", "the connection was lost")
        if published[0] == PUBLISHED_MAX:
            stop.set()

    with pytest.raises(Retryable, match="lost"):
        _loop(stream, _Publisher(one_more), []).run(_Backlog(), stop)
    assert published == [1]


def test_blocked_purge_does_not_hold_up_the_stream() -> None:
    """Deleting a file may take long; its error ends the task all the same."""
    stream, stop, published = _Stream(), threading.Event(), threading.Event()

    def purge(_needed: object) -> None:
        assert published.wait(PATIENCE_S)
        raise Retryable("MR-2002", "the disk failed")

    stream.purge_if_due = purge  # type: ignore[method-assign]
    with pytest.raises(Retryable, match="disk"):
        _loop(stream, _Publisher(published.set), []).run(_Backlog(), stop)
    assert published.is_set()


def test_slow_path_is_in_the_status() -> None:
    """Otherwise it is empty."""
    for reason in ("confluent-kafka 9.9 was not tried", ""):
        stop = threading.Event()
        reports: list[TaskReport] = []
        _loop(_Stream(), _Publisher(stop.set, slow_path=reason), reports).run(_Backlog(), stop)
        assert reports
        assert {report.published and report.published.slow_path for report in reports} == {reason}


def test_filter_without_match_is_in_status() -> None:
    """The converter's warning is shown, whether the source is quiet or busy with excluded tables."""

    class Quiet(_Backlog):
        """A converter without batches, whose task publishes no table."""

        filter_warning = "leaves out every table"

        def next_batch(self, **_: object) -> Any:
            time.sleep(0.01)

    class Busy(_Backlog):
        """The same with a batch at each call."""

        filter_warning = Quiet.filter_warning

    for source, warning in ((Quiet(), "leaves out"), (Busy(), "leaves out"), (_Backlog(), "")):
        stop = threading.Event()
        reports: list[TaskReport] = []
        publisher = _Publisher(stop.set)
        publisher.idle = stop.set  # type: ignore[method-assign]
        _loop(_Stream(), publisher, reports).run(source, stop)
        assert warning in " ".join(reports[-1].warnings)
        assert bool(reports[-1].warnings) is bool(warning)


def test_frozen_broker_is_reported_while_a_commit_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop itself can't report then. The lag grows from the batch that waits."""
    monkeypatch.setattr("millrace.producer.task.capture.WAIT_S", 0.0)
    monkeypatch.setattr("millrace.producer.task.capture.WAIT_LOOK_S", 0.001)
    seen, stop = threading.Event(), threading.Event()

    class Noting(list[TaskReport]):
        """Reports; the first one that waits for Kafka ends the commit."""

        def append(self, report: TaskReport) -> None:
            super().append(report)
            if report.why.startswith("waits for Kafka, which has not answered for "):
                seen.set()

    def commit() -> None:
        publisher.request_since_s = time.monotonic() - 7.0
        assert seen.wait(PATIENCE_S)
        publisher.request_since_s = None
        stop.set()

    reports, publisher = Noting(), _Publisher(commit)
    _loop(_Stream(), publisher, reports).run(_Backlog(), stop)
    waiting = next(report for report in reports if "waits for Kafka" in report.why)
    silent_s = int(waiting.why.rpartition(" for ")[2].removesuffix(" s"))
    assert 7 <= silent_s < 7 + PATIENCE_S
    assert waiting.published is not None
    assert waiting.published.waits_s > 0.0


@pytest.mark.parametrize("is_caught_up", [False, True])
def test_status_claims_caught_up_only_at_the_relay_logs_end(
    is_caught_up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long stretch of excluded events yields no batch, and the task is not caught up."""

    class Silent(_Backlog):
        """A converter without batches."""

        def next_batch(self, **_: object) -> Any:
            time.sleep(0.01)

    source = Silent()
    source.is_caught_up = is_caught_up
    monkeypatch.setattr("millrace.producer.task.capture.REPORT_S", 0.0)
    stop, reports = threading.Event(), list[TaskReport]()
    publisher = _Publisher(stop.set)
    publisher.idle = stop.set  # type: ignore[method-assign]
    _loop(_Stream(), publisher, reports).run(source, stop)
    assert any("waits for changes" in report.why for report in reports) is is_caught_up
