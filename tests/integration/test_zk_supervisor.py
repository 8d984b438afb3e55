"""Scheduler and workers together on a real ZooKeeper, with runners that move no rows."""

import threading
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import NoReturn

import pytest

from millrace.errors import Fatal, Fenced, Retryable
from millrace.metrics import PROCESS
from millrace.schemas.documents import Brokers, RelayTask, TaskKind, Work, address_of
from millrace.schemas.stages import Applied
from millrace.schemas.status import TaskState
from millrace.zk.lease.lease import Lease
from millrace.zk.run.runner import HeldLease, Report
from millrace.zk.run.slot import Slot
from millrace.zk.tree.reports import read_status
from millrace.zk.view import read_cluster
from tests.kit.control.control import (
    QUICK,
    ScriptedRunner,
    a_capture,
    a_set,
    an_apply,
    is_in_state,
    supervised,
)
from tests.kit.control.stage import Stage
from tests.kit.faults.starved import no_thread_left
from tests.kit.waiting import eventually


def test_task_waits_with_a_reason_until_it_runs(stage: Stage) -> None:
    """The status names each missing part, worker and scheduler; then the task runs and shows its runner's report."""
    stage.store.create_task(a_capture())
    assert (
        stage.report("shop-capture").why
        == "no capture worker is running; no scheduler is running either"
    )
    runner = ScriptedRunner()
    stage.worker(runner)
    stage.reaches("shop-capture", TaskState.PENDING, "no scheduler is running")
    stage.scheduler()
    stage.reaches("shop-capture", TaskState.RUNNING)
    report = stage.report("shop-capture")
    assert (report.worker, report.gtid_set, report.seq) == ("w1", "0-1-7", 7)
    assert report.why == "waits for changes"
    assert runner.epochs("shop-capture") == [report.epoch]


def test_task_runs_only_on_a_worker_of_its_kind(stage: Stage) -> None:
    """An apply task does not go to a capture worker."""
    captures, applies = ScriptedRunner(), ScriptedRunner()
    stage.scheduler()
    stage.worker(captures)
    stage.store.create_task(an_apply())
    stage.store.create_task(a_capture())
    stage.reaches("shop-capture", TaskState.RUNNING)
    stage.reaches("shop-apply", TaskState.PENDING, "no apply worker")
    stage.worker(applies, "a1", TaskKind.APPLY)
    stage.reaches("shop-apply", TaskState.RUNNING)
    assert [name for name, _ in captures.starts] == ["shop-capture"]


def test_pause_joins_the_runner_and_resume_raises_the_epoch(stage: Stage) -> None:
    """The status names the operator and keeps the progress; the lease is free meanwhile."""
    runner = ScriptedRunner()
    stage.scheduler()
    stage.worker(runner)
    stage.store.create_task(a_capture())
    stage.reaches("shop-capture", TaskState.RUNNING)
    stage.pause("shop-capture")
    assert runner.alive == set()
    stage.reaches("shop-capture", TaskState.PAUSED, "paused by ann")
    assert stage.report("shop-capture").gtid_set == "0-1-7"
    stage.store.resume("shop-capture")
    stage.reaches("shop-capture", TaskState.RUNNING)
    first, second = runner.epochs("shop-capture")
    assert second > first


def test_changed_document_restarts_the_task_but_resume_does_not(stage: Stage) -> None:
    """The runner gets the new document under a new epoch; runs never overlap."""
    seen: list[Work] = []

    def script(task: Work, _lease: HeldLease, stop: threading.Event) -> None:
        seen.append(task)
        stop.wait()

    runner = ScriptedRunner(script)
    stage.scheduler()
    stage.worker(runner)
    stage.store.create_task(a_capture())
    stage.reaches("shop-capture", TaskState.RUNNING)
    stage.store.resume("shop-capture")
    stage.store.create_task(a_capture(topic="elsewhere"), replace=True)
    eventually(lambda: len(seen) == 2)
    assert seen == [a_capture(), a_capture(topic="elsewhere")]
    assert runner.overlaps == []
    stage.store.create_set(a_set(), replace=True)


