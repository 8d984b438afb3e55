"""An ensemble of three survives the loss of any server; without a majority tasks continue as DEGRADED."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.deploy.servers import ZooKeeperEnsemble, ZooKeeperServer
from millrace.errors import Retryable
from millrace.schemas.status import TaskState
from millrace.zk.client.session import Session
from millrace.zk.ensemble import Ensemble
from millrace.zk.lease import lease
from millrace.zk.lease.epoch import COUNTER_BITS, epoch_of
from millrace.zk.tree.store import Store
from tests.kit.control.control import (
    ScriptedRunner,
    Ticking,
    a_capture,
    ensemble_of,
    is_in_state,
    scheduled,
    supervised,
)
from tests.kit.waiting import eventually

pytestmark = pytest.mark.chaos

CHANGES = 1000


@pytest.fixture
def three(tmp_path: Path) -> Iterator[ZooKeeperEnsemble]:
    """Servers for this test alone."""
    made = ZooKeeperEnsemble(tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.discard()


@pytest.fixture
def ensemble(three: ZooKeeperEnsemble) -> Ensemble:
    """The ensemble; its sessions outlive an election."""
    return ensemble_of(three.hosts)


def _leader(three: ZooKeeperEnsemble) -> ZooKeeperServer:
    """Wait for a leader; a busy server may not report its mode."""
    found: list[ZooKeeperServer] = []

    def is_found() -> bool:
        found[:] = [server for server in three.servers.values() if server.mode() == "leader"]
        return bool(found)

    eventually(is_found, what="a leader")
    return found[0]


def _create(session: Session, ensemble: Ensemble, name: str) -> bool:
    try:
        Store(session, ensemble.tree).create_task(a_capture(name))
    except Retryable:
        return False  # its server died; creating the same task again is allowed
    return True


def _kill_each_leader(session: Session, ensemble: Ensemble, three: ZooKeeperEnsemble) -> list[int]:
    """Epochs of a running task and of one task created after each leader's death; no task is disturbed."""
    runner = ScriptedRunner()
    names = ["shop-capture"]
    with (
        ensemble.session() as own,
        ensemble.session() as of_scheduler,
        supervised(own, ensemble.tree, runner),
        scheduled(of_scheduler, ensemble.tree),
    ):
        eventually(lambda: runner.alive == set(names))
        for number in three.servers:
            gone = _leader(three)
            gone.kill()
            _leader(three)
            names.append(f"shop-{number}")
            eventually(lambda: _create(session, ensemble, names[-1]))
            eventually(lambda: runner.alive == set(names))
            gone.start()
        assert own.incarnation == 0
        assert runner.ends == []
    assert [name for name, _ in runner.starts] == names
    return [epoch for _, epoch in runner.starts]


def test_death_of_any_ensemble_leader_disturbs_no_task(
    session: Session, ensemble: Ensemble, three: ZooKeeperEnsemble
) -> None:
    """Each leader is killed in turn: running tasks keep their epoch, new tasks get a greater one."""
    epochs = _kill_each_leader(session, ensemble, three)
    assert epochs == sorted(set(epochs))


def test_counter_alone_gives_no_greater_epoch_after_an_election(
    session: Session,
    ensemble: Ensemble,
    three: ZooKeeperEnsemble,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each leader restarts the counter of changes, so the counter alone gives no order."""
    counter_max = 2**COUNTER_BITS - 1

    def counter_alone(czxid: int, *, generation: int) -> int:
        return epoch_of(czxid & counter_max, generation=generation)

    for number in range(CHANGES):  # the first leader reaches a high count
        session.create(f"{ensemble.tree.root}/changes/{number}", b"")
    monkeypatch.setattr(lease, "epoch_of", counter_alone)
    epochs = _kill_each_leader(session, ensemble, three)
    assert epochs != sorted(set(epochs))


def test_tasks_run_degraded_without_a_majority_and_recover(
    session: Session, ensemble: Ensemble, three: ZooKeeperEnsemble
) -> None:
    """Two of three servers die and the third serves no client. When they return, the task keeps its epoch."""
    ticking = Ticking()
    runner = ScriptedRunner(ticking)
    with (
        ensemble.session() as own,
        ensemble.session() as of_scheduler,
        supervised(own, ensemble.tree, runner) as supervisor,
        scheduled(of_scheduler, ensemble.tree),
    ):
        eventually(lambda: is_in_state(supervisor, TaskState.RUNNING))
        gone = [three.servers[1], three.servers[2]]
        for server in gone:
            server.kill()
        eventually(lambda: is_in_state(supervisor, TaskState.DEGRADED))
        assert supervisor.reports()["shop-capture"].code == "MR-4001"
        ticking.wait_for_more()
        eventually(lambda: not three.servers[3].mode(), what="the third server stops serving")
        for server in gone:
            server.launch()
        eventually(lambda: is_in_state(supervisor, TaskState.RUNNING))
        assert runner.overlaps == []
        assert len(runner.starts) == 1
