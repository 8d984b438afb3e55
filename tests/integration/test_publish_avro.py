"""Publish tasks in Avro on a real broker with the built-in registry: what a subscriber finds with its plain API."""

import io
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import fastavro
import pytest
import urllib3

from millrace.consumer.publish.rebuild import rebuild
from millrace.consumer.task.publish_start import task_order
from millrace.deploy.servers import KafkaServer
from millrace.errors import Retryable
from millrace.schemas.documents import OutputTopics, PublishTask, Registry
from millrace.schemas.gtid import Flavour
from millrace.schemas.record.framing import unframe
from millrace.schemas.view.format_options import FormatName, FormatOptions
from tests.kit.apply.tables import integer, table, text
from tests.kit.apply.topic import RecordStream, TopicWriter
from tests.kit.publish.local import LocalPublisher, Published, publish_task, published
from tests.kit.registry_process import started

pytestmark = pytest.mark.usefixtures("trusting")

ORDERS = table("shop", "orders", integer("id"), text("name"), integer("amount"))
LOG = table("shop", "log", text("line"), key=())
Read = Callable[[bytes], Any]


@pytest.fixture
def writer(kafka: KafkaServer) -> TopicWriter:
    """A set topic with forty rows."""
    stream = RecordStream(Flavour.MYSQL)
    stream.fence()
    writer = TopicWriter(kafka.bootstrap, stream)
    _insert(writer, 0, 40)
    return writer


def _insert(writer: TopicWriter, first: int, end: int) -> None:
    for number in range(first, end):
        writer.stream.insert(ORDERS, _row(number))
        writer.stream.commit()
    writer.publish()


def _row(number: int) -> dict[str, object]:
    return {"id": number, "name": f"n{number}", "amount": number % 10}


def _task(writer: TopicWriter, name: FormatName) -> PublishTask:
    topics = OutputTopics(pattern="{task}-{table}", partitions=2)
    return publish_task(writer, topics=topics, format=FormatOptions.of(name))


def _at(task: PublishTask, address: str) -> PublishTask:
    return replace(task, source=replace(task.source, registry=Registry(address)))


def _asked(address: str, path: str) -> Any:
    response = urllib3.request("GET", f"{address}{path}", retries=False)
    assert response.status == 200
    return json.loads(response.data)


def _reader(address: str) -> Read:
    """Decodes as clients do: the schema by the ID of the frame."""

    @cache
    def schema(number: int) -> Any:
        return fastavro.parse_schema(
            json.loads(_asked(address, f"/schemas/ids/{number}")["schema"])
        )

    def read(octets: bytes) -> Any:
        number, body = unframe(octets)
        return fastavro.schemaless_reader(io.BytesIO(body), schema(number), None)

    return read


def _frames(task: PublishTask, suffix: str = "") -> list[tuple[int, int, bytes, bytes]]:
    """Partition, n, key and value of all orders."""
    records = published(task, [f"{task.name}-orders{suffix}"], bytes)
    return [(one.partition, one.n, one.key, one.value) for one in records]


@pytest.mark.parametrize("name", [FormatName.DEBEZIUM_AVRO, FormatName.AVRO])
def test_subscriber_finds_rows_and_subjects(
    kafka: KafkaServer, writer: TopicWriter, name: FormatName
) -> None:
    """While the registry is away nothing is lost; after its restart the same schema has the same ID."""
    registry_topic = f"schemas-{writer.topic}"
    task, publisher = _task(writer, name), LocalPublisher()
    topic = f"{task.name}-orders"
    with started(kafka, registry_topic) as (address, _):
        publisher.run(_at(task, address))
        assert _asked(address, f"/subjects?subjectPrefix={topic}") == [
            f"{topic}-key",
            f"{topic}-value",
        ]
        records: list[Published] = published(task, [topic], _reader(address))
        assert {one.key["id"] for one in records} == set(range(40))
        assert all(one.value["after"] == _row(one.key["id"]) for one in records)
    writer.stream.insert(LOG, {"line": "a"})
    writer.stream.commit()
    _insert(writer, 40, 50)
    with pytest.raises(Retryable, match="MR-6020"):
        publisher.run(_at(task, address))
    with started(kafka, registry_topic) as (address, _):
        task = _at(task, address)
        publisher.run(task)
        read = _reader(address)
        records = published(task, [topic], read)
        assert sorted(one.key["id"] for one in records) == list(range(50))
        assert [one.value["after"] for one in published(task, [f"{task.name}-log"], read)] == [
            {"line": "a"}
        ]
        assert _asked(address, f"/subjects/{topic}-value/versions") == [1]
        rebuild(task, task_order(task, epoch=0), suffix=".again")
        assert _frames(task, ".again") == _frames(task)