def test_retryable_error_degrades_with_code_and_next_try(stage: Stage) -> None:
    """The status has the error and the next try; each try has a greater epoch; then the task runs."""
    is_back, runs_again = threading.Event(), threading.Event()

    def script(_task: Work, _lease: HeldLease, stop: threading.Event) -> None:
        if not is_back.is_set():
            raise Retryable("MR-4001", "the source is away")
        runs_again.set()
        stop.wait()

    runner = ScriptedRunner(script, applied=Applied(lag_s=0.0, commit_ms=7))
    stage.scheduler()
    stage.worker(runner)
    stage.store.create_task(a_capture())
    report = stage.reaches("shop-capture", TaskState.DEGRADED, "the source is away")
    assert report.applied == Applied(commit_ms=7), "its lag is no longer known"
    assert (report.code, report.next_try_s > 0, bool(report.fix)) == ("MR-4001", True, True)
    assert report.gtid_set == "0-1-7"
    eventually(lambda: len(runner.starts) >= 3, what="three tries")
    is_back.set()
    assert runs_again.wait(60)
    stage.reaches("shop-capture", TaskState.RUNNING)
    epochs = runner.epochs("shop-capture")
    assert epochs == sorted(set(epochs))


def test_refused_runner_thread_degrades_the_task_until_it_starts(stage: Stage) -> None:
    """Other processes will free threads again, so no operator has to act."""
    has_some = threading.Event()

    def script(_task: Work, _lease: HeldLease, stop: threading.Event) -> None:
        with ExitStack() as starved:
            if not has_some.is_set():
                starved.enter_context(no_thread_left())
            threading.Thread(target=stop.wait, name="of a task").start()
        stop.wait()

    stage.scheduler()
    stage.worker(ScriptedRunner(script))
    stage.store.create_task(a_capture())
    report = stage.reaches("shop-capture", TaskState.DEGRADED, "can't start new thread")
    assert (report.code, report.next_try_s > 0) == ("MR-4014", True)
    has_some.set()
    stage.reaches("shop-capture", TaskState.RUNNING)


@pytest.mark.parametrize(
    ("error", "state", "code"),
    [
        (MemoryError(), TaskState.DEGRADED, "MR-4014"),
        (KeyError("x"), TaskState.BLOCKED, "MR-9001"),
    ],
    ids=repr,
)
def test_unexpected_error_while_taking_a_lease_is_reported(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, error: Exception, state: TaskState, code: str
) -> None:
    """The error reaches the status; without this, the dead thread was replaced every second and no state showed it."""

    def fail(*_: object, **__: object) -> NoReturn:
        raise error

    monkeypatch.setattr("millrace.zk.run.slot.acquire", fail)
    stage.scheduler()
    with supervised(stage.new_session(), stage.tree, ScriptedRunner()) as supervisor:
        stage.store.create_task(a_capture())
        eventually(lambda: is_in_state(supervisor, state))
        assert supervisor.reports()["shop-capture"].code == code


