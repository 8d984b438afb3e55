"""Configuration of Debezium, Canal, Maxwell and DM as documents: small examples of each kind of file."""

import json
from pathlib import Path
from typing import Any

import pytest

from millrace.cli import run
from millrace.errors import Fatal
from millrace.schemas.documents import parse_set, parse_task, plains_from_yaml
from millrace.schemas.moving import Draft, read_configuration
from millrace.schemas.moving.draft import BROKERS, NO_TABLE
from millrace.schemas.moving.properties import read_properties

CONNECTOR = {
    "connector.class": "io.debezium.connector.mysql.MySqlConnector",
    "tasks.max": "1",
    "database.hostname": "db1",
    "database.user": "reader",
    "database.password": "planted-secret",
    "database.server.id": "7",
    "topic.prefix": "shop.eu",
    "schema.history.internal.kafka.bootstrap.servers": "k1:9092,k2:9092",
    "schema.history.internal.kafka.topic": "history",
}
CANAL = r"""
canal.instance.master.address = db1:3307
canal.instance.standby.address=db2
canal.instance.dbUsername=canal
canal.instance.dbPassword = planted-secret
canal.instance.filter.regex=shop\\..*,crm\\.(customer|order)
canal.instance.filter.black.regex=shop\\.tmp_.*
canal.instance.filter.black.field=crm.customer:note/mail
canal.mq.dynamicTopic=.*\\..*
canal.mq.partitionsNum=4
canal.mq.partitionHash=.*\\..*:$pk$
"""
MAXWELL = """
# a comment
host=db1
user=maxwell
password=planted-secret
kafka.bootstrap.servers=k1:9092
kafka_topic=maxwell_%{database}_%{table}
producer_partition_by=primary_key
filter= exclude: *.*, include: shop.*, include: /crm_.*/.customer, exclude: shop.tmp
output_ddl=true
output_server_id=true
output_thread_id=true
kafka_key_format=array
"""
DM_TASK = """
name: move
task-mode: incremental
target-database: {host: t1, port: 4000, user: root, password: planted-secret}
mysql-instances:
  - source-id: shop-01
    meta: {binlog-gtid: "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-77"}
    block-allow-list: some
block-allow-list:
  some:
    do-tables:
      - {db-name: "~^shop_.*", tbl-name: "order*"}
    ignore-dbs: [mysql]
routes:
  r: {schema-pattern: "shop_*", target-schema: shop}
"""
DM_SOURCE = """
source-id: shop-01
from: {host: db1, port: 3308, user: dm, password: planted-secret}
"""


def _read(*texts: str) -> Draft:
    return read_configuration({f"file{number}": text for number, text in enumerate(texts)})


def _connector(**more: str) -> Draft:
    config = CONNECTOR | {name.replace("_", "."): value for name, value in more.items()}
    return _read(json.dumps({"name": "shop-connector", "config": config}))


def _left(draft: Draft) -> dict[str, str]:
    return {each.name: each.answer for each in draft.left}


def _documents(draft: Draft) -> dict[str, Any]:
    """By kind. Each is a document that `plan` accepts, and none has a password."""
    assert "planted-secret" not in str(draft)
    for plain in draft.documents:
        (parse_task if "task" in plain else parse_set)(plain)
    return {str(plain.get("kind", "set")): plain for plain in draft.documents}


def test_connector_becomes_a_set_and_two_tasks() -> None:
    """The smallest connector, with Debezium's defaults."""
    draft = _connector()
    documents = _documents(draft)
    assert documents["set"]["members"] == [{"host": "db1", "port": 3306}]
    assert documents["set"]["password"] == "env:SHOP_EU_PASSWORD"
    assert documents["capture"]["kafka"] == {"bootstrap": "k1:9092,k2:9092"}
    assert documents["publish"]["task"] == "shop.eu", "source.name in the records"
    assert documents["publish"]["topics"] == "shop.eu.{database}.{table}"
    assert documents["publish"]["start"] == "snapshot"
    records = {"format": "debezium-json", "schemas": True}
    assert documents["publish"]["records"] == {**records, "schema_change_topic": "shop.eu"}
    without = _documents(_connector(include_schema_changes="false"))
    assert without["publish"]["records"] == records
    assert draft.left == []


