"""The headers of CloudEvents: the official Python SDK reads every record, tombstones too, in all formats."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import numpy as np
import pytest
from cloudevents.core.base import BaseCloudEvent
from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka
from cloudevents.core.formats.json import JSONFormat

from millrace.consumer.format.cloud_events import constant_headers
from millrace.consumer.kernel.cloud_events import put_time
from millrace.consumer.publish import outgoing
from millrace.consumer.publish.conversion import convert
from millrace.consumer.publish.outgoing import Outgoing
from millrace.consumer.publish.plans import PublishPlans
from millrace.consumer.records.numbers import RecordNumbers
from millrace.consumer.records.row_schemas import RowSchemas
from millrace.consumer.records.rows import walk_values
from millrace.drivers.kafka.headers import HeaderedRecords
from millrace.schemas.documents import Brokers, OutputTopics, PublishTask, TopicAddress
from millrace.schemas.record.avro_schema import envelope_schema
from millrace.schemas.view.format_options import OPTIONS, FormatName, FormatOptions, KeyChanges
from tests.kit.apply.tables import integer, table, text
from tests.kit.apply.topic import COMMIT_MS, SET, RecordStream
from tests.kit.apply.values import values_of
from tests.kit.memory_registry import MemoryRegistry

ORDERS = table("shop", "orders", integer("id"), text("name"))
TRANSACTIONS = "public.transaction"
DEBEZIUM = ["snapshot", "insert", "update", "delete", "tombstone", "insert", "delete", "tombstone"]
FLAT = ["snapshot", "insert", "update", "update", "delete"]
JSON = ["snapshot", "insert", "update", "tombstone", "update", "tombstone"]


class Event(NamedTuple):
    """A record as the SDK reads it, and its headers."""

    topic: str
    sdk: BaseCloudEvent
    value: bytes | None


def _stream() -> RecordStream:
    stream = RecordStream()
    row = {"id": 1, "name": "ü"}
    stream.snapshot(ORDERS, row | {"id": 9})
    stream.insert(ORDERS, row)
    stream.update(ORDERS, row, row | {"name": "b"})
    stream.commit()
    stream.update(ORDERS, row, row | {"id": 2})
    stream.delete(ORDERS, row)
    stream.commit()
    return stream


def _task(options: FormatOptions, suffix: str = "") -> PublishTask:
    return PublishTask(
        name="public",
        source=TopicAddress(topic="shop", brokers=Brokers("b:1")),
        topics=OutputTopics(pattern="public.{table}", suffix=suffix),
        format=replace(options, cloudevents=True),
    )


def _converted(task: PublishTask, first: int = 0) -> Outgoing:
    """The records of the rows from number ``first`` on."""
    values = [value for value in _stream().values if value[5] in (0, 2)][first:]
    schemas = RowSchemas({100: envelope_schema(SET, ORDERS).text})
    plans = PublishPlans(task, schemas, MemoryRegistry().register)
    rows = walk_values(values_of(values), plans.programs)
    return convert(plans, rows, RecordNumbers(np.arange(len(rows))))[0]


def _events(batch: Outgoing) -> list[Event]:
    """Each record as the SDK reads its headers, key and value."""
    lines = np.column_stack(
        [batch.lines[:, : outgoing.VALUE_END + 1], batch.lines[:, outgoing.WIDTH :]]
    )
    records = HeaderedRecords(batch.topics, batch.payload, lines, batch.headers, texts=batch.texts)
    events = []
    for number, line in enumerate(lines.tolist()):
        key, value = (
            batch.payload[line[start] : line[start + 1]].tobytes() if line[start + 1] >= 0 else None
            for start in (outgoing.KEY_START, outgoing.VALUE_START)
        )
        headers = {name: one for name, one in records.headers(number) if isinstance(one, bytes)}
        is_avro = headers["content-type"] == b"application/avro"
        # the SDK takes keys for UTF-8, and says in its types that a value is never missing
        message = KafkaMessage(headers, None if is_avro else key, value)  # type: ignore[arg-type]
        events.append(Event(batch.topics[line[0]], from_kafka(message, JSONFormat()), value))
    return events


@pytest.mark.parametrize("name", FormatName)
def test_sdk_reads_every_record_with_its_type(name: FormatName) -> None:
    """The attributes are those of the record, and the type names its kind."""
    events = _events(_converted(_task(FormatOptions.of(name))))
    types = {FormatName.JSON: JSON, FormatName.MAXWELL_JSON: FLAT, FormatName.CANAL_JSON: FLAT}
    wanted = types.get(name, DEBEZIUM)
    assert [event.sdk.get_type() for event in events] == [f"io.millrace.{one}" for one in wanted]
    for event in events:
        sdk = event.sdk
        assert sdk.get_specversion() == "1.0"
        assert sdk.get_source() == "/millrace/shop/public.orders"
        assert sdk.get_subject() == "shop.orders"
        commit = datetime.fromtimestamp(COMMIT_MS // 1000, UTC)
        time = sdk.get_time()
        assert time is not None
        assert commit <= time <= commit + timedelta(milliseconds=10)
        assert (event.value is None) == (sdk.get_type() == "io.millrace.tombstone")


@pytest.mark.parametrize("name", [FormatName.MAXWELL_JSON, FormatName.CANAL_JSON])
def test_split_changes_of_keys_are_delete_and_insert(name: FormatName) -> None:
    """As in Debezium's formats, with tombstones or without."""
    options = replace(FormatOptions.of(name), key_changes=KeyChanges.DELETE_AND_INSERT)
    for tombstones in (True, False):
        events = _events(_converted(_task(replace(options, tombstones=tombstones))))
        wanted = [one for one in DEBEZIUM if tombstones or one != "tombstone"]
        assert [event.sdk.get_type().removeprefix("io.millrace.") for event in events] == wanted


