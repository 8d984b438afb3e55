"""Two owners of one apply task: the target's fence row ends the former, whatever it knows of ZooKeeper.

Two workers with a session each, on one Spark driver: it is no part of the fence.
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from consumer.apply import ApplyRunner
from consumer.spark import SparkDriver
from deploy.servers import DatabaseServer, KafkaServer
from millrace.errors import Fenced
from schemas.documents import ApplyTask, TaskKind, TopicAddress
from schemas.status import TaskReport, TaskState
from tests.apply_tables import integer, table
from tests.apply_topic import RecordStream, TopicWriter
from tests.capture_cluster import Witness
from tests.control import BRIEF_S, end_session_at, scheduled, supervised
from tests.fix_spark import OneSet
from tests.line import Line
from tests.waiting import eventually
from zk.ensemble import Ensemble
from zk.session import Session, SessionState
from zk.store import Store
from zk.view import read_cluster, views

pytestmark = pytest.mark.usefixtures("target_password")


@dataclass
class Bag:
    """A topic that fills a table without a key, in which a repetition would show; the task has its name."""

    kafka: KafkaServer
    target: DatabaseServer
    name: str = field(default_factory=lambda: f"bag_{uuid.uuid4().hex[:8]}")
    published: int = 0

    def __post_init__(self) -> None:
        self._table = table(self.name, "bag", integer("n"), key=())
        self._stream = RecordStream()
        self.target.execute(f"CREATE DATABASE {self.name}")
        self.target.execute(f"CREATE TABLE {self.name}.bag (n INT)")
        self._writer = TopicWriter(self.kafka.bootstrap, self._stream)

    def task(self) -> ApplyTask:
        """Reads the topic, writes the table."""
        address = TopicAddress(topic=self._writer.topic, bootstrap=self.kafka.bootstrap)
        return ApplyTask(name=self.name, source=address, target="target")

    def publish(self, rows: int = 50) -> None:
        """So many rows more, one source transaction each."""
        for _ in range(rows):
            self.published += 1
            self._stream.insert(self._table, {"n": self.published})
            self._stream.commit()
        self._writer.publish()

    def wait_applied(self) -> None:
        """Until the target has as many rows as were published; then they are the same."""
        ask = f"SELECT COUNT(*) FROM {self.name}.bag"
        eventually(
            lambda: self.target.execute(ask) >= [(self.published,)],
            timeout_s=120,
            every_s=0.1,
            what=f"{self.published} rows applied",
        )
        found = self.target.execute(f"SELECT n FROM {self.name}.bag ORDER BY n")
        assert found == [(n,) for n in range(1, self.published + 1)]

    def fence(self) -> tuple[int, int]:
        """Epoch and run in the target's fence row."""
        ask = "SELECT epoch, run FROM millrace.fence WHERE task = %s"
        (row,) = self.target.execute(ask, (self.name,))
        return int(str(row[0])), int(str(row[1]))


@pytest.fixture
def bag(kafka: KafkaServer, mariadb_server: DatabaseServer) -> Iterator[Bag]:
    """Gone from the target at the end."""
    made = Bag(kafka, mariadb_server)
    yield made
    mariadb_server.execute(f"DROP DATABASE {made.name}")


@pytest.fixture
def session(ensemble: Ensemble, bag: Bag) -> Iterator[Session]:
    """The test's own session, with the task and its target in the tree."""
    with ensemble.session() as session:
        store = Store(session, ensemble.tree)
        store.create_set(OneSet(bag.target).set_document("target"))
        store.create_task(bag.task())
        yield session


@pytest.mark.parametrize("how", ["cut", pytest.param("swallowed", marks=pytest.mark.chaos)])
def test_a_driver_cut_off_from_zookeeper_alone_is_fenced_by_the_target_and_lets_its_successor_be(
    ensemble: Ensemble, session: Session, bag: Bag, spark: SparkDriver, how: str
) -> None:
    """Rows go on while nobody else has the task; the first batch after the successor's start ends the former owner,
    whose lease still seems to be held; when its line heals it does not raise the fence again."""
    # a reset line is known at once to be down, one that swallows only by silence
    timeout_s = ensemble.session_timeout_s if how == "cut" else BRIEF_S
    with (
        Line(int(ensemble.hosts.rpartition(":")[2])) as line,
        replace(ensemble, hosts=line.hosts, session_timeout_s=timeout_s).session() as cut_off,
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
            assert bag.fence() == (before.epoch, 1)
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
                eventually(lambda: len(first.ends) == 1, timeout_s=120, what="the first is fenced")
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
                assert bag.fence() == (after.epoch, 2)


def _running(session: Session, ensemble: Ensemble, bag: Bag, *, by: str) -> TaskReport:
    """The task's report once it runs there."""

    def report() -> TaskReport:
        found = views(read_cluster(session, ensemble.tree))
        return next(view.report for view in found if view.name == bag.name)

    def is_there() -> bool:
        now = report()
        return (now.state, now.worker) == (TaskState.RUNNING, by)

    eventually(is_there, timeout_s=180, every_s=0.1, what=f"{bag.name} runs on {by}")
    return report()