def test_task_starts_as_soon_as_a_thread_is_available(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker continues with its other tasks meanwhile."""
    start, refused = Slot.start, threading.Event()

    def start_starved(slot: Slot) -> None:
        with ExitStack() as starved:
            if slot.task.entry.document.name == "shop-capture" and not refused.is_set():
                refused.set()
                starved.enter_context(no_thread_left())
            start(slot)

    monkeypatch.setattr(Slot, "start", start_starved)
    stage.scheduler()
    stage.worker(ScriptedRunner())
    stage.store.create_task(a_capture())
    stage.store.create_task(a_capture("shop-too"))
    stage.reaches("shop-too", TaskState.RUNNING)
    stage.reaches("shop-capture", TaskState.RUNNING)
    assert refused.is_set()


@pytest.mark.parametrize("error", [Fatal("MR-1031", "it was purged"), KeyError("x")], ids=repr)
def test_fatal_error_blocks_until_an_operator_acts(stage: Stage, error: Exception) -> None:
    """Also for unexpected errors; a worker that takes the task over does not try it."""
    broken = threading.Event()
    broken.set()

    def script(task: Work, _lease: HeldLease, stop: threading.Event) -> None:
        if broken.is_set() and task.name == "shop-capture":
            raise error
        stop.wait()

    first, second = ScriptedRunner(script), ScriptedRunner(script)
    stage.scheduler()
    stage.store.create_task(a_capture())
    with supervised(stage.new_session(), stage.tree, first, name="w1"):
        stage.reaches("shop-capture", TaskState.BLOCKED)
        assert stage.report("shop-capture").code in ("MR-1031", "MR-9001")
        assert stage.report("shop-capture").fix
        stage.session.delete(stage.tree.worker("w1"), version=-1)
        stage.worker(second, "w2")
        eventually(
            lambda: read_cluster(stage.session, stage.tree).assigned == {"shop-capture": "w2"}
        )
    stage.store.create_set(a_set("crm"))
    stage.store.create_task(a_capture("taken-after-it", of="crm"))
    stage.reaches("taken-after-it", TaskState.RUNNING)
    stage.reaches("shop-capture", TaskState.BLOCKED)
    assert [name for name, _ in second.starts] == ["taken-after-it"]
    broken.clear()
    stage.store.resume("shop-capture")
    stage.reaches("shop-capture", TaskState.RUNNING)
    assert len(first.starts) == 1


def test_block_is_reported_before_the_lease_is_released(stage: Stage) -> None:
    """Otherwise the next owner would try the broken task, so this report does not wait for its interval."""

    def script(_task: Work, _lease: HeldLease, _stop: threading.Event) -> None:
        eventually(lambda: stage.report("shop-capture").state is TaskState.RUNNING)
        raise Fatal("MR-5010", "a row is not there", key="7", seq=9, gtid="0-1-9")

    stage.scheduler()
    session, runner = stage.new_session(), ScriptedRunner(script)
    with supervised(session, stage.tree, runner, pace=replace(QUICK, report_s=3.0)):
        stage.store.create_task(a_capture())
        eventually(lambda: runner.ends)
        eventually(lambda: stage.session.get(stage.tree.owner("shop-capture")) is None)
        assert stage.report("shop-capture").state is TaskState.BLOCKED
        assert stage.report("shop-capture").why == "a row is not there (key=7, seq=9, gtid=0-1-9)"


def test_task_fenced_repeatedly_under_its_lease_is_blocked(stage: Stage) -> None:
    """A rebuilt ensemble hands out epochs that topic and target refuse; the fix is named."""

    def script(_task: Work, _lease: HeldLease, _stop: threading.Event) -> None:
        raise Fenced("MR-4003", "the topic names a greater epoch")

    runner = ScriptedRunner(script)
    fenced = PROCESS.get_sample_value("millrace_fenced_total") or 0
    stage.scheduler()
    stage.worker(runner)
    stage.store.create_task(a_capture())
    stage.reaches("shop-capture", TaskState.BLOCKED, "fenced 5 times in a row")
    assert PROCESS.get_sample_value("millrace_fenced_total") == fenced + 5
    assert stage.report("shop-capture").code == "MR-4006"
    assert "raise-generation" in stage.report("shop-capture").fix
    assert len(runner.starts) == 5


def test_runner_that_returns_unasked_is_restarted(stage: Stage) -> None:
    """An unrequested end is reported with its code and not taken for a stop."""
    lasts = threading.Event()

    def script(_task: Work, _lease: HeldLease, stop: threading.Event) -> None:
        if lasts.is_set():
            stop.wait()

    runner = ScriptedRunner(script)
    stage.scheduler()
    stage.worker(runner)
    stage.store.create_task(a_capture())
    eventually(lambda: stage.report("shop-capture").code == "MR-4010")
    lasts.set()
    stage.reaches("shop-capture", TaskState.RUNNING)
    assert len(runner.starts) >= 2


def test_deleted_task_stops_and_leaves_nothing(stage: Stage) -> None:
    """Owner, assignment and status are removed."""
    runner = ScriptedRunner()
    stage.scheduler()
    stage.worker(runner)
    stage.store.create_task(a_capture())
    stage.reaches("shop-capture", TaskState.RUNNING)
    stage.store.delete("shop-capture")
    folders = [stage.tree.folder(name) for name in ("owners", "assignments", "status")]
    eventually(lambda: not any(stage.session.children(folder) for folder in folders))
    assert runner.alive == set()


def test_unreadable_document_leaves_the_running_task_alone(stage: Stage) -> None:
    """The last good document stays in use, the error is shown, and a new good document is accepted."""
    runner = ScriptedRunner()
    stage.scheduler()
    stage.worker(runner)
    stage.store.create_task(a_capture())
    stage.reaches("shop-capture", TaskState.RUNNING)
    stage.session.put(stage.tree.task("shop-capture"), b'{"format":1,"document":{}}', version=0)
    stage.reaches("shop-capture", TaskState.DEGRADED, "still runs its last good document")
    assert stage.report("shop-capture").code == "MR-4101"
    assert runner.alive == {"shop-capture"}
    stage.store.create_task(a_capture(), replace=True)
    stage.reaches("shop-capture", TaskState.RUNNING)
    assert len(runner.starts) == 1


def test_capture_tasks_of_a_set_share_a_worker(stage: Stage) -> None:
    """With two sets and two workers, each worker gets one whole set."""
    stage.store.create_set(a_set("crm"))
    for name, of in (("s1", "shop"), ("s2", "shop"), ("c1", "crm"), ("c2", "crm")):
        stage.store.create_task(a_capture(name, of=of))
    runners = ScriptedRunner(), ScriptedRunner()
    stage.worker(runners[0], "w1")
    stage.worker(runners[1], "w2")
    eventually(lambda: len(stage.session.children(stage.tree.folder("workers"))) == 2)
    stage.scheduler()
    eventually(
        lambda: sorted(map(sorted, (r.alive for r in runners))) == [["c1", "c2"], ["s1", "s2"]]
    )
    assert all(len(runner.starts) == 2 for runner in runners)


def test_task_moves_only_after_its_runner_was_joined(stage: Stage) -> None:
    """The successor waits for a slow stop; the two never run at once."""
    may_end = threading.Event()

    def slow(_task: Work, _lease: HeldLease, stop: threading.Event) -> None:
        stop.wait()
        may_end.wait(60)

    first, second = ScriptedRunner(slow), ScriptedRunner()
    stage.scheduler()
    stage.worker(first, "w1")
    stage.store.create_task(a_capture())
    stage.reaches("shop-capture", TaskState.RUNNING)
    stage.worker(second, "w2")
    stage.session.delete(stage.tree.worker("w1"), version=-1)
    stage.reaches("shop-capture", TaskState.ASSIGNED, "moving from w1 to w2")
    assert second.starts == []
    may_end.set()
    stage.reaches("shop-capture", TaskState.RUNNING)
    assert second.epochs("shop-capture")[0] > first.epochs("shop-capture")[0]


def test_two_workers_with_one_name_never_both_register(stage: Stage) -> None:
    """The second worker waits, and takes over when the first is gone."""
    first, second = ScriptedRunner(), ScriptedRunner()
    stage.scheduler()
    stage.store.create_task(a_capture())
    with supervised(session := stage.new_session(), stage.tree, first, name="w1"):
        stage.reaches("shop-capture", TaskState.RUNNING)
        stage.worker(second, "w1")
    session.close()
    eventually(lambda: len(second.starts) == 1)
    assert len(first.starts) == 1


@pytest.mark.parametrize("how", ["created again", "replaced"])
def test_task_ignores_progress_of_other_work(stage: Stage, how: str) -> None:
    """It is not shown, not passed to the runner and not kept in reports; a resumed task keeps its own."""
    before = a_capture(topic="old")
    task = before if how == "created again" else a_capture(topic="new")
    stage.store.create_task(before)
    with supervised(session := stage.new_session(), stage.tree, ScriptedRunner()):
        stage.session.create(stage.tree.assignment(before.name), b'{"format":1,"worker":"w1"}')
        stage.reaches(before.name, TaskState.RUNNING)
        stage.pause(before.name)
        stage.reaches(before.name, TaskState.PAUSED, "paused by ann")
    session.close()
    stage.store.resume(before.name)
    remembered = stage.store.last_report(before)
    assert remembered is not None
    assert (remembered.gtid_set, stage.report(before.name).gtid_set) == ("0-1-7", "0-1-7")
    assert stage.store.positions_of(before.set_name) == {before.name: "0-1-7"}
    if how == "created again":
        stage.store.delete(before.name)
    stage.store.create_task(task, replace=True)
    assert stage.store.last_report(task) is None
    assert stage.report(task.name).gtid_set == ""
    with supervised(stage.new_session(), stage.tree, Reaching()):
        stage.reaches(task.name, TaskState.DEGRADED, "is away")
        assert stage.report(task.name).gtid_set == ""
        standing = read_status(stage.session, stage.tree, task.name)
        assert standing is not None
        assert standing.report.gtid_set == ""


def test_recreated_task_inherits_no_progress_from_its_ending_predecessor(stage: Stage) -> None:
    """The pause is reported by the predecessor's worker, and its report would become the new task's."""
    asked, may_end = threading.Event(), threading.Event()

    def slow(_task: Work, _lease: HeldLease, stop: threading.Event) -> None:
        stop.wait()
        asked.set()
        may_end.wait()

    task = a_capture()
    stage.store.create_task(task)
    with supervised(stage.new_session(), stage.tree, ScriptedRunner(slow)) as supervisor:
        stage.session.create(stage.tree.assignment(task.name), b'{"format":1,"worker":"w1"}')
        stage.reaches(task.name, TaskState.RUNNING)
        try:
            stage.store.delete(task.name)
            stage.store.create_task(task)
            stage.store.pause(task.name, by="ann")
            assert asked.wait(60)
        finally:
            may_end.set()
        eventually(lambda: task.name not in supervisor.reports(), what="the predecessor is dropped")
        assert stage.store.last_report(task) is None
        assert stage.report(task.name).gtid_set == ""


def test_progress_at_other_brokers_is_kept_but_not_shown(stage: Stage) -> None:
    """A wait would take it for the new brokers' topic; the memory of the topic's end is kept for any address."""
    before = a_capture()
    name, here = before.name, before.output.brokers.bootstrap
    both, there = (
        replace(before, output=replace(before.output, brokers=Brokers(bootstrap)))
        for bootstrap in (f"127.0.0.1:9192,{here}", "127.0.0.1:9192")
    )
    runner = Reaching(reached=here)
    stage.worker(runner)
    stage.session.create(stage.tree.assignment(name), b'{"format":1,"worker":"w1"}')
    stage.store.create_task(before)
    stage.reaches(name, TaskState.RUNNING)
    runner.reached = ""
    for task, shown in ((both, "0-1-7"), (there, "")):
        stage.store.create_task(task, replace=True)
        stage.reaches(name, TaskState.DEGRADED, f"{task.output.brokers} is away")
        assert stage.report(name).gtid_set == shown
        remembered = stage.store.last_report(task)
        assert remembered is not None
        assert remembered.gtid_set == "0-1-7"
    runner.reached = there.output.brokers.bootstrap
    stage.reaches(name, TaskState.RUNNING)
    assert stage.report(name).gtid_set == "0-1-7"


@dataclass
class Reaching(ScriptedRunner):
    """Reports nothing until it has reached its brokers."""

    reached: str = ""

    def run(self, task: Work, *, lease: HeldLease, stop: threading.Event, report: Report) -> None:
        """Run the script if the brokers answer."""
        assert not isinstance(task, RelayTask), "only tasks with brokers are run here"
        brokers = address_of(task).brokers.bootstrap
        if brokers != self.reached:
            raise Retryable("MR-3501", f"{brokers} is away")
        super().run(task, lease=lease, stop=stop, report=report)


@pytest.mark.parametrize("where", ["its release", "the generation's reading"])
def test_failed_lease_release_is_retried_later(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """The session is alive, so no other process may remove the lease; a pause, move or deletion would wait forever."""

    def away(*_arguments: object, **_named: object) -> NoReturn:
        raise Retryable("MR-4001", "ZooKeeper is away")

    stage.scheduler()
    stage.worker(ScriptedRunner())
    owner = stage.tree.owner("shop-capture")
    if where == "its release":
        stage.store.create_task(a_capture())
        stage.reaches("shop-capture", TaskState.RUNNING)
        monkeypatch.setattr(Lease, "release", away)
    else:
        monkeypatch.setattr("millrace.zk.lease.lease.generation_of", away)
        stage.store.create_task(a_capture())
        eventually(lambda: stage.session.get(owner) is not None)
    stage.store.pause("shop-capture", by="ann")
    eventually(lambda: stage.session.get(owner) is None)
    monkeypatch.undo()
    stage.store.resume("shop-capture")
    stage.reaches("shop-capture", TaskState.RUNNING)
