"""A whole stack as a fixture, whose parts can be killed, stopped and started again with armed fault points.

``fault_stack`` (session scope) is ours to break: each test has databases of its own, breaks something under load,
mends it, and calls ``settle``, which asks everybody: the task's own word, the target (`compare`), the topic (`topic
verify`). A test says with ``@on(flavour)`` which stack it breaks; ``--chaos`` gives it the other flavour's, too.

A test leaves the stack whole: one that passes and leaves something down is red. What a failed one leaves is kept
(``tests/keeping.py``); then the service begins anew, so that it fails alone.

What a dead process held is free at once: its session is ended by force. The session timeout itself outlives the
pauses of a busy machine.
"""

import json
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from deploy.servers import sql
from deploy.servers.process import ServerProcess, last_lines, session_members
from deploy.servers.server import Server
from deploy.services import (
    APPLY_TASK,
    CAPTURE_TASK,
    PROGRAM,
    SERVICES,
    TOPIC,
    document_commands,
    service_specs,
)
from deploy.stack import LocalStack, StackOptions
from deploy.workload.shop import Connection, Counts, create_shop, run_shop
from millrace.errors import Retryable
from schemas.gtid import Flavour
from schemas.status import TaskReport, TaskState
from tests.control import SESSION_TIMEOUT_S, end_session
from tests.fix_servers import FLAVOURS
from tests.keeping import keep
from tests.waiting import eventually, is_stopped
from zk.election import leader_of
from zk.session import Session
from zk.tree import Tree
from zk.view import read_cluster, views

SETTLE_S = 240
PASS_S = 240
LOAD_RATE = 100.0
ROUND_S = 30.0  # of the load: each round has a database of its own, so that its DDL comes anew
LOOK_S = 0.1
TREE = Tree("default")
ROOT = Path(__file__).parent.parent
RUNNING_WORDS = "task running"  # in the log of a process whose task began to move rows


def on(flavour: Flavour) -> pytest.MarkDecorator:
    """The stack that a test breaks; with ``--chaos`` every flavour's."""
    chosen = flavour if flavour in FLAVOURS else FLAVOURS[0]
    stacks = [
        pytest.param(each, marks=[] if each is chosen else pytest.mark.chaos, id=each)
        for each in FLAVOURS
    ]
    return pytest.mark.parametrize("fault_stack", stacks, indirect=True, scope="session")


