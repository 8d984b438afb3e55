"""An apply run reads only the topic of its mark, and a failed micro-batch ends it."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import pytest

from consumer import runner
from consumer.apply.batch import BatchApplier, Figures
from consumer.runner import ApplyRun, same_topic, why_running
from consumer.spark.driver import FIRST_OFFSET, SparkDriver
from consumer.sql.table_plans import Catalogue
from consumer.target.progress import Mark, MarkTopic
from millrace.errors import Fatal, MillraceError, Retryable
from schemas.documents import ApplyTask, TopicAddress
from schemas.status import TaskReport, TaskState
from tests.kit.apply.local import KnownTopic
from tests.kit.faults.starved import no_thread_left

SHOP = TopicAddress(topic="shop", bootstrap="broker:9092")
LONG = "a cause of a cause | " * 10_000


@dataclass
class _SilentQuery:
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
class _Driver:
    made: _SilentQuery = field(default_factory=_SilentQuery)
    process: Callable[[object], None] = print

    def query(self, *_: object, process: Callable[[object], None], **__: object) -> _SilentQuery:
        self.process = process
        return self.made


@dataclass
class _FailingApplier:
    error: BaseException
    mark: Mark = field(default_factory=lambda: Mark(0, FIRST_OFFSET))
    figures: Figures = field(default_factory=Figures)
    catalogue: Catalogue = field(default_factory=lambda: Catalogue("1"))
    warned: MillraceError | None = None

    def process(self, *_: object) -> None:
        raise self.error

    def warning(self) -> MillraceError | None:
        return self.warned

    def close(self) -> None:
        """Do nothing: nothing is open."""


@pytest.mark.parametrize("error", [Retryable("MR-5050", LONG), ZeroDivisionError(LONG)])
def test_failed_micro_batch_ends_the_run_with_its_error(error: Exception) -> None:
    """Spark gets a short text; the run raises the cause although the query never reports its end."""
    driver = _Driver()
    run = ApplyRun(
        cast(SparkDriver, driver),
        cast(ApplyTask, _Named()),
        cast(BatchApplier, _FailingApplier(error)),
        _nobody,
        KnownTopic(),
    )
    with pytest.raises(Retryable) as caught:
        driver.process(object())
    assert len(str(caught.value)) < 200
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    with pytest.raises(type(error)) as raised:
        run.until(threading.Event())
    assert raised.value is error
    run.end()
    assert driver.made.stopped


def test_running_task_shows_warnings_in_its_status() -> None:
    """The status has the warning's code and fix, and the task runs."""
    applier = _FailingApplier(
        Retryable("MR-5050", "x"), warned=Retryable("MR-5018", "shop.t.audit")
    )
    reports: list[TaskReport] = []
    ApplyRun(
        cast(SparkDriver, _Driver()),
        cast(ApplyTask, _Named()),
        cast(BatchApplier, applier),
        reports.append,
        KnownTopic(),
    )
    (report,) = reports
    assert (report.state, report.why, report.code) == (TaskState.RUNNING, "shop.t.audit", "MR-5018")
    assert "DROP TRIGGER" in report.fix


def test_run_ends_its_query_even_without_a_spare_thread() -> None:
    """Otherwise the old query would read beside the next run's query."""
    driver = _Driver()
    run = ApplyRun(
        cast(SparkDriver, driver),
        cast(ApplyTask, _Named()),
        cast(BatchApplier, _FailingApplier(Retryable("MR-5050", "x"))),
        _nobody,
        KnownTopic(),
    )
    with no_thread_left():
        run.end()
    assert driver.made.stopped


def test_topic_with_another_id_than_the_marks_is_not_read() -> None:
    """If the topic was recreated between runs, there is no query and no report of a running task."""
    driver, reports = _Driver(), list[object]()
    mark = Mark(5, FIRST_OFFSET, topic=MarkTopic("shop", "first"))
    with pytest.raises(Fatal, match=r"shop has the id second.* id first") as caught:
        ApplyRun(
            cast(SparkDriver, driver),
            cast(ApplyTask, _Named()),
            cast(BatchApplier, _CountingApplier(mark)),
            reports.append,
            KnownTopic(["second"]),
        )
    assert caught.value.code == "MR-5035"
    assert (driver.process, reports) == (print, [])


