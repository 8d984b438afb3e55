"""A database whose rows change, and a publish task that writes each portion of the changes to its topics.

    latest.shop.orders   one column as the key, texts of all kinds
    latest.shop.lines    a key of two columns, one of them a text

Two partitions each, ``format: json``, ``decimal: string``.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from threading import Event

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from millrace.schemas.documents import OutputTopics, PublishTask
from millrace.schemas.view.format_options import FormatName, FormatOptions
from tests.kit.apply.topic import RecordStream
from tests.kit.binlog.session import LoggedSession
from tests.kit.capture.converter import raw_records
from tests.kit.kafka_topics import make_topic
from tests.kit.lakehouse.program import Tables
from tests.kit.publish.local import LocalPublisher, publish_task
from tests.kit.publish.rig import PATIENT

SOURCE = "shop"
ORDERS, LINES = "latest.shop.orders", "latest.shop.lines"
TABLES: Tables = {
    ORDERS: (
        "shop.orders",
        ("id",),
        "id BIGINT, customer STRING, price DECIMAL(12,2), paid INT, created TIMESTAMP_NTZ, note STRING",
    ),
    LINES: ("shop.lines", ("id", "sku"), "id BIGINT, sku STRING, amount INT, day DATE"),
}
CREATE = (
    """CREATE TABLE orders (id BIGINT PRIMARY KEY, customer VARCHAR(80) NULL, price DECIMAL(12,2) NOT NULL,
    paid TINYINT NOT NULL, created DATETIME(6) NULL, note TEXT NULL) CHARACTER SET utf8mb4""",
    """CREATE TABLE `lines` (id BIGINT, sku VARCHAR(20), amount INT NULL, day DATE NULL, PRIMARY KEY (id, sku))
    CHARACTER SET utf8mb4""",
)
_CUSTOMERS = ("NULL", "''", "'Ann'", "'O\\'Neil \"q\" 😀'", "'two\\nlines \\\\ ü'")
_CREATED = ("NULL", "'2024-02-29 12:00:00.123456'", "'1970-01-01 00:00:00'", "NOW(6)")
_KEYS = 60
_STATEMENTS = 40
_PACE_S = 0.5
_ANSWER_S = 120.0


@dataclass
class ChangingSource:
    """Writes portions of changes. ``_values`` are those that the set topic has."""

    session: LoggedSession
    bootstrap: str
    random: Random
    topic: str = "lakehouse-set"
    publisher: LocalPublisher = field(default_factory=lambda: LocalPublisher(limits=PATIENT))
    _values: list[bytes] = field(default_factory=list)

    def create(self) -> PublishTask:
        """The tables, the set topic and the task."""
        self.session.run(*CREATE)
        make_topic(AdminClient({"bootstrap.servers": self.bootstrap}), self.topic)
        stream = RecordStream(self.session.server.flavour)
        stream.fence()
        self._append([(None, stream.values[0])])
        return publish_task(
            self,
            topics=OutputTopics(pattern="latest.{database}.{table}", partitions=2),
            format=FormatOptions.of(FormatName.JSON),
        )

    def change(self, task: PublishTask) -> None:
        """A portion: inserts, updates, deletes and changed keys, captured and published."""
        for _ in range(_STATEMENTS):
            self.session.run(self._statement())
        self.publish(task)

    def publish(self, task: PublishTask) -> None:
        """Capture and publish what the session has changed."""
        records = [
            record for batch in self.session.conversion().batches() for record in raw_records(batch)
        ]
        assert [value for _, value in records[: len(self._values)]] == self._values
        rest = records[len(self._values) :]
        self._values += [value for _, value in rest]
        self._append(rest)
        self.publisher.run(task)

    @contextmanager
    def changing(self, task: PublishTask) -> Iterator[None]:
        """Portions one after the other during the block."""
        ends = Event()

        def write() -> None:
            while not ends.wait(_PACE_S):
                self.change(task)

        with ThreadPoolExecutor(1) as threads:
            writing = threads.submit(write)
            try:
                yield
            finally:
                ends.set()
                writing.result()

    def rows(self, topic: str) -> list[tuple[str | None, ...]]:
        """The rows of a topic's table at the source, as texts."""
        name, _, columns = TABLES[topic]
        selected = ", ".join(column.split()[0] for column in columns.split(", "))
        table = name.partition(".")[2]
        return [
            tuple(map(text_of, row))
            for row in self.session.rows(f"SELECT {selected} FROM `{table}`")
        ]

    def _append(self, records: list[tuple[bytes | None, bytes]]) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for key, value in records:
            producer.produce(self.topic, value, key)
        assert producer.flush(_ANSWER_S) == 0

    def _statement(self) -> str:
        random = self.random
        key, other = random.randrange(_KEYS), random.randrange(_KEYS)
        price = f"{random.randrange(-(10**11), 10**11) / 100:.2f}"
        customer, created = random.choice(_CUSTOMERS), random.choice(_CREATED)
        return random.choice(
            (
                f"REPLACE INTO orders VALUES ({key}, {customer}, {price}, {key % 3}, {created}, NULL)",
                f"INSERT IGNORE INTO orders VALUES ({key}, {customer}, {price}, 0, NULL, {customer})",
                f"UPDATE orders SET price = {price}, note = {customer} WHERE id = {key}",
                f"UPDATE IGNORE orders SET id = {other} WHERE id = {key}",
                f"DELETE FROM orders WHERE id = {key}",
                f"REPLACE INTO `lines` VALUES ({key % 9}, '{other % 9}', {key}, '2024-02-29')",
                f"UPDATE IGNORE `lines` SET sku = '{other % 9}', amount = NULL WHERE id = {key % 9} LIMIT 1",
                f"DELETE FROM `lines` WHERE id = {key % 9} AND sku < '{other % 9}'",
            )
        )


def text_of(value: object) -> str | None:
    """A value as ``read.py`` prints it."""
    return None if value is None else str(value)
