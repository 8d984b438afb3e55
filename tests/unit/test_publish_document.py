"""Documents of publish tasks: fields, refusals with their paths, and what they mean."""

import pytest

from millrace.errors import Fatal
from millrace.schemas.documents import (
    OutputTopics,
    PartitionBy,
    PartitionRule,
    PublishTask,
    TaskKind,
    parse_task,
    plain_from_yaml,
    plain_task,
)
from millrace.schemas.view.format_options import (
    LATER,
    DecimalMode,
    FormatName,
    FormatOptions,
    ZeroDates,
)
from millrace.schemas.view.view import ALL_TABLES

MINIMAL = """
task: shop-public
kind: publish
topic: shop
kafka: {bootstrap: "h:9092"}
"""


def _task(text: str = "") -> PublishTask:
    task = parse_task(plain_from_yaml(MINIMAL + text))
    assert isinstance(task, PublishTask)
    return task


def _problems(text: str) -> str:
    with pytest.raises(Fatal) as refusal:
        _task(text)
    assert refusal.value.code == "MR-4101"
    return refusal.value.message


def test_minimal_publish_task_publishes_all_tables_unchanged() -> None:
    """Each table gets its own topic, in Debezium's format, and apply workers run the task."""
    task = _task()
    assert task.view == ALL_TABLES
    assert task.topics.name_of(task.name, "shop", "order-line") == (
        "shop-public.shop.order_u002d_line"
    )
    assert task.format == FormatOptions.of(FormatName.DEBEZIUM_JSON)
    assert task.kind.worker is TaskKind.APPLY
    assert task.progress_topic == "_shop-public.progress"


def test_include_and_exclude_become_a_view() -> None:
    """A table is in the view as with the filter of an apply task."""
    view = _task('include: ["shop.*", "crm.a"]\nexclude: ["shop.tmp_*"]\n').view
    in_view = [
        name
        for name in ("shop.a", "shop.tmp_a", "crm.a", "crm.b", "mysql.user")
        if view.match(*name.split("."))
    ]
    assert in_view == ["shop.a", "crm.a"]


def test_exclude_alone_leaves_out_only_its_tables() -> None:
    """Without `include` all other tables are published."""
    view = _task('exclude: ["shop.tmp_*"]\n').view
    assert view.match("shop", "a")
    assert not view.match("shop", "tmp_1")


@pytest.mark.parametrize("name", ["include", "exclude"])
def test_tables_beside_a_filter_are_refused(name: str) -> None:
    """One of them decides."""
    text = f'tables: [{{from: "shop.*"}}]\n{name}: ["shop.*"]\n'
    assert f"  {name}: found {name} and tables, wanted one of them" in _problems(text)


def test_problems_inside_a_rule_have_their_path() -> None:
    """The list `tables` is read as every other field."""
    found = _problems('tables: [{from: "shop.*"}, {from: shop, wher: "x"}]\n')
    assert "  tables[1].from: found 'shop', wanted a pattern" in found
    assert "  tables[1].wher: found an unknown field, wanted 'where' (nearest)" in found


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "topics: 'public.{schema}'",
            "  topics: found 'public.{schema}', wanted a topic name, with",
        ),
        ("topics: 'a b'", "  topics: found 'a b'"),
        ("partitions: 0", "  partitions: found 0, wanted a whole number from 1 to 10000"),
        ("partition_by: row", "  partition_by: found 'row', wanted key | table | a list"),
        ("partition_by: [{table: shop.*}]", "  partition_by: found a mapping at [0]"),
        (
            "partition_by: [{table: shop, columns: [a]}]",
            "  partition_by: found 'shop' at [0].table, wanted a",
        ),
        ("slots: 65", "  slots: found 65"),
        ("compression: brotli", "  compression: found 'brotli', wanted none | gzip"),
        ("topic_settings: {min_insync_replicas: 3, replication_factor: 2}", "  topic_settings.min"),
        ("on_change: stop", "  on_change: found 'stop', wanted continue | new_topics"),
        ("records: csv", "  records.format: found 'csv', wanted debezium-json | json"),
        ("records: {decimal: 'no'}", "  records.decimal: found 'no', wanted precise | double"),
        ("records: {format: json, schemas: true}", "  records.schemas: found true, wanted format"),
        (
            "records: {format: canal-json, output_nulls: false}",
            "  records.output_nulls: found false, wanted format: maxwell-json with it",
        ),
        ("records: {key_changes: delete_and_insert}", "  records.key_changes: found 'delete_and"),
        ("records: {schemas: true, zero_dates: string}", "  records.zero_dates: found 'string'"),
        ("records: avro", "  registry: found none, wanted the registry for the schemas of avro"),
        ("records: {format: debezium-avro, types: logical}", "  records.types: found 'logical'"),
        (
            "records: {format: debezium-avro, zero_dates: string}",
            "  records.zero_dates: found 'string'",
        ),
        (
            "records: {format: debezium-avro, schemas: true}",
            "  records.schemas: found true, wanted",
        ),
        (
            "records: {format: avro, types: debezium}",
            "  records.types: found 'debezium', wanted exact",
        ),
        (
            "records: {format: avro, types: logical, zero_dates: string}",
            "  records.zero_dates: found 'string', wanted null",
        ),
        ("start: load", "  start: found 'load', wanted first, snapshot, or a GTID set"),
        ("target: warehouse", "  target: found an unknown field"),
        ("format: json", "  format: found 'json', wanted 1, the version of the document's layout"),
    ],
)
def test_wrong_field_names_path_found_and_wanted(text: str, problem: str) -> None:
    """Each problem says where, what was found and what is wanted."""
    assert problem in _problems(text + "\n")


