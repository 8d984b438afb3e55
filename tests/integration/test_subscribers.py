"""Named subscribers on a real broker: the printed rights, their lag, and when they lose records."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from millrace.deploy.servers import KafkaServer
from millrace.drivers.kafka.access import Settings
from millrace.drivers.kafka.acls import commands, publish_acls, watch_acls
from millrace.drivers.kafka.partitions import Topics
from millrace.drivers.kafka.reader import READING
from millrace.drivers.kafka.subscribers import SubscriberMeter
from millrace.schemas.documents import (
    Brokers,
    Mechanism,
    PublishTask,
    TaskKind,
    TopicAddress,
    plain_task,
    yaml_from_plain,
)
from millrace.schemas.documents.subscriber import Subscriber
from millrace.schemas.stages import GroupState, SubscriberStage
from tests.fixtures.shell import Shell
from tests.kit.control.control import ScriptedRunner
from tests.kit.kafka_topics import ANSWER_S, make_topic, remove_records_before
from tests.kit.secure_kafka import USER, SecureKafka
from tests.kit.waiting import eventually

HOUR_MS = 3_600_000
PRINCIPAL = f"User:{USER}"
MISSING = 7.5  # hours for which the records of a test are old


def _task(brokers: Brokers, name: str) -> PublishTask:
    """A publish task that writes NAME.shop.TABLE; it never runs here."""
    task = PublishTask(name=name, source=TopicAddress(topic=f"{name}-set", brokers=brokers))
    return replace(task, topics=replace(task.topics, pattern=f"{name}.{{database}}.{{table}}"))


def _name() -> str:
    return f"sub-{time.time_ns()}"


class Scene:
    """Two topics of a task, with two partitions each, and a client that reads them in a group."""

    def __init__(self, kafka: KafkaServer, *, retention_ms: int = 10 * HOUR_MS) -> None:
        self.name, self.bootstrap = _name(), kafka.bootstrap
        self.task = _task(Brokers(kafka.bootstrap), self.name)
        self.admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        self.topics = [f"{self.name}.shop.{table}" for table in "ab"]
        for topic in (*self.topics, f"_{self.name}.progress"):
            config = {"retention.ms": str(retention_ms)}
            make_topic(self.admin, topic, partition_count=2, config=config)
        self.subscriber = Subscriber(
            name="reports", tasks=(self.name,), group=f"g-{self.name}", principal=PRINCIPAL
        )
        self._meter = SubscriberMeter(self.task)

    def write(self, topic: str, count: int, *, hours: float = 0.0, partition: int = 0) -> None:
        """A Kafka transaction with records of this age."""
        at_ms = time.time_ns() // 1_000_000 - round(hours * HOUR_MS)
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "transactional.id": f"w-{self.name}"}
        )
        producer.init_transactions()
        producer.begin_transaction()
        for number in range(count):
            producer.produce(topic, f"{number}", partition=partition, timestamp=at_ms)
        producer.commit_transaction()
        topics = Topics(self.task.source.brokers, errors=READING)

        def is_visible() -> bool:
            (ends,) = topics.ends([(topic, partition)]).values()
            return ends.stable == ends.high

        eventually(is_visible, what="the marker of the commit")

    @contextmanager
    def reader(self, **settings: str) -> Iterator[Consumer]:
        """A member of the group, once it has partitions."""
        with group_member(self.bootstrap, self.subscriber.group, self.topics, settings) as member:
            yield member

    def commit(self, topic: str, offset: int, partition: int = 0) -> None:
        """As a client that assigns its partitions itself, so that its group has no members."""
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": self.subscriber.group}
        )
        consumer.commit(offsets=[TopicPartition(topic, partition, offset)], asynchronous=False)
        consumer.close()

    def measured(self, **fields: object) -> SubscriberStage:
        """The present state. A new broker needs a moment until it answers about groups."""
        subscriber = replace(self.subscriber, **fields)  # type: ignore[arg-type]
        stages: list[SubscriberStage] = []

        def is_complete() -> bool:
            stages[:] = self._meter.measure([subscriber])
            return not stages[0].why

        eventually(is_complete, what="it is measured")
        return stages[0]


@contextmanager
def group_member(
    bootstrap: str, group: str, topics: list[str], settings: dict[str, str] | None = None
) -> Iterator[Consumer]:
    """A client that subscribes as a plain program does."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            **(settings or {}),
        }
    )
    consumer.subscribe(topics)
    try:
        yield consumer
    finally:
        consumer.close()


