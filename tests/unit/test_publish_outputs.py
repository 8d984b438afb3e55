"""The view and the topics of a publish task beside the tables of its set topic."""

from dataclasses import replace

import pytest

from millrace.consumer.checks.outputs import Outputs, outputs_of
from millrace.errors import Fatal
from millrace.schemas.documents import PartitionRule, PublishTask
from millrace.schemas.table.structure import Column, ColumnType, TableSchema, TypeCode
from millrace.schemas.view.view import Mask, MaskKind, TableRule, View
from tests.kit.control.control import a_publish

_NUMBER = ColumnType(TypeCode.LONG)


def _table(name: str, *columns: str) -> TableSchema:
    """A table whose first column is the key."""
    database, _, table = name.partition(".")
    found = tuple(Column(column, _NUMBER, nullable=column != columns[0]) for column in columns)
    return TableSchema(database, table, found, primary_key=(0,))


A, B, LOG = _table("shop.a", "id", "mail"), _table("shop.b", "id"), _table("crm.log", "at")


def _task(*rules: TableRule, pattern: str = "", by: tuple[PartitionRule, ...] = ()) -> PublishTask:
    task = a_publish()
    topics = replace(task.topics, pattern=pattern or task.topics.pattern)
    topics = replace(topics, partition_by=by or topics.partition_by)
    return replace(task, view=View(rules) if rules else task.view, topics=topics)


def _codes(outputs: Outputs) -> list[tuple[str, str]]:
    return [(problem.code, problem.message) for problem in outputs.problems]


def test_each_table_of_the_view_has_its_topic() -> None:
    """A table that no rule matches has none."""
    outputs = outputs_of(_task(TableRule("shop.*", target="public.{table}")), (A, B, LOG))
    assert outputs.topics == {
        "shop-public.public.a": ["shop.a"],
        "shop-public.public.b": ["shop.b"],
    }
    assert outputs.problems == ()
    outputs.refuse()


def test_unsuitable_rule_is_named_with_its_path() -> None:
    """A misspelled mask would publish the values."""
    masks = (("email", Mask(MaskKind.REDACT)),)
    outputs = outputs_of(_task(TableRule("crm.*"), TableRule("shop.*", masks=masks)), (A, LOG))
    ((code, message),) = _codes(outputs)
    assert code == "MR-5201"
    assert message.startswith("tables[1].mask.email: found the column email in shop.a, wanted a")


def test_two_tables_in_one_topic_need_merge() -> None:
    """Both rules must say so: their records follow each other without a table's name in the key."""
    rule = TableRule("shop.*", merge=True)
    assert outputs_of(_task(rule, pattern="shop-all"), (A, B)).problems == ()
    outputs = outputs_of(_task(rule, TableRule("crm.*"), pattern="shop-all"), (A, B, LOG))
    ((code, message),) = _codes(outputs)
    assert code == "MR-4113"
    assert "topics: found shop.a, shop.b, crm.log in one topic, shop-all" in message
    with pytest.raises(Fatal, match="one topic"):
        outputs.refuse()


def test_partitions_are_chosen_by_columns_of_the_key_alone() -> None:
    """An update of another column would move a row to another partition."""
    outputs = outputs_of(_task(by=(PartitionRule("shop.*", ("id", "mail")),)), (A, LOG))
    ((code, message),) = _codes(outputs)
    assert code == "MR-4113"
    assert message == "partition_by: found mail for shop.a, wanted columns of its key: id"
    assert outputs_of(_task(by=(PartitionRule("*.*", ("ID",)),)), (A, B)).problems == ()


def test_topic_name_that_kafka_refuses_is_found() -> None:
    """Characters that Kafka does not allow are escaped, which makes a name longer."""
    long = _table("shop." + "ü" * 64, "id")
    ((code, message),) = _codes(outputs_of(_task(), (long,)))
    assert code == "MR-4113"
    assert "wanted at most 249" in message
