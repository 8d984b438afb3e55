"""Publish tasks on a real broker, from records of a set topic to topics of subscribers, in this process."""

from dataclasses import replace

import pytest

from millrace.deploy.servers import KafkaServer
from millrace.errors import Fatal
from millrace.schemas.documents import OutputTopics, PartitionRule, PublishTask, TopicCompression
from millrace.schemas.gtid import Flavour
from millrace.schemas.view.format_options import FormatName, FormatOptions
from millrace.schemas.view.view import Mask, MaskKind, TableRule, View
from tests.kit.apply.tables import integer, table, text
from tests.kit.apply.topic import RecordStream, TopicWriter
from tests.kit.publish.local import LocalPublisher, Published, publish_task, published

pytestmark = pytest.mark.usefixtures("trusting")

ORDERS = table("shop", "orders", integer("id"), text("name"), integer("amount"))
LOG = table("shop", "log", text("line"), key=())
JSON = FormatOptions.of(FormatName.JSON)


@pytest.fixture
def writer(kafka: KafkaServer) -> TopicWriter:
    """A set topic with forty rows."""
    stream = RecordStream(Flavour.MYSQL)
    stream.fence()
    _insert(stream, 0, 40)
    writer = TopicWriter(kafka.bootstrap, stream)
    writer.publish()
    return writer


def _insert(stream: RecordStream, first: int, end: int) -> None:
    for number in range(first, end):
        stream.insert(ORDERS, {"id": number, "name": f"n{number}", "amount": number % 10})
        stream.commit()


def test_transactions_are_counted_over_several_runs(writer: TopicWriter) -> None:
    """Debezium's transaction topic, and the numbers in rows; a turn ends in the middle of a source transaction."""
    task, publisher = _task(writer), LocalPublisher()
    topic = f"{task.name}.transaction"  # no name that the pattern gives
    task = replace(task, format=FormatOptions(FormatName.DEBEZIUM_JSON, transaction_topic=topic))
    stream = writer.stream
    stream.insert(ORDERS, _row(100))
    stream.insert(LOG, {"line": "a"})
    stream.pause()
    writer.publish()
    publisher.run(task)
    stream.update(ORDERS, _row(100), _row(101))
    stream.commit()
    writer.publish()
    LocalPublisher().run(task)
    records = published(task, [topic])
    assert [record.value["status"] for record in records] == ["BEGIN", "END"] * 41
    gtid = records[-1].key["id"]
    blocks = [record.value["transaction"] for record in _rows(task) if record.value is not None]
    assert sorted(
        (block["total_order"], block["data_collection_order"])
        for block in blocks
        if block["id"] == gtid
    ) == [(1, 1), (3, 2), (4, 3)]
    begin, end = records[-2:]
    assert (begin.key, end.key) == ({"id": gtid}, {"id": gtid})
    assert (begin.value["status"], begin.value["event_count"]) == ("BEGIN", None)
    assert (end.value["status"], end.value["event_count"]) == ("END", 4)
    assert end.value["data_collections"] == [
        {"data_collection": "shop.log", "event_count": 1},
        {"data_collection": "shop.orders", "event_count": 3},
    ]


def _task(writer: TopicWriter, **fields: object) -> PublishTask:
    topics = OutputTopics(pattern="{task}-{table}", partitions=3, compression=TopicCompression.NONE)
    return publish_task(writer, **{"topics": topics, "format": JSON, **fields})


def _rows(task: PublishTask, name: str = "orders") -> list[Published]:
    return published(task, [f"{task.name}-{name}"])


def _state(records: list[Published]) -> dict[int, object]:
    """The rows by key, as a subscriber keeps them."""
    state: dict[int, object] = {}
    for record in records:
        if record.value is None:
            state.pop(record.key["id"], None)
        else:
            state[record.key["id"]] = record.value
    return state


def _row(number: int, **changed: object) -> dict[str, object]:
    return {"id": number, "name": f"n{number}", "amount": number % 10, **changed}


def test_rows_arrive_once_over_several_runs(writer: TopicWriter) -> None:
    """A changed key is a tombstone and a row; its records and those of a deleted row are in their keys' partitions."""
    task, publisher = _task(writer), LocalPublisher()
    publisher.run(task)
    writer.stream.update(ORDERS, _row(3), _row(300, name="n3"))
    writer.stream.delete(ORDERS, _row(4))
    writer.stream.commit()
    writer.publish()
    publisher.run(task)
    publisher.run(task)
    records = _rows(task)
    wanted: dict[int, object] = {
        number: _row(number) for number in range(40) if number not in (3, 4)
    }
    assert _state(records) == {**wanted, 300: _row(300, name="n3", amount=0)}
    assert len(records) == 43
    assert len({record.partition for record in records}) == 3