def _read(consumer: Consumer, count: int) -> None:
    """Read so many records and commit."""
    until_s = time.monotonic() + ANSWER_S
    while count:
        assert time.monotonic() < until_s, f"{count} records are missing"
        message = consumer.poll(0.5)
        if message is not None:
            if message.error() is not None:
                raise KafkaException(message.error())
            count -= 1
    consumer.commit(asynchronous=False)


def test_lag_and_state_of_a_group_from_birth_to_death(kafka: KafkaServer) -> None:
    """Unknown, then active, then empty; markers at the end are no lag, and the progress topic is none of its topics."""
    scene = Scene(kafka)
    first, second = scene.topics
    scene.write(first, 30, hours=MISSING)
    scene.write(second, 4, partition=1)
    stage = scene.measured()
    assert (stage.state, stage.topics, stage.begun) == (GroupState.MISSING, 2, 0)
    assert stage.lag == 36  # with two markers: an upper bound
    assert stage.loss_at_ms == 0
    with scene.reader() as reader:
        _read(reader, 34)
        stage = scene.measured()
        assert (stage.state, stage.lag, stage.oldest_ms) == (GroupState.ACTIVE, 0, 0)
        assert stage.begun == 2
        left_s = stage.time_to_loss_s(stage.measured_ms)
        assert left_s == pytest.approx(10 * 3600)
        scene.write(second, 5, hours=MISSING)
        stage = scene.measured()
        assert (stage.state, stage.lag, stage.oldest_topic) == (GroupState.ACTIVE, 6, second)
        assert stage.age_s(stage.measured_ms) == pytest.approx(MISSING * 3600, abs=600)
        _read(reader, 5)
    assert scene.measured().state is GroupState.EMPTY
    assert scene.measured(group=f"other-{scene.name}").state is GroupState.MISSING


def test_time_to_loss_is_that_of_the_oldest_unread_record(kafka: KafkaServer) -> None:
    """By the age of the first record after the committed offset; removed ones are counted as lost."""
    scene = Scene(kafka)
    topic = scene.topics[0]
    scene.write(topic, 10, hours=MISSING)
    scene.write(topic, 10)
    scene.commit(topic, 4)
    stage = scene.measured()
    assert (stage.state, stage.lag, stage.lost, stage.begun) == (GroupState.EMPTY, 18, 0, 1)
    left_s = stage.time_to_loss_s(stage.measured_ms)
    assert left_s == pytest.approx((10 - MISSING) * 3600, abs=600)
    scene.commit(topic, 11)
    left_s = scene.measured().time_to_loss_s(stage.measured_ms)
    assert left_s == pytest.approx(10 * 3600, abs=600)
    remove_records_before(scene.admin, topic, 15)
    stage = scene.measured()
    assert (stage.lag, stage.lost) == (7, 4)
    assert stage.time_to_loss_s(stage.measured_ms) == 0
    scene.commit(topic, 15)
    assert scene.measured().lost == 0


def test_patterns_choose_the_topics_of_the_lag(kafka: KafkaServer) -> None:
    """Another topic is neither counted nor lost."""
    scene = Scene(kafka)
    scene.write(scene.topics[0], 3)
    scene.write(scene.topics[1], 50)
    stage = scene.measured(topics=(scene.topics[0],))
    assert (stage.topics, stage.lag) == (1, 4)
    assert scene.measured(topics=(f"{scene.name}.shop.*",)).lag == 55
    scene.commit(scene.topics[1], 1)
    assert scene.measured(topics=(scene.topics[0],)).state is GroupState.NEVER_READ


def test_group_of_the_newer_protocol_is_seen(kafka: KafkaServer) -> None:
    """KIP-848: the older request answers that there is no such group."""
    scene = Scene(kafka)
    scene.write(scene.topics[0], 3)
    with scene.reader(**{"group.protocol": "consumer"}) as reader:
        _read(reader, 3)
        stage = scene.measured()
        assert (stage.state, stage.lag) == (GroupState.ACTIVE, 0)
    assert scene.measured().state is GroupState.EMPTY


