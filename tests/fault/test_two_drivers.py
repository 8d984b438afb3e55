"""Two owners of one apply task: the target's fence row stops the former one, even if it can't reach ZooKeeper.

Both workers have their own ZooKeeper session and share one Spark driver, which is not part of the fence.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from millrace.consumer.spark.session import SparkDriver
from millrace.consumer.task.runner import ApplyRunner
from millrace.deploy.servers import DatabaseServer, KafkaServer
from millrace.errors import Fenced
from millrace.schemas.documents import TaskKind
from millrace.schemas.status import TaskReport, TaskState
from millrace.zk.client.session import Session, SessionState
from millrace.zk.ensemble import Ensemble
from millrace.zk.tree.store import Store
from millrace.zk.view import read_cluster, views
from tests.fixtures.spark import OneSet
from tests.kit.apply.bag import Bag
from tests.kit.capture.cluster import Witness
from tests.kit.control.control import end_session_at, scheduled, supervised
from tests.kit.control.line import Line
from tests.kit.waiting import eventually

pytestmark = pytest.mark.usefixtures("target_password")


@pytest.fixture
def bag(kafka: KafkaServer, target_server: DatabaseServer) -> Iterator[Bag]:
    """Removed from the target at the end."""
    with Bag(kafka, target_server) as made:
        yield made


@pytest.fixture
def session(ensemble: Ensemble, bag: Bag) -> Iterator[Session]:
    """The test's own session, with the task and its target in the tree."""
    with ensemble.session() as session:
        store = Store(session, ensemble.tree)
        store.create_set(OneSet(bag.target).set_document("target"))
        store.create_task(bag.task())
        yield session


@pytest.mark.parametrize("how", ["cut", pytest.param("swallowed", marks=pytest.mark.chaos)])
def test_target_fences_a_driver_cut_off_from_zookeeper(
    ensemble: Ensemble, session: Session, bag: Bag, spark: SparkDriver, how: str
) -> None:
    """Rows continue until another worker has the task. The first batch after the successor's start fences the former
    owner, whose lease still seems valid. When its connection recovers, it does not raise the fence again."""
    with (
        Line(int(ensemble.hosts.rpartition(":")[2])) as line,
        replace(ensemble, hosts=line.hosts).session() as cut_off,
        ensemble.session() as of_second,
        ensemble.session() as of_scheduler,
        scheduled(of_scheduler, ensemble.tree),
    ):
        first, second = (
            Witness(ApplyRunner(spark, Store(each, ensemble.tree)), each)
            for each in (cut_off, of_second)
        )
        kind = TaskKind.APPLY
        with supervised(cut_off, ensemble.tree, first, name="first", kind=kind) as of_first:
            bag.publish()
            bag.wait_applied()
            before = _running(session, ensemble, bag, by="first")
            assert bag.fence()[0] == before.epoch
            line.cut() if how == "cut" else line.swallow()
            eventually(lambda: of_first.reports()[bag.name].state is TaskState.DEGRADED)
            end_session_at(ensemble, session, ensemble.tree.owner(bag.name))
            eventually(lambda: session.get(ensemble.tree.owner(bag.name)) is None)
            bag.publish()
            bag.wait_applied()
            assert first.ends == []

            with supervised(of_second, ensemble.tree, second, name="second", kind=kind):
                after = _running(session, ensemble, bag, by="second")
                assert after.epoch > before.epoch
                bag.publish()
                eventually(lambda: len(first.ends) == 1, what="the first is fenced")
                (fenced,) = first.ends
                assert isinstance(fenced.error, Fenced)
                assert fenced.error.code == "MR-5020"
                assert (fenced.is_held, fenced.session) == (True, SessionState.SUSPENDED)
                bag.wait_applied()

                line.heal()
                eventually(lambda: session.get(ensemble.tree.worker("first")) is not None)
                eventually(lambda: of_first.reports() == {})
                bag.publish()
                bag.wait_applied()
                assert first.starts == [(bag.name, before.epoch)]
                assert second.starts == [(bag.name, after.epoch)]
                assert bag.fence()[0] == after.epoch


def _running(session: Session, ensemble: Ensemble, bag: Bag, *, by: str) -> TaskReport:
    """The task's report once it runs on this worker."""

    def report() -> TaskReport:
        found = views(read_cluster(session, ensemble.tree))
        return next(view.report for view in found if view.name == bag.name)

    def is_there() -> bool:
        now = report()
        return (now.state, now.worker) == (TaskState.RUNNING, by)

    eventually(is_there, every_s=0.1, what=f"{bag.name} runs on {by}")
    return report()
