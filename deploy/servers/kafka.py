"""A Kafka broker of our own: KRaft, broker and controller in one process, one node, loopback.

Guarantees: topics are never made by asking for them; internal topics have one replica and few partitions, so that it
starts in seconds; after ``kill``, ``start`` goes on with the same logs and port, and the short broker session lets it
serve after three seconds. Its storage is formatted once and copied.
"""

import shutil
import subprocess
from pathlib import Path

from deploy.servers.process import ProcessSpec, ServerProcess, free_port, last_lines
from deploy.servers.programs import java_program, kafka_classpath
from deploy.servers.templates import template
from millrace.errors import Fatal

START_S = 60.0
NODE_ID = 1
HEAP_MB = 384
STARTED = b"Kafka Server started"
_CLUSTER_ID = "MillraceLocalCluster00"  # 22 characters, as Kafka's base64 of 16 bytes
_PROPERTIES = """\
process.roles=broker,controller
node.id={node_id}
controller.quorum.voters={node_id}@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={log_dir}
auto.create.topics.enable=false
num.partitions=1
default.replication.factor=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
log.cleaner.dedupe.buffer.size=8388608
log.retention.check.interval.ms=1000
log.initial.task.delay.ms=1000
"""


class KafkaServer:
    """One broker. ``bootstrap`` is its address."""

    def __init__(self, folder: Path, *, port: int = 0, dies_with_parent: bool = True) -> None:
        self.folder = folder
        self.port = port or free_port()
        self._controller_port = free_port()
        self._dies_with_parent = dies_with_parent
        self._process: ServerProcess | None = None

    @property
    def bootstrap(self) -> str:
        """host:port."""
        return f"127.0.0.1:{self.port}"

    @property
    def process(self) -> ServerProcess:
        """Its process (an error before ``launch``)."""
        if self._process is None:
            raise RuntimeError("the broker was not launched")
        return self._process

    def start(self) -> None:
        """Launch it and wait until it serves."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Start the process and return at once."""
        log_dir = self.folder / "data"
        if not log_dir.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            shutil.copytree(template("kafka-" + kafka_classpath_stamp(), _format), log_dir)
        ports = {"port": self.port, "controller_port": self._controller_port}
        properties = self.folder / "server.properties"
        properties.write_text(_PROPERTIES.format(node_id=NODE_ID, log_dir=log_dir, **ports))
        log = self.folder / "log"
        log.unlink(missing_ok=True)
        spec = ProcessSpec(f"Kafka on port {self.port}", _java("kafka.Kafka", str(properties)), log)
        self._process = ServerProcess(spec, dies_with_parent=self._dies_with_parent)
        self._process.launch()

    def wait_ready(self) -> None:
        """Until it says so in its log; Fatal MR-8004 with the log's end."""
        log = self.process.spec.log
        self.process.wait_ready(
            lambda: log.is_file() and STARTED in log.read_bytes(), timeout_s=START_S
        )

    def stop(self) -> None:
        """A clean shutdown; the logs stay."""
        if self._process is not None:
            self._process.stop()

    def discard(self) -> None:
        """The quick end, when nobody needs the data any more: SIGKILL, and the folder is removed."""
        if self._process is not None:
            self._process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        self.process.kill()

    def pause(self) -> None:
        """SIGSTOP."""
        self.process.pause()

    def resume(self) -> None:
        """SIGCONT."""
        self.process.resume()

    def is_alive(self) -> bool:
        """Whether its process runs."""
        return self._process is not None and self._process.is_alive()


def kafka_classpath_stamp() -> str:
    """The broker's version, as its jar's name tells."""
    jar = next(path for path in kafka_classpath().split(":") if "/kafka_2" in path)
    return Path(jar).stem


def _format(folder: Path) -> None:
    """``kafka-storage format``: the cluster's id and its feature levels."""
    properties = folder / "format.properties"
    log_dir = folder / "formatted"
    properties.write_text(
        _PROPERTIES.format(node_id=NODE_ID, port=1, controller_port=2, log_dir=log_dir)
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


def _java(*arguments: str) -> tuple[str, ...]:
    memory = ("-Xms128m", f"-Xmx{HEAP_MB}m", "-XX:+UseSerialGC")
    # only the line that says it has started, and warnings
    levels = ("defaultLogLevel=warn", "log.kafka.server.KafkaRaftServer=info", "showDateTime=true")
    logs = tuple(f"-Dorg.slf4j.simpleLogger.{level}" for level in levels)
    return (str(java_program()), *memory, *logs, "-cp", kafka_classpath(), *arguments)
