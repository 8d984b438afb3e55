"""Schema ids come from the schema records of the topic, without a registry."""

from dataclasses import dataclass, field

import pytest

from millrace.errors import Fatal, Retryable
from producer.publish import topic_schemas
from producer.publish.codec import RecordCodec
from producer.publish.driver import Ends, TopicRecord
from producer.publish.topic_schemas import SchemaIds, find_schemas
from registry.client import RegistryClient
from schemas.gtid import Flavour, parse_gtid_set
from schemas.progress import Progress
from schemas.record.avro_schema import AvroSchema
from schemas.record.control import CONTROL_SCHEMAS, RegisteredSchema, SchemaRecord
from schemas.record.record import encode_control
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

    def ends(self) -> Ends:
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
    schemas = SchemaIds(RegistryClient(NOWHERE), lambda: _Partition(values), topic="shop")
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

    def learn(self, prefix: str) -> None:
        self.prefixes.append(prefix)
        raise Fatal("MR-6021", "it answered 404")

    def remember(self, subject: str, schema_text: str, schema_id: int) -> None:
        raise AssertionError("the topic is read only while the registry is unavailable")


def test_newest_schema_record_wins() -> None:
    """A rebuilt registry gave the schema another id."""
    opening = CODEC.run_start(PROGRESS)
    values = [*opening, _table(21), *opening, _table(31)]
    assert find_schemas(_Partition(values))["shop.orders-value", ORDERS.text] == 31


def test_control_schemas_are_found_before_a_long_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the last start of a run is too far away, the first one is read."""
    monkeypatch.setattr(topic_schemas, "OFFSETS_MAX", 10)
    values = [*CODEC.run_start(PROGRESS), *[CODEC.resolved(PROGRESS)] * 100]
    schemas = SchemaIds(RegistryClient(NOWHERE), lambda: _Partition(values), topic="shop")
    assert RecordCodec.register(CONFIG, schemas.register) == CODEC
