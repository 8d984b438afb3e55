"""A local Kafka broker: KRaft, broker and controller in one process, on loopback; alone or in a cluster.

Guarantees: topics are not created automatically. Internal topics have few partitions, so the broker starts in seconds.
Retention and timed-out transactions are checked every second. After ``kill``, ``start`` continues with the same logs
and port; a short broker session lets it serve after three seconds. Storage is formatted once and then copied.

Three local Kafka brokers that replicate every partition, for tests that lose a leader.

Guarantees: a write is acknowledged when two brokers have it, so any one broker may be lost. No unclean leader election.
The three controllers form a quorum. Not done here: finding leaders (use an admin client).
"""

import base64
import shutil
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from millrace.deploy.servers.cluster import Cluster
from millrace.deploy.servers.kafka_security import KafkaSecurity
from millrace.deploy.servers.process import ProcessSpec, free_port, last_lines
from millrace.deploy.servers.programs import kafka_classpath
from millrace.deploy.servers.properties import property_value
from millrace.deploy.servers.server import Server
from millrace.deploy.servers.templates import template
from millrace.errors import Fatal
from millrace.jvm import JvmArchive, java_program

START_S = 180.0
NODE_ID = 1
HEAP_MB = 384
SESSION_S = 3
CLUSTER_SESSION_S = 6  # three processes on two cores may not answer for seconds
STARTED = b"Kafka Server started"
_CLUSTER_ID = "MillraceLocalCluster00"  # 22 characters, as Kafka's base64 of 16 bytes
_PROPERTIES = """\
process.roles=broker,controller
node.id={node_id}
controller.quorum.voters={voters}
listeners={listeners},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners={listeners}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:{controller},LOGIN:SASL_SSL,CERTIFICATE:SSL
controller.listener.names=CONTROLLER
inter.broker.listener.name={own_listener}
log.dirs={log_dir}
auto.create.topics.enable={creates_topics}
num.partitions=1
default.replication.factor={replicas}
min.insync.replicas={insync}
offsets.topic.replication.factor={replicas}
offsets.topic.num.partitions=4
transaction.state.log.replication.factor={replicas}
transaction.state.log.min.isr={insync}
transaction.state.log.num.partitions=4
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms={session_ms}
broker.heartbeat.interval.ms=500
log.cleaner.dedupe.buffer.size=8388608
log.retention.check.interval.ms=1000
log.initial.task.delay.ms=1000
"""


@dataclass(frozen=True, slots=True)
class Quorum:
    """Node ids and the ports of their controllers. Every partition has a replica on every node."""

    ports: dict[int, int] = field(default_factory=lambda: {NODE_ID: free_port()})

    def properties(self) -> dict[str, object]:
        count = len(self.ports)
        return {
            "voters": ",".join(f"{node}@127.0.0.1:{port}" for node, port in self.ports.items()),
            "replicas": count,
            "insync": count // 2 + 1,
        }


class KafkaServer(Server):
    creates_topics = False  # Kafka's default is True

    def __init__(
        self,
        folder: Path,
        *,
        port: int = 0,
        node_id: int = NODE_ID,
        quorum: Quorum | None = None,
        security: KafkaSecurity | None = None,
        dies_with_parent: bool = True,
        java_options: Sequence[str] | None = None,
        session_s: int = SESSION_S,
    ) -> None:
        """``session_s``: a broker that is silent for so long leads nothing; after ``kill`` it waits for so long."""
        super().__init__(folder, dies_with_parent=dies_with_parent)
        self._session_s = session_s
        self._java_options = jvm_archive().options() if java_options is None else java_options
        self.port = port or free_port()
        self.node_id = node_id
        self._quorum = quorum or Quorum()
        self._security = security

    @property
    def bootstrap(self) -> str:
        """host:port, for plain text; with a login if there is no such listener."""
        if self._security is not None and self._security.is_closed:
            return self._security.login
        return f"127.0.0.1:{self.port}"

    def launch(self) -> None:
        log_dir = self.folder / "data"
        if not log_dir.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            shutil.copytree(template("kafka-" + kafka_classpath_stamp(), _format), log_dir)
            _set_node_id(log_dir, self.node_id)
        properties = self.folder / "server.properties"
        security = self._security
        text = _PROPERTIES.format(
            node_id=self.node_id,
            **_listeners(self.port, security),
            controller_port=self._quorum.ports[self.node_id],
            log_dir=property_value(log_dir),
            creates_topics=str(self.creates_topics).lower(),
            session_ms=1000 * self._session_s,
            **self._quorum.properties(),
        )
        properties.touch(mode=0o600)  # it may hold passwords
        properties.write_text(text + (security.properties() if security else ""))
        log = self.folder / "log"
        log.unlink(missing_ok=True)
        options = (*self._java_options, *(security.java_options() if security else ()))
        command = _java("kafka.Kafka", str(properties), options=options)
        spec = ProcessSpec(f"Kafka on port {self.port}", command, log)
        self._launch(spec)

    def wait_ready(self) -> None:
        """Wait until the log says that it has started. Fatal MR-8004 with the end of the log."""
        log = self.process.spec.log
        self.process.wait_ready(
            lambda: log.is_file() and STARTED in log.read_bytes(), timeout_s=START_S
        )


