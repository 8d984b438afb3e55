"""A whole stack: a source set, a target, Kafka, ZooKeeper, and Millrace's own processes.

    with LocalStack(folder, StackOptions()) as stack:      # in the foreground: ends with this process
        stack.description

Guarantees: a failed start, Ctrl-C and the end of the ``with`` block end every process that was started. Each stack has
its own accounts and passwords. They are in files that only their owner can read, and in no binlog. A secured stack has
TLS and logins everywhere (``deploy.local.security``).
Not done here: stacks in the background (``deploy.local.background``).
"""

import os
import secrets
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Self

from millrace.cli import present_commands
from millrace.cli.exits import ExitCode
from millrace.deploy.local.description import ServerAddress, ServiceAddresses, StackDescription
from millrace.deploy.local.readiness import ensemble_of, wait_for_registry, wait_for_tasks
from millrace.deploy.local.secret_files import SecretFiles
from millrace.deploy.local.security import StackSecurity
from millrace.deploy.local.services import (
    APPLY_TASK,
    CAPTURE_TASK,
    KAFKA_RIGHTS,
    PROGRAM,
    PUBLISH_TASK,
    SOURCE_SET,
    TARGET_SET,
    TOPIC,
    Endpoints,
    SetAddress,
    apply_document,
    capture_document,
    document_commands,
    missing_services,
    publish_document,
    relay_root,
    service_environment,
    service_specs,
    set_document,
)
from millrace.deploy.servers import (
    Account,
    DatabaseServer,
    DatabaseSet,
    KafkaServer,
    ServerOptions,
    ZooKeeperServer,
)
from millrace.deploy.servers.fetch import fetch_for
from millrace.deploy.servers.process import ServerProcess, free_port
from millrace.drivers.mysql.grants import Grant, Role, needed_grants
from millrace.errors import Fatal
from millrace.home_folder import home
from millrace.schemas.gtid import Flavour
from millrace.zk.ensemble import Ensemble

SERVICE_USER = "millrace"
ADMIN_USER = "admin"
ADMIN_PRIVILEGES = "ALL PRIVILEGES"
SOURCE_ROLES = (Role.SOURCE, Role.LOAD, Role.COMPARE, Role.SNAPSHOT)
TARGET_SERVER_ID = 101
COMMAND_S = 3_700.0  # longer than any --timeout that is passed to a command
SERVICE_STOP_S = 15.0
REVIVED_MAX = 5  # processes at the start of a stack: a busy machine lets a broker answer late
Say = Callable[[str], object]


def source_grants(flavour: Flavour) -> tuple[Grant, ...]:
    """The grants of the service's account on the source set, on every database."""
    roles = (needed_grants(role, flavour, ("%",)) for role in SOURCE_ROLES)
    return tuple(grant for grants in roles for grant in grants)


@dataclass(frozen=True, slots=True)
class StackOptions:
    """The choices for a new stack. ``dies_with_parent`` is False for a stack in the background.

    ``is_secured``: TLS and logins everywhere. Without ``has_apply`` there is neither a target nor an apply task, and
    the apply driver runs only with ``has_driver``, for publish tasks.
    """

    flavour: Flavour = Flavour.MARIADB
    replica_count: int = 2
    dies_with_parent: bool = True
    is_secured: bool = False
    has_apply: bool = True
    has_driver: bool = False


