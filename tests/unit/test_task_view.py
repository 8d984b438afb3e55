"""`millrace status` adds to a task's report from its document."""

from dataclasses import replace

import pytest

from millrace.cli.replica import origin_text
from millrace.cli.status.line import lines_of
from millrace.schemas.documents import TaskDocument, TaskKind, address_of
from millrace.schemas.gtid import Flavour, parse_gtid_set
from millrace.schemas.progress import Progress
from millrace.schemas.requests.decision import Approval, Decision, DecisionKind
from millrace.schemas.stages import Applied, Backlog
from millrace.schemas.status import TaskReport, TaskState
from millrace.zk.tree.entries import Desired, TaskEntry
from millrace.zk.tree.reports import SavedReport, work_of
from millrace.zk.view import Cluster, TaskView, views
from tests.kit.control.control import a_capture, an_apply
from tests.kit.control.reports import FULL_CAPTURE

DECISION = Decision(
    id="d1",
    kind=DecisionKind.SKIP_GTID,
    task="shop-capture",
    before=Progress(parse_gtid_set(Flavour.MARIADB, "0-1-6"), None, 7),
    after=parse_gtid_set(Flavour.MARIADB, "0-1-7"),
    approval=Approval("ann@db-ops", "ticket 4711", 0),
)


def _report(task: TaskDocument, decision: Decision | None = None) -> TaskReport:
    desired = Desired(task, paused_by="ann", decision=decision)
    cluster = Cluster(
        tasks={task.name: TaskEntry(desired, 0, 5, 1)},
        workers={},
        assigned={},
        owners={},
        saved_reports={},
        leader="",
    )
    (view,) = views(cluster)
    return view.report


def test_every_task_names_its_topic() -> None:
    """Also one that has never run, and an apply task, whose runner does not report it."""
    capture, apply = a_capture(), an_apply()
    assert _report(capture).topic == capture.output.topic
    assert _report(apply).topic == apply.source.topic


def test_decision_that_waits_is_shown() -> None:
    """With what will be missing, who decided, and how to take it back."""
    task = replace(a_capture(), name=DECISION.task)
    assert _report(task).warnings == ()
    (shown,) = _report(task, DECISION).warnings
    assert shown.startswith("skip-gtid by ann@db-ops waits for the task's next start")
    assert "without 0-1-7" in shown
    assert "`millrace unsafe withdraw shop-capture`" in shown


def test_list_of_members_shows_the_age_of_its_figures() -> None:
    """A drain shows in the worker's next report."""
    view = TaskView(
        name="t", kind="capture", route="", report=FULL_CAPTURE, assigned="w1", age_s=3.4
    )
    assert origin_text(view).startswith("as w1 found them, reported 3 s ago")
    assert "just now" in origin_text(None)


def test_fix_of_a_stalled_task_names_it() -> None:
    """The command can be pasted."""
    task = a_capture()
    saved = SavedReport(TaskReport(TaskState.RUNNING, worker="w1"), 5, modified_ms=0)
    cluster = Cluster(
        tasks={task.name: TaskEntry(Desired(task), 0, 5, 1)},
        workers={"w1": TaskKind.CAPTURE},
        assigned={task.name: "w1"},
        owners={task.name: "w1"},
        saved_reports={task.name: saved},
        leader="s1",
    )
    (view,) = views(cluster, now_ms=60_000)
    assert view.report.state is TaskState.STALLED
    assert (
        f"`millrace task pause {task.name}` and `millrace task resume {task.name}`"
        in view.report.fix
    )


@pytest.mark.parametrize(
    ("state", "paused_by"),
    [
        (TaskState.BLOCKED, ""),
        (TaskState.DEGRADED, ""),
        (TaskState.RUNNING, ""),
        (TaskState.RUNNING, "ann"),
    ],
    ids=["blocked", "degraded", "stalled", "paused"],
)
def test_task_that_does_not_run_shows_its_lag_and_backlog(state: TaskState, paused_by: str) -> None:
    """They matter most then: the rows that the topic has more, and the time since the last applied row's commit."""
    capture, apply = a_capture(topic="shop"), an_apply(topic="shop")
    applied = Applied(lag_s=0.2, commit_ms=1_000_000, backlog=Backlog(0, 0, 0))
    report = TaskReport(state, "no", seq=40, epoch=1, worker="a1", applied=applied)
    stopped = report if state is TaskState.RUNNING else report.at_rest()
    captured = TaskReport(TaskState.RUNNING, seq=100, epoch=1, worker="w1")
    long_ago = 1_000_000 + 1_000
    cluster = Cluster(
        tasks={
            capture.name: TaskEntry(Desired(capture), 0, 5, 1),
            apply.name: TaskEntry(Desired(apply, paused_by=paused_by), 0, 5, 1),
        },
        workers={"a1": TaskKind.APPLY, "w1": TaskKind.CAPTURE},
        assigned={apply.name: "a1", capture.name: "w1"},
        owners={apply.name: "a1", capture.name: "w1"},
        saved_reports={
            capture.name: _saved(captured, capture, long_ago),
            apply.name: _saved(stopped, apply, long_ago),
        },
        leader="s1",
    )
    found = {view.name: view for view in views(cluster, now_ms=1_000_000 + 90_000)}[apply.name]
    assert found.report.state is not TaskState.RUNNING
    assert found.report.applied is not None
    assert (found.report.applied.lag_s, found.report.applied.backlog.rows) == (90.0, 60)
    assert " | backlog 60 rows" in lines_of(found, name_width=12, width=120)[0]


def _saved(report: TaskReport, task: TaskDocument, modified_ms: int) -> SavedReport:
    return SavedReport(
        report=report,
        revision=5,
        modified_ms=modified_ms,
        work=work_of(task),
        brokers=address_of(task).brokers.bootstrap,
    )
