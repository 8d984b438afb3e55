"""Schema ids come from the schema records of the topic, without a registry."""

import threading
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from millrace.drivers.kafka.reader import Ends, TopicRecord
from millrace.errors import Fatal, Retryable
from millrace.producer.publish import topic_schemas
from millrace.producer.publish.codec import RecordCodec
from millrace.producer.publish.topic_schemas import SchemaIds, find_schemas
from millrace.registry.client import RegistryClient
from millrace.schemas.documents import Registry
from millrace.schemas.gtid import Flavour, parse_gtid_set
from millrace.schemas.progress import Progress
from millrace.schemas.record.avro_schema import AvroSchema
from millrace.schemas.record.control import CONTROL_SCHEMAS, RegisteredSchema, SchemaRecord
from millrace.schemas.record.record import encode_control
from tests.kit.publisher.model import model_config

NOWHERE = "http://127.0.0.1:1"
CONFIG = model_config()
IDS = {kind: number for number, kind in enumerate(CONTROL_SCHEMAS, 11)}
CODEC = RecordCodec(CONFIG, IDS)
ORDERS = AvroSchema.of({"type": "record", "namespace": "shop", "name": "orders", "fields": []})
PROGRESS = Progress(parse_gtid_set(Flavour.MARIADB, "0-1-1"), None, 0)


@dataclass
class _Partition:
    """A partition with these values from offset 0."""

    values: list[bytes]

    def all_ends(self) -> Ends:
        return Ends(0, len(self.values), len(self.values))

    def stable_end(self) -> int:
        return len(self.values)

    def low_end(self) -> int:
        return 0

    def read(self, start: int, stop: int) -> list[TopicRecord]:
        return [TopicRecord(n, None, self.values[n]) for n in range(start, stop)]

    def next_record(self, offset: int, *, timeout_s: float) -> TopicRecord | None:
        return None

    def close(self) -> None:
        pass


def _table(schema_id: int) -> bytes:
    schema = RegisteredSchema("shop.orders-value", schema_id, ORDERS)
    record = SchemaRecord(schema, None, "shop", "orders", 0)
    return encode_control(record, schema_id=IDS[next(iter(CONTROL_SCHEMAS))])


def test_start_with_schemas_in_the_topic_needs_no_registry() -> None:
    """The topic has the control schemas and a table's; the registry is asked for a missing one."""
    values = [*CODEC.run_start(PROGRESS), _table(21), CODEC.resolved(PROGRESS)]
    schemas = SchemaIds(RegistryClient(Registry(NOWHERE)), lambda: _Partition(values), topic="shop")
    assert RecordCodec.register(CONFIG, schemas.register) == CODEC
    assert schemas.register("shop.orders-value", ORDERS.text) == 21
    with pytest.raises(Retryable) as caught:
        schemas.register("shop.orders-value", '"string"')
    assert caught.value.code == "MR-6020"


def test_registry_without_a_list_is_asked_for_each_schema() -> None:
    """Other registries may not list schemas, or fail at it: the start only takes longer."""
    registry = _NoList()
    schemas = SchemaIds(registry, lambda: _Partition([]), topic="shop")
    wanted = range(3 * topic_schemas.ASKED_MAX)
    assert [schemas.register(f"shop-{number}", ORDERS.text) for number in wanted] == list(wanted)
    assert registry.prefixes == ["shop-millrace."]


@dataclass
class _NoList:
    """A registry that numbers what it is asked for, and has no list."""

    prefixes: list[str] = field(default_factory=list)
    count: int = 0

    def register(self, subject: str, schema_text: str) -> int:
        self.count += 1
        return self.count - 1

    def knows(self, subject: str, schema_text: str) -> bool:
        return False

    def learn(self, prefix: str) -> None:
        self.prefixes.append(prefix)
        raise Fatal("MR-6021", "it answered 404")

    def remember(self, subject: str, schema_text: str, schema_id: int) -> None:
        raise AssertionError("the topic is read only while the registry is unavailable")


@dataclass
class _Together:
    """A registry that answers only when ``wanted`` requests are open, and refuses those of ``refused``."""

    wanted: threading.Barrier
    refused: str = ""
    known: dict[str, int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def register(self, subject: str, schema_text: str) -> int:
        if subject in self.known:
            return self.known[subject]
        self.asked.append(subject)
        if subject == self.refused:
            self.wanted.abort()
            raise Retryable("MR-6020", "it did not answer")
        with suppress(threading.BrokenBarrierError):
            self.wanted.wait(60)
        return self.known.setdefault(subject, len(self.known) + 1)

    def knows(self, subject: str, schema_text: str) -> bool:
        return subject in self.known

    def learn(self, prefix: str) -> None:
        self.known["shop-learned"] = 99

    def remember(self, subject: str, schema_text: str, schema_id: int) -> None:
        raise AssertionError("the topic is read only while the registry is unavailable")


def test_schemas_are_registered_at_the_same_time() -> None:
    """As many requests as allowed are open at once; the list is read first; known schemas are not asked for."""
    registry = _Together(threading.Barrier(topic_schemas.AT_ONCE))
    registry.known["shop-known"] = 7
    schemas = SchemaIds(registry, lambda: _Partition([]), topic="shop")
    names = [f"shop-{n}" for n in range(2 * topic_schemas.AT_ONCE)]
    schemas.prepare([(name, ORDERS.text) for name in (*names, "shop-known", "shop-learned")])
    assert sorted(registry.asked) == sorted(names)
    assert schemas.register("shop-learned", ORDERS.text) == 99
    assert len({schemas.register(name, ORDERS.text) for name in names}) == len(names)
    assert len(registry.asked) == len(names)


def test_refused_schema_is_left_to_its_own_registration() -> None:
    """The error is raised where the schema is needed, not before; the rest is not asked for."""
    registry = _Together(threading.Barrier(topic_schemas.AT_ONCE), refused="shop-0")
    schemas = SchemaIds(registry, lambda: _Partition([]), topic="shop")
    names = [f"shop-{n}" for n in range(4 * topic_schemas.AT_ONCE)]
    schemas.prepare([(name, ORDERS.text) for name in names])
    assert len(registry.asked) <= topic_schemas.AT_ONCE + 1
    with pytest.raises(Retryable, match="MR-6020"):
        schemas.register("shop-0", ORDERS.text)


def test_newest_schema_record_wins() -> None:
    """A rebuilt registry gave the schema another id."""
    opening = CODEC.run_start(PROGRESS)
    values = [*opening, _table(21), *opening, _table(31)]
    assert find_schemas(_Partition(values))["shop.orders-value", ORDERS.text] == 31


def test_control_schemas_are_found_before_a_long_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the last start of a run is too far away, the first one is read."""
    monkeypatch.setattr(topic_schemas, "OFFSETS_MAX", 10)
    values = [*CODEC.run_start(PROGRESS), *[CODEC.resolved(PROGRESS)] * 100]
    schemas = SchemaIds(RegistryClient(Registry(NOWHERE)), lambda: _Partition(values), topic="shop")
    assert RecordCodec.register(CONFIG, schemas.register) == CODEC