def test_broker_that_does_not_answer_leaves_it_unknown() -> None:
    """Nothing is raised."""
    meter = SubscriberMeter(_task(Brokers("127.0.0.1:1"), "away"))
    reports = Subscriber(name="reports", tasks=("away",), group="g", principal=PRINCIPAL)
    (stage,) = meter.measure([reports])
    assert (stage.state, stage.lag) == (GroupState.UNKNOWN, None)
    assert "Kafka reported" in stage.why


def test_running_task_reports_its_subscribers(kafka: KafkaServer, shell: Shell) -> None:
    """A subscriber that is added while it runs is in its status and its metrics' values; `check` warns of it."""
    scene = Scene(kafka)
    scene.write(scene.topics[0], 10, hours=MISSING)
    scene.commit(scene.topics[0], 2)
    shell("task", "create", "-f", shell.file(yaml_from_plain(plain_task(scene.task))))
    with shell.running(ScriptedRunner(), kind=TaskKind.APPLY):
        eventually(lambda: _status(shell, scene.name)["state"] == "running")
        assert _status(shell, scene.name)["subscribers"] == []
        added = _add(shell, scene.subscriber)
        assert "# subscriber reports created" in added
        eventually(lambda: _status(shell, scene.name)["subscribers"])
        (found,) = _status(shell, scene.name)["subscribers"]
        assert (found["state"], found["lag_records"]) == ("empty", 9)
        assert found["time_to_loss_s"] == pytest.approx((10 - MISSING) * 3600, abs=600)
        assert "reader    reports, empty: lag 9 records" in shell("status", scene.name)
    listed = json.loads(shell("subscriber", "list", "--json"))
    assert listed[0]["tasks"][0]["lag_records"] == 9
    table = shell("subscriber", "list", "--now")
    assert "reports" in table
    assert "empty" in table
    checked = shell("check", "--json", scene.name, exit_code=2, stream="out")
    codes = {one["code"] for one in json.loads(checked)["requirements"]}
    assert "MR-4190" in codes


def _status(shell: Shell, task: str) -> dict[str, Any]:
    tasks = json.loads(shell("status", "--json"))["tasks"]
    found: dict[str, Any] = next(one for one in tasks if one["task"] == task)
    return found


def _add(shell: Shell, subscriber: Subscriber, *more: str, exit_code: int = 0) -> str:
    words = [word for topic in subscriber.topics for word in ("--topic", topic)]
    words += [word for task in subscriber.tasks for word in ("--task", task)]
    return shell(
        *("subscriber", "add", subscriber.name, *words, "--group", subscriber.group),
        *("--principal", subscriber.principal, *more),
        exit_code=exit_code,
    )


def test_add_can_be_repeated_and_refuses_contradictions(shell: Shell) -> None:
    """The same subscriber again changes nothing; another of its name, or one with its group, is refused."""
    task = _task(Brokers("127.0.0.1:1"), "shop-public")
    shell("task", "create", "-f", shell.file(yaml_from_plain(plain_task(task))))
    reports = Subscriber(name="reports", tasks=(task.name,), group="g", principal="User:r")
    first = _add(shell, reports)
    assert "reports created" in first
    assert "--topic shop-public. --resource-pattern-type prefixed" in first
    assert "--operation Read --group g" in first
    assert "reports unchanged" in _add(shell, reports)
    other = replace(reports, group="h")
    assert "MR-4103" in _add(shell, other, exit_code=4)
    replaced = _add(shell, other, "--replace")
    assert "reports replaced" in replaced
    assert "--remove --force --allow-principal User:r --operation Read --group g" in replaced
    assert "MR-4115" in _add(shell, replace(other, name="second"), exit_code=4)
    assert "MR-4104" in _add(shell, replace(reports, tasks=("none",)), exit_code=4)
    wrong = replace(reports, name="third", group="i", topics=("elsewhere.*",))
    assert "MR-4114" in _add(shell, wrong, exit_code=4)
    assert "MR-4101" in _add(shell, replace(reports, principal="reports"), exit_code=4)
    removed = shell("subscriber", "remove", "reports")
    assert "--remove --force --allow-principal User:r --operation Read --group h" in removed
    assert "MR-4104" in shell("subscriber", "remove", "reports", exit_code=4)


