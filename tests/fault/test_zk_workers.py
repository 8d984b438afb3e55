"""Workers and schedulers, as separate processes on a real ZooKeeper, that die, freeze or stop."""

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from millrace.faults import registered
from millrace.zk.client.session import Session
from millrace.zk.ensemble import Ensemble
from millrace.zk.tree.store import Store
from millrace.zk.view import read_cluster, views
from tests.kit.control.control import a_capture, a_set, end_session_at, scheduled
from tests.kit.control.process import ControlProcess, launched
from tests.kit.waiting import eventually

SHORT_S = "4"  # for a session that may end at any time, so a busy machine does no harm
POINTS = [name for name in registered() if name.startswith("zk.")]

Launch = Callable[..., ControlProcess]


@pytest.fixture
def session(ensemble: Ensemble) -> Iterator[Session]:
    """The test's own session."""
    with ensemble.session() as session:
        yield session


@pytest.fixture
def launch(ensemble: Ensemble, tmp_path: Path) -> Iterator[Launch]:
    """Starts processes that end with the test."""
    with ExitStack() as stack:

        def start(what: str, name: str, **environment: str) -> ControlProcess:
            process: AbstractContextManager[ControlProcess] = launched(
                ensemble, what, name=name, folder=tmp_path, environment=environment
            )
            return stack.enter_context(process)

        yield start


def _tasks(session: Session, ensemble: Ensemble, count: int) -> Store:
    """Tasks t0, t1, …, each with its own set, so that each is placed separately."""
    store = Store(session, ensemble.tree)
    for number in range(count):
        store.create_set(a_set(f"s{number}"))
        store.create_task(a_capture(f"t{number}", of=f"s{number}"))
    return store


def _states(session: Session, ensemble: Ensemble) -> dict[str, str]:
    return {v.name: v.report.state.value for v in views(read_cluster(session, ensemble.tree))}


def _run(session: Session, ensemble: Ensemble, count: int) -> Callable[[], bool]:
    return lambda: list(_states(session, ensemble).values()) == ["running"] * count


def _workers(session: Session, ensemble: Ensemble) -> int:
    return len(session.children(ensemble.tree.folder("workers")))


@pytest.mark.guarantee("outages")
def test_only_tasks_of_a_killed_worker_move(
    session: Session, ensemble: Ensemble, launch: Launch
) -> None:
    """After kill -9 and the end of its session the tasks run elsewhere under greater epochs."""
    workers = [launch("worker", name) for name in ("w1", "w2", "w3")]
    eventually(lambda: _workers(session, ensemble) == 3)
    _tasks(session, ensemble, 6)
    with scheduled(session, ensemble.tree):
        eventually(_run(session, ensemble, 6))
        before = [list(worker.lines()) for worker in workers]
        assert [len(lines) for lines in before] == [2, 2, 2]
        lost = {line.split()[1]: int(line.split()[2]) for line in before[0]}
        workers[0].send(signal.SIGKILL)
        end_session_at(ensemble, session, ensemble.tree.worker("w1"))
        eventually(lambda: all(len(worker.lines()) == 3 for worker in workers[1:]))
        eventually(_run(session, ensemble, 6))
    for worker, lines in zip(workers[1:], before[1:], strict=True):
        assert worker.lines()[:2] == lines
        _, task, epoch = worker.lines()[2].split()
        assert int(epoch) > lost.pop(task)
    assert lost == {}


@pytest.mark.guarantee("outages")
def test_task_that_kills_three_processes_is_held_alone(
    session: Session, ensemble: Ensemble, launch: Launch
) -> None:
    """Three neighbors share the first two processes with it. They are tried one by one and run in the end."""
    _tasks(session, ensemble, 4)
    deaths = 0
    with scheduled(session, ensemble.tree):
        while True:
            name = f"w{deaths}"
            worker = launch("worker", name, MILLRACE_TEST_KILLER="t1", MILLRACE_KILLS_MAX="3")
            wanted = {"t0": "running", "t1": "blocked", "t2": "running", "t3": "running"}
            eventually(lambda: not worker.is_alive() or _states(session, ensemble) == wanted)  # noqa: B023
            if worker.is_alive():
                break
            deaths += 1
            end_session_at(ensemble, session, ensemble.tree.worker(name))
    assert deaths == 3
    found = {v.name: v.report for v in views(read_cluster(session, ensemble.tree))}
    assert found["t1"].code == "MR-4015"
    assert "ended under it 3 times" in found["t1"].why


