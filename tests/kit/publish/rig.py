"""A publish task without a set topic: its records follow from their ``seq``, so any part of them can be repeated.

seq      topic             key                  parts
seq % 3  <prefix>.t<0-2>   k<seq % KEYS>        seq % 7 == 0: a delete, its tombstone and a create; else one
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

import confluent_kafka
import numpy as np
from confluent_kafka.admin import AdminClient

from millrace.consumer.kernel.partitions import partitions_of
from millrace.consumer.publish.mark import Description, Position
from millrace.consumer.publish.opening import Started, start_task
from millrace.consumer.publish.outgoing import WIDTH, Outgoing
from millrace.consumer.publish.outputs import OutputShape, SlotLimits, TaskOrder
from millrace.consumer.publish.slot import Slot, SlotOrder
from millrace.drivers.kafka.access import GivenAccess, KafkaAccess
from millrace.drivers.kafka.partitions import PartitionsReader, Place, Topics, places_of
from millrace.drivers.kafka.producer import WRITING
from millrace.errors import Retryable
from tests.kit.waiting import answered

TABLES = 3
KEYS = 50
DESCRIPTION = Description("v1")
PATIENT = SlotLimits(
    publish_timeout_s=120.0, ask_timeout_s=60.0, stable_timeout_s=60.0, audit_timeout_s=120.0
)


@dataclass(frozen=True)
class Row:
    """A record as a subscriber reads it."""

    place: Place
    key: bytes | None
    value: bytes | None
    headers: dict[str, str]

    def number(self, name: str) -> int:
        """A header that is a number."""
        return int(self.headers[name])


class SlotRig:
    """One task; its topics begin with its name. Sources' offsets are equal to their ``seq``."""

    def __init__(self, bootstrap: str, prefix: str, *, slots: int = 1, partitions: int = 1) -> None:
        self.bootstrap, self.prefix = bootstrap, prefix
        self.slots, self.partitions = slots, partitions
        self.limits = PATIENT
        self.brokers: KafkaAccess = GivenAccess(bootstrap)
        self.config: dict[str, str] = {}
        self.era = 0  # records of so many seqs, then other topics follow

    @property
    def topics(self) -> tuple[str, ...]:
        """The output topics of a task without ``era``."""
        return tuple(map(self._topic, range(TABLES)))

    def _topic(self, seq: int) -> str:
        era = f"-{(seq - 1) // self.era}" if self.era else ""
        return f"{self.prefix}.t{seq % TABLES}{era}"

    def order(self, epoch: int = 7) -> TaskOrder:
        """The task under this epoch."""
        return TaskOrder(
            task=self.prefix,
            epoch=epoch,
            slots=self.slots,
            brokers=self.brokers,
            worker=f"w{epoch}",
            shape=OutputShape(self.partitions, 1, self.config),
            limits=self.limits,
        )

    def start(self, epoch: int = 7, description: Description = DESCRIPTION) -> Started:
        """The start of the task by a new owner. Errors that a supervisor retries are retried."""
        start = Position(0, 0, "", "set-topic")
        order = self.order(epoch)
        return answered(
            lambda: start_task(order, start=lambda: start, describe=lambda _: description),
            Retryable,
        )

    @contextmanager
    def running(self, epoch: int = 7) -> Iterator[list[Slot]]:
        """The slots of a started task, which are closed after the block."""
        self.start(epoch)
        slots = [self.open(slot, epoch) for slot in range(self.slots)]
        try:
            yield slots
            for slot in slots:
                slot.close()
        finally:
            for slot in slots:
                slot.discard()

    def open(self, slot: int = 0, epoch: int = 7) -> Slot:
        """A slot of the started task, as ``start``."""
        return answered(lambda: Slot.open(SlotOrder(self.order(epoch), slot)), Retryable)

    def feed(self, slot: Slot, stop: int, *, step: int = 50) -> None:
        """Write and commit all records up to seq ``stop``, from the slot's position on."""
        seq = slot.position.seq
        while seq < stop:
            end = min(seq + step, stop)
            slot.write(self.outgoing(seq + 1, end))
            slot.commit(position(end))
            seq = end

    def outgoing(self, first: int, last: int) -> Outgoing:
        """The records of seq ``first`` to ``last``."""
        octets = bytearray()
        lines, topics = [], dict[str, int]()
        for seq in range(first, last + 1):
            for part, (key, value) in enumerate(_parts(seq)):
                start = len(octets)
                octets += key + (value or b"")
                middle = start + len(key)
                end = -1 if value is None else middle + len(value)
                topic = topics.setdefault(self._topic(seq), len(topics))
                lines.append((topic, 0, start, middle, middle, end, seq, part, -1, -1, -1))
        array = np.array(lines, np.int64).reshape(-1, WIDTH)
        payload = np.frombuffer(bytes(octets), np.uint8)
        array[:, 1] = partitions_of(
            payload, array[:, 2].copy(), array[:, 3].copy(), self.partitions
        )
        return Outgoing(tuple(topics), payload, array)

    def rows(self) -> list[Row]:
        """All committed records of the output topics, in order in each partition."""
        topics = Topics(self.brokers, errors=WRITING)
        listed = self.admin().list_topics(timeout=60.0).topics
        shapes = topics.shapes([name for name in listed if name.startswith(f"{self.prefix}.t")])
        ends = topics.ends(places_of(shapes))
        rows: list[Row] = []
        with closing(PartitionsReader(self.brokers, errors=WRITING)) as reader:
            reader.visit(
                {place: (end.low, end.stable) for place, end in ends.items()},
                lambda place, record: rows.append(
                    Row(
                        place,
                        record.key,
                        record.value,
                        {name: value.decode() for name, value in record.headers.items()},
                    )
                ),
                within_s=60.0,
            )
        return rows

    def assert_exact(self, last_seq: int) -> None:
        """Every record up to ``last_seq`` once; in each partition ``n`` is gapless, ``seq`` and epoch never fall."""
        rows = self.rows()
        wanted = [
            (seq, part, key, value)
            for seq in range(1, last_seq + 1)
            for part, (key, value) in enumerate(_parts(seq))
        ]
        arrived = [(row.number("seq"), row.number("part"), row.key, row.value) for row in rows]
        assert sorted(arrived) == sorted(wanted, key=lambda one: one[:2]) or _differ(
            arrived, wanted
        )
        for place in {row.place for row in rows}:
            own = [row for row in rows if row.place == place]
            assert [row.number("n") for row in own] == list(range(1, len(own) + 1)), place
            orders = [(row.number("seq"), row.number("part")) for row in own]
            assert orders == sorted(orders), place
            epochs = [row.number("epoch") for row in own]
            assert epochs == sorted(epochs), place
            assert {row.headers["task"] for row in own} == {self.prefix}

    def admin(self) -> AdminClient:
        """An operator's client."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    @contextmanager
    def foreign_transaction(self, topic: str) -> Iterator[None]:
        """Another writer's Kafka transaction with one record, open during the block."""
        foreign = confluent_kafka.Producer(
            {"bootstrap.servers": self.bootstrap, "transactional.id": f"foreign-{topic}"}
        )
        foreign.init_transactions(60.0)
        foreign.begin_transaction()
        foreign.produce(topic, b"hello", None, 0)
        assert foreign.flush(60.0) == 0
        yield
        foreign.abort_transaction(60.0)

    def write_foreign(self, topic: str, partition: int = 0) -> None:
        """Another client writes a record outside of any Kafka transaction."""
        foreign = confluent_kafka.Producer({"bootstrap.servers": self.bootstrap})
        foreign.produce(topic, b"hello", None, partition)
        assert foreign.flush(60.0) == 0


def _differ(arrived: list[tuple[int, int, bytes | None, bytes | None]], wanted: object) -> bool:
    """Fail with the records that are repeated or missing."""
    assert isinstance(wanted, list)
    numbers = [one[:2] for one in arrived]
    expected = [one[:2] for one in wanted]
    repeated = sorted({one for one in numbers if numbers.count(one) > 1})
    missing = sorted(set(expected) - set(numbers))
    added = sorted(set(numbers) - set(expected))
    raise AssertionError(f"repeated {repeated[:9]}, missing {missing[:9]}, added {added[:9]}")


def _parts(seq: int) -> list[tuple[bytes, bytes | None]]:
    key = b"k%d" % (seq % KEYS)
    if seq % 7:
        return [(key, b"value %d" % seq)]
    return [(key, b"delete %d" % seq), (key, None), (b"moved %d" % seq, b"create %d" % seq)]


def position(seq: int) -> Position:
    """After the record with this seq."""
    return Position(seq, seq, f"gtid:1-{seq}", "set-topic", {1: 0})