def test_printed_rights_let_a_client_read_and_nothing_else(
    secure_kafka: SecureKafka, shell: Shell
) -> None:
    """It may not write, use another group, or read a topic beside. Without one of the rights it reads nothing."""
    name, plain = _name(), secure_kafka.brokers(Mechanism.PLAIN)
    task, topic, beside = _task(plain, name), f"{name}.shop.a", f"{name}-beside"
    for one in (topic, beside):
        secure_kafka.create_topic(one)
        producer = Producer({"bootstrap.servers": secure_kafka.server.bootstrap})
        producer.produce(one, b"value")
        assert producer.flush(ANSWER_S) == 0
    shell("task", "create", "-f", shell.file(yaml_from_plain(plain_task(task))))
    reports = Subscriber(name="reports", tasks=(name,), group=f"g-{name}", principal=PRINCIPAL)
    printed = _add(shell, reports).splitlines()
    granting = [line for line in printed if PRINCIPAL in line]
    assert len(granting) == 2
    assert len([line for line in printed if "User:plain" in line]) == 1
    for line in printed:
        if not line.startswith("#"):
            secure_kafka.kafka_acls(line)
    client = dict(secure_kafka.brokers().settings())
    assert _outcome(client, reports.group, topic) == ""
    assert _outcome(client, f"other-{name}", topic) == "GROUP_AUTHORIZATION_FAILED"
    assert _outcome(client, reports.group, beside) == "TOPIC_AUTHORIZATION_FAILED"
    assert _write(client, topic) == "TOPIC_AUTHORIZATION_FAILED"
    for line in granting:
        secure_kafka.kafka_acls(line, removes=True)
        assert _outcome(client, reports.group, topic) != "", line
        secure_kafka.kafka_acls(line)
    for line in shell("subscriber", "remove", "reports").splitlines():
        if not line.startswith("#"):
            secure_kafka.kafka_acls(line)
    assert _outcome(client, reports.group, topic) != ""


def test_refused_description_of_groups_is_unknown(secure_kafka: SecureKafka) -> None:
    """A task's user without Describe on the group measures nothing, and raises nothing; with it, it does."""
    name, plain = _name(), secure_kafka.brokers(Mechanism.PLAIN)
    task, topic = _task(plain, name), f"{name}.shop.a"
    secure_kafka.create_topic(topic)
    for line in commands(publish_acls(task), principal="User:plain", bootstrap="b:1"):
        secure_kafka.kafka_acls(line)
    reports = Subscriber(name="reports", tasks=(name,), group=f"g-{name}", principal=PRINCIPAL)
    meter = SubscriberMeter(task)
    (stage,) = meter.measure([reports])
    assert (stage.state, stage.topics) == (GroupState.UNKNOWN, 1)
    assert "Describe" in stage.why
    for line in commands(watch_acls(reports), principal="User:plain", bootstrap="b:1"):
        secure_kafka.kafka_acls(line)
    eventually(lambda: meter.measure([reports])[0].state is GroupState.MISSING)


def _outcome(client: Settings, group: str, topic: str) -> str:
    """Read one record in the group and commit: "" or the name of Kafka's error."""
    consumer = Consumer({**client, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    until_s = time.monotonic() + ANSWER_S
    try:
        while time.monotonic() < until_s:
            message = consumer.poll(0.5)
            if message is None:
                continue
            if (error := message.error()) is not None:
                return error.name()
            consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
            return ""
    except KafkaException as failure:
        return str(failure.args[0].name())
    finally:
        consumer.close()
    raise AssertionError("neither a record nor an error")


def _write(client: Settings, topic: str) -> str:
    errors: list[KafkaError | None] = []
    producer = Producer(client)
    producer.produce(topic, b"forged", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(ANSWER_S) == 0
    return "" if errors[0] is None else errors[0].name()