def test_defaults_of_records_depend_on_the_format() -> None:
    """`json` writes decimals as text, Debezium's format as its connector does."""
    assert _task("records: json\n").format.decimal is DecimalMode.STRING
    assert _task("records: {format: debezium-json}\n").format.decimal is DecimalMode.PRECISE
    avro = "registry: http://r:1\nrecords: {format: avro, types: %s}\n"
    assert _task(avro % "exact").format.zero_dates is ZeroDates.STRING
    assert _task(avro % "logical").format.zero_dates is ZeroDates.NULL


def test_stored_records_have_only_options_of_their_format() -> None:
    """A document is stored as it is meant: with all options of its format, and no other."""
    stored = plain_task(_task("records: {format: canal-json, tombstones: true}\n"))
    assert stored["records"] == {
        "format": "canal-json",
        "tombstones": True,
        "undecodable": "replace",
        "zero_dates": "string",
        "key_changes": "update",
    }
    assert plain_task(parse_task(stored)) == stored


def test_rules_that_only_choose_are_stored_as_patterns() -> None:
    """Equal views have equal documents, however they were written."""
    as_rules = _task('tables: [{from: "shop.*"}, {from: crm.a}]\n')
    assert as_rules == _task('include: ["shop.*", crm.a]\n')
    assert plain_task(as_rules)["include"] == ["shop.*", "crm.a"]
    assert "tables" not in plain_task(as_rules)


def test_first_partition_rule_that_matches_decides() -> None:
    """A table that no rule matches is partitioned by its key."""
    rules = (PartitionRule("shop.order*", ("customer",)), PartitionRule("shop.*", ("id",)))
    topics = OutputTopics(partition_by=rules)
    assert topics.partition_columns("shop", "orders") == ("customer",)
    assert topics.partition_columns("shop", "items") == ("id",)
    assert topics.partition_columns("crm", "people") is None
    assert OutputTopics(partition_by=PartitionBy.TABLE).partition_columns("shop", "a") is None


def test_prefix_of_topics_ends_at_the_first_place() -> None:
    """Rights on Kafka are given by it."""
    assert OutputTopics().prefix("t") == "t."
    assert OutputTopics(pattern="public.{table}").prefix("t") == "public."
    assert OutputTopics(pattern="{table}").prefix("t") == ""


def test_accepted_statements_are_numbers_of_records() -> None:
    """A document without them has no such field."""
    task = _task("accept_ddl: [4711, 4712]\n")
    assert task.accept_ddl == (4711, 4712)
    assert plain_task(task)["accept_ddl"] == [4711, 4712]
    assert "accept_ddl" not in plain_task(_task())
    assert "accept_ddl[0]" in _problems("accept_ddl: [0]\n")


def test_topics_that_are_of_no_table_are_named_or_refused() -> None:
    """Debezium's name of the heartbeats is the default; each use has its own topic."""
    task = _task("records: {heartbeat_ms: 5000}\n")
    assert task.other_topics == {"heartbeat_topic": "__debezium-heartbeat.shop-public"}
    named = "records: {heartbeat_ms: 1, heartbeat_topic: beats, schema_change_topic: changes}\n"
    assert list(_task(named).other_topics.values()) == ["beats", "changes"]
    assert "heartbeat_ms with it" in _problems("records: {heartbeat_topic: beats}\n")
    assert "format: debezium" in _problems(
        "records: {format: json, schema_change_topic: changes}\n"
    )
    same = "records: {transaction_topic: one, schema_change_topic: one}\n"
    assert "a separate topic for each use" in _problems(same)
    own = "topics: shop.{table}\nrecords: {schema_change_topic: shop.orders}\n"
    assert "a pattern that never gives shop.orders" in _problems(own)


def test_options_at_their_defaults_leave_stored_documents_alone() -> None:
    """So a later version of the program begins no new definition."""
    for name in FormatName:
        plain = plain_task(_task(f"registry: http://h:1\nrecords: {{format: {name.value}}}\n"))
        assert not set(plain["records"]) & LATER  # type: ignore[call-overload]
