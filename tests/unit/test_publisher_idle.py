"""An idle publisher writes rarer resolved records, and compares the topic's end between them."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from millrace.errors import Fatal, Fenced, Retryable
from millrace.producer.publish import audit
from millrace.producer.publish import publisher as publishing
from millrace.producer.publish.opening import Basis
from millrace.producer.publish.publisher import Publisher
from tests.kit.publisher.model import (
    START,
    Entry,
    ModelCodec,
    ModelDriver,
    ModelPartition,
    ModelTopic,
    batch_after,
    model_config,
)
from tests.kit.publisher.opened import opened, running


class Clock:
    """The publisher's clock."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        patch.setattr(publishing, "time", SimpleNamespace(monotonic=lambda: self.now_s))

    def pass_s(self, publisher: Publisher, seconds: int) -> None:
        """Let the publisher be idle, once a second."""
        for _ in range(seconds):
            self.now_s += 1.0
            publisher.idle()


def resolved_count(topic: ModelTopic) -> int:
    """How many resolved records readers see."""
    return sum(b'"resolved"' in record.value for record in topic.committed())


def test_idle_hour_has_few_resolved_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """After 5, 10, 20 and 40 s, then one a minute; a change begins again."""
    clock = Clock(monkeypatch)
    with running(topic := ModelTopic()) as publisher:
        for seconds, count in ((4, 0), (1, 1), (9, 1), (1, 2), (60, 4), (3525, 62)):
            clock.pass_s(publisher, seconds)
            assert resolved_count(topic) == count
        publisher.publish(batch_after(publisher.progress, 3))
        assert resolved_count(topic) == 63
        clock.pass_s(publisher, 5)
        assert resolved_count(topic) == 64


def test_record_of_another_writer_is_noticed_while_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end is compared between two resolved records."""
    clock = Clock(monkeypatch)
    publisher = opened(topic := ModelTopic())
    clock.pass_s(publisher, 6)
    topic.entries.append(Entry(b'{"kind": "schema"}', None))
    with pytest.raises(Fatal) as raised:
        clock.pass_s(publisher, 5)
    assert raised.value.code == "MR-3015"
    assert resolved_count(topic) == 1
    publisher.discard()


def test_successor_fences_an_idle_publisher(monkeypatch: pytest.MonkeyPatch) -> None:
    """It learns of the successor before its next record is due."""
    clock = Clock(monkeypatch)
    publisher = opened(topic := ModelTopic())
    clock.pass_s(publisher, 6)
    with running(topic, epoch=8), pytest.raises(Fenced):
        clock.pass_s(publisher, 5)
    publisher.discard()


def test_silent_broker_is_asked_again_then_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart of a broker does not restart an idle task; a longer silence does."""
    monkeypatch.setattr(audit, "LOOK_S", 0.0)
    stable_end, refusals = ModelPartition.stable_end, [1, 2, 3]

    def after_refusals(partition: ModelPartition) -> int:
        if refusals:
            refusals.pop()
            raise Retryable("MR-3001", "the model broker restarts")
        return stable_end(partition)

    clock = Clock(monkeypatch)
    publisher = opened(topic := ModelTopic())
    clock.pass_s(publisher, 5)
    publisher.drain()
    monkeypatch.setattr(ModelPartition, "stable_end", after_refusals)
    clock.pass_s(publisher, 5)
    assert not refusals
    publisher.close()
    config = model_config()
    config = replace(config, limits=replace(config.limits, publish_timeout_s=0.0))
    publisher = Publisher.open_with(
        ModelDriver(topic),
        config,
        codec=ModelCodec(7),
        verify_lease=lambda: None,
        basis=Basis(START),
    )
    clock.pass_s(publisher, 5)
    publisher.drain()
    topic.is_away = True
    with pytest.raises(Retryable) as raised:
        clock.pass_s(publisher, 5)
    assert raised.value.code == "MR-3001"
    publisher.discard()
