"""One capture task on a real source, broker and ZooKeeper. Scheduler and workers run in this process.

Schema ids come from memory.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from millrace.deploy.servers import DatabaseServer
from millrace.errors import Retryable
from millrace.producer.source.set_stream import Site
from millrace.producer.source.set_streams import Upstreams
from millrace.producer.task import capture
from millrace.producer.task.capture import CaptureRunner
from millrace.schemas.documents import (
    Account,
    Brokers,
    CaptureTask,
    Registry,
    SecretPlace,
    SecretReference,
    SetDocument,
    Start,
    TaskKind,
    TopicAddress,
    Work,
)
from millrace.schemas.status import TaskReport, TaskState
from millrace.zk.client.session import Session
from millrace.zk.ensemble import Ensemble
from millrace.zk.run.runner import HeldLease, Report, TaskRunner
from millrace.zk.tree.reports import read_status
from millrace.zk.tree.store import Store
from tests.kit.capture.topic_rows import Ids
from tests.kit.control.control import QUICK, scheduled, supervised
from tests.kit.publisher.rig import Rig
from tests.kit.relay.relay import UNVERIFIED, member_of
from tests.kit.waiting import eventually

TASK = "shop-capture"


class AwayAtFirst:
    """A runner that cannot start while its source is unreachable."""

    def __init__(self, runner: TaskRunner, *, is_away: bool) -> None:
        self._runner = runner
        self.is_away = is_away
        self.failures = 0

    def run(self, task: Work, *, lease: HeldLease, stop: threading.Event, report: Report) -> None:
        """Raise Retryable while the source is away, then run."""
        if self.is_away:
            self.failures += 1
            raise Retryable("MR-1001", "the source is away")
        self._runner.run(task, lease=lease, stop=stop, report=report)


class TaskStage:
    """One capture task with its own source database and topic."""

    def __init__(
        self, server: DatabaseServer, ensemble: Ensemble, rig: Rig, folder: Path, stack: ExitStack
    ) -> None:
        self.server, self.rig, self.tree = server, rig, ensemble.tree
        self._ensemble, self._folder, self._stack = ensemble, folder, stack
        self._rows = 0
        self.database = rig.topic.replace("-", "_")[-40:]
        server.execute(f"CREATE DATABASE {self.database}")
        server.execute(f"CREATE TABLE {self.database}.t (id INT PRIMARY KEY)")
        self.session = self.new_session()
        self.store = Store(self.session, self.tree)
        stack.enter_context(scheduled(self.new_session(), self.tree))
        secret = folder / "password"
        secret.write_text(server.password)
        account = Account(server.user, SecretReference(SecretPlace.FILE, str(secret)))
        self.store.create_set(
            SetDocument(name="shop", members=(member_of(server),), account=account, tls=UNVERIFIED)
        )
        self.task = CaptureTask(
            name=TASK,
            set_name="shop",
            output=TopicAddress(
                topic=rig.topic, brokers=Brokers(rig.bootstrap), registry=Registry("http://none")
            ),
            start=Start(server.gtid_position()),
        )
        self.store.create_task(self.task)

    def new_session(self) -> Session:
        """A ZooKeeper session of one process of the service."""
        return self._stack.enter_context(self._ensemble.session())

    @contextmanager
    def worker(self, name: str, *, is_away: bool = False) -> Iterator[AwayAtFirst]:
        """Run a capture worker during the block."""
        with self._ensemble.session() as session:
            runner = CaptureRunner(
                Store(session, self.tree),
                Upstreams(Site(root=self._folder / name)),
                name,
            )
            away = AwayAtFirst(runner, is_away=is_away)
            kind = TaskKind.CAPTURE
            with supervised(session, self.tree, away, name=name, kind=kind, pace=QUICK):
                yield away

    def write(self, rows: int) -> None:
        """Commit this many source transactions of one row."""
        for _ in range(rows):
            self._rows += 1
            self.server.execute(f"INSERT INTO {self.database}.t VALUES ({self._rows})")

    def wait(self, claim: Callable[[TaskReport], object], what: str) -> TaskReport:
        """Wait until the status in ZooKeeper satisfies the condition."""
        found: list[TaskReport] = []

        def is_so() -> bool:
            standing = read_status(self.session, self.tree, TASK)
            found[:] = [standing.report] if standing else []
            return bool(found and claim(found[0]))

        try:
            eventually(is_so, what=what)
        except AssertionError:
            raise AssertionError(f"never {what}: {found}") from None
        return found[0]

    def run_once(self, name: str, rows: int) -> TaskReport:
        """A worker publishes this many rows and stops in order; return the status that it leaves."""
        before = self._rows
        with self.worker(name):
            self.write(rows)
            self.rig.wait_seq(before + rows)
        return self.wait(lambda report: report.state is not TaskState.RUNNING, "stopped")


def use_memory_registry(patch: pytest.MonkeyPatch) -> None:
    """Schema ids from memory, equal for every owner."""
    ids = Ids()

    class Registry:
        """A registry in memory."""

        def __init__(self, address: str) -> None:
            self.register = ids
            self.knows = lambda *_: True

    patch.setattr(capture, "RegistryClient", Registry)
