"""A topic that fills a table without a key on a target: repeated and missing rows show."""

import uuid
from dataclasses import dataclass, field
from typing import Self

from millrace.deploy.servers import DatabaseServer, KafkaServer
from millrace.schemas.documents import ApplyTask, Brokers, TopicAddress
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import RecordStream, TopicWriter
from tests.kit.waiting import eventually


@dataclass
class Bag:
    """The topic and its table; the task and the table's database share ``name``."""

    kafka: KafkaServer
    target: DatabaseServer
    name: str = field(default_factory=lambda: f"bag_{uuid.uuid4().hex[:8]}")
    published: int = 0

    def __post_init__(self) -> None:
        self._table = table(self.name, "bag", integer("n"), key=())
        self._stream = RecordStream()
        self.target.execute(f"CREATE DATABASE {self.name}")
        self.target.execute(f"CREATE TABLE {self.name}.bag (n INT)")
        self._writer = TopicWriter(self.kafka.bootstrap, self._stream)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Remove the database from the target."""
        self.target.execute(f"DROP DATABASE {self.name}")

    def task(self) -> ApplyTask:
        """The task that applies the topic to the table."""
        address = TopicAddress(topic=self._writer.topic, brokers=Brokers(self.kafka.bootstrap))
        return ApplyTask(name=self.name, source=address, target="target")

    def publish(self, rows: int = 50) -> None:
        """Publish ``rows`` more rows, one source transaction each."""
        for _ in range(rows):
            self.published += 1
            self._stream.insert(self._table, {"n": self.published})
            self._stream.commit()
        self._writer.publish()

    def wait_applied(self) -> None:
        """Wait until the target has as many rows as were published, then compare them."""
        ask = f"SELECT COUNT(*) FROM {self.name}.bag"
        eventually(
            lambda: self.target.execute(ask) >= [(self.published,)],
            every_s=0.1,
            what=f"{self.published} rows applied",
        )
        found = self.target.execute(f"SELECT n FROM {self.name}.bag ORDER BY n")
        assert found == [(n,) for n in range(1, self.published + 1)]

    def fence(self) -> tuple[int, int]:
        """Epoch and run in the target's fence row."""
        ask = "SELECT epoch, run FROM millrace.fence WHERE task = %s"
        (row,) = self.target.execute(ask, (self.name,))
        return int(str(row[0])), int(str(row[1]))