class LocalStack:
    """A stack in ``folder``, which belongs to it alone."""

    def __init__(self, folder: Path, options: StackOptions, *, say: Say = print) -> None:
        self.folder = folder
        self.options = options
        self._say = say
        self._secrets = SecretFiles(folder / "secrets")
        security = StackSecurity.make(folder, self._secrets) if options.is_secured else None
        self.security = security
        dies = options.dies_with_parent
        self._kafka_security = security.kafka() if security else None
        self.kafka = KafkaServer(
            folder / "kafka", security=self._kafka_security, dies_with_parent=dies
        )
        self.zookeeper = ZooKeeperServer(
            folder / "zookeeper",
            protection=security.zookeeper() if security else None,
            dies_with_parent=dies,
        )
        server = ServerOptions(dies_with_parent=dies)
        count = options.replica_count
        self.source = DatabaseSet.of(
            options.flavour, folder / "source", replica_count=count, options=server
        )
        target = ServerOptions(server_id=TARGET_SERVER_ID, dies_with_parent=dies)
        self.target = DatabaseServer.of(options.flavour, folder / "target", target)
        targets = (self.target,) if options.has_apply else ()
        self._databases = (*self.source.members, *targets)
        if security:
            for member in self._databases:
                member.require_tls(security.server)
        self.services: tuple[ServerProcess, ...] = ()
        self._revived = 0
        self._admin = Account(ADMIN_USER, secrets.token_urlsafe(12))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @cached_property
    def endpoints(self) -> Endpoints:
        """The addresses of the servers. The registry's port is chosen at the first call."""
        servers = (self.kafka.bootstrap, self.zookeeper.hosts)
        return Endpoints(*servers, free_port(), self.security)

    @property
    def ensemble(self) -> Ensemble:
        """ZooKeeper, as the stack's processes reach it."""
        return ensemble_of(self.endpoints)

    def start(self, *, before_services: Callable[[], None] | None = None) -> None:
        """Start everything and wait until every task runs. A failed start leaves nothing behind.

        ``before_services`` is called when the servers run.
        """
        try:
            self.start_servers()
            if before_services is not None:
                before_services()
            self.start_services()
            self.create_documents()
            self.wait_running()
        except BaseException:
            self.stop()
            raise

    def start_servers(self) -> None:
        """Start databases, broker and ZooKeeper at the same time; create accounts; start replication.

        Fetches those that the home folder does not have.
        """
        fetch_for(self.options.flavour, say=self._say)
        self._say(f"starting {self.options.flavour} (source set and target), Kafka, ZooKeeper")
        for server in (*self._databases, self.kafka, self.zookeeper):
            server.launch()
        for member in self._databases:
            member.wait_ready()
        self.source.replicate()
        for member in self._databases:
            member.create_account(self._admin, ADMIN_PRIVILEGES, can_grant=True)
        self._create_source_account()
        if self.options.has_apply:
            self._create_target_account()
        self.zookeeper.wait_ready()
        self.kafka.wait_ready()
        if self.security and self._kafka_security:
            self.security.make_kafka_users(self._kafka_security.certificate, KAFKA_RIGHTS)
            self.security.write_configs(self.endpoints.kafka, self.endpoints.registry)

    def _create_source_account(self) -> None:
        """With the privileges of `millrace grants print` for every database."""
        account = Account(SERVICE_USER, self._secrets.text(SOURCE_SET))
        for member in self.source.members:
            member.create_least_account(account, source_grants(self.options.flavour))

    def _create_target_account(self) -> None:
        """In a secured stack, with the privileges of `millrace grants print` for every database."""
        account = Account(SERVICE_USER, self._secrets.text(TARGET_SET))
        if self.security:
            grants = needed_grants(Role.TARGET, self.options.flavour, ("%",))
            self.target.create_least_account(account, grants)
        else:
            self.target.create_account(account, ADMIN_PRIVILEGES)

    def start_services(self) -> None:
        """Start registry, scheduler, capture worker and apply driver, as far as this installation has them."""
        if missing := missing_services():
            self._say(f"this installation does not have: millrace {', '.join(missing)}")
        specs = service_specs(self.folder, self.endpoints)
        if not (self.options.has_apply or self.options.has_driver):
            specs = tuple(spec for spec in specs if spec.name != "millrace apply")
        dies = self.options.dies_with_parent
        self.services = tuple(ServerProcess(spec, dies_with_parent=dies) for spec in specs)
        self._say(f"starting {', '.join(spec.name for spec in specs) or 'no service'}")
        for service in self.services:
            service.launch()

    def create_documents(self) -> None:
        """Create the sets, then the tasks: commands of a kind at the same time, while the services still start."""
        commands = self.write_documents()
        with ThreadPoolExecutor() as pool:
            for _, kind in groupby(commands, key=lambda command: command[0]):
                of_kind = list(kind)
                for command in of_kind:
                    self._say("$ millrace " + " ".join(command))
                list(pool.map(lambda command: self.run_command(*command), of_kind))

    def restart_apply(self, spark: tuple[str, ...]) -> None:
        """Start the apply driver again with these arguments."""
        specs = service_specs(self.folder, self.endpoints, spark=spark)
        place = next(place for place, spec in enumerate(specs) if spec.command[4] == "apply")
        self.services[place].stop(timeout_s=SERVICE_STOP_S)
        driver = ServerProcess(specs[place], dies_with_parent=self.options.dies_with_parent)
        driver.launch()
        self.services = (*self.services[:place], driver, *self.services[place + 1 :])

    def write_documents(self) -> tuple[tuple[str, ...], ...]:
        """Write the documents. Returns the commands that create sets and tasks from them."""
        authority = None if self.source.primary.tls is None else self.source.primary.tls.authority
        source_ports = tuple(member.port for member in self.source.members)
        documents = {
            SOURCE_SET: set_document(
                SetAddress(SOURCE_SET, source_ports, self._secrets.path(SOURCE_SET), authority)
            ),
            TARGET_SET: set_document(
                SetAddress(
                    TARGET_SET, (self.target.port,), self._secrets.path(TARGET_SET), authority
                )
            ),
            CAPTURE_TASK: capture_document(self.endpoints),
            APPLY_TASK: apply_document(self.endpoints),
            PUBLISH_TASK: publish_document(self.endpoints),
        }
        if not self.options.has_apply:
            del documents[TARGET_SET], documents[APPLY_TASK], documents[PUBLISH_TASK]
        for name, text in documents.items():
            (self.folder / f"{name}.yaml").write_text(text)
        present = present_commands()
        return tuple(
            command
            for command in document_commands(self.folder)
            if command[0] in present and Path(command[-1]).exists()
        )

    def run_command(self, *arguments: str) -> str:
        """Run ``millrace ARGUMENTS`` against this stack and return its output. Fatal MR-8004 with its error output."""
        done = self.try_command(*arguments)
        if done.returncode != 0:
            raise Fatal("MR-8004", f"millrace {' '.join(arguments)} failed: {done.stderr.strip()}")
        return done.stdout

    def try_command(
        self, *arguments: str, timeout_s: float = COMMAND_S
    ) -> "subprocess.CompletedProcess[str]":
        """Run ``millrace ARGUMENTS`` against this stack. Its exit code is not checked."""
        environment = {**os.environ, **service_environment(self.endpoints)}
        return subprocess.run(
            (*PROGRAM, *arguments),
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def wait_running(self) -> None:
        """Wait until the registry answers, and every task runs that this installation can run."""
        if "registry" not in missing_services():
            wait_for_registry(self.endpoints.registry_login, check=self.revive_services)
        tasks = [*self.description.capture_tasks, *self.description.apply_tasks]
        if tasks and "scheduler" not in missing_services():
            wait_for_tasks(self.ensemble, tasks, check=self.revive_services)

    def revive_services(self) -> None:
        """As ``check_services``, but a process that asks for another try gets some, as from a service manager."""
        for service in self.services:
            if service.exit_status == ExitCode.RETRY and self._revived < REVIVED_MAX:
                self._revived += 1
                service.kill()  # the rest of its session
                service.launch()
        self.check_services()

    def check_services(self) -> None:
        """Fatal MR-8004 with the end of the log if one of our processes has ended."""
        for service in self.services:
            if not service.is_alive():
                raise service.failure("ended")

    def stop(self) -> None:
        """End our processes as an operator would, then kill the servers. Their data is not kept."""
        for service in self.services:
            service.terminate()
        for service in self.services:
            service.stop(timeout_s=SERVICE_STOP_S)
        servers = (self.kafka, self.zookeeper, *self._databases)
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda server: server.discard(), servers))

    @property
    def description(self) -> StackDescription:
        missing = missing_services()
        has_apply = self.options.has_apply and not {"task", "apply"} & set(missing)
        login = {
            "user": self._admin.user,
            "password": self._admin.password,
            "host": self.target.host,
        }
        roles = ["primary", *("replica" for _ in self.source.replicas)]
        source = zip(self.source.members, roles, strict=True)
        return StackDescription(
            source=tuple(
                ServerAddress(set=SOURCE_SET, role=role, port=member.port, **login)
                for member, role in source
            ),
            targets=(
                ServerAddress(set=TARGET_SET, role="primary", port=self.target.port, **login),
            ),
            services=ServiceAddresses(
                kafka=self.endpoints.kafka,
                zookeeper=self.endpoints.zookeeper,
                registry=self.endpoints.registry,
                home=str(home()),
                relay_dir=str(relay_root(self.folder)),
                topic=TOPIC,
            ),
            capture_tasks=() if {"task", "worker"} & set(missing) else (CAPTURE_TASK,),
            apply_tasks=(APPLY_TASK,) if has_apply else (),
            tls_ca=str(self.security.authority) if self.security else "",
        )
