"""An apply run reads only the topic of its mark, and a failed micro-batch ends it."""

import threading
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from millrace.consumer.spark.session import FIRST_OFFSET, SparkDriver
from millrace.consumer.tables.table_plans import Notes
from millrace.consumer.target.progress import Mark, MarkTopic, Owner
from millrace.consumer.task import runner
from millrace.consumer.task.report import why_running
from millrace.consumer.task.runner import ApplyRun, same_topic
from millrace.consumer.turn.driver import BatchApplier, Figures
from millrace.consumer.turn.order import Counts, Outcome, TurnOrder
from millrace.drivers.kafka.reader import NoTopic
from millrace.errors import Fatal, MillraceError, Retryable
from millrace.schemas.documents import ApplyTask
from millrace.schemas.status import TaskReport, TaskState
from tests.kit.apply.local import KnownTopic, OneExecutor
from tests.kit.apply.run import (
    GIVEN,
    SHOP,
    CountingApplier,
    NamedTask,
    QueryDriver,
    QuietApplier,
    ignore_report,
)
from tests.kit.faults.starved import no_thread_left

LONG = "a cause of a cause | " * 10_000


@dataclass
class _FailingApplier(QuietApplier):
    error: BaseException = field(default_factory=BaseException)
    mark: Mark = field(default_factory=lambda: Mark(0, FIRST_OFFSET))
    figures: Figures = field(default_factory=Figures)
    warned: MillraceError | None = None

    def process(self, *_: object) -> None:
        raise self.error

    def warning(self) -> MillraceError | None:
        return self.warned


@pytest.mark.parametrize("error", [Retryable("MR-5050", LONG), ZeroDivisionError(LONG)])
def test_failed_micro_batch_ends_the_run_with_its_error(error: Exception) -> None:
    """Spark gets a short text; the run raises the cause although the query never reports its end."""
    driver = QueryDriver()
    run = ApplyRun(
        cast(SparkDriver, driver),
        cast(ApplyTask, NamedTask()),
        cast(BatchApplier, _FailingApplier(error=error)),
        ignore_report,
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
        error=Retryable("MR-5050", "x"), warned=Retryable("MR-5018", "shop.t.audit")
    )
    reports: list[TaskReport] = []
    ApplyRun(
        cast(SparkDriver, QueryDriver()),
        cast(ApplyTask, NamedTask()),
        cast(BatchApplier, applier),
        reports.append,
        KnownTopic(),
    )
    (report,) = reports
    assert (report.state, report.why, report.code) == (TaskState.RUNNING, "shop.t.audit", "MR-5018")
    assert "DROP TRIGGER" in report.fix


@pytest.mark.parametrize(
    ("reached", "wanted"),
    [("", "until 0-1-5"), ("0-1-4", "until 0-1-5"), ("0-2-5,1-1-1", "ended at 0-1-5")],
)
def test_status_shows_safe_mode(reached: str, wanted: str) -> None:
    """Also when it has ended, so that an operator can remove it from the document."""
    applier = CountingApplier(mark=Mark(7, FIRST_OFFSET, reached, "mariadb"))
    applier.assignment = replace(GIVEN, rules=replace(GIVEN.rules, safe_until="0-1-5"))
    reports: list[TaskReport] = []
    ApplyRun(
        cast(SparkDriver, QueryDriver()),
        cast(ApplyTask, NamedTask()),
        cast(BatchApplier, applier),
        reports.append,
        KnownTopic(),
    )
    (report,) = reports
    assert report.applied is not None
    assert report.applied.safe_mode == wanted
    assert report.why == f"waiting for the first record; safe mode {wanted}"


def test_run_ends_its_query_even_without_a_spare_thread() -> None:
    """Otherwise the old query would read beside the next run's query."""
    driver = QueryDriver()
    run = ApplyRun(
        cast(SparkDriver, driver),
        cast(ApplyTask, NamedTask()),
        cast(BatchApplier, _FailingApplier(error=Retryable("MR-5050", "x"))),
        ignore_report,
        KnownTopic(),
    )
    with no_thread_left():
        run.end()
    assert driver.made.stopped


def test_topic_with_another_id_than_the_marks_is_not_read() -> None:
    """If the topic was recreated between runs, there is no query and no report of a running task."""
    driver, reports = QueryDriver(), list[object]()
    mark = Mark(5, FIRST_OFFSET, topic=MarkTopic("shop", "first"))
    with pytest.raises(Fatal, match=r"shop has the id second.* id first") as caught:
        ApplyRun(
            cast(SparkDriver, driver),
            cast(ApplyTask, NamedTask()),
            cast(BatchApplier, CountingApplier(mark=mark)),
            reports.append,
            KnownTopic(["second"]),
        )
    assert caught.value.code == "MR-5035"
    assert (driver.process, reports) == (print, [])


def test_topic_recreated_during_a_query_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic's id is checked before each micro-batch; records of a new topic are not applied."""
    monkeypatch.setattr(runner, "LOOK_AGAIN_S", -1.0)
    driver = QueryDriver()
    applier = CountingApplier(mark=Mark(0, FIRST_OFFSET, topic=MarkTopic("shop")))
    run = ApplyRun(
        cast(SparkDriver, driver),
        cast(ApplyTask, NamedTask()),
        cast(BatchApplier, applier),
        ignore_report,
        KnownTopic(["first", "first", "second"]),
    )
    driver.process(object())
    assert (applier.batches, applier.mark.topic.id) == (1, "first")
    with pytest.raises(Retryable):
        driver.process(object())
    with pytest.raises(Retryable) as caught:
        run.until(threading.Event())
    run.end()
    assert (applier.batches, caught.value.code) == (1, "MR-5072")


