"""A run looks at the topic's end and the mark once a second, reports them, and notices a silent broker."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import pytest

from millrace.consumer.spark.session import FIRST_OFFSET, SparkDriver
from millrace.consumer.target.progress import Mark, MarkTopic
from millrace.consumer.target.running_statement import RunningStatement
from millrace.consumer.task import runner
from millrace.consumer.task.runner import ApplyRun
from millrace.consumer.turn.driver import BatchApplier, Figures
from millrace.errors import MillraceError, Retryable
from millrace.schemas.documents import ApplyTask
from millrace.schemas.status import TaskReport, TaskState
from tests.kit.apply.local import KnownTopic
from tests.kit.apply.run import (
    CountingApplier,
    NamedTask,
    QueryDriver,
    QuietApplier,
    SilentQuery,
    ignore_report,
)
from tests.kit.waiting import PATIENCE_S


@dataclass
class _Target:
    """A session that an observer opens; None in ``seqs`` is a broken connection. The lag is as many ms as the seq."""

    seqs: list[int | None]
    is_open: bool = True
    rollbacks: int = 0

    def rollback(self) -> None:
        self.rollbacks += 1

    def close(self) -> None:
        self.is_open = False

    def mark(self) -> tuple[Mark, int]:
        seq = self.seqs.pop(0) if len(self.seqs) > 1 else self.seqs[0]
        if seq is None:
            raise Retryable("MR-5001", "the connection broke")
        return Mark(seq, seq, commit_ms=1), seq


@dataclass
class _BusyApplier(QuietApplier):
    """An applier whose turn is under way until ``release``."""

    mark: Mark = field(default_factory=lambda: Mark(0, FIRST_OFFSET, topic=MarkTopic("shop", "id")))
    begun: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)
    figures: Figures = field(default_factory=Figures)

    def process(self, *_: object) -> None:
        self.begun.set()
        assert self.release.wait(PATIENCE_S)

    def warning(self) -> MillraceError | None:
        return None


def _observed(monkeypatch: pytest.MonkeyPatch, seqs: list[int | None]) -> _Target:
    """The target of a run that looks all the time; the mark has these seqs in turn."""
    target = _Target(seqs)
    monkeypatch.setattr(runner, "LOOK_AGAIN_S", -1.0)
    monkeypatch.setattr(runner, "connect", lambda _, **__: target)
    monkeypatch.setattr(runner, "read_mark", lambda *_: target.mark())
    monkeypatch.setattr(runner, "find_statement", lambda *_: None)
    return target


def _busy(
    topic: KnownTopic, report: Callable[[TaskReport], None]
) -> tuple[ApplyRun, _BusyApplier, threading.Thread]:
    """Return a run whose executor has a turn."""
    driver, applier = QueryDriver(), _BusyApplier()
    run = ApplyRun(
        cast(SparkDriver, driver),
        cast(ApplyTask, NamedTask()),
        cast(BatchApplier, applier),
        report,
        topic,
    )
    thread = threading.Thread(target=driver.process, args=(object(),))
    thread.start()
    assert applier.begun.wait(PATIENCE_S)
    return run, applier, thread


def test_progress_is_reported_while_an_executor_applies(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn takes up to half a minute. The mark on the target shows how far it is; a broken look is repeated."""
    reports, stop = list[TaskReport](), threading.Event()

    def note(report: TaskReport) -> None:
        reports.append(report)
        if report.seq == 7:
            stop.set()

    target = _observed(monkeypatch, [0, 5, None, 5, 7])
    run, applier, thread = _busy(KnownTopic(last=10), note)
    run.until(stop)
    applier.release.set()
    run.end()
    thread.join(PATIENCE_S)
    seqs = [report.seq for report in reports]
    assert (sorted(seqs), set(seqs)) == (seqs, {0, 5, 7})
    assert {report.state for report in reports} == {TaskState.RUNNING}
    applied = reports[-1].applied
    assert applied is not None
    assert (applied.lag_s, applied.backlog.records) == (0.007, 3)
    assert target.rollbacks > 0, "an open transaction would show the same mark forever"
    assert not target.is_open


