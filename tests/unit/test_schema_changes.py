"""The topic of schema changes on a model of Kafka: statements, structures, what a view hides, replays."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from consumer.publish import executor
from consumer.publish import slot as slots
from millrace import faults
from millrace.errors import MillraceError, Retryable
from schemas.documents import Brokers, OutputTopics, PublishTask, Registry, TopicAddress
from schemas.view.format_options import FormatName, FormatOptions
from schemas.view.view import Mask, MaskKind, TableRule, View
from tests.kit.apply.tables import integer, table, text
from tests.kit.memory_registry import MemoryRegistry, read_one
from tests.kit.publish.model import ModelBroker
from tests.kit.publish.scene import ORDERS, Scene, SetTopic, on_the_model, row

TOPIC = "changes"
SLOTS = 2
WIDER = table("shop", "orders", integer("id"), text("name"), integer("amount"), text("note", 20))
ADD_NOTE = "ALTER TABLE shop.orders ADD note VARCHAR(20)"
ALL = View((TableRule("*.*"),))
HIDING = (
    TableRule("shop.orders", drop=("amount",)),
    TableRule("shop.orders", keep=("id", "name")),
    TableRule("shop.orders", rename=(("name", "title"),)),
    TableRule("shop.orders", masks=(("name", Mask(MaskKind.REDACT)),)),
    TableRule("shop.orders", "shop.sales"),
)
POINTS = [slots.BEFORE_BEGIN, slots.MID_WRITE, slots.BEFORE_COMMIT, slots.AFTER_COMMIT]


@contextmanager
def _scene(view: View = ALL, **options: object) -> Iterator[Scene]:
    """A task in two slots, over rows before and after a statement."""
    topic, registry = SetTopic(), MemoryRegistry()
    stream = topic.stream
    stream.fence()
    topic.rows(0, 5)
    stream.ddl(ADD_NOTE, kind="alter_table")
    for number in range(20, 25):
        stream.insert(WIDER, row(number, note="x"))
        stream.commit()
    fields: dict[str, Any] = {"name": FormatName.DEBEZIUM_JSON, "schema_change_topic": TOPIC}
    task = PublishTask(
        name="public",
        source=TopicAddress(topic="shop", brokers=Brokers("b:1"), registry=Registry("http://r:1")),
        view=view,
        topics=OutputTopics(slots=SLOTS),
        format=FormatOptions(**(fields | options)),
        accept_ddl=range(1000),  # type: ignore[arg-type]
    )
    with (
        on_the_model(topic, ModelBroker(Random(1)), task) as scene,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(executor, "RegistryClient", lambda _: registry)
        scene.registry = registry  # type: ignore[attr-defined]
        yield scene


def _values(scene: Scene) -> list[Any]:
    return [json.loads(record.value or b"") for record in _records(scene)]


def _records(scene: Scene, *, is_again: bool = False) -> list[Any]:
    records = scene.content(is_again=is_again)[TOPIC, 0]
    assert [int(record.headers["n"]) for record in records] == list(range(1, len(records) + 1))
    return records


def _kinds(scene: Scene) -> list[tuple[object, ...]]:
    """Statement, type, table and columns of each record with one change."""
    kinds: list[tuple[object, ...]] = []
    for value in _values(scene):
        (change,) = value["tableChanges"]
        names = [one["name"] for one in change["table"]["columns"]] if change["table"] else None
        kinds.append((value["ddl"], change["type"], change["id"], names))
    return kinds


def test_statements_and_structures_have_records_in_order() -> None:
    """The text with the statement, the columns with the first row."""
    with _scene() as scene:
        scene.publish()
        narrow, wide = ["id", "name", "amount"], ["id", "name", "amount", "note"]
        assert _kinds(scene) == [
            (None, "CREATE", '"shop"."orders"', narrow),
            (None, "CREATE", '"shop"."log"', ["line"]),
            (ADD_NOTE, "ALTER", '"shop"."orders"', None),
            (None, "ALTER", '"shop"."orders"', wide),
        ]
        value = _values(scene)[3]
        assert (value["databaseName"], value["schemaName"]) == ("shop", None)
        assert value["source"]["table"] == "orders"
        assert value["tableChanges"][0]["table"]["primaryKeyColumnNames"] == ["id"]
        note = value["tableChanges"][0]["table"]["columns"][3]
        assert (note["typeName"], note["length"], note["jdbcType"]) == ("VARCHAR", 20, 12)
        assert json.loads(_records(scene)[0].key) == {"databaseName": "shop"}


@pytest.mark.parametrize("rule", HIDING, ids=lambda rule: str(rule.target) + str(rule.masks))
def test_text_of_a_table_with_hidden_names_is_left_out(rule: TableRule) -> None:
    """No byte of the topic has a name that the view hides or replaces."""
    hidden = {
        **dict.fromkeys(rule.drop, b"amount"),
        **({"amount": b"amount", "note": b"note"} if rule.keep else {}),
        **({"name": b'"name":"name"'} if rule.rename else {}),
        **({"orders": b"orders"} if rule.target.endswith("sales") else {}),
    }
    with _scene(View((rule,))) as scene:
        scene.publish()
        statement = _values(scene)[1]
        assert (statement["ddl"], statement["tableChanges"][0]["type"]) == (None, "ALTER")
        octets = b"".join(record.value or b"" for record in _records(scene))
        assert not [name for name, part in hidden.items() if part in octets]


@pytest.mark.parametrize(
    ("sql", "is_shown", "types"),
    [
        ("CREATE TABLE shop.new (id INT PRIMARY KEY)", True, ["CREATE"]),
        ("CREATE TABLE shop.new LIKE shop.orders", True, ["CREATE"]),
        ("CREATE TABLE shop.new LIKE secret.t", False, ["CREATE"]),
        ("CREATE TABLE shop.new SELECT * FROM secret.t", False, ["CREATE"]),
        (
            "CREATE TABLE shop.new (id INT, FOREIGN KEY (id) REFERENCES secret.t (id))",
            False,
            ["CREATE"],
        ),
        (
            "ALTER TABLE shop.orders ADD CONSTRAINT FOREIGN KEY (id) REFERENCES secret.t (id)",
            False,
            ["ALTER"],
        ),
        ("ALTER TABLE shop.orders ADD INDEX (name) /* as in secret.t */", False, ["ALTER"]),
        ("CREATE INDEX i ON shop.orders (name)", True, ["ALTER"]),
        ("DROP TABLE shop.log, secret.t", False, ["DROP"]),
        ("DROP TABLE shop.log, shop.orders", True, ["DROP", "DROP"]),
        ("RENAME TABLE shop.log TO shop.journal", True, ["DROP", "CREATE"]),
        ("ALTER TABLE shop.log RENAME TO secret.log", False, ["DROP"]),
        ("DROP DATABASE shop", False, ["DROP", "DROP"]),
        ("ALTER TABLE secret.t ADD c INT", False, None),
        ("CREATE USER u IDENTIFIED BY 'p'", False, None),
    ],
)
def test_statement_is_shown_only_without_names_outside_the_view(
    sql: str, is_shown: bool, types: list[str] | None
) -> None:
    """A statement about no table of the view has no record."""
    with _scene(View((TableRule("shop.*"),))) as scene:
        scene.topic.stream.ddl(sql, kind="unused")
        scene.publish()
        later = _values(scene)[4:]
        if types is None:
            assert later == []
            return
        (value,) = later
        assert value["ddl"] == (sql if is_shown else None)
        assert [change["type"] for change in value["tableChanges"]] == types
        assert "secret" not in json.dumps(value)


@pytest.mark.parametrize("point", POINTS)
def test_killed_owner_repeats_and_loses_no_schema_change(point: str) -> None:
    """The next owners write the bytes that one owner writes."""
    with _scene() as scene:
        scene.publish()
        wanted = [(one.key, one.value, one.headers["seq"]) for one in _records(scene)]
    for passage in range(1, 6):
        passed: list[str] = []

        def fail(name: str, passed: list[str] = passed, passage: int = passage) -> None:
            passed.append(name)
            if name == point and passed.count(point) == passage:
                raise Retryable("MR-9002", name)

        with _scene() as scene:
            end = len(scene.topic.stream.values) // 2
            with faults.watched(fail):
                for ends in ((end, end), ()):
                    with suppress(MillraceError):
                        scene.publish(ends=ends)
                    for _ in range(SLOTS):  # of the process that was killed
                        with suppress(MillraceError):
                            executor.close_slots("public")
                    scene.epoch += 1
            scene.publish()
            assert [(one.key, one.value, one.headers["seq"]) for one in _records(scene)] == wanted


def test_rebuild_has_the_same_records() -> None:
    """With the names of the original topics."""
    with _scene(cloudevents=True) as scene:
        scene.publish()
        scene.rebuild()
        first, again = (_records(scene, is_again=is_again) for is_again in (False, True))
        for one, other in zip(first, again, strict=True):
            assert (one.key, one.value, one.headers["ce_id"]) == (
                other.key,
                other.value,
                other.headers["ce_id"],
            )
            assert (
                one.headers["ce_source"] == other.headers["ce_source"] == b"/millrace/shop/changes"
            )


def test_another_view_announces_its_structures() -> None:
    """Each table again, with its next row."""
    with _scene() as scene:
        scene.publish()
        rule = TableRule("shop.orders", drop=("amount",))
        scene.task = replace(scene.task, view=View((rule,)))
        scene.epoch += 1
        scene.topic.stream.insert(WIDER, row(50, note="x"))
        scene.topic.stream.commit()
        scene.publish()
        assert _kinds(scene)[4:] == [(None, "ALTER", '"shop"."orders"', ["id", "name", "note"])]


def test_avro_and_json_with_schemas_have_the_same_values() -> None:
    """In Debezium's records of Connect."""
    with _scene() as scene:
        scene.publish()
        plain = _values(scene)
    with _scene(schemas=True) as scene:
        scene.publish()
        assert [value["payload"] for value in _values(scene)] == plain
        name = "io.debezium.connector.mysql.SchemaChangeValue"
        assert {value["schema"]["name"] for value in _values(scene)} == {name}
    with _scene(name=FormatName.DEBEZIUM_AVRO) as scene:
        scene.publish()
        registry = scene.registry  # type: ignore[attr-defined]
        read = [read_one(record.value, registry, logical=True) for record in _records(scene)]
        assert read == plain


def test_task_without_the_topic_has_no_records() -> None:
    """Nor does its position name structures."""
    with _scene(schema_change_topic="") as scene:
        scene.publish()
        assert (TOPIC, 0) not in scene.content()
        logs = [
            entry.record
            for slot in range(SLOTS)
            for entry in scene.broker.logs["_public.progress", slot]
        ]
        assert not [one for one in logs if one is not None and one.key == b"announced"]
    assert ORDERS.full_name == "shop.orders"
