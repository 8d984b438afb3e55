"""Tasks that kill their worker's process, on a real ZooKeeper, with runners that move no rows."""

import threading

import pytest

from millrace.errors import Fatal
from schemas.documents import Work
from schemas.status import TaskReport, TaskState
from tests.kit.control.control import ScriptedRunner, a_capture
from tests.kit.control.stage import Stage
from tests.kit.waiting import eventually
from zk.lease.starts import KILLED_MAX, TRIAL_KILLED, Starts
from zk.run.runner import HeldLease, Report


def _killed(stage: Stage, task: str, times: int) -> None:
    """Record starts of the task in processes that then died."""
    revision = stage.store.task_entry(task).revision
    for number in range(times):
        starts = Starts(stage.session, stage.tree, worker=f"k{number}")
        starts.begin(task, revision=revision)


def test_task_that_kills_worker_after_worker_is_held(stage: Stage) -> None:
    """The count is in ZooKeeper, where no crash loses it; an operator's resume lets the task try again."""
    runner = ScriptedRunner()
    stage.store.create_task(a_capture())
    _killed(stage, "shop-capture", KILLED_MAX)
    stage.worker(runner)
    stage.scheduler()
    report = stage.reaches("shop-capture", TaskState.BLOCKED)
    assert report.code == "MR-4015"
    assert "5 times in a row: k0, k1, k2, k3, k4" in report.why
    assert runner.starts == []
    stage.store.resume("shop-capture")
    stage.reaches("shop-capture", TaskState.RUNNING)


@pytest.mark.parametrize("how", ["stopped", "failed", "moved rows", "same process"])
def test_orderly_end_resets_the_kill_count(stage: Stage, how: str) -> None:
    """The sequence of kills ends with it."""
    may_move = threading.Event()

    class Moving(ScriptedRunner):
        def run(
            self, task: Work, *, lease: HeldLease, stop: threading.Event, report: Report
        ) -> None:
            report(TaskReport(TaskState.RUNNING, seq=1))
            if how == "failed":
                raise Fatal("MR-1031", "x")
            may_move.wait()
            if how == "moved rows":
                report(TaskReport(TaskState.RUNNING, seq=2))
            stop.wait()

    stage.store.create_task(a_capture())
    path = stage.tree.starts("shop-capture")
    if how == "same process":
        starts = Starts(stage.session, stage.tree, worker="w1")
        for _ in range(KILLED_MAX + 1):
            starts.begin("shop-capture", revision=1)
        assert starts.killed("shop-capture", revision=1) == ()
        return
    _killed(stage, "shop-capture", 1)
    stage.worker(Moving())
    stage.scheduler()
    stage.reaches("shop-capture", TaskState.BLOCKED if how == "failed" else TaskState.RUNNING)
    if how == "stopped":
        assert stage.session.get(path) is not None
        stage.store.pause("shop-capture", by="ann")
    may_move.set()
    eventually(lambda: stage.session.get(path) is None)


def test_suspect_tasks_start_one_at_a_time(stage: Stage) -> None:
    """If the process dies then, there is one suspect; the innocent tasks are cleared."""
    runner = ScriptedRunner()
    names = ("first", "second")
    for name in names:
        stage.store.create_task(a_capture(name))
        _killed(stage, name, TRIAL_KILLED)
    stage.store.create_task(a_capture("other"))
    stage.worker(runner)
    stage.scheduler()
    for name in ("first", "other"):
        stage.reaches(name, TaskState.RUNNING)
    assert runner.epochs("second") == []
    stage.store.pause("first", by="ann")
    stage.reaches("second", TaskState.RUNNING)
    assert stage.report("first").state is TaskState.PAUSED
