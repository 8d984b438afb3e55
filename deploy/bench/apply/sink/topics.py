"""Writes the rows of a set topic to one topic a table, as ``records`` describes."""

from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from millrace.client import Place, RowRecord, Subscriber
from millrace.deploy.bench.apply.sink.records import SinkTable
from millrace.drivers.kafka.access import Settings
from millrace.drivers.kafka.reader import READING
from millrace.errors import Fatal

ANSWER_S = 600.0
FULL_WAIT_S = 0.1


@dataclass(slots=True)
class SinkTopic:
    """The topic of a table: its name, its schemas, and how many records it has."""

    name: str
    table: SinkTable
    record_count: int = 0


def write_topics(bootstrap: str, topic: str, first: int, database: str) -> dict[str, SinkTopic]:
    """Convert the rows of ``database`` from offset ``first`` to the end. Returns the new topics by table."""
    with Subscriber(bootstrap, topic, place=Place(first)) as subscriber:
        rows = (
            record
            for record in subscriber.read_to_end()
            if isinstance(record, RowRecord) and record.source.database == database
        )
        return _Writer(bootstrap).write(rows)


class _Writer:
    def __init__(self, bootstrap: str) -> None:
        common: Settings = {"bootstrap.servers": bootstrap}
        self._admin = AdminClient(dict(common))
        self._producer = Producer(
            {**common, "compression.type": "lz4", "linger.ms": 20, "enable.idempotence": True}
        )

    def write(self, rows: Iterator[RowRecord]) -> dict[str, SinkTopic]:
        topics: dict[str, SinkTopic] = {}
        for row in rows:
            table = row.source.table
            sink_topic = topics.get(table) or topics.setdefault(table, self._create(row))
            self._send(sink_topic.name, *sink_topic.table.record(row))
            sink_topic.record_count += 1
        if self._producer.flush(ANSWER_S):
            raise Fatal("MR-8004", "the broker did not take the records of the sink")
        return topics

    def _create(self, row: RowRecord) -> SinkTopic:
        topic = SinkTopic(f"{row.source.database}.{row.source.table}", SinkTable.of(row.layout))
        (future,) = self._admin.create_topics([NewTopic(topic.name, 1, 1)]).values()
        READING.call("creating a topic of the sink", lambda: future.result(ANSWER_S))
        return topic

    def _send(self, topic: str, key: bytes, value: bytes) -> None:
        while True:
            try:
                self._producer.produce(topic, value, key, on_delivery=_check)
            except BufferError:
                self._producer.poll(FULL_WAIT_S)
            else:
                self._producer.poll(0)
                return


def _check(error: KafkaError | None, _: Message) -> None:
    if error is not None:
        raise Fatal("MR-8004", f"the broker refused a record of the sink: {error.str()}")
