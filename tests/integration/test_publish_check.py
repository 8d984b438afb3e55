"""`millrace check` of a publish task on a real broker, and the rights that it needs there."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from consumer.checks.publish import check_outputs, check_source
from consumer.topic.structures import topic_tables
from deploy.servers import KafkaServer
from millrace.checks.requirement import Level, Requirement
from millrace.cli import run
from millrace.errors import MillraceError
from schemas.documents import Brokers, PublishTask, TopicAddress, plain_task, yaml_from_plain
from schemas.table.structure import Column, ColumnType, TableSchema, TypeCode
from schemas.view.view import TableRule, View
from tests.kit.apply.topic import RecordStream, TopicWriter
from tests.kit.kafka_topics import make_topic
from tests.kit.publish.local import LocalPublisher
from tests.kit.secure_kafka import SecureKafka

ORDERS = TableSchema(
    "shop",
    "orders",
    (Column("id", ColumnType(TypeCode.LONG), nullable=False),),
    primary_key=(0,),
    primary_key_prefixes=(0,),
)
WIDER = TableSchema(
    "shop",
    "orders",
    (*ORDERS.columns, Column("note", ColumnType(TypeCode.LONG), nullable=True)),
    primary_key=(0,),
    primary_key_prefixes=(0,),
)


def _task(writer: TopicWriter, brokers: Brokers, *rules: TableRule) -> PublishTask:
    source = TopicAddress(topic=writer.topic, brokers=brokers)
    return PublishTask(name=f"{writer.topic}-public", source=source, view=View(rules))


def _written(bootstrap: str) -> TopicWriter:
    """A set topic with two structures of a table."""
    stream = RecordStream()
    stream.insert(ORDERS, {"id": 1})
    stream.insert(WIDER, {"id": 2, "note": 3})
    stream.commit()
    writer = TopicWriter(bootstrap, stream)
    writer.publish()
    return writer


def _failed(found: Iterator[Requirement]) -> dict[str, Requirement]:
    return {one.code: one for one in found if one.level is Level.FAIL}


def test_publish_task_is_checked_without_a_trace(kafka: KafkaServer) -> None:
    """The last structure of each table counts. No topic is created."""
    writer = _written(kafka.bootstrap)
    task = _task(writer, Brokers(kafka.bootstrap), TableRule("shop.*", drop=("note",)))
    assert topic_tables(task.source) == (WIDER,)
    found = [*check_source(task, pause_s=1.0), *check_outputs(task)]
    assert {one.level for one in found} == {Level.OK}, found
    assert "1 table in 1 topic" in [one.found for one in found]
    client = AdminClient({"bootstrap.servers": kafka.bootstrap})
    assert not [name for name in client.list_topics(timeout=30).topics if task.name in name]


def test_unsuitable_view_and_records_of_others_are_found(kafka: KafkaServer) -> None:
    """By the codes that a run of the task reports."""
    writer = _written(kafka.bootstrap)
    wrong = _task(writer, Brokers(kafka.bootstrap), TableRule("shop.*", drop=("nte",)))
    assert "tables[0].columns.drop" in _failed(check_outputs(wrong))["MR-5201"].found
    task = _task(writer, Brokers(kafka.bootstrap), TableRule("shop.*"))
    client = AdminClient({"bootstrap.servers": kafka.bootstrap})
    topic = f"{task.name}.shop.orders"
    make_topic(client, topic, partition_count=3)
    assert _failed(check_outputs(task)) == {}
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, b"of others", partition=2)
    producer.flush(30)
    assert topic in _failed(check_outputs(task))["MR-3102"].found


def _printed(task: PublishTask, folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The commands of `millrace acl print`."""
    path = folder / "task.yaml"
    path.write_text(yaml_from_plain(plain_task(task)))
    capsys.readouterr()
    assert run(["acl", "print", "-f", str(path)]) == 0
    return capsys.readouterr().out.splitlines()


def test_printed_rights_are_enough_to_check_and_publish(
    secure_kafka: SecureKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rights on topics and transactional IDs are given by their first part. More partitions need Alter."""
    writer = _written(secure_kafka.server.bootstrap)
    task = _task(writer, secure_kafka.brokers(), TableRule("shop.*"))
    commands = _printed(task, tmp_path, capsys)
    for command in commands:
        secure_kafka.kafka_acls(command)
    assert _failed(check_outputs(task)) == {}
    publisher = LocalPublisher()
    publisher.run(task)
    assert _failed(check_outputs(task)) == {}
    (command,) = [one for one in commands if "--transactional-id" in one]
    secure_kafka.kafka_acls(command, removes=True)
    assert command in _failed(check_outputs(task))["MR-7011"].fix
    with pytest.raises(MillraceError) as refused:
        publisher.run(task)
    assert refused.value.code == "MR-7011"


@pytest.mark.chaos
@pytest.mark.parametrize("number", range(3), ids=["set-topic", "outputs", "progress"])
def test_publish_task_needs_its_rights_on_topics(
    secure_kafka: SecureKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    """Without Read, Write or Create on one of them, a run is refused with the code of a missing right."""
    writer = _written(secure_kafka.server.bootstrap)
    task = _task(writer, secure_kafka.brokers(), TableRule("shop.*"))
    commands = _printed(task, tmp_path, capsys)
    for command in commands:
        secure_kafka.kafka_acls(command)
    on_topics = [one for one in commands if " --topic " in one]
    secure_kafka.kafka_acls(on_topics[number], removes=True)
    with pytest.raises(MillraceError) as refused:
        LocalPublisher().run(task)
    assert refused.value.code == "MR-7010"
