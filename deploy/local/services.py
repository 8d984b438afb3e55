"""Millrace's own processes in a local stack, and the documents that configure it.

Processes and documents are created with commands that a user could type. A command that this installation does not have
is left out, and ``missing_services`` names it.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from millrace.cli import present_commands
from millrace.deploy.local.security import (
    KAFKA_APPLY,
    KAFKA_CAPTURE,
    KAFKA_REGISTRY,
    LOGIN_VARIABLES,
    StackSecurity,
)
from millrace.deploy.servers.process import ProcessSpec
from millrace.drivers.kafka.acls import Acl, apply_acls, check_acls, publish_acls, registry_acls
from millrace.drivers.kafka.names import REGISTRY_TOPIC
from millrace.schemas.documents import (
    Brokers,
    PublishTask,
    Registry,
    TopicAddress,
    plain_brokers,
    plain_registry,
)

CLUSTER = "default"
SOURCE_SET = "shop"
TARGET_SET = "warehouse"
TOPIC = "shop"
CAPTURE_TASK = "shop-capture"
APPLY_TASK = "shop-to-warehouse"
PUBLISH_TASK = "public"  # the one publish task that a secured broker lets run: users create it
_PUBLIC = PublishTask(name=PUBLISH_TASK, source=TopicAddress(topic=TOPIC, brokers=Brokers("any:1")))
# of the users of a secured broker
KAFKA_RIGHTS: Mapping[str, tuple[Acl, ...]] = {
    KAFKA_CAPTURE: check_acls(TOPIC),
    KAFKA_APPLY: tuple(dict.fromkeys((*apply_acls(TOPIC), *publish_acls(_PUBLIC)))),
    KAFKA_REGISTRY: registry_acls(REGISTRY_TOPIC),
}
LOCAL_SPARK = ("--master", "local[16]")
SERVICES = ("registry", "scheduler", "worker", "apply")
PROGRAM = (
    sys.executable,
    "-P",
    "-m",
    "millrace",
)  # -P: the current folder is not searched for modules


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The addresses of a stack's servers, and how clients log in to them."""

    kafka: str
    zookeeper: str
    registry_port: int
    security: StackSecurity | None = None

    @property
    def registry(self) -> str:
        return f"http{'s' if self.security else ''}://127.0.0.1:{self.registry_port}"

    @property
    def registry_login(self) -> Registry:
        return self.security.registry(self.registry) if self.security else Registry(self.registry)

    def brokers(self, user: str = KAFKA_APPLY) -> Brokers:
        """The broker as this user of a secured one reaches it. The default may only read."""
        return self.security.brokers(self.kafka, user) if self.security else Brokers(self.kafka)


@dataclass(frozen=True, slots=True)
class SetAddress:
    """A set, for its document. ``authority`` is a PEM file, or None if the servers made their own certificates."""

    name: str
    ports: tuple[int, ...]
    password_file: Path
    authority: Path | None


def service_specs(
    folder: Path, endpoints: Endpoints, *, spark: tuple[str, ...] = LOCAL_SPARK
) -> tuple[ProcessSpec, ...]:
    """The processes to start, in this order. Each finds the others through ZooKeeper.

    ``spark``: the arguments of the apply driver.
    """
    arguments: Mapping[str, tuple[str, ...]] = {
        "registry": (*_registry_login(endpoints), "--port", str(endpoints.registry_port)),
        "scheduler": (),
        "worker": ("--relay-dir", str(relay_root(folder))),
        "apply": spark,
    }
    environment = service_environment(endpoints)
    return tuple(
        ProcessSpec(
            f"millrace {name}",
            (*PROGRAM, name, *arguments[name]),
            folder / name / "log",
            # not the one port that the user has set: each process takes a free one
            {**environment, "SPARK_LOCAL_DIRS": str(folder / "spark"), "MILLRACE_HTTP": ""},
        )
        for name in SERVICES
        if name in present_commands()
    )


def _registry_login(endpoints: Endpoints) -> tuple[str, ...]:
    """The registry's broker and, in a secured stack, its own TLS and token."""
    security = endpoints.security
    return security.registry_arguments() if security else ("--kafka", endpoints.kafka)


def service_environment(endpoints: Endpoints) -> Mapping[str, str]:
    """The environment in which processes and user commands find the stack."""
    return {
        "MILLRACE_ZOOKEEPER": endpoints.zookeeper,
        "MILLRACE_CLUSTER": CLUSTER,
        "MILLRACE_KAFKA": endpoints.kafka,
        "MILLRACE_REGISTRY": endpoints.registry,
        **dict.fromkeys(LOGIN_VARIABLES, ""),
        **(endpoints.security.variables() if endpoints.security else {}),
    }


def missing_services() -> tuple[str, ...]:
    """The processes that this installation does not have."""
    return tuple(name for name in SERVICES if name not in present_commands())


def relay_root(folder: Path) -> Path:
    """The parent of every set's relay folder."""
    return folder / "relay"


def set_document(address: SetAddress) -> str:
    members = ", ".join(f"{{host: 127.0.0.1, port: {port}}}" for port in address.ports)
    lines = [f"set: {address.name}", f"members: [{members}]", "user: millrace"]
    lines.append(f"password: file:{address.password_file}")
    if address.authority is not None:
        lines += ["tls: verify-identity", f"tls_ca: {address.authority}"]
    else:
        lines.append("tls: require-unverified")
    return "\n".join([*lines, ""])


def capture_document(endpoints: Endpoints) -> str:
    """The capture task as YAML: every database of the source set, from the first binlog on."""
    return (
        f"task: {CAPTURE_TASK}\nkind: capture\nset: {SOURCE_SET}\ntopic: {TOPIC}\n"
        f"{_topic_access(endpoints, KAFKA_CAPTURE)}start: first\n"
        "topic_settings: {replication_factor: 1, min_insync_replicas: 1}\n"  # the stack has one broker
    )


def apply_document(endpoints: Endpoints) -> str:
    """The apply task as YAML: the whole topic to the target set."""
    return (
        f"task: {APPLY_TASK}\nkind: apply\ntopic: {TOPIC}\n"
        f"{_topic_access(endpoints, KAFKA_APPLY)}"
        f"target: {TARGET_SET}\nstart: first\nlanes: 4\nconsistency: causal\nconflict: stop\n"
    )


def publish_document(endpoints: Endpoints) -> str:
    """A publish task as YAML, for a user to create: each table in its own topic, with the rows that exist."""
    return (
        f"task: {PUBLISH_TASK}\nkind: publish\ntopic: {TOPIC}\n"
        f"{_topic_access(endpoints, KAFKA_APPLY)}"
        "start: snapshot\npartitions: 3\nrecords: debezium-json\n"
    )


def _topic_access(endpoints: Endpoints, user: str) -> str:
    """The lines ``kafka`` and ``registry`` of a task. JSON is YAML."""
    kafka = json.dumps(plain_brokers(endpoints.brokers(user)))
    registry = json.dumps(plain_registry(endpoints.registry_login))
    return f"kafka: {kafka}\nregistry: {registry}\n"


def document_commands(folder: Path) -> tuple[tuple[str, ...], ...]:
    """The commands that create sets and tasks from the documents in ``folder``, without the program's name."""
    kinds = (("set", SOURCE_SET), ("set", TARGET_SET), ("task", CAPTURE_TASK), ("task", APPLY_TASK))
    return tuple((kind, "create", "-f", str(folder / f"{name}.yaml")) for kind, name in kinds)
