"""One Spark session for the tests that need one, and apply tasks that run on it, retried as a supervisor would.

``armed`` sets MILLRACE_FAULT for Python workers of the jobs that follow; each setting has its own processes.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from consumer.apply import ApplyRunner
from consumer.spark import SparkDriver
from deploy.servers import DatabaseServer
from millrace.errors import Fatal, MillraceError, Retryable
from schemas.documents import (
    Account,
    ApplyRules,
    ApplyTask,
    Member,
    SecretReference,
    SetDocument,
    Tls,
    TlsMode,
    TopicAddress,
)
from schemas.status import TaskReport
from tests.apply_topic import TopicWriter
from tests.waiting import eventually

PASSWORD_VARIABLE = "MILLRACE_TEST_TARGET_PASSWORD"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkDriver]:
    """A local session with two slots."""
    driver = SparkDriver(master="local[2]")
    yield driver
    driver.stop()


@dataclass
class FixedLease:
    """A lease that nobody takes away."""

    task: str
    epoch: int = 1

    def is_held(self) -> bool:
        return True

    def verify(self) -> None:
        return


@dataclass
class OneSet:
    """The target set: one server."""

    server: DatabaseServer

    def set_document(self, name: str) -> SetDocument:
        reference = SecretReference.parse(f"env:{PASSWORD_VARIABLE}")
        assert reference is not None
        return SetDocument(
            name=name,
            members=(Member(self.server.host, self.server.port),),
            account=Account(self.server.user, reference),
            tls=Tls(TlsMode.REQUIRE_UNVERIFIED),
        )


@dataclass
class RunningTask:
    """A task in a thread: errors that may be tried again are, at once, and counted; ``codes`` are theirs."""

    runner: ApplyRunner
    task: ApplyTask
    epoch: int = 1
    retries: int = 0
    codes: set[str] = field(default_factory=set)
    failure: MillraceError | None = None
    reported: TaskReport | None = None
    stop: threading.Event = field(default_factory=threading.Event)

    def work(self) -> None:
        while not self.stop.is_set():
            try:
                lease = FixedLease(self.task.name, self.epoch)
                self.runner.run(self.task, lease=lease, stop=self.stop, report=self._hear)
            except Retryable as exc:
                self.retries += 1
                self.codes.add(exc.code)
            except MillraceError as exc:
                self.failure = exc
                return

    def _hear(self, report: TaskReport) -> None:
        self.reported = report

    def wait_until_at(self, seq: int, *, timeout_s: float = 300.0) -> None:
        """Until the mark is at ``seq``."""
        deadline = time.monotonic() + timeout_s
        while self.reported is None or self.reported.seq < seq:
            assert self.failure is None, self.failure
            assert time.monotonic() < deadline, f"at {self.reported}, not at seq {seq}"
            time.sleep(0.05)

    def wait_until_it_fails(self, *, timeout_s: float = 300.0) -> MillraceError:
        """With an error that blocks it."""
        eventually(lambda: self.failure is not None, timeout_s=timeout_s, what="the task fails")
        assert self.failure is not None
        return self.failure


RunTask = Callable[..., "Iterator[RunningTask]"]


@contextmanager
def running(
    spark: SparkDriver, server: DatabaseServer, writer: TopicWriter, *, name: str, lanes: int = 3
) -> Iterator[RunningTask]:
    """Apply a writer's topic to a server until the block ends."""
    task = ApplyTask(
        name=name,
        source=TopicAddress(topic=writer.topic, bootstrap=writer.bootstrap),
        target="target",
        rules=ApplyRules(lanes=lanes),
    )
    made = RunningTask(ApplyRunner(spark, OneSet(server)), task)
    thread = threading.Thread(target=made.work, name=name)
    thread.start()
    try:
        yield made
    finally:
        made.stop.set()
        thread.join(180)
        if thread.is_alive():
            raise Fatal("MR-4013", f"{name} does not stop")


@contextmanager
def armed(spark: SparkDriver, fault: str) -> Iterator[None]:
    """Python workers of jobs inside the block have this fault armed."""
    environment = spark.session.sparkContext.environment
    environment["MILLRACE_FAULT"] = fault
    try:
        yield
    finally:
        del environment["MILLRACE_FAULT"]


@pytest.fixture
def target_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """The password that set documents of tests refer to."""
    monkeypatch.setenv(PASSWORD_VARIABLE, "millrace-secret")