@dataclass(slots=True)
class FaultStack:
    """A running stack and its service's processes by name: registry, scheduler, worker, apply."""

    stack: LocalStack
    services: dict[str, ServerProcess]
    databases: list[str] = field(default_factory=list)

    # ---- processes -------------------------------------------------------------------------------------

    def launch(
        self,
        name: str,
        *,
        fault: str = "",
        called: str = "",
        options: tuple[str, ...] = (),
        is_trusting: bool = False,
    ) -> ServerProcess:
        """Start one more process of a kind (``called`` otherwise), with ``MILLRACE_FAULT`` armed if asked for.

        One that ``is_trusting`` is of ``tests/trusting.py``: no slow commit makes its publisher anew, and it commits
        nothing without rows.
        """
        specs = service_specs(self.stack.folder, self.stack.endpoints)
        spec = next(spec for spec in specs if spec.name.split()[-1] == name)
        environment = {
            **spec.environment,
            "MILLRACE_FAULT": fault,
            "MILLRACE_ZOOKEEPER_TIMEOUT_S": str(SESSION_TIMEOUT_S),
        }
        command, log = (*spec.command, *options), spec.log
        if is_trusting:
            command = (*PROGRAM[:-1], "tests.trusting", *command[len(PROGRAM) :])
            environment["PYTHONPATH"] = str(ROOT)
        if called:
            log = spec.log.parent.with_name(called) / "log"
            command = tuple(
                f"{part}-{called}" if part.endswith("/relay") else part for part in command
            )
        process = ServerProcess(replace(spec, command=command, log=log, environment=environment))
        process.launch()
        self.services[called or name] = process
        self.stack.services = tuple(self.services.values())
        return process

    def restart(self, name: str, *, fault: str = "") -> ServerProcess:
        """End a process and start it again."""
        self.end(name)
        return self.launch(name, fault=fault)

    def log_from_here(self, name: str) -> Callable[[], list[str]]:
        """The lines that a process's log gets from now on: it is one file for all of a session's tests."""
        log = self.services[name].spec.log
        size = log.stat().st_size

        def read() -> list[str]:
            with log.open("rb") as file:
                file.seek(size)
                return file.read().decode(errors="replace").splitlines()

        return read

    def end(self, name: str) -> None:
        """End a process: in order, but for Spark's, which takes its time; of one that is dead, what it held is free."""
        process = self.services[name]
        if name == "apply":
            process.kill()
        process.stop()
        self.expire(process)  # also of one that was too slow to end in order

    def kill_together(self, *names: str) -> None:
        """SIGKILL to all that belongs to processes of the service and servers, in one instant."""
        processes = [
            self.services[name] if name in self.services else self.servers[name].process
            for name in names
        ]
        for pid in [pid for process in processes for pid in session_members(process.identity)]:
            with suppress(ProcessLookupError):  # it ended by itself meanwhile
                os.kill(pid, signal.SIGKILL)
        for process in processes:
            process.kill()

    def expire(self, process: ServerProcess) -> None:
        """The session timeout of a process that is dead or frozen, at once: its tasks, or the lead, are free."""
        name_end = f"-{process.identity.pid}"
        with self.control() as session:
            names = session.children(TREE.folder("workers"))
            paths = [TREE.worker(name) for name in names if name.endswith(name_end)]
            paths += [TREE.leader] if leader_of(session, TREE).endswith(name_end) else []
            for path in paths:
                if (found := session.get(path)) is not None:
                    end_session(self.stack.zookeeper.hosts, found.ephemeral_owner)

    def expire_owner(self, session: Session, task: str) -> None:
        """The ensemble ends the session of whoever has the task, though he lives."""
        end_session(self.stack.zookeeper.hosts, self.session_of_owner(session, task))

    def session_of_owner(self, session: Session, task: str) -> int:
        """The number of the session of whoever has the task."""
        owner = session.get(TREE.owner(task))
        assert owner is not None, f"nobody has {task}"
        return owner.ephemeral_owner

    def wait_dead(self, name: str) -> None:
        """Until the process has ended by itself: the armed fault point was passed."""
        process = self.services[name]
        self._wait_passed(name, lambda: not process.is_alive())

    def wait_stopped(self, name: str) -> None:
        """Until a process of the session has stopped itself at its armed fault point."""
        self._wait_passed(name, lambda: bool(self.stopped(name)))

    def wait_ended(self, name: str) -> None:
        """Until the process of the service has ended by itself; one that does not tells at what its threads are."""
        process = self.services[name]
        try:
            eventually(lambda: not process.is_alive(), timeout_s=PASS_S)
        except AssertionError:
            os.kill(process.identity.pid, signal.SIGABRT)
            eventually(lambda: not process.is_alive())
            raise AssertionError(
                f"{name} did not end within {PASS_S} s\n{last_lines(process.spec.log, count=200)}"
            ) from None

    def stopped(self, name: str) -> tuple[int, ...]:
        """The processes of the session that are stopped."""
        return stopped_in(self.services[name])

    def _wait_passed(self, name: str, is_passed: Callable[[], bool]) -> None:
        try:
            eventually(is_passed, timeout_s=PASS_S, every_s=LOOK_S)
        except AssertionError:
            told = self.stack.try_command("status").stdout
            log = last_lines(self.services[name].spec.log)
            raise AssertionError(
                f"{name} did not pass its armed fault point within {PASS_S} s\n{told}\n{log}"
            ) from None

    @property
    def servers(self) -> dict[str, Server]:
        """What the service stands on."""
        stack = self.stack
        replicas = {f"replica {n}": server for n, server in enumerate(stack.source.replicas, 1)}
        return {
            "kafka": stack.kafka,
            "zookeeper": stack.zookeeper,
            "primary": stack.source.primary,
            **replicas,
            "target": stack.target,
        }

    def not_whole(self) -> tuple[str, ...]:
        """What is down, and what lives that was started beside."""
        servers = [name for name, server in self.servers.items() if not server.is_alive()]
        services = self.services.items()
        wrong = [name for name, process in services if process.is_alive() != (name in SERVICES)]
        return (*servers, *wrong)

    def make_whole(self) -> None:
        """Start everything that is down, end what was started beside."""
        for server in self.servers.values():
            if not server.is_alive():
                server.start()
        for name, process in tuple(self.services.items()):
            if name not in SERVICES:
                self.end(name)
                del self.services[name]
            elif not process.is_alive():
                self.end(name)
                self.launch(name)

    def begin_anew(self) -> None:
        """Behind a failed test, in whatever way it left them: servers go on, the service's processes are others, the
        documents are as they were, and no task is paused or blocked."""
        for server in self.servers.values():
            server.resume()
        for process in self.services.values():
            process.kill()
        self.make_whole()
        for command in document_commands(self.stack.folder):
            self.stack.try_command(*command, "--replace")
        for task in (CAPTURE_TASK, APPLY_TASK):
            self.stack.try_command("task", "resume", task)

    def keep(self, failure: BaseException, name: str) -> None:
        """Keep what is there for who looks into a failure; its note says where."""
        processes = [
            *self.services.values(),
            *(server.process for server in self.servers.values()),
        ]
        keep(failure, self.stack.folder, processes, name=name)

    def lose_member(self, read: Server, other: Server) -> None:
        """Kill the member that capture reads; until that was told there is nobody to go on with."""
        other.pause()
        try:
            read.kill()
            lost = ("MR-1006", "MR-1001", "MR-1030")
            told = self.wait_report(CAPTURE_TASK, TaskState.DEGRADED, *lost)
            assert told.fix
        finally:
            other.resume()

    # ---- what is told ----------------------------------------------------------------------------------

    def report(self, session: Session, task: str) -> TaskReport:
        """What `millrace status` would say of a task now."""
        found = views(read_cluster(session, TREE))
        return next(view.report for view in found if view.name == task)

    def wait_running(self, task: str) -> None:
        """Until a task runs."""
        self.wait_report(task, TaskState.RUNNING)

    def epoch(self, task: str) -> int:
        """Of the task's last owner."""
        with self.control() as session:
            return self.report(session, task).epoch

    def wait_epoch_after(self, task: str, epoch: int) -> None:
        """Until a later owner runs the task."""
        with self.control() as session:

            def is_there() -> bool:
                report = self.report(session, task)
                return report.state is TaskState.RUNNING and report.epoch > epoch

            eventually(is_there, timeout_s=PASS_S, every_s=LOOK_S, what=f"{task} under a new epoch")

    def wait_report(self, task: str, state: TaskState, *codes: str) -> TaskReport:
        """Until a task is in this state with one of these codes (any, if none is given)."""
        return self._wait_told(task, frozenset({state}), frozenset(codes))

    def wait_unwell(self, task: str, *codes: str) -> TaskReport:
        """Until a task is degraded or blocked with one of these codes (any, if none is given)."""
        return self._wait_told(
            task, frozenset({TaskState.DEGRADED, TaskState.BLOCKED}), frozenset(codes)
        )

    def _wait_told(
        self, task: str, states: frozenset[TaskState], codes: frozenset[str]
    ) -> TaskReport:
        seen: list[TaskReport] = []
        with self.control() as session:

            def is_told() -> bool:
                try:
                    report = self.report(session, task)
                except Retryable:
                    return False  # ZooKeeper is away
                seen.append(report)
                return report.state in states and (not codes or report.code in codes)

            try:
                eventually(is_told, timeout_s=PASS_S, every_s=LOOK_S)
            except AssertionError:
                told = "\n".join(dict.fromkeys(f"{r.state.value} {r.code} {r.why}" for r in seen))
                raise AssertionError(f"{task} was never {states} {codes}:\n{told}") from None
        return seen[-1]

    def status(self, task: str) -> dict[str, Any]:
        """The task's object in `millrace status --json`."""
        plain = json.loads(self.stack.run_command("status", "--json"))
        return next(found for found in plain["tasks"] if found["task"] == task)

    @contextmanager
    def control(self) -> Iterator[Session]:
        """A session of the test's own."""
        session = Session.open(self.stack.zookeeper.hosts, timeout_s=SESSION_TIMEOUT_S)
        try:
            yield session
        finally:
            session.close()

    # ---- load and proof --------------------------------------------------------------------------------

    def connect(self, database: str | None = None) -> Connection:
        """A root connection to the source's primary."""
        return sql.open_root(self.stack.source.primary.socket, database=database)

    @contextmanager
    def load(self, name: str) -> Iterator[None]:
        """The shop at work until the end of the block, in databases ``name_1``, ``name_2``, …; earlier tests' go."""
        for database in self.databases:
            self.stack.source.execute(f"DROP DATABASE {database}")
        self.databases.clear()
        stop = threading.Event()
        failures: list[BaseException] = []

        def work() -> None:
            try:
                while not stop.is_set():
                    self._round(f"{name}_{len(self.databases) + 1}", stop)
            except BaseException as failure:  # noqa: BLE001 - raised again below
                failures.append(failure)

        thread = threading.Thread(target=work, name="load")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            if failures:  # raised from here, too, when the block failed: a load that ended is why
                raise failures[0]

    def _round(self, database: str, stop: threading.Event) -> None:
        create_shop(self.connect, database=database)
        self.databases.append(database)
        run_shop(
            lambda: self.connect(database),
            duration_s=ROUND_S,
            seed=len(self.databases),
            counts=Counts(),
            rate=LOAD_RATE,
            stop=stop,
        )

    def fill(self, database: str, *, rows: int) -> None:
        """One source transaction of so many rows of 400 bytes, in a database of its own."""
        connection = self.connect()
        cursor = connection.cursor()
        cursor.execute(f"CREATE DATABASE {database}")
        self.databases.append(database)
        cursor.execute(f"CREATE TABLE {database}.t (id INT NOT NULL PRIMARY KEY, v VARCHAR(400))")
        for start in range(0, rows, 20_000):
            values = ",".join(f"({n},'{n:0400}')" for n in range(start, min(start + 20_000, rows)))
            cursor.execute(f"INSERT INTO {database}.t VALUES {values}")
        connection.commit()
        connection.close()

    def settle(self, *, timeout_s: int = SETTLE_S) -> None:
        """Everything committed is applied, every row of the target equals the source's, the topic proves whole."""
        compared = self.stack.try_command(
            "compare", APPLY_TASK, "--timeout", str(timeout_s), timeout_s=2 * timeout_s
        )
        assert compared.returncode == 0, compared.stdout + compared.stderr
        verified = self.stack.try_command("topic", "verify", TOPIC)
        assert verified.returncode == 0, verified.stdout + verified.stderr

    def wait_published(self) -> None:
        """Everything committed is published."""
        self._wait_task(CAPTURE_TASK)

    def wait_applied(self) -> None:
        """Everything committed is in the target."""
        self._wait_task(APPLY_TASK)

    def _wait_task(self, task: str) -> None:
        waiting = ("task", "wait", task, "--timeout", str(SETTLE_S))
        done = self.stack.try_command(*waiting, timeout_s=2 * SETTLE_S)
        assert done.returncode == 0, done.stdout + done.stderr


