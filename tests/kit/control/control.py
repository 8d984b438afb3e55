"""Control without rows: documents, a runner that moves nothing, and workers as threads or processes.

A ``ScriptedRunner`` runs a test's script and keeps a journal.

Sessions survive any delay of a busy machine. A test ends one explicitly (``end_session_at``) or gives it the brief
timeout; then the test must not depend on the session surviving. The supervisor waits for slow runners.
"""

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from kazoo.client import KazooClient

from millrace.schemas.documents import (
    Account,
    ApplyTask,
    Brokers,
    CaptureTask,
    Member,
    PublishTask,
    Registry,
    SecretPlace,
    SecretReference,
    SetDocument,
    TaskKind,
    TopicAddress,
    Work,
)
from millrace.schemas.stages import Applied
from millrace.schemas.status import TaskReport, TaskState
from millrace.zk.client.session import Session
from millrace.zk.ensemble import Ensemble
from millrace.zk.lease.membership import WorkerIdentity
from millrace.zk.placement.scheduler import Scheduler
from millrace.zk.run.backoff import Pace
from millrace.zk.run.runner import HeldLease, Report, TaskRunner
from millrace.zk.run.supervisor import Supervisor
from millrace.zk.tree.paths import Tree
from tests.kit.waiting import eventually

QUICK = Pace(  # a run that a machine delayed does not count as stable
    first_retry_s=0.05,
    retry_s_max=0.4,
    steady_s=600.0,
    report_s=0.1,
    progress_s=0.1,
    stop_s=240.0,
)
SESSION_TIMEOUT_S = 30.0
# of a session that must notice by itself that the ensemble is silent or ended it
BRIEF_S = 10.0


def ensemble_of(hosts: str) -> Ensemble:
    """A separate cluster for this test in a shared ensemble."""
    tree = Tree(f"test-{uuid.uuid4().hex[:12]}")
    return Ensemble(hosts=hosts, tree=tree, session_timeout_s=SESSION_TIMEOUT_S)


def a_set(name: str = "shop") -> SetDocument:
    """A set to which no process connects."""
    password = SecretReference(SecretPlace.ENVIRONMENT, "UNSET")
    return SetDocument(
        name=name, members=(Member("127.0.0.1", 3306),), account=Account("millrace", password)
    )


def a_capture(name: str = "shop-capture", *, of: str = "shop", topic: str = "") -> CaptureTask:
    """A capture task with its own topic."""
    output = TopicAddress(
        topic=topic or name, brokers=Brokers("127.0.0.1:9092"), registry=Registry("http://h:8081")
    )
    return CaptureTask(name=name, set_name=of, output=output)


def an_apply(name: str = "shop-apply", *, to: str = "shop", topic: str = "shop") -> ApplyTask:
    """An apply task."""
    return ApplyTask(
        name=name, source=TopicAddress(topic=topic, brokers=Brokers("127.0.0.1:9092")), target=to
    )


def a_publish(name: str = "shop-public", *, topic: str = "shop") -> PublishTask:
    """A publish task with its own topics."""
    return PublishTask(
        name=name, source=TopicAddress(topic=topic, brokers=Brokers("127.0.0.1:9092"))
    )


REPORT_AGAIN_S = 5.0


@dataclass
class ScriptedRunner:
    """Reports RUNNING and waits for its stop, unless ``script`` replaces this."""

    script: Callable[[Work, HeldLease, threading.Event], None] | None = None
    gtid_set: str = "0-1-7"  # its reported progress
    applied: Applied | None = None
    starts: list[tuple[str, int]] = field(default_factory=list)  # (task, epoch)
    ends: list[tuple[str, int]] = field(default_factory=list)
    alive: set[str] = field(default_factory=set)
    overlaps: list[str] = field(default_factory=list)

    def run(self, task: Work, *, lease: HeldLease, stop: threading.Event, report: Report) -> None:
        """See the class."""
        if task.name in self.alive:
            self.overlaps.append(task.name)
        self.alive.add(task.name)
        self.starts.append((task.name, lease.epoch))
        try:
            lease.verify()
            made = TaskReport(
                TaskState.RUNNING, why="waits for changes", gtid_set=self.gtid_set, seq=7
            )
            report(replace(made, applied=self.applied))
            if self.script is not None:
                self.script(task, lease, stop)
                return
            while not stop.wait(REPORT_AGAIN_S):  # a silent runner counts as stalled
                report(replace(made, applied=self.applied))
        finally:
            self.alive.discard(task.name)
            self.ends.append((task.name, lease.epoch))

    def epochs(self, task: str) -> list[int]:
        """The epochs under which a task was started, in order."""
        return [epoch for name, epoch in tuple(self.starts) if name == task]