def test_running_statement_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its progress, while the mark waits."""
    reports, stop = list[TaskReport](), threading.Event()

    def note(report: TaskReport) -> None:
        reports.append(report)
        if report.applied is not None and report.applied.executes:
            stop.set()

    _observed(monkeypatch, [0])
    altering = RunningStatement("t1:3306", 7, "ALTER TABLE t", "copying", 90, "12.5 %")
    monkeypatch.setattr(runner, "find_statement", lambda *_: altering)
    run, applier, thread = _busy(KnownTopic(last=10), note)
    run.until(stop)
    applier.release.set()
    run.end()
    thread.join(PATIENCE_S)
    shown = "session 7 on t1:3306 executes ALTER TABLE t (for 90 s, copying, 12.5 %)"
    assert shown in reports[-1].why


def test_stop_ends_the_wait_for_an_earlier_statement() -> None:
    """The statement is reported, and runs on."""
    reports, stop = list[TaskReport](), threading.Event()
    stop.set()
    running = RunningStatement("t1:3306", 7, "ALTER TABLE t", "", 90)
    assert not runner.show_wait(running, report=reports.append, stop=stop)
    assert reports[0].state is TaskState.RUNNING
    assert "session 7 on t1:3306 executes ALTER TABLE t (for 90 s)" in reports[0].why


def test_topic_recreated_during_a_turn_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The executor doesn't compare the topic's id."""
    _observed(monkeypatch, [0])
    run, applier, thread = _busy(KnownTopic(["id", "id", "id", "other"]), ignore_report)
    with pytest.raises(Retryable) as caught:
        run.until(threading.Event())
    assert caught.value.code == "MR-5072"
    applier.release.set()
    run.end()
    thread.join(PATIENCE_S)


@dataclass
class _LosingTopic(KnownTopic):
    """A topic whose broker stops answering after ``answers`` looks at its end, until ``is_back``."""

    answers: int = 0
    is_back: bool = False

    def end(self) -> int:
        self.answers -= 1
        if self.answers < 0 and not self.is_back:
            raise Retryable("MR-3501", "Kafka reported _TIMED_OUT")
        return self.last


@pytest.mark.parametrize("is_busy", [True, False])
def test_broker_that_does_not_answer_a_look_degrades_the_task(
    monkeypatch: pytest.MonkeyPatch, is_busy: bool
) -> None:
    """During a turn Spark doesn't ask the broker, and an idle query does so for minutes. The run continues."""
    topic, stop, reports = _LosingTopic(last=9, answers=2), threading.Event(), list[TaskReport]()

    def note(report: TaskReport) -> None:
        reports.append(report)
        if report.state is TaskState.DEGRADED:
            topic.is_back = True
        elif topic.is_back:
            stop.set()

    _observed(monkeypatch, [9])
    run, applier, thread = _busy(topic, note)
    if not is_busy:
        applier.release.set()
        thread.join(PATIENCE_S)
    run.until(stop)
    applier.release.set()
    run.end()
    thread.join(PATIENCE_S)
    states = [report.state for report in reports]
    assert states[-2:] == [TaskState.DEGRADED, TaskState.RUNNING]
    assert (reports[-2].code, reports[-1].code) == ("MR-5052", "")
    assert reports[-2].fix
    for report, backlog in ((reports[-2], None), (reports[-1], 0)):
        assert report.applied is not None
        assert report.applied.backlog.records == backlog


def test_idle_run_asks_only_for_the_topics_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing moves the mark then, and Spark notices a new topic. The lag of 0 is not older than a look."""
    target = _observed(monkeypatch, [0])
    topic, stop, looks = KnownTopic(["id"]), threading.Event(), list[float]()
    reports = list[TaskReport]()

    class Query(SilentQuery):
        def wait(self, timeout_s: float) -> bool:
            looks.append(timeout_s)
            topic.last = 5 * (len(looks) == 5)
            if len(looks) == 5:
                stop.set()
            return False

    run = ApplyRun(
        cast(SparkDriver, QueryDriver(Query())),
        cast(ApplyTask, NamedTask()),
        cast(BatchApplier, CountingApplier()),
        reports.append,
        topic,
    )
    topic.ids.append("other")
    run.until(stop)
    run.end()
    assert topic.ids == ["other"]
    assert target.rollbacks == 1, "the mark is read once, for its lag"
    seen: dict[int | None, list[bool]] = {}  # by backlog, whether the lag was 0
    for report in reports:
        assert report.applied is not None
        seen.setdefault(report.applied.backlog.records, []).append(report.applied.lag_s == 0.0)
    assert list(seen) == [None, 0, 5]
    assert [set(zero) for zero in seen.values()] == [{False}, {True}, {False}]