@pytest.mark.parametrize("name", FormatName)
def test_source_and_id_name_one_record_in_replays(name: FormatName) -> None:
    """Unique over all topics of the task, and the same from another begin and in a rebuild."""
    options = FormatOptions.of(name)
    if "transaction_topic" in OPTIONS[name] and name.is_debezium:
        options = replace(options, transaction_topic=TRANSACTIONS)
    events = _events(_converted(_task(options)))
    names = [(event.sdk.get_source(), event.sdk.get_id()) for event in events]
    assert len(set(names)) == len(names)
    of_rows = [event for event in events if event.topic != TRANSACTIONS]
    later = [
        event for event in _events(_converted(_task(options), 3)) if event.topic != TRANSACTIONS
    ]
    assert 0 < len(later) < len(of_rows)
    rebuilt = _task(
        replace(options, transaction_topic=options.transaction_topic and TRANSACTIONS + ".r"), ".r"
    )
    for one in (later, _events(_converted(rebuilt))):
        assert {(event.sdk.get_source(), event.sdk.get_id()) for event in one} <= set(names)


def test_begins_and_ends_of_transactions_are_events() -> None:
    """With their own source, so that their ids are those of no row."""
    options = replace(FormatOptions.of(FormatName.DEBEZIUM_JSON), transaction_topic=TRANSACTIONS)
    events = [one for one in _events(_converted(_task(options))) if one.topic == TRANSACTIONS]
    assert [event.sdk.get_type() for event in events] == ["io.millrace.transaction"] * 4
    assert {event.sdk.get_source() for event in events} == {f"/millrace/shop/{TRANSACTIONS}"}
    assert {event.sdk.get_subject() for event in events} == {None}


@pytest.mark.parametrize("ms", [0, 951_782_400_001, 1_709_164_799_999, 4_102_444_800_000])
def test_time_of_an_event_is_that_of_the_calendar(ms: int) -> None:
    """At ends of months and years, with leap days."""
    out = np.zeros(24, np.uint8)
    assert put_time(out, 0, ms) == 24
    assert datetime.fromisoformat(out.tobytes().decode()).timestamp() == ms / 1000


def test_records_without_the_option_have_no_more_headers() -> None:
    """Nor do their lines have columns for them."""
    task = _task(FormatOptions.of(FormatName.JSON))
    batch = _converted(replace(task, format=replace(task.format, cloudevents=False)))
    assert (batch.headers, batch.texts, batch.lines.shape[1]) == ((), (), outgoing.WIDTH)
    assert constant_headers(FormatName.AVRO)[1] == ("content-type", b"application/avro")