def test_same_connector_is_read_from_each_kind_of_file() -> None:
    """JSON, properties, Debezium Server, Strimzi."""
    lines = "\n".join(f"{name}={value}" for name, value in CONNECTOR.items())
    server = "\n".join(f"debezium.source.{name}={value}" for name, value in CONNECTOR.items())
    strimzi = {
        "kind": "KafkaConnector",
        "spec": {"class": CONNECTOR["connector.class"], "config": CONNECTOR},
    }
    wanted = _documents(_read(json.dumps(CONNECTOR)))
    assert [_documents(_read(text)) for text in (lines, server, json.dumps(strimzi))] == [
        wanted
    ] * 3


def test_options_of_a_connector_become_fields() -> None:
    """Lists, formats, snapshot, topics, TLS."""
    draft = _connector(
        table_include_list="shop.orders,shop[.]item.*",
        column_exclude_list="shop.orders.note",
        decimal_handling_mode="string",
        tombstones_on_delete="false",
        provide_transaction_metadata="true",
        heartbeat_interval_ms="5000",
        value_converter="org.apache.kafka.connect.json.JsonConverter",
        value_converter_schemas_enable="false",
        topic_creation_default_partitions="6",
        database_ssl_mode="verify_identity",
        snapshot_mode="no_data",
    )
    documents = _documents(draft)
    assert documents["capture"]["include"] == ["shop.orders", "shop.item*"]
    publish = documents["publish"]
    assert publish["tables"][0] == {"from": "shop.orders", "columns": {"drop": ["note"]}}
    assert publish["partitions"] == 6
    assert publish["start"] == "first"
    assert publish["records"] == {
        "format": "debezium-json",
        "tombstones": False,
        "transaction_topic": "shop.eu.transaction",
        "schema_change_topic": "shop.eu",
        "heartbeat_ms": 5000,
        "heartbeat_topic": "__debezium-heartbeat.shop.eu",
        "decimal": "string",
    }
    assert documents["set"]["tls"] == "verify-identity"
    assert draft.left == []


def test_what_has_no_equal_is_named_with_an_answer() -> None:
    """A transform, a key of one's own, an unknown setting."""
    draft = _connector(
        transforms="route",
        transforms_route_type="a.RegexRouter",
        message_key_columns="a.b:c",
        nonsense="1",
    )
    left = _left(draft)
    assert "`topics`" in left["transforms.route"]
    assert "partition_by" in left["message.key.columns"]
    assert left["nonsense"] == "no equal"


def test_only_unwrap_transform_gives_rows_alone() -> None:
    """That is the format json."""
    draft = _connector(
        transforms="u", transforms_u_type="io.debezium.transforms.ExtractNewRecordState"
    )
    assert _documents(draft)["publish"]["records"] == {"format": "json"}


def test_expression_without_a_pattern_never_means_all_tables() -> None:
    """The include list is not empty then."""
    draft = _connector(table_include_list=r"shop\.t\d+")
    assert _documents(draft)["capture"]["include"] == [NO_TABLE]
    assert "table.include.list" in _left(draft)


def test_canal_instance_becomes_documents() -> None:
    """Two files, escaped as in Canal's own example."""
    draft = _read(CANAL, "canal.serverMode = kafka\nkafka.bootstrap.servers = k1:9092")
    documents = _documents(draft)
    assert documents["set"]["members"] == [
        {"host": "db1", "port": 3307},
        {"host": "db2", "port": 3306},
    ]
    assert documents["capture"]["include"] == ["shop.*", "crm.customer", "crm.order"]
    assert documents["capture"]["exclude"] == ["shop.tmp_*"]
    publish = documents["publish"]
    assert publish["tables"][0] == {"from": "crm.customer", "columns": {"drop": ["note", "mail"]}}
    assert (publish["topics"], publish["partitions"]) == ("{database}_{table}", 4)
    assert publish["records"] == {"format": "canal-json"}
    assert draft.left == []


