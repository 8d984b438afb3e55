"""The ensemble stops, returns, or ends a session: tasks continue, epochs rise, and runs never overlap."""

import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from millrace.deploy.servers import ZooKeeperServer
from millrace.errors import Retryable
from millrace.schemas.documents import Work
from millrace.schemas.status import TaskState
from millrace.zk.client.session import Session, SessionState
from millrace.zk.ensemble import Ensemble
from millrace.zk.lease.epoch import raise_generation
from millrace.zk.run.runner import HeldLease
from millrace.zk.tree.store import Store
from millrace.zk.view import read_cluster, views
from tests.kit.control.control import (
    BRIEF_S,
    ScriptedRunner,
    Ticking,
    a_capture,
    a_set,
    is_in_state,
    scheduled,
    supervised,
)
from tests.kit.control.process import launched
from tests.kit.waiting import eventually

pytestmark = pytest.mark.usefixtures("new_zookeeper")


def _seen_running(session: Session, ensemble: Ensemble) -> bool:
    try:
        found = views(read_cluster(session, ensemble.tree))
    except Retryable:
        return False
    return [view.report.state for view in found] == [TaskState.RUNNING]


@pytest.mark.guarantee("outages")
def test_tasks_run_degraded_while_the_ensemble_is_down(
    session: Session, ensemble: Ensemble, new_zookeeper: ZooKeeperServer
) -> None:
    """Killed and restarted within the session timeout: no runner is disturbed, and the log reports both changes."""
    ticking = Ticking()
    runner = ScriptedRunner(ticking)
    with (
        capture_logs() as logged,
        ensemble.session() as own,
        ensemble.session() as of_scheduler,
        supervised(own, ensemble.tree, runner) as supervisor,
        scheduled(of_scheduler, ensemble.tree),
    ):

        def logged_states() -> list[tuple[object, ...]]:
            return [
                (line["event"], line["task"], line.get("code"), line.get("epoch"))
                for line in tuple(logged)
                if line["event"] in ("task degraded", "task running")
            ]

        eventually(lambda: _seen_running(session, ensemble))
        (epoch,) = runner.epochs("shop-capture")
        runs = ("task running", "shop-capture", None, epoch)
        eventually(lambda: logged_states() == [runs], what="the task is logged as running")
        new_zookeeper.kill()
        eventually(lambda: is_in_state(supervisor, TaskState.DEGRADED))
        assert supervisor.reports()["shop-capture"].code == "MR-4001"
        ticking.wait_for_more()
        new_zookeeper.start()
        eventually(lambda: is_in_state(supervisor, TaskState.RUNNING))
        eventually(lambda: _seen_running(session, ensemble))
        assert len(runner.starts) == 1
        degraded = ("task degraded", "shop-capture", "MR-4001", None)
        eventually(lambda: logged_states() == [runs, degraded, runs], what="logged once each")


def test_task_failing_while_the_ensemble_is_down_restarts_later(
    session: Session, ensemble: Ensemble, new_zookeeper: ZooKeeperServer
) -> None:
    """The task reports that it waits for its lease, and runs under a greater epoch when the ensemble is back."""
    fail = threading.Event()

    def script(_task: Work, _lease: HeldLease, stop: threading.Event) -> None:
        while not stop.wait(0.01):
            if fail.is_set():
                fail.clear()
                raise Retryable("MR-4010", "the broker went too")

    runner = ScriptedRunner(script)
    with (
        ensemble.session() as own,
        ensemble.session() as of_scheduler,
        supervised(own, ensemble.tree, runner) as supervisor,
        scheduled(of_scheduler, ensemble.tree),
    ):
        eventually(lambda: _seen_running(session, ensemble))
        new_zookeeper.kill()
        eventually(lambda: own.state is not SessionState.CONNECTED)
        fail.set()
        eventually(lambda: "waits for its lease" in supervisor.reports()["shop-capture"].why)
        assert is_in_state(supervisor, TaskState.DEGRADED)
        new_zookeeper.start()
        eventually(lambda: len(runner.starts) == 2)
        first, second = runner.epochs("shop-capture")
        assert second > first
        eventually(lambda: _seen_running(session, ensemble))


