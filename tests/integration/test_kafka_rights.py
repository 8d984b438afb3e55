"""The printed rights on Kafka are enough for each part of Millrace, and each of them is needed."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from millrace.checks.requirement import Level
from millrace.cli import run
from millrace.cli.exits import ExitCode
from millrace.consumer.spark.session import SparkDriver
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.kafka.acls import capture_acls, registry_acls, subscriber_acls
from millrace.drivers.kafka.names import REGISTRY_TOPIC
from millrace.errors import MillraceError
from millrace.producer.checks.topic import check_topic_of
from millrace.producer.source.set_stream import Site
from millrace.producer.source.set_streams import Upstreams
from millrace.producer.task.capture import CaptureRunner
from millrace.registry.client import RegistryClient
from millrace.schemas.documents import (
    Account,
    ApplyTask,
    CaptureTask,
    Registry,
    SetDocument,
    Start,
    TaskDocument,
    TopicAddress,
    plain_brokers,
    plain_task,
    yaml_from_plain,
)
from millrace.schemas.status import TaskReport
from tests.fixtures.spark import FixedLease, running
from tests.kit.alone import Alone
from tests.kit.apply.topic import RecordStream, TopicWriter
from tests.kit.relay.relay import UNVERIFIED, member_of
from tests.kit.secure_kafka import SecureKafka
from tests.kit.waiting import eventually

Printed = list[str]


@dataclass
class Rights:
    """The output of `millrace acl print`, carried out on the broker."""

    kafka: SecureKafka
    folder: Path
    capsys: pytest.CaptureFixture[str]

    def printed(self, task: TaskDocument, *options: str) -> Printed:
        """The commands."""
        path = self.folder / f"{task.name}.yaml"
        path.write_text(yaml_from_plain(plain_task(task)))
        self.capsys.readouterr()
        assert run(["acl", "print", "-f", str(path), *options]) == 0
        return self.capsys.readouterr().out.splitlines()

    def grant(self, commands: Printed) -> None:
        """Carry the commands out."""
        for command in commands:
            self.kafka.kafka_acls(command)

    def grant_all_but(self, commands: Printed, operation: str, resource: str) -> None:
        """Carry the commands out, without one operation on one kind of resource."""
        self.grant(commands)
        (command,) = [command for command in commands if resource in command]
        words = command.split(" --operation ")
        *operations, last = words[1:]
        last, _, rest = last.partition(" ")
        assert operation in (*operations, last)
        self.kafka.kafka_acls(f"{words[0]} --operation {operation} {rest}", removes=True)


@pytest.fixture
def rights(secure_kafka: SecureKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Rights:
    """On a broker without any."""
    return Rights(secure_kafka, tmp_path, capsys)


@dataclass
class Capture:
    """A capture task of a source database, in a thread."""

    runner: CaptureRunner
    task: CaptureTask
    stop: threading.Event = field(default_factory=threading.Event)
    reported: TaskReport | None = None
    failure: MillraceError | None = None

    def work(self) -> None:
        """Run until it is stopped or fails."""
        try:
            lease = FixedLease(self.task.name)
            self.runner.run(self.task, lease=lease, stop=self.stop, report=self._record)
        except MillraceError as error:
            self.failure = error

    def _record(self, report: TaskReport) -> None:
        self.reported = report


@dataclass
class OneSource(Alone):
    """The set of one source server."""

    server: DatabaseServer
    kafka: SecureKafka

    def set_document(self, name: str) -> SetDocument:
        """The document."""
        account = Account(self.server.user, self.kafka.secret("source", self.server.password))
        members = (member_of(self.server),)
        return SetDocument(name=name, members=members, account=account, tls=UNVERIFIED)

    def capture_task_of(self, task: ApplyTask) -> CaptureTask:
        """No task loads."""
        raise AssertionError(task)


@contextmanager
def capturing(
    server: DatabaseServer, kafka: SecureKafka, task: CaptureTask, folder: Path
) -> Iterator[Capture]:
    """Run the task during the block."""
    streams = Upstreams(Site(root=folder))
    made = Capture(CaptureRunner(OneSource(server, kafka), streams, "w1"), task)
    thread = threading.Thread(target=made.work)
    thread.start()
    try:
        yield made
    finally:
        made.stop.set()
        thread.join()


@contextmanager
def serving(*options: str) -> Iterator[str]:
    """The URL of a registry; its standard error if it does not start."""
    with subprocess.Popen(
        (sys.executable, "-m", "millrace", "registry", "--port", "0", *options),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        try:
            yield json.loads(line)["registry"] if line else process.stderr.read()
        finally:
            process.terminate()


def _config(kafka: SecureKafka, folder: Path) -> Path:
    path = folder / "kafka.yaml"
    path.write_text(yaml_from_plain(plain_brokers(kafka.brokers())))
    return path


def _capture_task(kafka: SecureKafka, server: DatabaseServer, registry: str) -> CaptureTask:
    topic = f"rights-{time.time_ns()}"
    output = TopicAddress(topic=topic, brokers=kafka.brokers(), registry=Registry(registry))
    start = Start(server.gtid_position())
    return CaptureTask(name="captured", set_name="shop", output=output, start=start)


def test_whole_chain_works_with_exactly_the_printed_rights(
    rights: Rights, mariadb_server: DatabaseServer, tmp_path: Path
) -> None:
    """Registry, capture, `topic verify` and `topic tail` may do nothing else. The registry has TLS and a token."""
    kafka, database = rights.kafka, f"rights{time.time_ns()}"
    task = _capture_task(kafka, mariadb_server, "http://none")
    rights.grant(rights.printed(task, "--for", "registry"))
    config = _config(kafka, tmp_path)
    token = kafka.secret("registry-token", "a token")
    door = ("--tls-cert", str(kafka.registry.certificate), "--tls-key", str(kafka.registry.key))
    with serving("--kafka-config", str(config), *door, "--token", str(token)) as url:
        registry = Registry(url, kafka.authority, "", token)
        task = replace(task, output=replace(task.output, registry=registry))
        kafka.forbid_all()
        rights.grant(rights.printed(task, "--for", "registry"))
        rights.grant(rights.printed(task))
        mariadb_server.execute(f"CREATE DATABASE {database}")
        mariadb_server.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
        mariadb_server.execute(f"INSERT INTO {database}.t VALUES (1), (2)")
        with capturing(mariadb_server, kafka, task, tmp_path / "relay") as capture:
            eventually(
                lambda: capture.failure or (capture.reported and capture.reported.seq >= 4),
                what="the rows are published",
            )
            assert capture.failure is None
    kafka.forbid_all()
    rights.grant(rights.printed(task, "--for", "subscriber"))
    options = ["--kafka-config", str(config)]
    assert run(["topic", "verify", task.output.topic, *options]) == 0
    assert run(["topic", "tail", task.output.topic, *options, "--no-follow"]) == 0
    mariadb_server.execute(f"DROP DATABASE {database}")


@pytest.fixture(scope="module")
def open_registry(secure_broker: SecureKafka) -> Iterator[str]:
    """A registry that may do everything."""
    with serving("--kafka", secure_broker.server.bootstrap, "--topic", "_open_schemas") as url:
        yield url


CODES = {"--topic": "MR-7010", "--transactional-id": "MR-7011", "--group": "MR-7013"}


@pytest.mark.parametrize(
    ("operation", "resource"),
    [(acl.operation, acl.resource.value) for acl in capture_acls("t")],
    ids=lambda word: word.strip("-"),
)
def test_missing_right_is_reported_with_its_command(
    rights: Rights,
    mariadb_server: DatabaseServer,
    open_registry: str,
    tmp_path: Path,
    operation: str,
    resource: str,
) -> None:
    """A capture task without one right is blocked, and its fix grants the right."""
    task = _capture_task(rights.kafka, mariadb_server, open_registry)
    commands = rights.printed(task)
    rights.grant_all_but(commands, operation, resource)
    with capturing(mariadb_server, rights.kafka, task, tmp_path / "relay") as capture:
        eventually(lambda: capture.failure, what="the task fails")
    assert capture.failure is not None
    assert capture.failure.code == CODES[resource], capture.failure
    (command,) = [command for command in commands if resource in command]
    assert capture.failure.fix.startswith(command)


def test_check_needs_the_right_on_its_own_transactional_id(
    rights: Rights, mariadb_server: DatabaseServer
) -> None:
    """A dry run under the task's own ID would fence the task."""
    kafka = rights.kafka
    task = _capture_task(kafka, mariadb_server, "http://none")
    kafka.create_topic(task.output.topic)
    commands = rights.printed(task, "--for", "check")

    def failed() -> list[tuple[str, str]]:
        found = check_topic_of(task, pause_s=0)
        return [(one.code, one.fix) for one in found if one.level is Level.FAIL]

    rights.grant(commands)
    assert failed() == []
    (command,) = [command for command in commands if "/check" in command]
    kafka.kafka_acls(command, removes=True)
    ((code, fix),) = failed()
    assert code == "MR-7011"
    assert command in fix


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("operation", "resource"),
    [(acl.operation, acl.resource.value) for acl in registry_acls("t")],
    ids=lambda word: word.strip("-"),
)
def test_registry_needs_each_right(
    rights: Rights, mariadb_server: DatabaseServer, tmp_path: Path, operation: str, resource: str
) -> None:
    """It does not start without one, or, without Write on its topic, refuses the first registration."""
    task = _capture_task(rights.kafka, mariadb_server, "http://none")
    rights.kafka.delete_topic(REGISTRY_TOPIC)
    if operation == "DescribeConfigs":  # asked of a topic that exists
        rights.kafka.create_topic(REGISTRY_TOPIC, policy="compact")
    commands = rights.printed(task, "--for", "registry")
    rights.grant_all_but(commands, operation, resource)
    with serving("--kafka-config", str(_config(rights.kafka, tmp_path))) as said:
        if operation == "Write" and resource == "--topic":
            with pytest.raises(MillraceError) as refused:
                RegistryClient(Registry(said)).register("s", '"string"')
            said = refused.value.message
    assert CODES[resource] in said
    (command,) = [command for command in commands if resource in command]
    assert operation == "Write" or command in said


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("operation", "resource"),
    [(acl.operation, acl.resource.value) for acl in subscriber_acls("t")],
    ids=lambda word: word.strip("-"),
)
def test_reader_needs_each_right(
    rights: Rights,
    spark: SparkDriver,
    mariadb_server: DatabaseServer,
    target_password: None,
    tmp_path: Path,
    operation: str,
    resource: str,
) -> None:
    """`millrace topic verify` reports the right that it misses, and an apply task is blocked by it."""
    kafka, name = rights.kafka, f"rights{resource.strip('-')}"
    stream = RecordStream()
    writer = TopicWriter(kafka.server.bootstrap, stream)
    stream.ddl(f"CREATE DATABASE {name}")
    writer.publish()
    address = TopicAddress(topic=writer.topic, brokers=kafka.brokers())
    task = ApplyTask(name=name, source=address, target="target")
    commands = rights.printed(task)
    assert commands == rights.printed(task, "--for", "subscriber")
    rights.grant_all_but(commands, operation, resource)
    config = _config(kafka, tmp_path)
    assert (
        run(["topic", "verify", writer.topic, "--kafka-config", str(config)]) == ExitCode.OPERATOR
    )
    assert CODES[resource] in rights.capsys.readouterr().err
    with running(spark, mariadb_server, writer, name=name, brokers=kafka.brokers()) as running_task:
        failure = running_task.wait_until_it_fails()
    assert failure.code == CODES[resource]
    (command,) = [command for command in commands if resource in command]
    assert failure.fix.startswith(command)
