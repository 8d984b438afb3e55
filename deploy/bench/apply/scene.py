"""A stack and a native replica of its source; runs one workload through each applier alone.

A round:

    1  drop the database of the round before and create it again; both appliers follow
    2  pause the apply task; the replica is stopped; write the changes; wait until capture has published them
    3  each applier in turn, alone: the clock of ``deploy.bench.apply.clock`` runs while it catches up
    4  compare the checksums of all tables with the source's

Source, target and replica are servers of one flavour with the same settings. A source set of one server is enough: no
replica takes part, and it would cost time. Capture stays up and idle while appliers are timed.
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from deploy.bench.apply.clock import Pace, binlog_clock
from deploy.bench.apply.processes import use_watch
from deploy.bench.apply.workloads import Workload
from deploy.bench.peers import NativeReplica, make_account
from deploy.local.readiness import task_report
from deploy.local.services import APPLY_TASK, CAPTURE_TASK
from deploy.local.stack import LocalStack, StackOptions
from deploy.servers import DatabaseServer, sql
from deploy.servers.process import ServerProcess
from millrace.errors import Fatal
from millrace.home_folder import home
from schemas.gtid import Flavour
from schemas.status import TaskReport, TaskState
from zk.client.session import Session

POLL_S = 0.1
WAIT_S = 3_600.0
COMMAND_WAIT = ("--timeout", "3600")
APPLY_SERVICE = "millrace apply"
_DURABLE = ("innodb_flush_log_at_trx_commit", "sync_binlog")


@dataclass(frozen=True, slots=True)
class Applied:
    """One catch-up of the apply task: its pace, and the CPU seconds of driver, Python workers and broker meanwhile."""

    pace: Pace
    cpu_s: float


class Scene:
    """``replica`` is there if it was asked for. ``executors``: processes beside the driver's own."""

    def __init__(self, stack: LocalStack, replica: NativeReplica | None, session: Session) -> None:
        self.stack = stack
        self._replica = replica
        self._session = session
        self.executors: tuple[ServerProcess, ...] = ()
        self.source = stack.source.primary
        self.connect = partial(sql.open_root, self.source.socket)

    def create(self, workload: Workload) -> None:
        """Step 1."""
        self.source.execute(f"DROP DATABASE IF EXISTS {workload.database}")
        workload.create(self.connect)
        self.wait_followed()

    def write(self, workload: Workload, changes: int) -> int:
        """Step 2; the number of changes."""
        self.pause()
        begin_s = time.monotonic()
        made = workload.write(self.connect, changes)
        say(f"  {made:,} changes written in {time.monotonic() - begin_s:.0f} s")
        self.wait_captured()
        return made

    def apply(self) -> Applied:
        """Step 3 for the apply task."""
        processes = (self.service(), self.stack.kafka.process, *self.executors)
        with (
            binlog_clock(self.stack.target) as clock,
            use_watch(processes) as use,
        ):
            self.resume()
        pace = clock.pace()
        return Applied(pace, use.cpu_s(pace.begin_s, pace.end_s))

    def replicate(self) -> Pace:
        """Step 3 for the native replica."""
        with binlog_clock(self.replica.server) as clock:
            self.replica.catch_up()
        return clock.pace()

    def check(self, workload: Workload) -> None:
        """Step 4. Fatal MR-8004 names the table and the server that differs."""
        copies = [self.stack.target]
        if self._replica is not None:
            copies.append(self._replica.server)
        for table in workload.tables:
            query = f"CHECKSUM TABLE {workload.database}.{table}"
            wanted = self.source.execute(query)
            for server in copies:
                if server.execute(query) != wanted:
                    raise Fatal("MR-8004", f"server {server.server_id} has other rows in {table}")

    def set_durable(self, *, is_durable: bool) -> None:
        """``sync_binlog`` and ``innodb_flush_log_at_trx_commit`` of target and replica."""
        copies: list[DatabaseServer] = [self.stack.target]
        if self._replica is not None:
            copies.append(self._replica.server)
        for server in copies:
            for name, relaxed in zip(_DURABLE, (2, 0), strict=True):
                server.execute(f"SET GLOBAL {name} = {1 if is_durable else relaxed}")

    @property
    def replica(self) -> NativeReplica:
        """Fatal MR-9001 in a scene without one."""
        if self._replica is None:
            raise Fatal("MR-9001", "this scene has no native replica")
        return self._replica

    def pause(self) -> None:
        self.stack.run_command("task", "pause", APPLY_TASK)

    def resume(self) -> None:
        self.stack.run_command("task", "resume", APPLY_TASK)
        self.wait_reported()

    def service(self) -> ServerProcess:
        return next(each for each in self.stack.services if each.spec.name == APPLY_SERVICE)

    def wait_captured(self) -> None:
        """Wait until the topic has everything that the source has now."""
        self.stack.run_command("task", "wait", CAPTURE_TASK, *COMMAND_WAIT)

    def wait_applied(self) -> None:
        """Wait until the target has everything that the source has now."""
        self.wait_captured()
        self.wait_reported()

    def wait_followed(self) -> None:
        """Wait until target and replica have everything that the source has now."""
        self.wait_applied()
        if self._replica is not None:
            self._replica.catch_up()

    def wait_reported(self) -> None:
        """Wait until the apply task has reported the last ``seq`` of the topic. Fatal MR-8004 when it is blocked."""
        wanted = self.report(CAPTURE_TASK).seq
        deadline = time.monotonic() + WAIT_S
        while (report := self.report(APPLY_TASK)).seq < wanted:
            if report.state is TaskState.BLOCKED:
                raise Fatal("MR-8004", f"{APPLY_TASK} is blocked: {report.code} {report.why}")
            if time.monotonic() > deadline:
                raise Fatal("MR-8004", f"{APPLY_TASK} is at {report.seq}, not at {wanted}")
            self.stack.check_services()
            time.sleep(POLL_S)

    def report(self, task: str) -> TaskReport:
        return task_report(self._session, task)


@contextmanager
def open_scene(flavour: Flavour, *, has_replica: bool = True) -> Iterator[Scene]:
    """A fresh stack whose tasks run, and the replica beside it. All of it ends with the block."""
    folder = home() / "run"
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as open_things:
        place = Path(
            open_things.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=folder))
        )
        options = StackOptions(flavour=flavour, replica_count=0)
        stack = open_things.enter_context(LocalStack(place, options, say=say))
        replica = None
        if has_replica:
            account = make_account(stack.source.primary)
            replica = open_things.enter_context(
                NativeReplica(stack.source.primary, account, place / "replica")
            )
        session = open_things.enter_context(closing(Session.open(stack.zookeeper.hosts)))
        yield Scene(stack, replica, session)


def say(text: str) -> None:
    """Progress, on standard error."""
    print(text, file=sys.stderr, flush=True)
