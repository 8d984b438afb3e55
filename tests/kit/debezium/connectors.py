"""Debezium's connectors on Kafka Connect: their records about a script of SQL, once for each variant of their options.

Every connector follows the binlog before the script begins, so no record is of a snapshot. All run in one JVM. Events
that Debezium can't read are left out with a warning in its log, as ``…failure.handling.mode`` says. A transform of
Connect sends all records of a variant to one topic, because a thousand topics take minutes; the names of the Connect
schemas still have the topic that Debezium chose.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from millrace.deploy.bench.apply.sink.connect import ConnectWorker, SinkJars, fetch_connector
from millrace.deploy.bench.capture.debezium.peer import fetch_debezium
from millrace.deploy.servers import Account, DatabaseServer, KafkaServer
from millrace.schemas.gtid import Flavour
from tests.kit.debezium.avro_converter import SchemaStore, plugins, settings
from tests.kit.debezium.parts import Parse, avro_parts, json_parts
from tests.kit.waiting import PATIENCE_S, eventually

IVY_FILE = Path(__file__).with_name("ivy.xml")
PROBE = "debezium_probe"
ACCOUNT = Account("debezium", "debezium-secret")
PRIVILEGES = "SELECT, RELOAD, LOCK TABLES, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT"
_JSON = "org.apache.kafka.connect.json.JsonConverter"
_CONNECTORS = {
    Flavour.MYSQL: "io.debezium.connector.mysql.MySqlConnector",
    Flavour.MARIADB: "io.debezium.connector.mariadb.MariaDbConnector",
}
READ_S = 1.0
FOLLOW_S = 1800.0
BROKER_SESSION_S = 120


@dataclass(frozen=True, slots=True)
class Variant:
    """A set of options. ``has_schemas``: each record holds its schema, as Connect's JsonConverter writes it.

    ``is_avro``: keys and values are Avro. Headers are JSON in all variants.
    """

    name: str
    options: Mapping[str, str]
    has_schemas: bool = False
    is_avro: bool = False

    def parse(self, schema_of: Callable[[int], Any]) -> Parse:
        """Reads keys and values. ``schema_of``: an Avro schema by its ID."""
        return avro_parts(schema_of) if self.is_avro else json_parts


AVRO = Variant(
    "avro",
    {"schema.name.adjustment.mode": "avro", "field.name.adjustment.mode": "avro"},
    has_schemas=True,
    is_avro=True,
)
VARIANTS = (
    Variant("default", {"provide.transaction.metadata": "true"}, has_schemas=True),
    Variant("plain", {"tombstones.on.delete": "false"}),
    Variant(
        "connect",
        {
            "decimal.handling.mode": "double",
            "time.precision.mode": "connect",
            "bigint.unsigned.handling.mode": "precise",
            "binary.handling.mode": "base64",
        },
        has_schemas=True,
    ),
    Variant(
        "text",
        {
            "decimal.handling.mode": "string",
            "time.precision.mode": "isostring",
            "binary.handling.mode": "base64-url-safe",
        },
        has_schemas=True,
    ),
    Variant(
        "microseconds",
        {"time.precision.mode": "microseconds", "binary.handling.mode": "hex"},
        has_schemas=True,
    ),
    Variant("nanoseconds", {"time.precision.mode": "nanoseconds"}, has_schemas=True),
    AVRO,
)


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a topic, as bytes; ``value`` is None in a tombstone."""

    topic: str
    key: bytes | None
    value: bytes | None
    offset: int = 0
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int = 0


def fetch_for(flavour: Flavour) -> SinkJars:
    """The connector of a flavour, fetched if it is missing."""
    if flavour is Flavour.MYSQL:
        return fetch_debezium()
    return fetch_connector("debezium-mariadb", size_mb=45, ivy_file=IVY_FILE)


@contextmanager
def patient_broker(folder: Path) -> Iterator[KafkaServer]:
    """A broker for the block that a busy machine does not fence."""
    server = KafkaServer(folder / "kafka", session_s=BROKER_SESSION_S)
    server.start()
    try:
        yield server
    finally:
        server.discard()