def test_frozen_worker_is_replaced_and_stops_when_resumed(
    session: Session, ensemble: Ensemble, launch: Launch
) -> None:
    """SIGSTOP past the end of its session: the successor has a greater epoch. After SIGCONT the old worker joins its
    runner, does not start it again, and does not disturb the successor."""
    store = _tasks(session, ensemble, 1)
    old = launch("worker", "w1")
    with scheduled(session, ensemble.tree):
        eventually(lambda: len(old.lines()) == 1)
        new = launch("worker", "w2")
        eventually(lambda: _workers(session, ensemble) == 2)
        old.send(signal.SIGSTOP)
        eventually(old.is_stopped)
        end_session_at(ensemble, session, ensemble.tree.worker("w1"))
        eventually(lambda: len(new.lines()) == 1)
        assert new.epochs("t0")[0] > old.epochs("t0")[0]
        old.send(signal.SIGCONT)
        eventually(lambda: old.lines()[-1] == f"end t0 {old.epochs('t0')[0]}")
        # it is a worker again and gets other tasks, but not this one
        eventually(lambda: _workers(session, ensemble) == 2)
        store.create_set(a_set("s1"))
        store.create_task(a_capture("t1", of="s1"))
        eventually(lambda: len(old.epochs("t1")) == 1)
        eventually(_run(session, ensemble, 2))
    assert len(old.epochs("t0")) == 1
    assert new.lines() == [f"start t0 {new.epochs('t0')[0]}"]


def test_worker_frozen_past_its_session_timeout_is_replaced(
    session: Session, ensemble: Ensemble, launch: Launch
) -> None:
    """The ensemble ends its session by timeout. After SIGCONT the old worker joins its runner, registers in a new
    session, and neither starts the task nor disturbs its successor."""
    tree = ensemble.tree
    _tasks(session, ensemble, 1)
    old = launch("worker", "w1", MILLRACE_ZOOKEEPER_TIMEOUT_S=SHORT_S)
    with scheduled(session, tree):
        eventually(lambda: old.epochs("t0"))
        old.send(signal.SIGSTOP)
        eventually(old.is_stopped)
        started = old.epochs("t0")
        new = launch("worker", "w2")
        eventually(lambda: session.get(tree.worker("w1")) is None)
        eventually(lambda: new.epochs("t0"))
        owner = session.get(tree.owner("t0"))
        assert new.epochs("t0")[0] > started[-1]
        old.send(signal.SIGCONT)
        eventually(lambda: old.lines()[-1] == f"end t0 {started[-1]}")
        eventually(lambda: session.get(tree.worker("w1")) is not None)
        assert old.end() == 0
        eventually(_run(session, ensemble, 1))
        assert session.get(tree.owner("t0")) == owner
    assert old.epochs("t0") == started
    assert new.lines() == [f"start t0 {new.epochs('t0')[0]}"]


def test_stopped_worker_releases_its_tasks_at_once(
    session: Session, ensemble: Ensemble, launch: Launch
) -> None:
    """SIGTERM: the worker joins its runners, exits with 0, and leaves no node in the tree."""
    _tasks(session, ensemble, 2)
    worker = launch("worker", "w1")
    with scheduled(session, ensemble.tree):
        eventually(_run(session, ensemble, 2))
        assert worker.end() == 0
        assert session.children(ensemble.tree.folder("owners")) == ()
        assert _workers(session, ensemble) == 0
    verbs = [line.split()[0] for line in worker.lines()]
    assert verbs == ["start", "start", "end", "end"]


def test_stuck_task_keeps_its_lease_until_the_process_ends(
    session: Session, ensemble: Ensemble, launch: Launch
) -> None:
    """The process exits with its own code; the ensemble releases the lease when the session is over."""
    _tasks(session, ensemble, 1)
    worker = launch("worker", "w1", MILLRACE_TEST_STUCK="1")
    with scheduled(session, ensemble.tree):
        eventually(_run(session, ensemble, 1))
        assert worker.end() == 70
        assert session.children(ensemble.tree.folder("owners")) == ("t0",)
        end_session_at(ensemble, session, ensemble.tree.owner("t0"))
        eventually(lambda: session.children(ensemble.tree.folder("owners")) == ())


@pytest.mark.parametrize("point", POINTS)
def test_process_killed_at_a_fault_point_is_replaced(
    session: Session, ensemble: Ensemble, launch: Launch, point: str
) -> None:
    """At each fault point of control: after the kill, the next scheduler or worker gets all tasks running."""
    store = _tasks(session, ensemble, 3)
    is_scheduler = point.startswith("zk.placement.scheduler.")
    broken = {"MILLRACE_FAULT": f"{point}:kill"}
    worker = launch("worker", "w1", **({} if is_scheduler else broken))
    scheduler = launch("scheduler", "s1", **(broken if is_scheduler else {}))
    if point == "zk.run.slot.before_release":  # passed when a task ends
        eventually(lambda: len(worker.lines()) == 3)
        store.pause("t0", by="ann")
        store.resume("t0")
        store.pause("t1", by="ann")
    victim = scheduler if is_scheduler else worker
    assert victim.process.wait(timeout=120) == -signal.SIGKILL
    tree = ensemble.tree
    end_session_at(ensemble, session, tree.leader if is_scheduler else tree.worker("w1"))
    if point == "zk.run.slot.before_release":
        store.resume("t1")
    launch("scheduler" if is_scheduler else "worker", "next")
    eventually(_run(session, ensemble, 3))
    assert set(read_cluster(session, ensemble.tree).assigned.values()) == {
        "w1" if is_scheduler else "next"
    }


def test_every_control_fault_point_is_tried() -> None:
    """The list above is complete: a missing import would shorten it."""
    assert POINTS == [
        "zk.placement.scheduler.after_election",
        "zk.placement.scheduler.between_commits",
        "zk.run.slot.after_acquire",
        "zk.run.slot.before_release",
    ]
