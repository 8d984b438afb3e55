"""Tasks under which their worker's process ends, on a real ZooKeeper, with runners that move no rows."""

from dataclasses import replace

import pytest

from millrace.errors import Fatal
from millrace.schemas.status import TaskState
from millrace.zk.lease.starts import KILLS_MAX, Start, Starts, start_of
from tests.kit.control.control import QUICK, ScriptedRunner, a_capture, supervised
from tests.kit.control.stage import Stage
from tests.kit.waiting import eventually


def _process(stage: Stage, name: str) -> Starts:
    return Starts(stage.session, stage.tree, worker=name)


def _killed(stage: Stage, task: str, times: int) -> None:
    """Record starts of the task in processes that then died."""
    revision = stage.store.task_entry(task).revision
    for number in range(times):
        _process(stage, f"k{number}").begin(task, revision=revision)


def _start(stage: Stage, task: str, *, revision: int = 1) -> Start:
    return start_of(stage.session.get(stage.tree.starts(task)), revision=revision)


def test_task_that_kills_worker_after_worker_is_held(stage: Stage) -> None:
    """The count is in ZooKeeper, where no crash loses it; an operator's resume lets the task try again."""
    runner = ScriptedRunner()
    stage.store.create_task(a_capture())
    _killed(stage, "shop-capture", KILLS_MAX)
    stage.worker(runner)
    stage.scheduler()
    report = stage.reaches("shop-capture", TaskState.BLOCKED)
    assert report.code == "MR-4015"
    assert "ended under it 3 times in 0 s: k0 (after 0 s), k1 (after 0 s), k2" in report.why
    assert runner.starts == []
    stage.store.resume("shop-capture")
    stage.reaches("shop-capture", TaskState.RUNNING)


def test_orderly_end_in_between_does_not_reset_the_kills(stage: Stage) -> None:
    """A task that is paused or retried between two kills is as guilty; a new revision begins at 0."""
    first, second, third, fourth, fifth = (_process(stage, f"w{n}") for n in range(5))
    for process in (first, second):
        process.begin("t", revision=1)
    second.end("t")
    for process in (third, fourth):
        process.begin("t", revision=1)
    with pytest.raises(Fatal, match=r"w0 .*, w2 .*, w3 "):
        fifth.begin("t", revision=1)
    fifth.begin("t", revision=2)
    assert _start(stage, "t", revision=2).kills == ()


def test_retries_in_one_process_are_no_kills(stage: Stage) -> None:
    """Also not if the end of a run could not be recorded; a run that ended leaves nothing."""
    process = _process(stage, "w1")
    for _ in range(KILLS_MAX + 1):
        process.begin("t", revision=1)
    assert _start(stage, "t").kills == ()
    process.end("t")
    assert stage.session.get(stage.tree.starts("t")) is None


def test_process_that_only_lost_its_session_corrects_the_count(stage: Stage) -> None:
    """Another worker has taken it for dead; it says otherwise as soon as its run has ended."""
    paused, other = _process(stage, "w1"), _process(stage, "w2")
    paused.begin("t", revision=1)
    other.begin("t", revision=1)
    assert [kill.worker for kill in _start(stage, "t").kills] == ["w1"]
    paused.end("t")
    assert _start(stage, "t").kills == ()
    other.end("t")


def test_only_the_task_on_trial_is_blamed(stage: Stage) -> None:
    """Its innocent neighbors shared both kills; they keep two and are not held, whenever they began."""
    for name in ("w1", "w2"):
        process = _process(stage, name)
        for task in ("guilty", "early", "late"):
            process.begin(task, revision=1)
    process = _process(stage, "w3")
    process.begin("early", revision=1)
    assert process.is_suspect("guilty", revision=1)
    process.begin_trial("guilty")
    process.begin("guilty", revision=1)
    process.begin("late", revision=1)
    last = _process(stage, "w4")
    for innocent in ("early", "late"):
        last.begin(innocent, revision=1)
        assert [kill.worker for kill in _start(stage, innocent).kills] == ["w1", "w2"]
    with pytest.raises(Fatal) as caught:
        last.begin("guilty", revision=1)
    assert caught.value.code == "MR-4015"


def test_passed_trial_clears_the_task_and_counts_again(stage: Stage) -> None:
    """The next end of the process counts against all its tasks, the cleared one has no earlier kill."""
    for name in ("w1", "w2"):
        _process(stage, name).begin("t", revision=1)
    process = _process(stage, "w3")
    process.begin("other", revision=1)
    process.begin_trial("t")
    process.begin("t", revision=1)
    assert not _start(stage, "other").counts
    process.end_trial(is_cleared=True)
    assert (_start(stage, "other").counts, _start(stage, "t").kills) == (True, ())
    _process(stage, "w4").begin("t", revision=1)
    assert [kill.worker for kill in _start(stage, "t").kills] == ["w3"]


def test_suspect_tasks_start_one_at_a_time(stage: Stage) -> None:
    """If the process dies then, there is one suspect; other tasks are not delayed."""
    runner = ScriptedRunner()
    names = ("first", "second")
    for name in names:
        stage.store.create_task(a_capture(name))
        _killed(stage, name, KILLS_MAX - 1)
    stage.store.create_task(a_capture("other"))
    stage.worker(runner)
    stage.scheduler()
    for name in ("first", "other"):
        stage.reaches(name, TaskState.RUNNING)
    assert runner.epochs("second") == []
    stage.store.pause("first", by="ann")
    stage.reaches("second", TaskState.RUNNING)
    assert stage.report("first").state is TaskState.PAUSED


def test_task_that_outlives_its_killed_runs_is_cleared(stage: Stage) -> None:
    """Its trial is over, and the next suspect starts."""
    names = ("first", "second")
    for name in names:
        stage.store.create_task(a_capture(name))
        _killed(stage, name, KILLS_MAX - 1)
    stage.scheduler()
    pace = replace(QUICK, steady_s=0.2)
    with supervised(stage.new_session(), stage.tree, ScriptedRunner(), pace=pace):
        for name in names:
            stage.reaches(name, TaskState.RUNNING)
            revision = stage.store.task_entry(name).revision
            eventually(lambda: not _start(stage, name, revision=revision).kills)  # noqa: B023
    assert [stage.session.get(stage.tree.starts(name)) for name in names] == [None, None]
