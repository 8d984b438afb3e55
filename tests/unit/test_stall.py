"""Which reports of a running task mean that it does not move."""

from dataclasses import replace

import pytest

from millrace.schemas.stages import Applied, AppliedCounts, Captured, Published, SourceView
from millrace.schemas.stall import REPORT_AGE_S_MAX, STALL_S, with_compiler, with_stall
from millrace.schemas.status import TaskReport, TaskState
from tests.kit.control.reports import FULL_CAPTURE

LONG_S = STALL_S + 1


def _source(**changed: object) -> TaskReport:
    assert FULL_CAPTURE.captured is not None
    source: SourceView = replace(FULL_CAPTURE.captured.source, **changed)  # type: ignore[arg-type]
    return replace(FULL_CAPTURE, captured=Captured(source=source))


RUNNING = TaskReport(TaskState.RUNNING, why="waits for changes", worker="w1")
STALLED = {
    "no report": (RUNNING, REPORT_AGE_S_MAX + 1),
    "has not reported": (replace(RUNNING, silent_s=LONG_S), 0.0),
    "no row was published": (replace(RUNNING, published=Published(waits_s=LONG_S)), 0.0),
    "nothing was applied": (replace(RUNNING, applied=Applied(waits_s=LONG_S)), 0.0),
    "the target executes a statement": (
        replace(RUNNING, applied=Applied(waits_s=LONG_S, executes="ALTER")),
        0.0,
    ),
    "db2:3306 misses 12 transactions": (_source(missing=12, still_s=LONG_S, lag_s=LONG_S), 0.0),
}
MOVING = {
    "fresh": (RUNNING, REPORT_AGE_S_MAX),
    "nothing waits": (replace(RUNNING, published=Published(lag_s=900.0)), 0.0),
    "a late member that applies": (_source(missing=12, still_s=1.0, lag_s=3600.0), 0.0),
    "an idle set": (_source(missing=0, still_s=1e6, lag_s=0.0), 0.0),
    "a member that does not answer": (_source(missing=None, still_s=None, lag_s=None), 0.0),
}


@pytest.mark.parametrize("reason", STALLED)
def test_task_that_does_not_move_is_stalled_with_the_reason(reason: str) -> None:
    """And with a code, and what it reported."""
    report, age_s = STALLED[reason]
    stalled = with_stall(report, age_s=age_s)
    assert stalled.state is TaskState.STALLED
    assert reason in stalled.why
    assert "waits for changes" in stalled.why
    assert (stalled.code, bool(stalled.fix)) == ("MR-4016", True)


def test_fix_names_the_compiler_before_the_first_turn() -> None:
    """Afterwards only the target can be the reason."""
    for turns, compiles in ((0, True), (1, False)):
        applied = Applied(waits_s=LONG_S, counts=AppliedCounts(turns=turns))
        fix = with_stall(replace(RUNNING, applied=applied)).fix
        assert "SHOW PROCESSLIST" in fix
        assert ("compiles" in fix) is compiles


@pytest.mark.parametrize("case", MOVING)
def test_task_that_moves_or_waits_is_not_stalled(case: str) -> None:
    """A lag alone is no stall."""
    report, age_s = MOVING[case]
    assert with_stall(report, age_s=age_s) == report


@pytest.mark.parametrize("state", set(TaskState) - {TaskState.RUNNING})
def test_only_a_running_task_can_stall(state: TaskState) -> None:
    """The others have a reason already."""
    report = replace(RUNNING, state=state, silent_s=LONG_S, applied=Applied(waits_s=LONG_S))
    assert with_stall(report, age_s=LONG_S) == report


def test_task_that_waits_for_the_compiler_says_so() -> None:
    """While it starts and while nothing moves; a task of the same process that moves does not."""
    starting = with_compiler(TaskReport(TaskState.ASSIGNED, why="starting"))
    assert starting.why == "compiles kernels, once for each installation and version; starting"
    assert with_compiler(RUNNING) == RUNNING
    for waits in (
        replace(RUNNING, silent_s=LONG_S),
        replace(RUNNING, published=Published(waits_s=LONG_S)),
    ):
        stalled = with_stall(with_compiler(waits))
        assert (stalled.code, "compiles kernels" in stalled.why) == ("MR-4016", True)
        assert stalled.fix.startswith("Nothing to do")
    hung = with_stall(with_compiler(replace(RUNNING, silent_s=LONG_S)), age_s=REPORT_AGE_S_MAX + 1)
    assert "is silent" in hung.why
    assert "log of w1" in hung.fix