def stopped_in(process: ServerProcess) -> tuple[int, ...]:
    """The processes of its session that are stopped."""
    return tuple(pid for pid in session_members(process.identity) if is_stopped(pid))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, None]:
    """Every test of a stack leaves it whole; of one that failed, what it left is kept."""
    outcome = yield
    stack = getattr(item, "funcargs", {}).get("fault_stack")
    if not isinstance(stack, FaultStack):
        return
    failure = outcome.excinfo[1] if outcome.excinfo else None
    if failure is None and (wrong := stack.not_whole()):
        failure = AssertionError(f"left down or behind: {', '.join(wrong)}")
        outcome.force_exception(failure)
    if failure is not None:
        stack.keep(failure, item.name)
        stack.begin_anew()
    else:
        stack.make_whole()


@pytest.fixture(scope="session", params=FLAVOURS, ids=str)
def fault_stack(
    request: pytest.FixtureRequest, servers_folder: Path, session_timeout: None
) -> Iterator[FaultStack]:
    """A stack with one replica, ours to break."""
    options = StackOptions(flavour=request.param, replica_count=1)
    with LocalStack(servers_folder / f"stack-{request.param}", options) as stack:
        yield FaultStack(
            stack, {process.spec.name.split()[-1]: process for process in stack.services}
        )


@pytest.fixture(scope="session")
def session_timeout() -> Iterator[None]:
    """The session timeout of tests for every process that is started from here, which tells its threads in the end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "MILLRACE_ZOOKEEPER_TIMEOUT_S", str(SESSION_TIMEOUT_S))
        patch.setitem(os.environ, "PYTHONFAULTHANDLER", "1")  # an abort shows all threads
        yield