def test_row_that_leaves_the_view_is_a_tombstone(writer: TopicWriter) -> None:
    """And one that comes into it is a row."""
    rule = TableRule(
        "shop.orders", "shop.orders", "amount < 5", masks=(("name", Mask(MaskKind.REDACT)),)
    )
    task, publisher = _task(writer, view=View((rule,))), LocalPublisher()
    publisher.run(task)
    writer.stream.update(ORDERS, _row(1), _row(1, amount=7))
    writer.stream.update(ORDERS, _row(8), _row(8, amount=2))
    writer.stream.commit()
    writer.publish()
    publisher.run(task)
    state = _state(_rows(task))
    wanted = {number: _row(number, name=None) for number in range(40) if number % 10 < 5}
    del wanted[1]
    assert state == {**wanted, 8: _row(8, amount=2, name=None)}


def test_changed_document_describes_only_later_rows(writer: TopicWriter) -> None:
    """Also the number of partitions; each row is converted under one definition."""
    task, publisher = _task(writer), LocalPublisher()
    publisher.run(task)
    _insert(writer.stream, 40, 80)
    writer.publish()
    rule = TableRule("shop.orders", drop=("amount",))
    changed = replace(task, view=View((rule,)), topics=replace(task.topics, partitions=5))
    publisher.run(changed)
    records = _rows(task)
    for record in records:
        is_later = record.key["id"] >= 40
        assert ("amount" in record.value) is not is_later
        assert record.partition < 3 or is_later
    assert {record.partition for record in records} == set(range(5))
    assert len(records) == 80


def test_two_slots_write_what_one_would(writer: TopicWriter) -> None:
    """The same records in the same partitions."""
    one, two = _task(writer), _task(writer)
    two = replace(two, topics=replace(two.topics, slots=2))
    for task in (one, two):
        publisher = LocalPublisher()
        publisher.run(task)
    _insert(writer.stream, 40, 60)
    writer.publish()
    for task in (one, two):
        publisher = LocalPublisher(5)
        publisher.run(task)

    def content(task: PublishTask) -> list[tuple[object, ...]]:
        rows = _rows(task)
        return sorted((row.partition, row.n, row.seq, str(row.key), str(row.value)) for row in rows)

    assert content(one) == content(two)


def test_new_tables_get_topics_without_a_restart(writer: TopicWriter) -> None:
    """A table without a key has records without one."""
    task = _task(writer, format=FormatOptions.of(FormatName.DEBEZIUM_JSON))
    writer.stream.insert(LOG, {"line": "hello"})
    writer.stream.commit()
    writer.publish()
    LocalPublisher().run(task)
    (record,) = _rows(task, "log")
    assert record.key is None
    assert record.value["after"] == {"line": "hello"}


def test_statement_that_changes_delivered_rows_stops(writer: TopicWriter) -> None:
    """After the rows before it, until the document accepts it."""
    rule = TableRule("shop.orders", where="amount < 5")
    task, publisher = _task(writer, view=View((rule,))), LocalPublisher()
    writer.stream.ddl("ALTER TABLE shop.orders MODIFY amount VARCHAR(3)", kind="alter_table")
    _insert(writer.stream, 40, 45)
    writer.publish()
    with pytest.raises(Fatal, match="seq 41") as stopped:
        publisher.run(task)
    assert stopped.value.code == "MR-5204"
    assert len(_rows(task)) == 20
    publisher.run(replace(task, accept_ddl=(41,)))
    assert len(_rows(task)) == 25


def test_columns_of_the_key_can_decide_about_the_partition(writer: TopicWriter) -> None:
    """Also about records of a changed key: the old one's are where its row was."""
    items = table("shop", "items", integer("order_id"), integer("line"), key=(0, 1))
    task = _task(writer)
    rule = PartitionRule("shop.items", ("order_id",))
    task = replace(task, topics=replace(task.topics, partition_by=(rule,)))
    for number in range(60):
        writer.stream.insert(items, {"order_id": number % 6, "line": number})
    writer.stream.update(items, {"order_id": 1, "line": 7}, {"order_id": 2, "line": 7})
    writer.stream.commit()
    writer.publish()
    LocalPublisher().run(task)
    records = _rows(task, "items")
    partitions: dict[int, set[int]] = {}
    for record in records:
        partitions.setdefault(record.key["order_id"], set()).add(record.partition)
    assert all(len(found) == 1 for found in partitions.values())
    assert len({next(iter(found)) for found in partitions.values()}) > 1
    assert len(records) == 62