@dataclass
class Ticking:
    """A script for ``ScriptedRunner`` that counts until its stop and fails if its lease is lost."""

    count: int = 0

    def __call__(self, _task: Work, lease: HeldLease, stop: threading.Event) -> None:
        while not stop.wait(0.01):
            assert lease.is_held()
            self.count += 1

    def wait_for_more(self) -> None:
        """Wait for more counts from now on."""
        during = self.count
        eventually(lambda: self.count > during + 50, what="the task continues")


def is_in_state(supervisor: Supervisor, state: TaskState) -> bool:
    """Whether the worker reports the task of ``a_capture()`` in this state."""
    report = supervisor.reports().get("shop-capture")
    return report is not None and report.state is state


@contextmanager
def supervised(
    session: Session,
    tree: Tree,
    runner: TaskRunner,
    *,
    name: str = "w1",
    kind: TaskKind = TaskKind.CAPTURE,
    pace: Pace = QUICK,
    identity: WorkerIdentity | None = None,
) -> Iterator[Supervisor]:
    """A worker in a thread; it is joined at the end and must end cleanly. ``identity`` replaces name and kind."""
    worker = identity or WorkerIdentity(name=name, kind=kind)
    supervisor = Supervisor(session, tree, worker=worker, runner=runner, pace=pace)
    with _looping(supervisor.run, supervisor.wake):
        yield supervisor


@contextmanager
def scheduled(
    session: Session, tree: Tree, *, name: str = "s1", settle_s: float = 0.0
) -> Iterator[Scheduler]:
    """A scheduler in a thread."""
    scheduler = Scheduler(session, tree, name=name, settle_s=settle_s)

    def run(stop: threading.Event) -> bool:
        scheduler.run(stop)
        return True

    with _looping(run, scheduler.wake):
        yield scheduler


@contextmanager
def _looping(run: Callable[[threading.Event], bool], wake: Callable[[], None]) -> Iterator[None]:
    stop = threading.Event()
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(run(stop)))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        wake()
        thread.join(timeout=1.2 * QUICK.stop_s)
    assert results == [True], "the loop did not end in order"


def end_session_at(ensemble: Ensemble, session: Session, path: str) -> None:
    """End the session that owns this node, as after a session timeout; ``session`` is used to look it up."""
    node = session.get(path)
    if node is not None:
        end_session(ensemble.hosts, node.ephemeral_owner)


def end_session(hosts: str, session_id: int) -> None:
    """End a session as the ensemble would: join it by id and password, and close it, until joining fails.

    The owner may reconnect and take the session back before the request to close it arrives.

    The password can be computed: sixteen bytes of java.util.Random, seeded with the id and a constant of ZooKeeper's
    source (ZooKeeperServer.generatePasswd).
    """
    is_over = False
    while not is_over:
        twin = KazooClient(hosts=hosts, client_id=(session_id, _secret_of(session_id)))
        twin.start(timeout=60)
        is_over = twin.client_id[0] != session_id  # the client got a new session
        twin.stop()
        twin.close()


def _secret_of(session_id: int) -> bytes:
    multiplier, mask = 0x5DEECE66D, (1 << 48) - 1
    state = ((session_id ^ 0xB3415C00) ^ multiplier) & mask
    secret = b""
    for _ in range(4):
        state = (state * multiplier + 0xB) & mask
        secret += (state >> 16).to_bytes(4, "little")
    return secret