def debezium_records(
    server: DatabaseServer,
    bootstrap: str,
    folder: Path,
    script: Callable[[], object],
    *,
    databases: Sequence[str],
    store: SchemaStore,
    variants: Sequence[Variant] = VARIANTS,
) -> dict[str, list[Record]]:
    """Debezium's records about ``script`` by the variant's name, in their order. ``store`` gets the Avro schemas."""
    server.create_account(ACCOUNT, PRIVILEGES)
    server.execute(f"CREATE DATABASE IF NOT EXISTS {PROBE}")
    server.execute(f"CREATE TABLE IF NOT EXISTS {PROBE}.t (id INT PRIMARY KEY AUTO_INCREMENT)")
    jars = fetch_for(server.flavour)
    jars = replace(jars, plugins=plugins(folder / "plugins", jars.plugins))
    worker = ConnectWorker(folder / "connect", jars, bootstrap)
    source = _Source(server, folder, databases, store, variants)
    try:
        worker.start()
        for number, variant in enumerate(variants):
            worker.create(variant.name, _settings(source, variant, number))
            worker.resume_tasks(variant.name)
        _wait_for_probe(source, worker, bootstrap)
        script()
        _wait_for_probe(source, worker, bootstrap)
        for variant in variants:
            worker.stop_tasks(variant.name)
    finally:
        worker.stop()
    return {
        variant.name: _without_probe(
            topic_records(bootstrap, variant.name, is_exact=True), variant.parse(store.schema)
        )
        for variant in variants
    }


@dataclass(frozen=True, slots=True)
class _Source:
    """The source and the store, which all connectors share."""

    server: DatabaseServer
    folder: Path
    databases: Sequence[str]
    store: SchemaStore
    variants: Sequence[Variant]


def _without_probe(records: Sequence[Record], parse: Parse) -> list[Record]:
    """Neither rows of the probe, nor begins and ends of its transactions."""
    values = [parse(record.value)[1] or {} for record in records]
    is_probe = [value.get("source", {}).get("db") == PROBE for value in values]
    transactions = {
        value["transaction"]["id"]
        for value, of_probe in zip(values, is_probe, strict=True)
        if of_probe and value.get("transaction")
    }
    return [
        record
        for record, value, of_probe in zip(records, values, is_probe, strict=True)
        if not of_probe and ("status" not in value or value["id"] not in transactions)
    ]


def topic_records(bootstrap: str, prefix: str, *, is_exact: bool = False) -> list[Record]:
    """All records of the topics with this prefix, or of the one with this name; of one partition in its order."""
    with closing(_consumer(bootstrap)) as consumer:
        topics = consumer.list_topics(timeout=READ_S * 30).topics
        partitions = [
            (name, partition)
            for name in sorted(topics)
            if (name == prefix if is_exact else name.startswith(prefix))
            for partition in sorted(topics[name].partitions)
        ]
        records = _read_to_ends(consumer, partitions)
        return [record for each in partitions for record in records[each]]


def _consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "debezium-comparison",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.message.max.bytes": 64 << 20,
        }
    )


def _read_to_ends(
    consumer: Consumer, partitions: Sequence[tuple[str, int]]
) -> dict[tuple[str, int], list[Record]]:
    records: dict[tuple[str, int], list[Record]] = {each: [] for each in partitions}
    waiting = set(partitions)
    consumer.assign([TopicPartition(*each, OFFSET_BEGINNING) for each in partitions])
    deadline = time.monotonic() + PATIENCE_S
    while waiting and time.monotonic() < deadline:
        message = consumer.poll(READ_S)
        if message is None:
            continue
        place = (str(message.topic()), int(message.partition() or 0))
        error = message.error()
        if error is None:
            read = Record(place[0], message.key(), message.value(), int(message.offset() or 0))
            records[place].append(replace(read, headers=_headers(message), partition=place[1]))
        elif error.code() == KafkaError._PARTITION_EOF:
            waiting.discard(place)
        else:
            raise AssertionError(f"{place[0]}: {error.str()}")
    assert not waiting, f"no end of {sorted(waiting)[:5]} within {PATIENCE_S:.0f} s"
    return records