@pytest.mark.parametrize(("known", "found"), [("", "first"), ("first", ""), ("first", "first")])
def test_mark_keeps_a_known_topic_id(known: str, found: str) -> None:
    """Progress of an earlier version has no topic id, and brokers before Kafka 2.8 give none."""
    mark = same_topic(KnownTopic([found]), Mark(5, 9, topic=MarkTopic("shop", known)), source=SHOP)
    assert mark == Mark(5, 9, topic=MarkTopic("shop", "first"))


def test_task_without_its_topic_is_not_reported_as_running() -> None:
    """The status gives the reason for waiting; "running" would hide it."""
    driver, reports = QueryDriver(), list[object]()
    with pytest.raises(Retryable, match="there is no topic shop at broker:9092") as caught:
        ApplyRun(
            cast(SparkDriver, driver),
            cast(ApplyTask, NamedTask()),
            cast(BatchApplier, CountingApplier()),
            reports.append,
            _RefusedTopic(error=_MISSING),
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
    driver, reports, stop = QueryDriver(), list[TaskReport](), threading.Event()

    def note(report: TaskReport) -> None:
        reports.append(report)
        if report.state is TaskState.DEGRADED:
            stop.set()

    identity = _Lost(left=topic)
    run = ApplyRun(
        cast(SparkDriver, driver),
        cast(ApplyTask, NamedTask()),
        cast(BatchApplier, CountingApplier()),
        note,
        identity,
    )
    driver.made.asks = identity.is_lost = True
    run.until(stop)
    run.end()
    assert reports[-1].code == code
    assert words in reports[-1].why
    assert reports[-1].fix


_MISSING = NoTopic("MR-3501", "Kafka reported")


@dataclass
class _RefusedTopic(KnownTopic):
    error: MillraceError = _MISSING

    def ask(self) -> str:
        raise self.error

    def end(self) -> int:
        raise self.error


@dataclass
class _Lost(KnownTopic):
    """A deleted topic, or (``left``) one whose broker answers Millrace and not Spark."""

    left: KnownTopic | None = None
    is_lost: bool = False

    def ask(self) -> str:
        if self.is_lost and self.left is None:
            raise _MISSING
        return self.left.ask() if self.left and self.is_lost else ""

    def end(self) -> int:
        self.ask()
        return 0


@dataclass
class _Turns(OneExecutor):
    """A micro-batch whose turns end at these marks, the last one because there were no more records."""

    end: int
    marks: list[Mark]
    orders: list[TurnOrder] = field(default_factory=list)

    def apply(self, order: TurnOrder) -> Outcome:
        self.orders.append(order)
        mark, run = self.marks.pop(0), order.owner.run + 1
        counts = Counts(
            rows=10,
            statements=2,
            ddl=1,
            left_out=1,
        )
        owner = replace(order.owner, run=run)
        notes = Notes(triggers=(f"shop.t.of_run_{run}",))
        return Outcome(owner=owner, mark=mark, counts=counts, notes=notes, is_idle=not self.marks)


def _applier(offset: int = 0) -> BatchApplier:
    return BatchApplier(GIVEN, Owner("task", 1, 1), Mark(0, offset, topic=MarkTopic("shop", "id")))


def test_each_turn_follows_the_owner_of_the_last() -> None:
    """A turn takes the fence from exactly that owner, so a late execution of an earlier turn applies nothing."""
    applier, turns, moved = _applier(), _Turns(9, [Mark(3, 3), Mark(9, 9)]), list[Mark]()
    applier.process(turns, moved.append)
    assert [order.owner.run for order in turns.orders] == [1, 2]
    assert applier.owner == Owner("task", 1, 3)
    assert moved == [Mark(3, 3), Mark(9, 9)]
    assert applier.mark == Mark(9, 9)
    first = turns.orders[0]
    assert (first.assignment, first.topic_id) == (GIVEN, "id")


def test_figures_are_those_of_all_turns() -> None:
    """Triggers are those of the last turn."""
    applier = _applier()
    applier.process(_Turns(9, [Mark(3, 3), Mark(9, 9)]), ignore_report)
    assert applier.figures.turns == 2
    assert applier.figures.counts == Counts(rows=20, statements=4, ddl=2, left_out=2)
    warning = applier.warning()
    assert warning is not None
    assert (warning.code, warning.message) == ("MR-5018", "triggers on the target: shop.t.of_run_3")


def test_applied_micro_batch_takes_no_turn() -> None:
    """The turn before it has applied these records, too: it continues as long as records arrive."""
    turns = _Turns(9, [])
    applier = _applier(offset=9)
    applier.process(turns, ignore_report)
    assert turns.orders == []
    assert applier.figures == Figures()


def test_failed_turn_leaves_owner_and_mark() -> None:
    """How far the executor came is read on the target by the next run."""

    class Fails(OneExecutor):
        end = 9

        def apply(self, _: TurnOrder) -> Outcome:
            raise Retryable("MR-5001", "the connection broke")

    applier = _applier()
    with pytest.raises(Retryable):
        applier.process(Fails(), ignore_report)
    assert (applier.owner.run, applier.mark.seq, applier.figures) == (1, 0, Figures())


def test_running_apply_task_describes_its_work() -> None:
    """The status also names the table of the skipped statements, and fits into a line of `millrace status`."""
    assert why_running(-2, Figures()) == "waiting for the first record"
    assert why_running(7, Figures()) == "applied up to offset 7"
    why = why_running(7, Figures(counts=Counts(left_out=2)))
    assert why == "applied up to offset 7; 2 DDL left out, see millrace.left_out"
