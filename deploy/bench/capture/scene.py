"""Only what capture needs: a source, a broker, ZooKeeper, and Millrace without its apply half.

The processes are registry, scheduler and worker, as a local stack starts them. There is no target, no Spark and, unless
asked for, no replica: on two cores they would take what is measured.
"""

import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from deploy.local.readiness import ensemble_of, task_report, wait_for_registry, wait_for_tasks
from deploy.local.services import (
    CAPTURE_TASK,
    PROGRAM,
    SOURCE_SET,
    Endpoints,
    SetAddress,
    capture_document,
    service_environment,
    service_specs,
    set_document,
)
from deploy.servers import (
    Account,
    DatabaseServer,
    DatabaseSet,
    KafkaServer,
    ServerOptions,
    ZooKeeperServer,
    sql,
)
from deploy.servers.process import ServerProcess, free_port
from deploy.workload.shop import Connect
from millrace.errors import Fatal
from millrace.home_folder import home
from schemas.gtid import Flavour
from zk.client.session import Session

COMMAND_S = 900.0
STOP_S = 15.0
WAIT_S = 900.0
POLL_S = 0.1
_SERVICES = ("registry", "scheduler", "worker")


@dataclass(frozen=True, slots=True)
class Scene:
    """The capture task is created and runs."""

    folder: Path
    source: DatabaseServer
    kafka: KafkaServer
    endpoints: Endpoints
    session: Session
    replicas: tuple[DatabaseServer, ...] = ()

    @property
    def members(self) -> tuple[DatabaseServer, ...]:
        """The members of the source set, the primary first."""
        return (self.source, *self.replicas)

    @property
    def connect(self) -> Connect:
        """Connects to the source as root."""
        return partial(sql.open_root, self.source.socket)

    def command(self, *arguments: str) -> None:
        """Run ``millrace ARGUMENTS``. Fatal MR-8004 with its error output."""
        done = subprocess.run(
            (*PROGRAM, *arguments),
            env={**os.environ, **service_environment(self.endpoints)},
            capture_output=True,
            text=True,
            timeout=COMMAND_S + STOP_S,
            check=False,
        )
        if done.returncode != 0:
            raise Fatal("MR-8004", f"millrace {' '.join(arguments)} failed: {done.stderr.strip()}")

    def pause(self) -> None:
        self.command("task", "pause", CAPTURE_TASK)

    def resume(self) -> None:
        """Resume it; returns before it has caught up."""
        self.command("task", "resume", CAPTURE_TASK)

    def wait_captured(self) -> None:
        """Wait until the topic has everything that the source has now."""
        self.command("task", "wait", CAPTURE_TASK, "--timeout", str(round(COMMAND_S)))

    def seq(self) -> int:
        return task_report(self.session, CAPTURE_TASK).seq

    def wait_seq(self, wanted: int) -> None:
        deadline = time.monotonic() + WAIT_S
        while (seq := self.seq()) < wanted:
            if time.monotonic() > deadline:
                raise Fatal("MR-8004", f"{CAPTURE_TASK} is at {seq}, not at {wanted}")
            time.sleep(POLL_S)


@contextmanager
def open_scene(flavour: Flavour, *, replica_count: int = 0) -> Iterator[Scene]:
    root = home() / "run"
    root.mkdir(parents=True, exist_ok=True)
    with ExitStack() as undo:
        folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=root)))
        source = DatabaseSet.of(
            flavour, folder / "source", replica_count=replica_count, options=ServerOptions()
        )
        kafka, zookeeper = KafkaServer(folder / "kafka"), ZooKeeperServer(folder / "zookeeper")
        servers = (source, kafka, zookeeper)
        for server in servers:
            undo.callback(server.discard)
            server.launch()
        for server in servers:
            server.wait_ready()
        source.replicate()
        password = folder / "password"
        password.touch(mode=0o600)
        password.write_text(secrets.token_urlsafe(18))
        source.create_account(Account("millrace", password.read_text()))
        endpoints = Endpoints(kafka.bootstrap, zookeeper.hosts, free_port())
        check = _start_services(folder, endpoints, undo)
        wait_for_registry(endpoints.registry_login, check=check)
        session = undo.enter_context(closing(Session.open(zookeeper.hosts)))
        scene = Scene(folder, source.primary, kafka, endpoints, session, source.replicas)
        _create_task(scene, password)
        wait_for_tasks(ensemble_of(endpoints), (CAPTURE_TASK,), check=check)
        yield scene


def _start_services(folder: Path, endpoints: Endpoints, undo: ExitStack) -> "partial[None]":
    """Start the processes. The result raises Fatal MR-8004 if one of them has ended."""
    specs = [
        spec for spec in service_specs(folder, endpoints) if spec.name.split()[-1] in _SERVICES
    ]
    services = [ServerProcess(spec) for spec in specs]
    for service in services:
        undo.callback(service.stop, timeout_s=STOP_S)
        service.launch()
    return partial(_check, services)


def _check(services: list[ServerProcess]) -> None:
    for service in services:
        if not service.is_alive():
            raise service.failure("ended")


def _create_task(scene: Scene, password: Path) -> None:
    tls = scene.source.tls
    authority = None if tls is None else tls.authority
    ports = tuple(member.port for member in scene.members)
    address = SetAddress(SOURCE_SET, ports, password, authority)
    documents = (
        ("set", set_document(address)),
        ("task", capture_document(scene.endpoints)),
    )
    for kind, text in documents:
        path = scene.folder / f"{kind}.yaml"
        path.write_text(text)
        scene.command(kind, "create", "-f", str(path))


def say(text: str) -> None:
    """Progress, on standard error."""
    print(text, file=sys.stderr, flush=True)