def test_frozen_ensemble_never_leads_to_two_owners(
    session: Session, ensemble: Ensemble, new_zookeeper: ZooKeeperServer
) -> None:
    """Frozen for longer than every session timeout: the task then continues, or has ended and restarted under a greater
    epoch, depending on which request the ensemble handles first; never both."""
    runner = ScriptedRunner()
    brief = replace(ensemble, session_timeout_s=BRIEF_S)
    with (
        brief.session() as own,
        brief.session() as of_scheduler,
        supervised(own, ensemble.tree, runner) as supervisor,
        scheduled(of_scheduler, ensemble.tree),
    ):
        eventually(lambda: _seen_running(session, ensemble))
        before = list(runner.ends)
        frozen_at_s = time.monotonic()
        new_zookeeper.pause()
        eventually(lambda: is_in_state(supervisor, TaskState.DEGRADED))
        eventually(lambda: time.monotonic() - frozen_at_s > 1.2 * BRIEF_S)
        assert runner.ends == before
        new_zookeeper.resume()

        def only_the_last_run_is_left() -> bool:
            """An older status may still report a run that is about to end."""
            ended = [epoch for _, epoch in runner.ends]
            return ended == runner.epochs("shop-capture")[:-1] and _seen_running(session, ensemble)

        eventually(only_the_last_run_is_left)
        assert runner.overlaps == []
        epochs = runner.epochs("shop-capture")
        assert epochs == sorted(set(epochs))


@pytest.mark.chaos
def test_workers_and_schedulers_join_a_rebuilt_ensemble(
    session: Session, ensemble: Ensemble, new_zookeeper: ZooKeeperServer
) -> None:
    """The ensemble lost all data: workers and schedulers end tasks that no longer exist and serve the new tree. Its
    epochs are smaller: see `test_older_epoch_never_wins_after_ensemble_data_loss`."""
    runner = ScriptedRunner()
    raise_generation(session, ensemble.tree)
    brief = replace(ensemble, session_timeout_s=BRIEF_S)
    with (
        brief.session() as own,
        brief.session() as of_scheduler,
        supervised(own, ensemble.tree, runner) as supervisor,
        scheduled(of_scheduler, ensemble.tree),
    ):
        eventually(lambda: _seen_running(session, ensemble))
        first, ends = runner.epochs("shop-capture")[-1], list(runner.ends)
        new_zookeeper.lose_everything()
        incarnation = own.incarnation
        assert runner.ends == ends
        new_zookeeper.start()
        eventually(lambda: own.incarnation > incarnation and supervisor.reports() == {})
        with ensemble.session() as fresh:
            store = Store(fresh, ensemble.tree)
            store.create_set(a_set())
            store.create_task(a_capture())
            eventually(lambda: _seen_running(fresh, ensemble))
        assert runner.ends[len(ends)] == ("shop-capture", first)
        assert runner.epochs("shop-capture")[-1] < first


def test_worker_started_without_an_ensemble_waits_for_it(
    ensemble: Ensemble, new_zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    """The worker retries until the ensemble runs; a signal ends it while it waits."""
    new_zookeeper.kill()
    with (
        launched(ensemble, "worker", name="w1", folder=tmp_path) as worker,
        launched(ensemble, "worker", name="w2", folder=tmp_path) as impatient,
    ):
        eventually(lambda: "waits for ZooKeeper" in (tmp_path / "w2.log").read_text())
        impatient.send(signal.SIGTERM)
        assert impatient.process.wait(timeout=120) == 0
        new_zookeeper.start()
        with ensemble.session() as session:
            store = Store(session, ensemble.tree)
            store.create_set(a_set())
            store.create_task(a_capture())
            with scheduled(session, ensemble.tree):
                eventually(lambda: len(worker.epochs("shop-capture")) == 1)
