"""A source that is captured while a task loads and follows it: real capture, broker, Spark and target."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pymysql.err import OperationalError

from millrace.consumer.spark.session import SparkDriver
from millrace.consumer.task.runner import ApplyRunner
from millrace.deploy.servers import DatabaseServer, DatabaseSet, sql
from millrace.errors import MillraceError
from millrace.producer.source.set_stream import Site
from millrace.producer.source.set_streams import Upstreams
from millrace.producer.task.capture import CaptureRunner
from millrace.schemas.documents import (
    ApplyRules,
    ApplyTask,
    Brokers,
    CaptureTask,
    Registry,
    SetDocument,
    Start,
    TableFilter,
    TopicAddress,
)
from millrace.schemas.gtid import parse_gtid_set
from millrace.schemas.status import TaskReport
from tests.fixtures.spark import FixedLease, OneSet, RunningTask
from tests.kit.alone import Alone
from tests.kit.apply.loading import source_document
from tests.kit.waiting import eventually


@dataclass
class Documents(Alone):
    """The sets and tasks of the rig, for both kinds of runners."""

    source: DatabaseSet
    target: DatabaseServer
    capture: CaptureTask

    def set_document(self, name: str) -> SetDocument:
        """The source's or the target's."""
        if name == self.capture.set_name:
            return source_document(name, self.source.members)
        return OneSet(self.target).set_document(name)

    def capture_task_of(self, task: ApplyTask) -> CaptureTask:
        """The only one."""
        assert task.source.topic == self.capture.output.topic
        return self.capture


@dataclass
class LoadedTopic:
    """``name``: of database, topic and apply task."""

    source: DatabaseSet
    target: DatabaseServer
    name: str
    bootstrap: str
    registry: str
    folder: Path
    failure: MillraceError | None = None
    captured: TaskReport | None = None
    _ends: threading.Event = field(default_factory=threading.Event)

    @property
    def capture(self) -> CaptureTask:
        """Publishes the database from now on."""
        return CaptureTask(
            name=f"{self.name}-capture",
            set_name="source",
            output=TopicAddress(
                topic=self.name,
                brokers=Brokers(self.bootstrap),
                registry=Registry(self.registry),
            ),
            start=Start(self.source.primary.gtid_position()),
            tables=TableFilter(include=(f"{self.name}.*",)),
        )

    @contextmanager
    def capturing(self) -> Iterator[Documents]:
        """Capture during the block."""
        documents = Documents(self.source, self.target, self.capture)
        runner = CaptureRunner(documents, Upstreams(Site(root=self.folder)), "w1")
        thread = threading.Thread(target=self._capture, args=(runner, documents.capture))
        thread.start()
        try:
            yield documents
        finally:
            self._ends.set()
            thread.join()

    def _capture(self, runner: CaptureRunner, task: CaptureTask) -> None:
        try:
            runner.run(task, lease=FixedLease(task.name), stop=self._ends, report=self._record)
        except MillraceError as error:
            self.failure = error

    def _record(self, report: TaskReport) -> None:
        self.captured = report

    def task(self, documents: Documents, rules: ApplyRules) -> ApplyTask:
        """Loads the database and follows the topic."""
        return ApplyTask(
            name=self.name,
            source=documents.capture.output,
            target="target",
            start=Start(is_load=True),
            rules=rules,
        )

    @contextmanager
    def applying(
        self, spark: SparkDriver, documents: Documents, rules: ApplyRules
    ) -> Iterator[RunningTask]:
        """Run the apply task during the block."""
        made = RunningTask(ApplyRunner(spark, documents), self.task(documents, rules))
        thread = threading.Thread(target=made.work, name=self.name)
        thread.start()
        try:
            yield made
        finally:
            made.stop.set()
            thread.join()

    def wait_until_applied(self, task: RunningTask) -> None:
        """Wait until everything that the primary has now is applied."""
        wanted = parse_gtid_set(self.source.flavour, self.source.primary.gtid_position())

        def is_applied() -> bool:
            assert task.failure is None, task.failure
            assert self.failure is None, self.failure
            report = task.reported
            if report is None or not report.gtid_set or report.applied is None:
                return False
            return parse_gtid_set(self.source.flavour, report.gtid_set).includes(wanted)

        eventually(is_applied, what=f"{wanted} is applied")


DEADLOCKS = (1205, 1213)  # between two writers
PAUSE_S = 0.2  # between two statements: four servers execute each


class Writer:
    """Changes rows of the tables at random, one source transaction each, until it is closed."""

    def __init__(self, server: DatabaseServer, database: str, *, seed: int) -> None:
        self._server, self._database = server, database
        self._random = random.Random(seed)
        self._stop = threading.Event()
        self.count = 0
        self.failures: list[BaseException] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with sql.root_connection(self._server.socket, database=self._database) as connection:
                cursor = connection.cursor()
                while not self._stop.wait(PAUSE_S):
                    try:
                        cursor.execute(self._statement())
                    except OperationalError as error:
                        if error.args[0] not in DEADLOCKS:
                            raise
                    self.count += 1
        except BaseException as failure:  # noqa: BLE001 - raised by close
            self.failures.append(failure)

    def _statement(self) -> str:
        draw = self._random
        n, other = draw.randrange(700), draw.randrange(10_000)
        return draw.choice(
            [
                f"UPDATE IGNORE composite SET a = a + 1000, v = 'moved' WHERE a = {n}",
                f"UPDATE IGNORE composite SET b = 'k{n % 9}' WHERE a = {n}",
                f"DELETE FROM texts WHERE v = {n}",
                f"REPLACE INTO texts VALUES ('E{n}', {other})",
                f"UPDATE computed SET v = {other} WHERE id = {n}",
                f"INSERT INTO keyless VALUES ({n % 20}, 'more')",
                f"DELETE FROM keyless WHERE a = {n % 20} LIMIT 1",
                f"UPDATE keyless SET b = 'new' WHERE a = {n % 20} LIMIT 2",
                f"REPLACE INTO uniques VALUES ({n}, {draw.randrange(900)})",
                f"UPDATE IGNORE uniques SET u = u + {other % 7} WHERE id = {n}",
                f"INSERT IGNORE INTO parent VALUES ({n}, {other})",
                f"DELETE FROM parent WHERE id = {n}",
                f"INSERT IGNORE INTO child SELECT {n}, id FROM parent WHERE id = {other % 700}",
                f"UPDATE parted SET v = {other} WHERE id = {n}",
                f"INSERT IGNORE INTO vacant VALUES ({n})",
            ]
        )

    def check(self) -> None:
        """Raise the error of a statement that ended the writer."""
        if self.failures:
            raise self.failures[0]

    def close(self) -> None:
        """Stop; raises as ``check``."""
        self._stop.set()
        self._thread.join()
        self.check()
