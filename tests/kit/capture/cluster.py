"""Real capture without Spark: sources under load, topics read back as they grow, workers in threads or processes.

A source is a set with its own database on a shared server. Its load inserts rows with the ids 1, 2, 3, …, one source
transaction each, so a topic is correct when its ids are exactly these. ``Followed`` is a subscriber: it reads the topic
with ``read_committed``, feeds the verifier, and keeps ids and fences.
"""

import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from millrace.cli import run as run_command
from millrace.consumer.topic.verify import TopicVerifier, Violation
from millrace.deploy.servers import DatabaseServer, KafkaServer, sql
from millrace.drivers.kafka.reader import TopicReader
from millrace.errors import MillraceError, Retryable
from millrace.producer.source.set_stream import Site
from millrace.producer.source.set_streams import Upstreams
from millrace.producer.task.capture import CaptureRunner
from millrace.schemas.documents import (
    Account,
    Brokers,
    CaptureTask,
    Member,
    Registry,
    SecretPlace,
    SecretReference,
    SetDocument,
    Start,
    TableFilter,
    Tls,
    TlsMode,
    TopicAddress,
    Work,
)
from millrace.schemas.record.control import FenceRecord
from millrace.schemas.record.gap import Gap
from millrace.schemas.record.record import KnownSchemas, RowRecord, decode_record
from millrace.schemas.status import TaskReport, TaskState
from millrace.zk.client.session import Session, SessionState
from millrace.zk.ensemble import Ensemble
from millrace.zk.run.backoff import Pace
from millrace.zk.run.runner import HeldLease, Report, TaskRunner
from millrace.zk.run.supervisor import Supervisor
from millrace.zk.tree.store import Store
from millrace.zk.view import read_cluster, views
from tests.kit.control.control import QUICK, supervised
from tests.kit.forked import Fork, fork
from tests.kit.waiting import eventually

WRITE_EVERY_S = 0.01


@dataclass(frozen=True)
class Fence:
    """A fence record: the owner's epoch and worker."""

    epoch: int
    worker: str


class Followed:
    """A subscriber of a growing topic; ``look`` reads the new records."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._reader = TopicReader(Brokers(bootstrap), topic)
        self._verifier = TopicVerifier(from_beginning=True)
        self._known = KnownSchemas()
        self._next_offset = 0
        self.ids: list[int] = []
        self.fences: list[Fence] = []

    def look(self) -> "Followed":
        """Read up to the stable end."""
        try:
            stable = self._reader.ends().stable
        except MillraceError:
            return self  # the topic does not exist yet
        for chunk in self._reader.chunks(self._next_offset, stable):
            for found in chunk:
                self._verifier.feed(found.offset, found.key, found.value)
                record = decode_record(found.key, found.value, self._known)
                if isinstance(record, FenceRecord):
                    self.fences.append(Fence(record.epoch, record.worker))
                elif isinstance(record, RowRecord):
                    assert record.change.after is not None, "only inserts are made"
                    self.ids.append(int(str(record.change.after["id"])))
        self._next_offset = max(self._next_offset, stable)
        return self

    @property
    def violations(self) -> list[Violation]:
        """The verifier's findings so far."""
        return self._verifier.finish().violations

    @property
    def gaps(self) -> list[Gap]:
        """The gaps that operators decided, so far."""
        return [named.gap for named in self._verifier.summary.gaps]

    def close(self) -> None:
        """Release connections."""
        self._reader.close()


@dataclass
class Source:
    """A set of one member, its task and topic (one name for all), and the load on it."""

    name: str
    server: DatabaseServer
    followed: Followed
    start: str
    every_s: float
    written: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)

    def write(self) -> None:
        """Run the load until ``stop``."""
        with sql.root_connection(self.server.socket, database=self.name) as connection:
            cursor = connection.cursor()
            while not self._stop.wait(self.every_s):
                cursor.execute(f"INSERT INTO t VALUES ({self.written + 1}, REPEAT('x', 50))")
                self.written += 1

    def stop(self) -> None:
        """Stop the load."""
        self._stop.set()

    def wait_for_rows(self, rows: int = 20) -> None:
        """Wait until ``rows`` more rows are in the topic."""
        wanted = len(self.followed.look().ids) + rows
        eventually(
            lambda: len(self.followed.look().ids) >= wanted,
            every_s=0.05,
            what=f"{rows} more rows of {self.name}, after {len(self.followed.ids)}",
        )

    def fences(self) -> list[Fence]:
        """All fences in the topic."""
        return list(self.followed.look().fences)

    def assert_whole(self) -> None:
        """Every written row is in the topic once and in order."""
        eventually(
            lambda: len(self.followed.look().ids) >= self.written,
            every_s=0.05,
            what=f"{self.written} rows of {self.name}, not {len(self.followed.ids)}",
        )
        assert self.followed.ids == list(range(1, self.written + 1))
        assert self.followed.violations == []


