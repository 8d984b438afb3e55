"""The thread that compares beside a task: its schedule, its errors, its status and its end."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from millrace.consumer.compare import schedule
from millrace.consumer.compare.chunk import ChunkResult, Job
from millrace.consumer.compare.result import Part
from millrace.consumer.compare.schedule import Last
from millrace.consumer.compare.tables import admitted
from millrace.consumer.compare.task_comparison import Comparing, Comparisons
from millrace.errors import Fatal, Retryable
from millrace.schemas.documents import CompareRules, HeartbeatRules, StructureRule, TableFilter
from millrace.schemas.stages import ComparedCounts, ComparedResult
from millrace.schemas.view.view import view_of_filter
from tests.kit.control.control import a_capture, a_set, an_apply
from tests.kit.waiting import eventually

CHUNK = ChunkResult(cast(Job, None), Part(500), "")
EQUAL = ComparedResult(
    began_ms=1_795_662_000_000,
    ended_ms=1_795_662_600_000,
    counts=ComparedCounts(tables=12, rows=9_000_000),
)
DIFFERENT = replace(
    EQUAL,
    counts=replace(EQUAL.counts, differences=3),
    by_table=(("shop.orders", 2), ("shop.log", 1)),
)


@dataclass
class _Comparer:
    """A target that has ``known``. Each comparison takes one of ``outcomes``: an error, or None for its end."""

    known: Last = field(default_factory=Last)
    outcomes: deque[Exception | None] = field(default_factory=deque)
    calls: list[bool] = field(default_factory=list)
    blocks: bool = False
    broken: threading.Event = field(default_factory=threading.Event)

    def last(self) -> Last:
        return self.known

    def compare(self, *, resumes: bool, seen: Callable[[ChunkResult], None]) -> None:
        self.calls.append(resumes)
        seen(CHUNK)
        if self.blocks:
            self.broken.wait(60.0)
            raise Retryable("MR-5001", "the session is broken")
        if self.outcomes and (error := self.outcomes.popleft()) is not None:
            self.known = replace(self.known, idle_s=0.0)
            raise error
        self.known = Last(EQUAL, 0.0)

    def end(self) -> None:
        self.broken.set()


@contextmanager
def _comparing(comparer: _Comparer) -> Iterator[Callable[[], Comparing]]:
    thread = Comparisons(comparer, "shop-to-dw", CompareRules(every_h=24))
    thread.start()
    try:
        yield lambda: thread.comparing
    finally:
        thread.end()
        assert not thread.is_alive()


def test_due_comparison_runs_once_and_its_result_is_shown() -> None:
    """The next one is due after 24 hours."""
    comparer = _Comparer()
    with _comparing(comparer) as comparing:
        eventually(lambda: (stage := comparing().stage) and stage.result, what="the result")
        stage = comparing().stage
    assert comparer.calls == [False]
    assert stage is not None
    assert stage.running_rows is None
    assert stage.result is not None
    assert stage.result.text == "compared 2026-11-26 03:10: 12 tables, 9,000,000 rows, equal"
    assert comparing().warning == ""


@pytest.mark.parametrize("rule", list(StructureRule))
def test_structure_warns_only_if_it_shall_fail(rule: StructureRule) -> None:
    """Otherwise it is in the result, without a warning."""
    counts = replace(EQUAL.counts, structure=2)
    comparer = _Comparer(known=Last(replace(EQUAL, counts=counts), 0.0))
    thread = Comparisons(comparer, "shop-to-dw", CompareRules(every_h=24, structure=rule))
    thread.start()
    eventually(lambda: (stage := thread.comparing.stage) and stage.result, what="the result")
    thread.end()
    stage = thread.comparing.stage
    assert stage is not None
    assert stage.result is not None
    assert stage.result.text.endswith("rows, rows equal, 2 differences of structure")
    assert ("2 differences of structure" in thread.comparing.warning) == (
        rule is StructureRule.FAIL
    )


def test_defect_of_a_comparison_is_shown_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error without a code, as a bug raises it."""
    monkeypatch.setattr(schedule, "RETRY_S", 0.5)
    comparer = _Comparer(outcomes=deque([ZeroDivisionError("a bug"), None]))
    with _comparing(comparer) as comparing:
        eventually(lambda: comparing().trouble, what="the warning")
        trouble = comparing().trouble
        eventually(lambda: len(comparer.calls) == 2 and not comparing().trouble, what="the retry")
    assert trouble is not None
    assert trouble.message.startswith("MR-9001 ZeroDivisionError at ")


