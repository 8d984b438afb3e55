"""A local stack that is measured, and what benchmarks do with its tasks.

Without ``has_apply`` there is no target and no Spark: on two cores they would take what is measured. With a native
replica of the source, the peer of apply, a round is:

    1  drop the database of the round before and create it again; both appliers follow
    2  pause the apply task; the replica is stopped; write the changes; wait until capture has published them
    3  each applier in turn, alone: the clock of ``deploy.bench.apply.clock`` runs while it catches up
    4  compare the checksums of all tables with the source's

Source, target and replica are servers of one flavour with the same settings. A source set of one server is enough: no
replica takes part, and it would cost time. Capture stays up and idle while appliers are timed.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial

from millrace.deploy.bench.apply.clock import Pace, binlog_clock
from millrace.deploy.bench.apply.processes import use_watch
from millrace.deploy.bench.apply.workloads import Workload
from millrace.deploy.bench.figure import bench_folder, say
from millrace.deploy.bench.peers import NativeReplica, make_account
from millrace.deploy.local.readiness import task_report
from millrace.deploy.local.services import APPLY_TASK, CAPTURE_TASK
from millrace.deploy.local.stack import LocalStack, StackOptions
from millrace.deploy.servers import DatabaseServer, sql
from millrace.deploy.servers.process import ServerProcess
from millrace.deploy.workload.shop import Connect
from millrace.errors import Fatal
from millrace.schemas.gtid import Flavour
from millrace.schemas.status import TaskState
from millrace.zk.client.session import Session

POLL_S = 0.1
WAIT_S = 3_600.0
_DURABLE = ("innodb_flush_log_at_trx_commit", "sync_binlog")


@dataclass(frozen=True, slots=True)
class Applied:
    """One catch-up of the apply task: its pace, and the CPU seconds of driver, Python workers and broker meanwhile."""

    pace: Pace
    cpu_s: float


@dataclass(slots=True)
class Scene:
    """``peer`` is there if it was asked for. ``executors``: processes beside the apply driver's own."""

    stack: LocalStack
    session: Session
    peer: NativeReplica | None = None
    executors: tuple[ServerProcess, ...] = ()

    @property
    def source(self) -> DatabaseServer:
        """The primary of the source set."""
        return self.stack.source.primary

    @property
    def connect(self) -> Connect:
        """Connects to the source as root."""
        return partial(sql.open_root, self.source.socket)

    @property
    def bootstrap(self) -> str:
        """The broker."""
        return self.stack.kafka.bootstrap

    @property
    def replica(self) -> NativeReplica:
        """Fatal MR-9001 in a scene without one."""
        if self.peer is None:
            raise Fatal("MR-9001", "this scene has no native replica")
        return self.peer

    def pause(self, task: str = CAPTURE_TASK) -> None:
        self.stack.run_command("task", "pause", task)

    def resume(self, task: str = CAPTURE_TASK) -> None:
        """Returns before it has caught up."""
        self.stack.run_command("task", "resume", task)

    def resume_apply(self) -> None:
        """Resume the apply task and wait until it has caught up."""
        self.resume(APPLY_TASK)
        self.wait_seq(self.seq(), APPLY_TASK)

    def wait_captured(self) -> None:
        """Wait until the topic has everything that the source has now."""
        self.stack.run_command("task", "wait", CAPTURE_TASK, "--timeout", str(round(WAIT_S)))

    def wait_applied(self) -> None:
        """Wait until the target has everything that the source has now."""
        self.wait_captured()
        self.wait_seq(self.seq(), APPLY_TASK)

    def wait_followed(self) -> None:
        """Wait until target and replica have everything that the source has now."""
        self.wait_applied()
        if self.peer is not None:
            self.peer.catch_up()

    def seq(self) -> int:
        """The ``seq`` that the capture task has reported."""
        return task_report(self.session, CAPTURE_TASK).seq

    def wait_seq(self, wanted: int, task: str = CAPTURE_TASK) -> None:
        """Wait until the task has reported ``wanted``. Fatal MR-8004 when it is blocked, or too late."""
        deadline = time.monotonic() + WAIT_S
        while (report := task_report(self.session, task)).seq < wanted:
            if report.state is TaskState.BLOCKED:
                raise Fatal("MR-8004", f"{task} is blocked: {report.code} {report.why}")
            if time.monotonic() > deadline:
                raise Fatal("MR-8004", f"{task} is at {report.seq}, not at {wanted}")
            self.stack.check_services()
            time.sleep(POLL_S)

    def create(self, workload: Workload) -> None:
        """Step 1."""
        self.source.execute(f"DROP DATABASE IF EXISTS {workload.database}")
        workload.create(self.connect)
        self.wait_followed()

    def write(self, workload: Workload, changes: int, task: str = APPLY_TASK) -> int:
        """Step 2; the number of changes. While the capture task is paused, they wait in the binlog."""
        self.pause(task)
        begin_s = time.monotonic()
        count = workload.write(self.connect, changes)
        say(f"  {count:,} changes written in {time.monotonic() - begin_s:.0f} s")
        if task == APPLY_TASK:
            self.wait_captured()
        return count

    def apply(self) -> Applied:
        """Step 3 for the apply task."""
        processes = (self.service(), self.stack.kafka.process, *self.executors)
        with (
            binlog_clock(self.stack.target) as clock,
            use_watch(processes) as use,
        ):
            self.resume_apply()
        pace = clock.pace()
        return Applied(pace, use.cpu_s(pace.begin_s, pace.end_s))

    def replicate(self) -> Pace:
        """Step 3 for the native replica."""
        with binlog_clock(self.replica.server) as clock:
            self.replica.catch_up()
        return clock.pace()

    def check(self, workload: Workload) -> None:
        """Step 4. Fatal MR-8004 names the table and the server that differs."""
        for table in workload.tables:
            query = f"CHECKSUM TABLE {workload.database}.{table}"
            wanted = self.source.execute(query)
            for server in self._copies():
                if server.execute(query) != wanted:
                    raise Fatal("MR-8004", f"server {server.server_id} has other rows in {table}")

    def set_durable(self, *, is_durable: bool) -> None:
        """``sync_binlog`` and ``innodb_flush_log_at_trx_commit`` of target and replica."""
        for server in self._copies():
            for name, relaxed in zip(_DURABLE, (2, 0), strict=True):
                server.execute(f"SET GLOBAL {name} = {1 if is_durable else relaxed}")

    def service(self) -> ServerProcess:
        """The process of the apply driver."""
        return next(each for each in self.stack.services if each.spec.name == "millrace apply")

    def _copies(self) -> list[DatabaseServer]:
        """Target and replica."""
        return [self.stack.target, *(() if self.peer is None else (self.peer.server,))]


@contextmanager
def open_scene(
    flavour: Flavour,
    *,
    replica_count: int = 0,
    has_apply: bool = True,
    has_driver: bool = False,
    has_peer: bool = False,
) -> Iterator[Scene]:
    """A fresh stack whose tasks run, and the native replica beside it. All of it ends with the block."""
    options = StackOptions(
        flavour=flavour,
        replica_count=replica_count,
        has_apply=has_apply,
        has_driver=has_driver,
    )
    with bench_folder() as folder, ExitStack() as undo:
        stack = undo.enter_context(LocalStack(folder, options, say=say))
        peer = None
        if has_peer:
            source = stack.source.primary
            peer = NativeReplica(source, make_account(source), folder / "replica")
            undo.enter_context(peer)
        session = undo.enter_context(closing(Session.open(stack.zookeeper.hosts)))
        yield Scene(stack, session, peer)


open_capture = partial(open_scene, has_apply=False)