def _headers(message: Message) -> tuple[tuple[str, bytes], ...]:
    headers: Any = message.headers() or ()  # the binding's types allow more
    return tuple(headers)


def _wait_for_probe(source: _Source, worker: ConnectWorker, bootstrap: str) -> None:
    """Insert into the probe's table until every connector has written a row that is inserted from now on."""
    server = source.server
    first = int(str(server.execute(f"SELECT COALESCE(MAX(id), 0) FROM {PROBE}.t")[0][0]))
    with closing(_consumer(bootstrap)) as consumer:

        def have_read() -> bool:
            server.execute(f"INSERT INTO {PROBE}.t VALUES ()")
            for each in source.variants:
                worker.check(each.name)
            return all(
                _newest_probe(consumer, each, source.store) > first for each in source.variants
            )

        what = "a row of the probe in every variant's topic"
        eventually(have_read, timeout_s=FOLLOW_S, every_s=0.5, what=what)


def _newest_probe(consumer: Consumer, variant: Variant, store: SchemaStore) -> int:
    """The id of the last row of the probe that the connector has written, if it is the last record; else 0."""
    topic, parse = variant.name, variant.parse(store.schema)
    topics = consumer.list_topics(timeout=READ_S * 30).topics
    if topic not in topics or topics[topic].error is not None:
        return 0
    with suppress(KafkaException):  # the topic was just created
        end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=READ_S * 30)[1]
        # after the row, transaction metadata may have an END and a BEGIN
        offsets = (end - back for back in (1, 2, 3, 4) if end >= back)
        newest = (_probe_at(consumer, TopicPartition(topic, 0, each), parse) for each in offsets)
        return max(newest, default=0)
    return 0


def _probe_at(consumer: Consumer, place: TopicPartition, parse: Parse) -> int:
    """The id of the probe's row at this offset; 0 if another record is there."""
    consumer.assign([place])
    message = consumer.poll(READ_S * 30)
    text = None if message is None or message.error() else message.value()
    if text is None:
        return 0
    change = parse(text)[1]
    is_probe = "after" in change and change["source"]["db"] == PROBE
    return int(change["after"]["id"]) if is_probe else 0


def _settings(source: _Source, variant: Variant, number: int) -> Mapping[str, str]:
    server, folder = source.server, source.folder
    tables = ",".join(f"{name}[.].*" for name in (PROBE, *source.databases))
    parts = () if variant.is_avro else ("key", "value")
    converters = {f"{part}.converter": _JSON for part in parts}
    converters |= {
        f"{part}.converter.schemas.enable": json.dumps(variant.has_schemas) for part in parts
    }
    converters |= {"header.converter": _JSON, "header.converter.schemas.enable": "false"}
    if variant.is_avro:
        converters |= settings("key", source.store) | settings("value", source.store)
    return {
        "connector.class": _CONNECTORS[server.flavour],
        "tasks.max": "1",
        "database.hostname": server.host,
        "database.port": str(server.port),
        "database.user": ACCOUNT.user,
        "database.password": ACCOUNT.password,
        "database.server.id": str(7_600_000 + number),
        "database.ssl.mode": "disable" if server.flavour is Flavour.MARIADB else "preferred",
        "topic.prefix": variant.name,
        "table.include.list": tables,
        "snapshot.mode": "no_data",
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": str(folder / "connect" / f"history-{number}"),
        "schema.history.internal.store.only.captured.databases.ddl": "true",
        "poll.interval.ms": "50",
        "transforms": "together",
        "transforms.together.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.together.regex": ".*",
        "transforms.together.replacement": variant.name,
        "topic.creation.enable": "true",
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.partitions": "1",
        "producer.override.max.request.size": str(64 << 20),
        "topic.creation.default.max.message.bytes": str(64 << 20),
        "event.deserialization.failure.handling.mode": "warn",
        "event.processing.failure.handling.mode": "warn",
        "inconsistent.schema.handling.mode": "warn",
        "schema.history.internal.skip.unparseable.ddl": "true",
        **converters,
        **variant.options,
    }