def test_topic_recreated_during_a_query_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic's id is checked before each micro-batch; records of a new topic are not applied."""
    monkeypatch.setattr(runner, "SAME_TOPIC_S", -1.0)
    driver = _Driver()
    applier = _CountingApplier(Mark(0, FIRST_OFFSET, topic=MarkTopic("shop")))
    run = ApplyRun(
        cast(SparkDriver, driver),
        cast(ApplyTask, _Named()),
        cast(BatchApplier, applier),
        _nobody,
        KnownTopic(["first", "first", "second"]),
    )
    driver.process(object())
    assert (applier.batches, applier.mark.topic.id) == (1, "first")
    with pytest.raises(Retryable):
        driver.process(object())
    with pytest.raises(Fatal) as caught:
        run.until(threading.Event())
    run.end()
    assert (applier.batches, caught.value.code) == (1, "MR-5035")


@pytest.mark.parametrize(("known", "found"), [("", "first"), ("first", ""), ("first", "first")])
def test_mark_keeps_a_known_topic_id(known: str, found: str) -> None:
    """Progress of an earlier version has no topic id, and brokers before Kafka 2.8 give none."""
    mark = same_topic(KnownTopic([found]), Mark(5, 9, topic=MarkTopic("shop", known)), source=SHOP)
    assert mark == Mark(5, 9, topic=MarkTopic("shop", "first"))


def test_task_without_its_topic_is_not_reported_as_running() -> None:
    """The status gives the reason for waiting; "running" would hide it."""
    driver, reports = _Driver(), list[object]()
    with pytest.raises(Retryable, match="there is no topic shop at broker:9092") as caught:
        ApplyRun(
            cast(SparkDriver, driver),
            cast(ApplyTask, _Named()),
            cast(BatchApplier, _CountingApplier(Mark(0, FIRST_OFFSET))),
            reports.append,
            _RefusedTopic(_MISSING),
        )
    assert (caught.value.code, driver.process, reports) == ("MR-5054", print, [])


@pytest.mark.parametrize(
    ("topic", "code", "words"),
    [
        (KnownTopic(), "MR-5052", "shop at broker:9092: the broker did not answer Spark"),
        (KnownTopic(["x"]), "MR-5052", "shop at broker:9092: the broker did not answer Spark"),
        (None, "MR-5054", "there is no topic shop at broker:9092"),
    ],
)
def test_silent_query_reports_its_topic_and_the_reason(
    monkeypatch: pytest.MonkeyPatch, topic: KnownTopic | None, code: str, words: str
) -> None:
    """Spark asks for minutes, even for a deleted topic."""
    monkeypatch.setattr(runner, "SILENCE_S", -1.0)
    driver, reports, stop = _Driver(), list[TaskReport](), threading.Event()

    def note(report: TaskReport) -> None:
        reports.append(report)
        if report.state is TaskState.DEGRADED:
            stop.set()

    identity = _Lost(topic)
    run = ApplyRun(
        cast(SparkDriver, driver),
        cast(ApplyTask, _Named()),
        cast(BatchApplier, _CountingApplier(Mark(0, FIRST_OFFSET))),
        note,
        identity,
    )
    driver.made.asks = identity.is_lost = True
    run.until(stop)
    run.end()
    assert reports[-1].code == code
    assert words in reports[-1].why
    assert reports[-1].fix


@dataclass
class _RefusedTopic:
    error: MillraceError

    def ask(self) -> str:
        raise self.error


_MISSING = Fatal("MR-3501", "Kafka answered", answer="UNKNOWN_TOPIC_OR_PART")


@dataclass
class _Lost:
    """A deleted topic, or (``left``) one whose broker answers Millrace and not Spark."""

    left: KnownTopic | None
    is_lost: bool = False

    def ask(self) -> str:
        if self.is_lost and self.left is None:
            raise _MISSING
        return self.left.ask() if self.left and self.is_lost else ""


@dataclass
class _CountingApplier:
    mark: Mark
    batches: int = 0
    figures: Figures = field(default_factory=Figures)
    catalogue: Catalogue = field(default_factory=lambda: Catalogue("1"))

    def warning(self) -> MillraceError | None:
        return None

    def process(self, *_: object) -> None:
        self.batches += 1

    def close(self) -> None:
        """Do nothing: nothing is open."""


@dataclass(frozen=True)
class _Named:
    name: str = "shop-to-warehouse"
    source: TopicAddress = SHOP


def _nobody(_report: object) -> None:
    """Ignore the report."""


def test_running_apply_task_describes_its_work() -> None:
    """The status also shows where the skipped statements are; a count alone would not."""
    assert why_running(-2, Figures()) == "waiting for the first record"
    assert why_running(7, Figures()) == "applied up to offset 7"
    why = why_running(7, Figures(left_out=2))
    assert "2 statements about views, routines, excluded tables or the like not executed" in why
    assert "SELECT * FROM millrace.left_out on the target" in why
