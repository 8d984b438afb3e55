"""Topics for clients: a table of MySQL or MariaDB, published in four formats, with what a reader must survive.

    PREFIX.avro.shop.orders       avro            decimal: string
    PREFIX.debezium.shop.orders   debezium-json   decimal: string
    PREFIX.latest.shop.orders     json
    PREFIX.connect.shop.orders    debezium-avro
    PREFIX.….shop.odd             the same for a table of awkward types
    PREFIX.….shop.altered         the rows of orders, written before, between and after two ALTER TABLE
    PREFIX.….shop.broken          as orders, without one record in the middle of partition 1

Two partitions each. At the end of each partition are three records of an aborted transaction, which a reader with
read_committed does not see.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from millrace.deploy.servers import DatabaseServer
from millrace.drivers.kafka.partitions import (
    HeaderedRecord,
    PartitionsReader,
    Place,
    Topics,
    places_of,
)
from millrace.drivers.kafka.producer import WRITING
from millrace.errors import Retryable
from millrace.schemas.documents import Brokers, OutputTopics, Registry, TopicAddress
from millrace.schemas.gtid import Flavour
from millrace.schemas.view.format_options import DecimalMode, FormatName, FormatOptions
from tests.kit.binlog.session import logged
from tests.kit.clients.client import ClientTopic
from tests.kit.clients.tables import ORDERS, ORDERS_SELECT, SOURCE
from tests.kit.debezium.whole_way import CopiedTopic, publish
from tests.kit.kafka_topics import make_topic
from tests.kit.waiting import answered

PARTITIONS = 2
READ_S, ANSWER_S = 300.0, 60.0
ABORTED = 3
FORMATS: Mapping[FormatName, tuple[str, FormatOptions]] = {
    FormatName.AVRO: (
        "avro",
        replace(FormatOptions.of(FormatName.AVRO), decimal=DecimalMode.STRING),
    ),
    FormatName.DEBEZIUM_JSON: (
        "debezium",
        FormatOptions(FormatName.DEBEZIUM_JSON, decimal=DecimalMode.STRING),
    ),
    FormatName.JSON: ("latest", FormatOptions.of(FormatName.JSON)),
    FormatName.DEBEZIUM_AVRO: ("connect", FormatOptions.of(FormatName.DEBEZIUM_AVRO)),
}
Row = Mapping[str, str | None]
Rows = Mapping[str, Row]  # by the text of the key


@dataclass(frozen=True, slots=True)
class ClientScene:
    """The topics of one flavour. ``rows`` are those of the source, ``micros`` has ``created`` in microseconds."""

    bootstrap: str
    registry: str
    prefix: str
    rows: Rows
    micros: Mapping[str, str | None]

    def topic(self, format_name: FormatName, table: str = ORDERS) -> ClientTopic:
        """The topic of a table in a format."""
        name = f"{self.prefix}.{FORMATS[format_name][0]}.{SOURCE}.{table}"
        return self._named(name)

    def broken(self, format_name: FormatName) -> ClientTopic:
        """A topic without one record; partition 0 is whole."""
        whole = self.topic(format_name)
        name = f"{self.prefix}.{FORMATS[format_name][0]}.{SOURCE}.broken"
        if not Topics(Brokers(self.bootstrap), errors=WRITING).shapes([name]):
            _copy_without_one(whole, name)
        return self._named(name)

    def wanted(self, format_name: FormatName) -> Rows:
        """The rows as the format shows them: Debezium's have ``created`` in microseconds."""
        if not format_name.is_debezium:
            return self.rows
        return {key: {**row, "created": self.micros[key]} for key, row in self.rows.items()}

    def _named(self, name: str) -> ClientTopic:
        records = len(_records(self.bootstrap, name))
        return ClientTopic(self.bootstrap, self.registry, name, records)


@dataclass(frozen=True, slots=True)
class Servers:
    """All scenes share it. ``folder``: for a database server, which ends when its topics are complete."""

    bootstrap: str
    registry: str
    folder: Path


def make_scene(
    servers: Servers, flavour: Flavour, prefix: str, statements: Sequence[str]
) -> ClientScene:
    """Run the statements on a new server of this flavour, and publish what they have changed."""
    with _server(flavour, servers.folder / prefix) as server, logged(server, SOURCE) as source:
        source.run(*statements)
        selected = source.rows(ORDERS_SELECT)
        copied = CopiedTopic.of(source.conversion(), servers.bootstrap)
    address = TopicAddress(
        topic=copied.topic,
        brokers=Brokers(servers.bootstrap),
        registry=Registry(servers.registry),
    )
    for first, options in FORMATS.values():
        pattern = f"{prefix}.{first}.{{database}}.{{table}}"
        topics = OutputTopics(pattern=pattern, partitions=PARTITIONS)
        publish(copied, source=address, topics=topics, format=options)
        _abort_records(servers.bootstrap, f"{prefix}.{first}.{SOURCE}.{ORDERS}")
    names = ("id", "customer", "price", "paid", "created", "note")
    rows = {str(row[0]): dict(zip(names, map(_text, row), strict=False)) for row in selected}
    micros = {str(row[0]): _text(row[-1]) for row in selected}
    return ClientScene(servers.bootstrap, servers.registry, prefix, rows, micros)


def _text(value: object) -> str | None:
    if value is None:
        return None
    return value.isoformat(" ", "microseconds") if hasattr(value, "isoformat") else str(value)


@contextmanager
def _server(flavour: Flavour, folder: Path) -> Iterator[DatabaseServer]:
    server = DatabaseServer.of(flavour, folder)
    server.start()
    try:
        yield server
    finally:
        server.discard()


def _records(bootstrap: str, topic: str) -> Sequence[tuple[int, HeaderedRecord]]:
    """All committed records with their partitions."""
    client = Topics(Brokers(bootstrap), errors=WRITING)
    places = places_of(client.shapes([topic]))
    ends = answered(lambda: client.ends(places), Retryable)  # a busy broker may change its leaders
    records: list[tuple[int, HeaderedRecord]] = []

    def note(place: Place, record: HeaderedRecord) -> None:
        records.append((place[1], record))

    with closing(PartitionsReader(Brokers(bootstrap), errors=WRITING)) as reader:
        ranges = {place: (end.low, end.stable) for place, end in ends.items()}
        reader.visit(ranges, note, within_s=READ_S)
    return records


def _abort_records(bootstrap: str, topic: str) -> None:
    """A transaction of another writer that ends without a commit."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"abort-{topic}"})
    producer.init_transactions(ANSWER_S)
    producer.begin_transaction()
    for partition in range(PARTITIONS):
        for _ in range(ABORTED):
            producer.produce(topic, b"aborted", b"aborted", partition)
    assert producer.flush(ANSWER_S) == 0
    producer.abort_transaction(ANSWER_S)


def _copy_without_one(whole: ClientTopic, name: str) -> None:
    make_topic(
        AdminClient({"bootstrap.servers": whole.bootstrap}), name, partition_count=PARTITIONS
    )
    records = _records(whole.bootstrap, whole.topic)
    second = [record for partition, record in records if partition == 1]
    left_out = second[len(second) // 2]
    producer = Producer({"bootstrap.servers": whole.bootstrap})
    for partition, record in records:
        if partition == 0 or record is not left_out:
            headers = dict[str, str | bytes | None](record.headers)
            producer.produce(name, record.value, record.key, partition, headers=headers)
            producer.poll(0)
    assert producer.flush(ANSWER_S) == 0