def _listeners(port: int, security: KafkaSecurity | None) -> Mapping[str, str]:
    """Where clients, other brokers (``own_listener``) and controllers connect, and how."""
    plain = f"PLAINTEXT://127.0.0.1:{port}"
    if security is None:
        return {"listeners": plain, "own_listener": "PLAINTEXT", "controller": "PLAINTEXT"}
    if security.is_closed:
        own = {"own_listener": "CERTIFICATE", "controller": "SSL"}
        return {"listeners": security.listeners(), **own}
    listeners = f"{plain},{security.listeners()}"
    return {"listeners": listeners, "own_listener": "PLAINTEXT", "controller": "PLAINTEXT"}


def kafka_classpath_stamp() -> str:
    jar = next(path for path in kafka_classpath().split(":") if "/kafka_2" in path)
    return Path(jar).stem


def jvm_archive() -> JvmArchive:
    return JvmArchive("kafka", [Path(jar) for jar in kafka_classpath().split(":")])


def _format(folder: Path) -> None:
    """Run ``kafka-storage format``, which writes the cluster's id and its feature levels."""
    properties = folder / "format.properties"
    log_dir = folder / "formatted"
    quorum = Quorum({NODE_ID: 2})
    properties.write_text(
        _PROPERTIES.format(
            node_id=NODE_ID,
            **_listeners(1, None),
            controller_port=2,
            log_dir=property_value(log_dir),
            creates_topics="false",
            session_ms=1000 * SESSION_S,
            **quorum.properties(),
        )
    )
    command = _java("kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(properties))
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        (folder / "log").write_bytes(done.stdout + done.stderr)
        raise Fatal(
            "MR-8004", f"Kafka's storage could not be formatted:\n{last_lines(folder / 'log')}"
        )
    for path in log_dir.iterdir():
        path.rename(folder / path.name)
    log_dir.rmdir()
    properties.unlink()


def _set_node_id(log_dir: Path, node_id: int) -> None:
    """Assign a formatted directory to another node."""
    lines = (log_dir / "meta.properties").read_text().splitlines()
    kept = [line for line in lines if not line.startswith(("node.id=", "directory.id="))]
    directory = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    written = (*kept, f"node.id={node_id}", f"directory.id={directory}")
    (log_dir / "meta.properties").write_text("\n".join(written) + "\n")


def _java(*arguments: str, options: Sequence[str] = ()) -> tuple[str, ...]:
    memory = ("-Xms128m", f"-Xmx{HEAP_MB}m", "-XX:+UseSerialGC")
    # only warnings, and the line that says it has started
    levels = ("defaultLogLevel=warn", "log.kafka.server.KafkaRaftServer=info", "showDateTime=true")
    logs = tuple(f"-Dorg.slf4j.simpleLogger.{level}" for level in levels)
    return (str(java_program()), *options, *memory, *logs, "-cp", kafka_classpath(), *arguments)


NODES = (1, 2, 3)


class KafkaCluster(Cluster[KafkaServer]):
    """Brokers by node id."""

    def __init__(self, folder: Path) -> None:
        quorum = Quorum({node: free_port() for node in NODES})
        super().__init__(
            {
                node: KafkaServer(
                    folder / f"kafka-{node}",
                    node_id=node,
                    quorum=quorum,
                    session_s=CLUSTER_SESSION_S,
                )
                for node in NODES
            }
        )

    @property
    def bootstrap(self) -> str:
        return ",".join(server.bootstrap for server in self.servers.values())
