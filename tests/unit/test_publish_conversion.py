"""The records of a batch: those of all slots together are the task's, and a slot makes few of the others'."""

import numpy as np
import pytest

from millrace.consumer.format.table_format import ALL_PARTITIONS
from millrace.consumer.kernel import walk
from millrace.consumer.kernel.compiled import Bytes
from millrace.consumer.publish import outgoing
from millrace.consumer.publish.conversion import convert
from millrace.consumer.publish.outgoing import Outgoing
from millrace.consumer.publish.outputs import slot_of
from millrace.consumer.publish.plans import PublishPlans
from millrace.consumer.records.numbers import RecordNumbers
from millrace.consumer.records.row_schemas import RowSchemas
from millrace.consumer.records.rows import walk_values
from millrace.schemas.documents import (
    Brokers,
    OutputTopics,
    PartitionBy,
    PartitionRule,
    PublishTask,
    TopicAddress,
)
from millrace.schemas.record.avro_schema import envelope_schema
from millrace.schemas.view.format_options import FormatName, FormatOptions
from millrace.schemas.view.view import TableRule, View
from tests.kit.apply.tables import integer, table, text
from tests.kit.apply.topic import SET, RecordStream
from tests.kit.apply.values import values_of
from tests.kit.memory_registry import MemoryRegistry

PARTITIONS, SLOTS = 7, 3
BY_COLUMNS = (PartitionRule("shop.items", ("id",)), PartitionRule("shop.orders", ("id",)))
ORDERS = table("shop", "orders", integer("id"), text("name"))
ITEMS = table("shop", "items", integer("id"), text("name"))
LOG = table("shop", "log", text("line"), key=())
Record = tuple[str, int, bytes | None, bytes | None, int, int, int, bytes | None]


def _stream(*, has_log: bool) -> RecordStream:
    """Inserts, updates, changed keys and deletes of several tables in turns."""
    stream = RecordStream()
    for number in range(60):
        for one in (ORDERS, ITEMS):
            row = {"id": number, "name": f"n{number}"}
            stream.insert(one, row)
            stream.update(one, row, row | {"name": "changed"})
            if number % 5 == 0:
                stream.update(one, row, row | {"id": 1000 + number})
            if number % 7 == 0:
                stream.delete(one, row)
        if has_log:
            stream.insert(LOG, {"line": f"line {number}"})
    return stream


def _converted(task: PublishTask, slot: int | None) -> Outgoing:
    """The records that one slot makes; None: all."""
    has_log = task.format.name is not FormatName.JSON
    tables = (ORDERS, ITEMS, LOG) if has_log else (ORDERS, ITEMS)
    values = [value for value in _stream(has_log=has_log).values if value[5] in (0, 2)]
    texts = {100 + at: envelope_schema(SET, one).text for at, one in enumerate(tables)}
    plans = PublishPlans(task, RowSchemas(texts), MemoryRegistry().register)
    rows = walk_values(values_of(values), plans.programs)
    assert rows.status == walk.OK

    def owned(topic: str) -> Bytes:
        if slot is None:
            return ALL_PARTITIONS
        places = [(topic, at) for at in range(PARTITIONS)]
        return np.frombuffer(bytes(slot_of(place, SLOTS) == slot for place in places), np.uint8)

    numbers = RecordNumbers(np.arange(len(rows)))
    return convert(plans, rows, numbers, owned=owned)[0]


def _records(batch: Outgoing) -> list[Record]:
    records: list[Record] = []
    for line in batch.lines.tolist():
        key, value, other = (
            batch.payload[line[start] : line[start + 1]].tobytes() if line[start] >= 0 else None
            for start in (outgoing.KEY_START, outgoing.VALUE_START, outgoing.OTHER_START)
        )
        topic, place = batch.topics[line[outgoing.TOPIC]], line[outgoing.PARTITION]
        numbers = (line[outgoing.SEQ], line[outgoing.PART], line[outgoing.OTHER])
        records.append((topic, place, key, value, *numbers, other))
    return records


@pytest.mark.parametrize("name", FormatName)
@pytest.mark.parametrize("by", [*PartitionBy, BY_COLUMNS], ids=str)
@pytest.mark.parametrize("topics", ["{table}", "all"])
def test_slots_together_make_each_record_once(
    name: FormatName, by: PartitionBy | tuple[PartitionRule, ...], topics: str
) -> None:
    """In the same order and with the same bytes, and little else."""
    rule = TableRule("shop.*", merge=True)
    task = PublishTask(
        name="public",
        source=TopicAddress(topic="shop", brokers=Brokers("b:1")),
        view=View((rule,)),
        topics=OutputTopics(pattern=f"public.{topics}", partitions=PARTITIONS, partition_by=by),
        format=FormatOptions.of(name),
    )
    every = _records(_converted(task, None))
    for topic in {record[0] for record in every}:
        places = [record[4:6] for record in every if record[0] == topic]
        assert places == sorted(places)
    for slot in range(SLOTS):
        made = _records(_converted(task, slot))
        own = [record for record in made if slot_of(record[:2], SLOTS) == slot]
        assert own == [record for record in every if slot_of(record[:2], SLOTS) == slot]
        # a changed key has records in two partitions, which may be those of two slots
        assert len(made) - len(own) < len(every) // 10
