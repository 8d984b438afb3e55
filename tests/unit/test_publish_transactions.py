"""A turn of a publish task from records in memory to an output in memory."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from millrace.consumer.publish.definitions import Definitions
from millrace.consumer.publish.mark import Mark, Position
from millrace.consumer.publish.order import PublishOrder
from millrace.consumer.publish.outgoing import TOPIC, VALUE_END, VALUE_START, Outgoing
from millrace.consumer.publish.outputs import TaskOrder
from millrace.consumer.publish.plans import PublishPlans
from millrace.consumer.publish.turn import PublishTurn, Tools
from millrace.consumer.records.row_schemas import RowSchemas
from millrace.schemas.documents import Brokers, OutputTopics, PublishTask, TopicAddress
from millrace.schemas.view.format_options import FormatName, FormatOptions
from millrace.schemas.view.view import ALL_TABLES, TableRule, View
from tests.kit.apply.local import ListSource
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import RecordStream

ORDERS, LOG = (table("shop", name, integer("id")) for name in ("orders", "log"))
TOPIC_OF_TRANSACTIONS = "pub.transaction"


@dataclass
class _Output:
    """Keeps values by topic, and the last position, as the progress topic stores it."""

    values: dict[str, list[Any]] = field(default_factory=dict)
    position: Position | None = None

    def write(self, outgoing: Outgoing) -> None:
        """See ``turn.Output``."""
        for line in outgoing.lines:
            start, end = int(line[VALUE_START]), int(line[VALUE_END])
            value = json.loads(outgoing.payload[start:end].tobytes()) if end >= 0 else None
            self.values.setdefault(outgoing.topics[line[TOPIC]], []).append(value)

    def owns(self, topic: str, partition: int) -> bool:
        """See ``turn.Output``."""
        return True

    def commit(self, position: Position, *, is_full: bool) -> None:
        """See ``turn.Output``."""
        records = Mark(position=position).records()
        stored = Mark.of((key, value) for key, value in records.items() if value is not None)
        self.position = stored.position


def _task(view: View = ALL_TABLES) -> PublishTask:
    return PublishTask(
        name="pub",
        source=TopicAddress(topic="set-topic", brokers=Brokers("none:1")),
        view=view,
        topics=OutputTopics(pattern="{task}.{table}"),
        format=FormatOptions(FormatName.DEBEZIUM_JSON, transaction_topic=TOPIC_OF_TRANSACTIONS),
    )


def _run(task: PublishTask, values: Sequence[bytes], output: _Output, *, at_once: int) -> None:
    """Turns with ``at_once`` records, each in another process, which has only the position of the one before."""
    schemas = RowSchemas()
    position = Position(0, 0, "", "set-topic", flavour="mysql")
    for first in range(0, len(values), at_once):
        order = PublishOrder(
            task=TaskOrder(
                task="pub", epoch=1, slots=1, brokers=task.source.brokers, worker="worker"
            ),
            definitions=Definitions((0,), (task,)),
            slot=0,
        )
        source = ListSource(values[first : first + at_once], first, at_once)
        turn = PublishTurn(
            order,
            Tools(source, output, _no_schema),
            PublishPlans(task, schemas),
            position.reached("set-topic"),
            position.snapshot,
            dict(position.schemas),
            position.transaction,
        )
        turn.run()
        schemas = turn.plans.schemas
        assert output.position is not None
        position = replace(output.position)


def _no_schema(number: int) -> str:
    raise AssertionError(number)


def _stream() -> RecordStream:
    stream = RecordStream()
    stream.fence()
    stream.insert(ORDERS, {"id": 1})
    stream.insert(LOG, {"id": 1})
    stream.update(ORDERS, {"id": 1}, {"id": 2})
    stream.insert(LOG, {"id": 2})
    stream.commit()
    stream.insert(LOG, {"id": 3})
    stream.commit()
    return stream


def test_transaction_metadata_outlives_the_process_of_a_turn() -> None:
    """The position has what is counted: turns of one record give the same as one turn of all."""
    values = _stream().values
    results = []
    for at_once in (len(values), 1):
        output = _Output()
        _run(_task(), values, output, at_once=at_once)
        results.append(output.values)
    assert results[0] == results[1]
    orders = [
        (block["total_order"], block["data_collection_order"])
        for topic in ("pub.orders", "pub.log")
        for block in (value["transaction"] for value in results[0][topic] if value is not None)
    ]
    assert orders == [(1, 1), (3, 2), (4, 3), (2, 1), (5, 2), (1, 1)]
    records = results[0][TOPIC_OF_TRANSACTIONS]
    assert [(record["status"], record["event_count"]) for record in records] == [
        ("BEGIN", None),
        ("END", 5),
        ("BEGIN", None),
        ("END", 1),
    ]


def test_row_outside_the_view_ends_a_transaction() -> None:
    """A source transaction without a row in the view has no records."""
    view = View((TableRule("shop.orders"),))
    for at_once in (100, 1):
        output = _Output()
        _run(_task(view), _stream().values, output, at_once=at_once)
        assert set(output.values) == {"pub.orders", TOPIC_OF_TRANSACTIONS}
        records = output.values[TOPIC_OF_TRANSACTIONS]
        assert [record["status"] for record in records] == ["BEGIN", "END"]
        assert records[1]["data_collections"] == [
            {"data_collection": "shop.orders", "event_count": 3}
        ]
        assert output.position is not None
        assert output.position.open_gtid == ""
