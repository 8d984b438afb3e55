"""A view is changed under load: a subscriber proves that each row was converted under one definition."""

import json
from dataclasses import replace
from random import Random

import pytest

from millrace.drivers.kafka.partitions import HeaderedRecord
from millrace.schemas.documents import Brokers, OutputTopics, PublishTask, TopicAddress
from millrace.schemas.view.format_options import FormatName, FormatOptions
from millrace.schemas.view.view import Mask, MaskKind, TableRule, View
from tests.kit.publish.model import ModelBroker
from tests.kit.publish.scene import ORDERS, SetTopic, on_the_model, row

RULES = (
    TableRule("shop.orders"),
    TableRule("shop.orders", drop=("name",)),
    TableRule("shop.orders", masks=(("name", Mask(MaskKind.REDACT)),)),
    TableRule("shop.orders", where="(`amount` < 5)", rename=(("amount", "total"),)),
)
ROUNDS = 8


def _expected(number: int, rule: TableRule) -> dict[str, object] | None:
    """The row under this rule, by plain Python."""
    values = row(number)
    match RULES.index(rule):
        case 1:
            del values["name"]
        case 2:
            values["name"] = None
        case 3:
            values["total"] = values.pop("amount")
            return values if number % 10 < 5 else None
    return values


@pytest.mark.parametrize("seed", range(5))
def test_each_row_is_converted_under_one_definition(seed: int) -> None:
    """The slots are at different places when an owner follows with another view."""
    random, topic = Random(seed), SetTopic()
    topic.stream.fence()
    task = PublishTask(
        name="public",
        source=TopicAddress(topic="shop", brokers=Brokers("b:1")),
        topics=OutputTopics(partitions=3, slots=2),
        format=FormatOptions.of(FormatName.JSON),
    )
    with on_the_model(topic, ModelBroker(random), task) as scene:
        for scene.epoch in range(1, ROUNDS + 1):
            for number in range(topic.stream.seq, topic.stream.seq + random.randint(5, 40)):
                topic.stream.insert(ORDERS, row(number))
                topic.stream.commit()
            rule = random.choice(RULES)
            scene.task = replace(task, view=View((rule,)))
            ends = [random.randint(topic.at // 2, topic.end()) for _ in range(2)]
            definitions = scene.publish(ends=() if scene.epoch == ROUNDS else ends)
        records: dict[int, HeaderedRecord] = {}
        for own in scene.content().values():
            numbers = [int(record.headers["n"]) for record in own]
            seqs = [int(record.headers["seq"]) for record in own]
            assert numbers == list(range(1, len(own) + 1))
            assert seqs == sorted(set(seqs))
            records |= dict(zip(seqs, own, strict=True))
    assert len(definitions.tasks) > 2
    for seq in range(1, topic.stream.seq + 1):
        rule = definitions.at(seq).view.rules[0]
        record = records.pop(seq, None)
        value = json.loads(record.value or b"null") if record is not None else None
        assert value == _expected(seq - 1, rule), (seq, rule)
    assert records == {}
