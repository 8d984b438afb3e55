"""Ten tasks for each of many workers on a real ZooKeeper, with runners that move no rows. It counts the requests.

200 tasks in `make chaos`, fewer in `make test`. One worker is a separate process, which is killed; the others are
threads of this process.
"""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from millrace.deploy.servers import ZooKeeperServer
from millrace.schemas.documents import Work
from millrace.schemas.status import TaskReport, TaskState
from millrace.zk.client.session import Session
from millrace.zk.ensemble import Ensemble
from millrace.zk.run.backoff import Pace
from millrace.zk.run.runner import HeldLease, Report
from millrace.zk.tree.entries import Desired, task_content
from millrace.zk.tree.store import Store
from millrace.zk.view import read_cluster, read_tasks, views
from tests.kit.control.control import (
    a_capture,
    a_set,
    end_session_at,
    ensemble_of,
    scheduled,
    supervised,
)
from tests.kit.control.process import ControlProcess, launched
from tests.kit.waiting import eventually

EACH = 10  # tasks of a worker
WORKERS = [5, pytest.param(20, marks=pytest.mark.chaos)]
COUNT_S = 10.0  # two intervals of reports
SETTLED_S = 10.0
LOOK_S = 0.25  # a look reads all tasks


@dataclass
class Reporting:
    """Reports four times a second: the same, or progress while ``moves`` is set."""

    moves: threading.Event = field(default_factory=threading.Event)

    def run(self, task: Work, *, lease: HeldLease, stop: threading.Event, report: Report) -> None:
        """See the class."""
        lease.verify()
        seq = 1
        report(TaskReport(TaskState.RUNNING, gtid_set="0-1-1", seq=seq))
        while not stop.wait(0.25):
            seq += self.moves.is_set()
            report(TaskReport(TaskState.RUNNING, gtid_set=f"0-1-{seq}", seq=seq))


@dataclass(frozen=True)
class Installation:
    """The running tasks and workers."""

    server: ZooKeeperServer
    ensemble: Ensemble
    session: Session
    runner: Reporting
    doomed: ControlProcess
    task_count: int

    def runs(self) -> bool:
        """Whether every task runs on a live worker, as its worker reported."""
        cluster = read_cluster(self.session, self.ensemble.tree)
        states = [view.report.state for view in views(cluster)]
        return states == [TaskState.RUNNING] * self.task_count

    def rates(self) -> tuple[float, float]:
        """Requests and writes per second, by the ensemble's counters."""
        (requests, zxid), began_s = self.server.counters(), time.monotonic()
        threading.Event().wait(COUNT_S)
        (requests_then, zxid_then), lasted_s = self.server.counters(), time.monotonic() - began_s
        return (requests_then - requests) / lasted_s, (zxid_then - zxid) / lasted_s


@pytest.fixture(params=WORKERS)
def installation(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Installation]:
    """Each task has its own set, so each is placed separately."""
    workers: int = request.param
    with ExitStack() as stack:
        server = ZooKeeperServer(tmp_path / "zookeeper")
        stack.callback(server.kill)
        server.start()
        ensemble = ensemble_of(server.hosts)
        enter, tree, runner = stack.enter_context, ensemble.tree, Reporting()
        session = enter(ensemble.session())
        store = Store(session, tree)
        for number in range(EACH * workers):
            store.create_set(a_set(f"s{number}"))
            # not by the store, which compares each task with all others
            task = a_capture(f"t{number}", of=f"s{number}")
            session.create(tree.task(task.name), task_content(Desired(task)))
        doomed = enter(launched(ensemble, "worker", name="w0", folder=tmp_path))
        for number in range(1, workers):
            own = enter(ensemble.session())
            enter(supervised(own, tree, runner, name=f"w{number}", pace=Pace()))
        eventually(lambda: len(session.children(tree.folder("workers"))) == workers)
        enter(scheduled(enter(ensemble.session()), tree))
        made = Installation(server, ensemble, session, runner, doomed, EACH * workers)
        eventually(made.runs, every_s=LOOK_S)
        yield made


@pytest.mark.timeout(300)
def test_many_tasks_cost_few_requests_and_settle_fast(installation: Installation) -> None:
    """A report of each task every 5 s, whether it moves or not, at most twice in 5 s; ten tasks of a dead worker run
    elsewhere within 10 s after the end of its session. The session timeout comes before and is not counted."""
    one, tree = installation, installation.ensemble.tree
    at_rest = one.rates()
    one.runner.moves.set()
    moving = one.rates()
    asked = one.server.counters()[0]
    for _ in range(100):
        read_tasks(one.session, tree, ["t1", "t2"])
    read = (one.server.counters()[0] - asked) / 100  # with a few requests of the workers
    one.doomed.send(signal.SIGKILL)
    before = one.server.counters()
    end_session_at(one.ensemble, one.session, tree.worker("w0"))
    ended_s = time.monotonic()
    eventually(one.runs, every_s=LOOK_S)
    settled_s = time.monotonic() - ended_s
    requests, writes = (now - was for now, was in zip(one.server.counters(), before, strict=True))
    print(
        f"at rest {at_rest[0]:.0f} requests/s, {at_rest[1]:.0f} writes/s;"
        f" moving {moving[0]:.0f}, {moving[1]:.0f};"
        f" one dies: settled in {settled_s:.1f} s, {requests} requests, {writes} writes;"
        f" a wait reads {read:.1f} nodes"
    )
    assert settled_s < SETTLED_S
    assert at_rest[0] < 0.4 * one.task_count
    assert at_rest[1] < 0.3 * one.task_count
    assert moving[0] < 0.65 * one.task_count
    assert moving[1] < 0.5 * one.task_count
    assert read < 13
