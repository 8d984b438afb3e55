"""Three workers, six real tasks under load: who dies takes only its own along, read from the fences in the topics."""

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from deploy.servers import DatabaseServer, KafkaServer
from tests.capture_cluster import CaptureCluster, Fence
from tests.control import end_session_at
from tests.control_process import launched
from tests.waiting import eventually
from zk.election import leader_of
from zk.ensemble import Ensemble
from zk.session import Session
from zk.view import read_cluster

WRITE_EVERY_S = 0.05  # six sources on one server


@pytest.fixture
def cluster(
    ensemble: Ensemble, kafka: KafkaServer, registry: str, tmp_path: Path
) -> Iterator[CaptureCluster]:
    """Nothing runs yet."""
    with ExitStack() as ends:
        yield CaptureCluster(ensemble, kafka, registry, folder=tmp_path, ends=ends)


def test_a_scheduler_killed_between_two_assignments_moves_no_task_and_a_killed_worker_only_its_own(
    cluster: CaptureCluster, mariadb_server: DatabaseServer, tmp_path: Path
) -> None:
    """The first leader dies when two of six tasks are assigned; the second completes the plan, two tasks a worker.
    Then a worker dies: its two go to the others, one each; four tasks have one owner in their whole life."""
    ensemble = cluster.ensemble
    for _ in range(6):
        cluster.add_source(mariadb_server, every_s=WRITE_EVERY_S)
    with ExitStack() as stack:
        enter = stack.enter_context
        session = enter(ensemble.session())
        cluster.create(session)
        doomed = enter(cluster.worker_process("c"))
        others = [enter(cluster.worker(enter(ensemble.session()), name)) for name in "ab"]
        eventually(lambda: len(_workers(session, ensemble)) == 3)

        armed = {"MILLRACE_FAULT": "zk.scheduler.between_commits:kill@2"}
        first = enter(
            launched(ensemble, "scheduler", name="s1", folder=tmp_path, environment=armed)
        )
        assert first.process.wait(timeout=120) == -signal.SIGKILL
        early = dict(read_cluster(session, ensemble.tree).assigned)
        assert len(early) == 2
        end_session_at(ensemble, session, ensemble.tree.leader)
        enter(launched(ensemble, "scheduler", name="s2", folder=tmp_path))
        eventually(lambda: leader_of(session, ensemble.tree) == "s2")

        cluster.run_all(session)
        before = dict(read_cluster(session, ensemble.tree).assigned)
        assert Counter(before.values()) == {"a": 2, "b": 2, "c": 2}
        assert before.items() >= early.items()
        for source in cluster.sources.values():
            source.goes_on(5)
        fences = {name: source.fences() for name, source in cluster.sources.items()}
        assert all(len(found) == 1 for found in fences.values())

        doomed.send_signal(signal.SIGKILL)
        doomed.wait()
        end_session_at(ensemble, session, ensemble.tree.worker("c"))
        eventually(lambda: all(len(worker.witness.starts) == 3 for worker in others))
        after = cluster.run_all(session)
        for name, source in cluster.sources.items():
            source.goes_on(5)
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


def _workers(session: Session, ensemble: Ensemble) -> tuple[str, ...]:
    return session.children(ensemble.tree.folder("workers"))