def test_maxwell_filter_keeps_its_meaning_or_is_named() -> None:
    """The last rule that matches counts there."""
    draft = _read(MAXWELL)
    documents = _documents(draft)
    assert documents["capture"]["include"] == ["shop.*", "crm_*.customer"]
    assert documents["capture"]["exclude"] == ["shop.tmp"]
    assert documents["publish"]["topics"] == "maxwell_{database}_{table}"
    assert documents["publish"]["records"] == {
        "format": "maxwell-json",
        "output_server_id": True,
        "kafka_key_format": "array",
    }
    assert _left(draft).keys() == {"output_ddl", "output_thread_id"}
    # an include after an exclude would let a table through that the documents exclude
    later = _read("host=h\nfilter=exclude: shop.*, include: shop.orders, exclude: a.b.c = 1")
    assert [each.value for each in later.left if each.name == "filter"] == [
        "include: shop.orders",
        "exclude: a.b.c = 1",
    ]


def test_dm_task_becomes_apply_tasks() -> None:
    """A task and the file of its source."""
    draft = _read(DM_TASK, DM_SOURCE)
    assert [plain.get("task", plain.get("set")) for plain in draft.documents] == [
        "move-target",
        "shop-01",
        "shop-01-move-capture",
        "shop-01-move",
    ]
    documents = _documents(draft)
    assert documents["set"]["members"] == [{"host": "db1", "port": 3308}]
    assert documents["capture"]["include"] == ["shop_*.order*"]
    assert documents["capture"]["exclude"] == ["mysql.*"]
    assert documents["apply"]["start"].endswith(":1-77")
    assert documents["capture"]["kafka"] == {"bootstrap": BROKERS}
    assert "routes" in _left(draft)


def test_configuration_of_an_unknown_tool_is_refused() -> None:
    """Also a file without settings."""
    for text in ("", "a=1", "[1]", "{}", "- x", DM_SOURCE):
        with pytest.raises(Fatal) as caught:
            _read(text)
        assert caught.value.code == "MR-4147"


def test_connector_of_another_database_is_refused() -> None:
    """PostgreSQL's."""
    with pytest.raises(Fatal) as caught:
        _connector(connector_class="io.debezium.connector.postgresql.PostgresConnector")
    assert caught.value.code == "MR-4148"


def test_property_files_are_read_as_java_reads_them() -> None:
    """Separators, comments, escapes, continued lines."""
    text = "a=1\n b : 2\\\n   3\n#c=4\nd\\ e=f\\u0041\\\\.g\nh\ni=\n! j=1\nk l\n"
    assert read_properties(text) == {
        "a": "1",
        "b": "23",
        "d e": r"fA\.g",
        "h": "",
        "i": "",
        "k": "l",
    }


def test_import_writes_what_plan_reads(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Into a folder, and to the output."""
    connector = tmp_path / "connector.json"
    connector.write_text(json.dumps(CONNECTOR | {"transforms": "x"}))
    assert run(["import", str(connector), "--to", str(tmp_path / "documents")]) == 0
    report = capfd.readouterr().out
    assert "no equal: transforms.x" in report
    assert "to fill in: the password" in report
    written = sorted(path.name for path in (tmp_path / "documents").rglob("*.yaml"))
    assert written == ["shop.eu-capture.yaml", "shop.eu.yaml", "shop.eu.yaml"]
    assert run(["import", str(connector)]) == 0
    out, err = capfd.readouterr()
    assert len(plains_from_yaml(out)) == 3
    assert "no equal" in err