@dataclass
class Witness:
    """A runner that keeps how each run began and ended, with the worker's view of the session."""

    runner: TaskRunner
    session: Session
    starts: list[tuple[str, int]] = field(default_factory=list)  # (task, epoch)
    ends: list["Ending"] = field(default_factory=list)

    def run(self, task: Work, *, lease: HeldLease, stop: threading.Event, report: Report) -> None:
        """See ``zk.run.runner``."""
        self.starts.append((task.name, lease.epoch))
        error: BaseException | None = None
        try:
            self.runner.run(task, lease=lease, stop=stop, report=report)
        except BaseException as raised:
            error = raised
            raise
        finally:
            self.ends.append(Ending(lease.epoch, error, lease.is_held(), self.session.state))


@dataclass(frozen=True)
class Ending:
    """The end of a run: its error, and whether its worker still believed in its lease."""

    epoch: int
    error: BaseException | None
    is_held: bool
    session: SessionState


@dataclass(frozen=True)
class Worker:
    """A worker in this process."""

    supervisor: Supervisor
    witness: Witness


class CaptureCluster:
    """Sources, a broker, a registry, and a separate cluster in an ensemble."""

    def __init__(
        self,
        ensemble: Ensemble,
        kafka: KafkaServer,
        registry: str,
        *,
        folder: Path,
        ends: ExitStack,
    ) -> None:
        self.ensemble = ensemble
        self.kafka = kafka
        self.registry = registry
        self.folder = folder
        self.sources: dict[str, Source] = {}
        self._ends = ends

    def add_source(self, server: DatabaseServer, *, every_s: float = WRITE_EVERY_S) -> Source:
        """A database with a load, a set and a topic; ``create`` registers it."""
        name = f"o{uuid.uuid4().hex[:8]}"
        server.execute(f"CREATE DATABASE {name}")
        server.execute(f"CREATE TABLE {name}.t (id INT NOT NULL PRIMARY KEY, v VARCHAR(50))")
        self._ends.callback(server.execute, f"DROP DATABASE {name}")
        followed = Followed(self.kafka.bootstrap, name)
        source = self.sources[name] = Source(
            name, server, followed, server.gtid_position(), every_s
        )
        self._ends.callback(source.followed.close)
        load = threading.Thread(target=source.write, name=f"load {name}")
        load.start()
        self._ends.callback(load.join)
        self._ends.callback(source.stop)
        return source

    def documents(self, source: Source) -> tuple[SetDocument, CaptureTask]:
        """The documents of its set and task."""
        secret = self.folder / "password"
        secret.write_text(source.server.password)
        document = SetDocument(
            name=source.name,
            members=(Member(source.server.host, source.server.port),),
            account=Account(source.server.user, SecretReference(SecretPlace.FILE, str(secret))),
            tls=Tls(TlsMode.REQUIRE_UNVERIFIED),
        )
        task = CaptureTask(
            name=source.name,
            set_name=source.name,
            output=TopicAddress(
                topic=source.name,
                brokers=Brokers(self.kafka.bootstrap),
                registry=Registry(self.registry),
            ),
            start=Start(source.start),
            tables=TableFilter(include=(f"{source.name}.*",)),
        )
        return document, task

    def create(self, session: Session) -> None:
        """Put every source's set and task into the tree."""
        store = Store(session, self.ensemble.tree)
        for source in self.sources.values():
            document, task = self.documents(source)
            store.create_set(document)
            store.create_task(task)

    @contextmanager
    def worker(self, session: Session, name: str, *, pace: Pace = QUICK) -> Iterator["Worker"]:
        """A capture worker in this process, over this session."""
        tree = self.ensemble.tree
        runner = CaptureRunner(
            Store(session, tree),
            Upstreams(Site(root=self.folder / f"relay-{name}")),
            name,
        )
        witness = Witness(runner, session)
        with supervised(session, tree, witness, name=name, pace=pace) as supervisor:
            yield Worker(supervisor, witness)

    @contextmanager
    def worker_process(self, name: str) -> Iterator[Fork]:
        """``millrace worker``; killed at the end of the block."""
        own = {
            "MILLRACE_ZOOKEEPER": self.ensemble.hosts,
            "MILLRACE_CLUSTER": self.ensemble.tree.cluster,
            "MILLRACE_ZOOKEEPER_TIMEOUT_S": str(self.ensemble.session_timeout_s),
        }
        process = fork(
            run_command,
            ["worker", "--name", name, "--relay-dir", str(self.folder / f"relay-{name}")],
            environment=own,
            log=self.folder / f"{name}.log",
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def reports(self, session: Session) -> dict[str, TaskReport]:
        """The reports that `millrace status` shows."""
        return {v.name: v.report for v in views(read_cluster(session, self.ensemble.tree))}

    def run_all(self, session: Session) -> dict[str, TaskReport]:
        """Wait until every task runs; returns the reports."""

        def all_run() -> bool:
            try:
                found = self.reports(session)
            except Retryable:
                return False
            return len(found) == len(self.sources) and all(
                report.state is TaskState.RUNNING for report in found.values()
            )

        eventually(all_run, every_s=0.05, what="every task runs")
        return self.reports(session)

    def assert_whole(self) -> None:
        """End the loads; every topic must hold all written rows."""
        for source in self.sources.values():
            source.stop()
        for source in self.sources.values():
            source.assert_whole()