@pytest.mark.parametrize("branch", [Retryable, Fatal])
def test_failing_comparison_is_continued_and_shown_with_a_code(
    branch: type[Retryable] | type[Fatal], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of either branch is a warning that ends with the next chunk; the task does not end."""
    monkeypatch.setattr(schedule, "RETRY_S", 0.5)
    comparer = _Comparer(outcomes=deque([branch("MR-5121", "the packet is too small"), None]))
    with _comparing(comparer) as comparing:
        eventually(lambda: comparing().trouble, what="the warning")
        trouble = comparing().trouble
        eventually(lambda: len(comparer.calls) == 2 and not comparing().trouble, what="the retry")
    assert trouble is not None
    assert (trouble.code, trouble.message) == ("MR-5135", "MR-5121 the packet is too small")
    assert "max_allowed_packet" in trouble.fix
    assert comparer.calls == [False, True]


def test_comparison_of_an_operator_is_no_trouble() -> None:
    """It is looked at later, and its result counts."""
    comparer = _Comparer(outcomes=deque([Retryable("MR-5136", "another comparison runs")]))
    with _comparing(comparer) as comparing:
        eventually(lambda: comparer.calls, what="the comparison")
        assert comparing().trouble is None
    assert len(comparer.calls) == 1


def test_end_of_the_run_breaks_a_comparison() -> None:
    """Also one that waits for a server. The broken session is no trouble."""
    comparer = _Comparer(known=Last(DIFFERENT, 90_000.0, idle_s=5.0), blocks=True)
    with _comparing(comparer) as comparing:
        eventually(lambda: (stage := comparing().stage) and stage.running_rows, what="a chunk")
        stage = comparing().stage
    assert comparer.calls == [True]
    assert stage is not None
    assert (stage.running_rows, stage.result) == (500, DIFFERENT)
    assert comparing().trouble is None


def test_differences_are_a_warning_with_the_commands() -> None:
    """Of the tables with the most. Repaired ones are none."""
    comparer = _Comparer(known=Last(DIFFERENT, 1.0))
    with _comparing(comparer) as comparing:
        eventually(lambda: comparing().warning, what="the warning")
        assert comparing().warning == (
            "compared 2026-11-26 03:10: 12 tables, 9,000,000 rows, 3 differences (shop.orders 2, shop.log 1):"
            " `millrace compare shop-to-dw` lists them, `millrace compare shop-to-dw --repair` repairs rows."
            " A table that only one side has is never repaired: the list says how to load or drop it."
        )
    repaired = replace(DIFFERENT, counts=replace(DIFFERENT.counts, repaired=3, unsettled=1))
    with _comparing(_Comparer(known=Last(repaired, 1.0))) as comparing:
        eventually(lambda: (stage := comparing().stage) and stage.result, what="the result")
        assert comparing().warning == ""
    assert repaired.text.endswith("(shop.orders 2, shop.log 1), 3 repaired, 1 row unsettled")


def test_table_of_both_tasks_is_compared_and_no_heartbeat() -> None:
    """A pattern that names the heartbeat's table makes it one like the others."""
    document = replace(a_set("shop"), heartbeat=HeartbeatRules(database="ops"))
    task = replace(an_apply(), view=view_of_filter(TableFilter(exclude=("shop.log",))))

    def compared(*include: str) -> list[str]:
        captured = replace(a_capture(), tables=TableFilter(include=include, exclude=("crm.*",)))
        admits = admitted(document, captured, task)
        names = ("shop.t", "shop.log", "crm.t", "ops.heartbeat", "mysql.user")
        return [name for name in names if admits(*name.split("."))]

    assert compared("*.*") == ["shop.t"]
    assert not admitted(document, a_capture(), task)("shop", "LOG")
    assert compared("*.*", "ops.*") == ["shop.t", "ops.heartbeat"]
