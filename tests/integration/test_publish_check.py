"""`millrace check` of a publish task on a real broker, and the rights that it needs there."""

from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from millrace.checks.requirement import Level, Requirement
from millrace.cli import run
from millrace.consumer.checks.publish import check_outputs, check_source
from millrace.consumer.topic.structures import topic_tables
from millrace.deploy.servers import KafkaServer
from millrace.errors import MillraceError, Retryable
from millrace.schemas.documents import (
    Brokers,
    PublishTask,
    SetDocument,
    TaskKind,
    TopicAddress,
    plain_task,
    yaml_from_plain,
)
from millrace.schemas.table.structure import Column, ColumnType, TableSchema, TypeCode
from millrace.schemas.view.view import TableRule, View
from tests.fixtures.shell import Shell
from tests.kit.apply.topic import RecordStream, TopicWriter
from tests.kit.control.control import ScriptedRunner
from tests.kit.kafka_topics import make_topic
from tests.kit.publish.local import LocalPublisher
from tests.kit.secure_kafka import SecureKafka
from tests.kit.waiting import answered, eventually

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
    address = TopicAddress(topic=writer.topic, brokers=Brokers(bootstrap))
    eventually(
        lambda: answered(lambda: topic_tables(address), MillraceError), what="the records are there"
    )
    return writer


def test_structure_of_a_table_is_that_of_its_last_row(kafka: KafkaServer) -> None:
    """A statement gave it a former structure back; the topic introduces a schema once."""
    stream = RecordStream()
    for number, columns in enumerate((WIDER, ORDERS, WIDER)):
        stream.insert(columns, {"id": number, "note": 3} if columns is WIDER else {"id": number})
        stream.commit()
    writer = TopicWriter(kafka.bootstrap, stream)
    writer.publish()
    address = TopicAddress(topic=writer.topic, brokers=Brokers(kafka.bootstrap))
    eventually(
        lambda: answered(lambda: topic_tables(address), MillraceError) == (WIDER,),
        what="the structure of the last row",
    )


def _no_source() -> SetDocument:
    raise AssertionError("no condition needs the source")


def _found(task: PublishTask) -> list[Requirement]:
    """The requirements of the outputs, once the broker has answered each request in time."""

    def ask() -> list[Requirement]:
        found = list(check_outputs(task, _no_source))
        for one in found:
            if one.code in ("MR-3001", "MR-3002"):
                raise Retryable(one.code, one.found)
        return found

    return answered(ask, Retryable)


def _failed(task: PublishTask) -> dict[str, Requirement]:
    return {one.code: one for one in _found(task) if one.level is Level.FAIL}


def _publish(publisher: LocalPublisher, task: PublishTask) -> None:
    answered(lambda: publisher.run(task), Retryable)


def test_publish_task_is_checked_without_a_trace(kafka: KafkaServer) -> None:
    """The last structure of each table counts. No topic is created."""
    writer = _written(kafka.bootstrap)
    task = _task(writer, Brokers(kafka.bootstrap), TableRule("shop.*", drop=("note",)))
    assert topic_tables(task.source) == (WIDER,)
    found = [*check_source(task, pause_s=1.0), *_found(task)]
    assert {one.level for one in found} == {Level.OK}, found
    assert "1 table in 1 topic" in [one.found for one in found]
    client = AdminClient({"bootstrap.servers": kafka.bootstrap})
    assert not [name for name in client.list_topics(timeout=30).topics if task.name in name]


def test_unsuitable_view_and_records_of_others_are_found(kafka: KafkaServer) -> None:
    """By the codes that a run of the task reports."""
    writer = _written(kafka.bootstrap)
    wrong = _task(writer, Brokers(kafka.bootstrap), TableRule("shop.*", drop=("nte",)))
    assert "tables[0].columns.drop" in _failed(wrong)["MR-5201"].found
    task = _task(writer, Brokers(kafka.bootstrap), TableRule("shop.*"))
    client = AdminClient({"bootstrap.servers": kafka.bootstrap})
    topic = f"{task.name}.shop.orders"
    make_topic(client, topic, partition_count=3)
    assert _failed(task) == {}
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, b"of others", partition=2)
    producer.flush(30)
    assert topic in _failed(task)["MR-3102"].found


def test_view_is_compared_before_a_task_is_created(shell: Shell, kafka: KafkaServer) -> None:
    """`task create` and `plan` refuse it; a task is placed on an apply driver."""
    writer = _written(kafka.bootstrap)
    good = _task(writer, Brokers(kafka.bootstrap), TableRule("shop.*", drop=("note",)))
    wrong = replace(good, view=View((TableRule("shop.*", drop=("nte",)),)))
    refused = shell(
        "task", "create", "-f", shell.file(yaml_from_plain(plain_task(wrong))), exit_code=4
    )
    assert "MR-5201" in refused
    assert "tables[0].columns.drop: found the column nte in shop.orders" in refused
    path = shell.file(yaml_from_plain(plain_task(good)))
    assert shell("task", "create", "-f", path) == f"task {good.name} created\n"
    assert f"topic {writer.topic} → topics {good.name}." in shell("status", good.name)
    shell.file(yaml_from_plain(plain_task(wrong)))
    planned = shell("plan", "-f", path, exit_code=4, stream="out")
    assert "are written by the new view from its begin on" in planned
    with shell.running(ScriptedRunner(), kind=TaskKind.APPLY):
        eventually(lambda: "RUNNING" in shell("status", good.name), what="the driver runs it")
        shell("task", "pause", good.name)
        assert "paused by" in shell("status", good.name)
    assert "task create" in shell("task", "history", good.name)
    shell("task", "delete", good.name)


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
    assert _failed(task) == {}
    publisher = LocalPublisher()
    _publish(publisher, task)
    assert _failed(task) == {}
    (command,) = [one for one in commands if "--transactional-id" in one]
    secure_kafka.kafka_acls(command, removes=True)
    assert command in _failed(task)["MR-7011"].fix
    with pytest.raises(MillraceError) as refused:
        _publish(publisher, task)
    assert refused.value.code == "MR-7011"
