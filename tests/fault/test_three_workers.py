"""Three workers with six real tasks under load: a death moves only the dead worker's tasks.

The fences show it: capture's are in the topics, apply's in the target.
"""

import signal
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from millrace.deploy.servers import DatabaseServer, KafkaServer
from millrace.schemas.documents import TaskKind
from millrace.zk.client.session import Session
from millrace.zk.ensemble import Ensemble
from millrace.zk.lease.election import leader_of
from millrace.zk.tree.store import Store
from millrace.zk.view import read_cluster
from tests.fixtures.spark import OneSet
from tests.kit.apply.bag import Bag
from tests.kit.apply.reader import runner_without_spark
from tests.kit.capture.cluster import CaptureCluster, Fence, Witness
from tests.kit.control.control import end_session_at, supervised
from tests.kit.control.process import launched
from tests.kit.waiting import eventually

WRITE_EVERY_S = 0.05  # six sources on one server


pytestmark = pytest.mark.chaos  # test_zk_workers.py shows the same without rows


def test_killed_scheduler_or_worker_moves_no_other_capture_task(
    cluster: CaptureCluster, single_server: DatabaseServer, tmp_path: Path
) -> None:
    """The first leader dies after it assigned two of six tasks; the second completes the plan, two tasks per worker.
    Then a worker dies: its two tasks move to the others, one each; four tasks keep their only owner."""
    ensemble = cluster.ensemble
    for _ in range(6):
        cluster.add_source(single_server, every_s=WRITE_EVERY_S)
    with ExitStack() as stack:
        enter = stack.enter_context
        session = enter(ensemble.session())
        cluster.create(session)
        doomed = enter(cluster.worker_process("c"))
        others = [enter(cluster.worker(enter(ensemble.session()), name)) for name in "ab"]
        early = _planned_by_two(ensemble, session, tmp_path, stack)

        cluster.run_all(session)
        before = dict(read_cluster(session, ensemble.tree).assigned)
        assert Counter(before.values()) == {"a": 2, "b": 2, "c": 2}
        assert before.items() >= early.items()
        for source in cluster.sources.values():
            source.wait_for_rows(5)
        fences = {name: source.fences() for name, source in cluster.sources.items()}
        assert all(len(found) == 1 for found in fences.values())

        doomed.send_signal(signal.SIGKILL)
        doomed.wait()
        end_session_at(ensemble, session, ensemble.tree.worker("c"))
        eventually(lambda: all(len(worker.witness.starts) == 3 for worker in others))
        after = cluster.run_all(session)
        for name, source in cluster.sources.items():
            source.wait_for_rows(5)
            (old,) = fences[name]
            assert old.worker == before[name]
            now = Fence(after[name].epoch, after[name].worker)
            if before[name] == "c":
                assert now.epoch > old.epoch
                assert source.fences() == [old, now]
            else:
                assert now == old
                assert source.fences() == [old]
        moved = {after[name].worker for name in before if before[name] == "c"}
        assert moved == {"a", "b"}
        assert [worker.witness.ends for worker in others] == [[], []]
        cluster.assert_whole()


@pytest.mark.usefixtures("target_password")
def test_killed_scheduler_or_worker_moves_no_other_apply_task(
    ensemble: Ensemble, kafka: KafkaServer, single_server: DatabaseServer, tmp_path: Path
) -> None:
    """As above. The worker dies while it applies rows: each row is applied once. The fences of four tasks are raised
    once, those of its two tasks once more."""
    tree = ensemble.tree
    with ExitStack() as stack:
        enter = stack.enter_context
        bags = [enter(Bag(kafka, single_server)) for _ in range(6)]
        session = enter(ensemble.session())
        store = Store(session, tree)
        store.create_set(OneSet(single_server).set_document("target"))
        for bag in bags:
            store.create_task(bag.task())
            bag.publish(20)
        doomed = enter(launched(ensemble, "apply", name="c", folder=tmp_path))
        others = []
        for name in "ab":
            own = enter(ensemble.session())
            witness = Witness(runner_without_spark(Store(own, tree)), own)
            enter(supervised(own, tree, witness, name=name, kind=TaskKind.APPLY))
            others.append(witness)
        early = _planned_by_two(ensemble, session, tmp_path, stack)

        for bag in bags:
            bag.wait_applied()
        before = dict(read_cluster(session, tree).assigned)
        assert Counter(before.values()) == {"a": 2, "b": 2, "c": 2}
        assert before.items() >= early.items()
        fences = {bag.name: bag.fence() for bag in bags}

        for bag in bags:
            bag.publish(200)
        doomed.send(signal.SIGKILL)
        doomed.process.wait()
        end_session_at(ensemble, session, tree.worker("c"))
        eventually(lambda: all(len(witness.starts) == 3 for witness in others))
        for bag in bags:
            bag.wait_applied()
        for bag in bags:
            epoch, run = fences[bag.name]
            if before[bag.name] == "c":
                assert bag.fence()[0] > epoch
            else:
                assert bag.fence()[0] == epoch
            assert bag.fence()[1] > run
        after = dict(read_cluster(session, tree).assigned)
        assert after.items() >= {name: by for name, by in before.items() if by != "c"}.items()
        assert {after[name] for name, by in before.items() if by == "c"} == {"a", "b"}
        assert [witness.ends for witness in others] == [[], []]


def _planned_by_two(
    ensemble: Ensemble, session: Session, folder: Path, stack: ExitStack
) -> dict[str, str]:
    """With three workers, a leader dies after two assignments and another leads; returns the first's assignments."""
    tree = ensemble.tree
    eventually(lambda: len(session.children(tree.folder("workers"))) == 3)
    armed = {"MILLRACE_FAULT": "zk.placement.scheduler.between_commits:kill@2"}
    first = stack.enter_context(
        launched(ensemble, "scheduler", name="s1", folder=folder, environment=armed)
    )
    assert first.process.wait(timeout=120) == -signal.SIGKILL
    early = dict(read_cluster(session, tree).assigned)
    assert len(early) == 2
    end_session_at(ensemble, session, tree.leader)
    stack.enter_context(launched(ensemble, "scheduler", name="s2", folder=folder))
    eventually(lambda: leader_of(session, tree) == "s2")
    return early
