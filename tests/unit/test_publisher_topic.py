"""The publisher checks its topic: settings, and whether it is still the same."""

from dataclasses import replace

import pytest

from millrace.errors import Fatal
from millrace.producer.publish.opening import NO_END, Basis, TailHint
from millrace.producer.publish.publisher import Publisher
from millrace.schemas.documents import TopicOptions
from millrace.schemas.gtid import Flavour, parse_gtid_set
from millrace.schemas.progress import Progress
from tests.kit.publisher.model import (
    START,
    ModelCodec,
    ModelDriver,
    ModelTopic,
    a_topic,
    batch_after,
    model_config,
    publish_and_close,
)
from tests.kit.publisher.opened import opened


def test_recreated_topic_is_not_mistaken_for_a_new_task() -> None:
    """T11: a topic deleted under a task that had published is refused, not started over."""
    hint = TailHint(Progress(parse_gtid_set(Flavour.MARIADB, "0-1-200"), None, 50), 70)
    with pytest.raises(Fatal) as raised:
        opened(ModelTopic(), hint=hint)
    assert raised.value.code == "MR-3017"


@pytest.mark.parametrize(
    "changed",
    [
        {"partition_count": 2},
        {"cleanup_policy": "compact"},
        {"record_bytes_max": 1000},
        {"min_insync_replicas": 4},
    ],
    ids=str,
)
def test_unsuitable_topic_is_refused(changed: dict[str, object]) -> None:
    """Rule 2's checks name the setting."""
    topic = ModelTopic(exists=True, settings=a_topic(**changed))
    with pytest.raises(Fatal) as raised:
        opened(topic)
    assert raised.value.code == "MR-3009"


def _opened_as(topic: ModelTopic, options: TopicOptions) -> Publisher:
    config = replace(model_config(), options=options)
    codec = ModelCodec(7)
    return Publisher.open_with(
        ModelDriver(topic), config, codec=codec, verify_lease=lambda: None, basis=Basis(START)
    )


@pytest.mark.parametrize(
    ("options", "is_named"),
    [
        (TopicOptions(replication_factor=2), "replication_factor is 3"),
        (TopicOptions(min_insync_replicas=1), "min_insync_replicas is 2"),
        (TopicOptions(retention_ms=-1), "retention_ms is 604800000"),
    ],
)
def test_topic_that_differs_from_the_document_is_refused(
    options: TopicOptions, is_named: str
) -> None:
    """It is refused before a record is sent; settings that the document omits are the operator's."""
    with pytest.raises(Fatal, match=is_named) as raised:
        _opened_as(ModelTopic(exists=True), options)
    assert raised.value.code == "MR-3020"
    as_it_is = TopicOptions(replication_factor=3, min_insync_replicas=2, retention_ms=604_800_000)
    _opened_as(ModelTopic(exists=True), as_it_is).close()


def test_topic_that_can_lose_records_is_reported_unless_requested() -> None:
    """One replica, or one that suffices to acknowledge: the task runs and its status reports the risk."""
    weak = a_topic(replication_factor=1, min_insync_replicas=1)
    publisher = _opened_as(ModelTopic(exists=True, settings=weak), TopicOptions())
    assert "MR-3021" in publisher.topic_warning
    assert "one replica" in publisher.topic_warning
    publisher.close()
    asked_for = TopicOptions(replication_factor=1, min_insync_replicas=1)
    for settings, options in ((weak, asked_for), (a_topic(), TopicOptions())):
        publisher = _opened_as(ModelTopic(exists=True, settings=settings), options)
        assert publisher.topic_warning == ""
        publisher.close()


def test_topic_beginning_inside_a_run_is_not_resumed() -> None:
    """A topic recreated under its owner has records without the start of a run: the earlier ones are lost."""
    topic = ModelTopic()
    publisher = opened(topic)
    publisher.publish(batch_after(publisher.progress, 3))
    publisher.drain()
    topic.entries.clear()
    with pytest.raises(Fatal):
        publish_and_close(publisher, 3)
    with pytest.raises(Fatal) as raised:
        opened(topic)
    assert raised.value.code == "MR-3017"
    topic.low = 1  # the records at its beginning are not kept: nothing is known
    opened(topic).close()


def test_deleted_topic_is_not_recreated() -> None:
    """A task that remembers records in it gets an error before any topic is created."""
    topic = ModelTopic()
    hint = TailHint(Progress(parse_gtid_set(Flavour.MARIADB, "0-1-200"), None, 50), NO_END)
    with pytest.raises(Fatal) as raised:
        opened(topic, hint=hint)
    assert raised.value.code == "MR-3017"
    assert not topic.exists
