"""The audit of the publisher on a model of the topic: every commit is read back."""

import threading
from contextlib import suppress
from dataclasses import replace

import pytest

from millrace.drivers.kafka.reader import TopicRecord
from millrace.errors import Fatal
from millrace.producer.publish import audit
from millrace.producer.publish import publisher as publishing
from millrace.producer.publish.audit import Audit, Commit
from millrace.producer.publish.config import PublisherLimits
from millrace.producer.publish.opening import Basis
from millrace.producer.publish.publisher import Publisher
from tests.kit.publisher.model import (
    START,
    Entry,
    KafkaTransaction,
    ModelCodec,
    ModelDriver,
    ModelPartition,
    ModelTopic,
    ModelTransactions,
    Outcome,
    batch_after,
    model_config,
    publish_and_close,
)
from tests.kit.publisher.opened import opened, running

DEADLINE_S = 60.0


def test_abort_reported_as_commit_stops_the_task() -> None:
    """Rule 4: the audit reads every commit back; the first disagreement is fatal."""
    publisher = opened(topic := ModelTopic())
    topic.outcomes = [Outcome.ABORTED_OK]
    with pytest.raises(Fatal) as raised:
        publish_and_close(publisher, 3)
    assert raised.value.code == "MR-3014"


def test_commit_is_looked_up_once_more_after_a_pause() -> None:
    """A worker that was paused past the deadline wakes up: records that are there are no disagreement."""
    config = model_config()
    config = replace(config, limits=replace(config.limits, audit_timeout_s=-1.0))
    publisher = Publisher.open_with(
        ModelDriver(topic := ModelTopic()),
        config,
        codec=ModelCodec(7),
        verify_lease=lambda: None,
        basis=Basis(START),
    )
    publish_and_close(publisher, 3)
    assert topic.seqs() == [1, 2, 3]


def test_any_audit_failure_reaches_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unexpected errors count too: the stream would wait forever for a thread that ended silently."""
    publisher = opened(topic := ModelTopic())
    unforeseen = ZeroDivisionError("by an audit")

    def fail(*_: object, **__: object) -> None:
        raise unforeseen

    monkeypatch.setattr(ModelPartition, "next_record", fail)
    with pytest.raises(ZeroDivisionError):
        publish_and_close(publisher, 3)
    auditing = Audit(
        ModelPartition(topic),
        end=0,
        limits=PublisherLimits(),
        find_successor=lambda: None,
        find_blocking_writer=lambda _: None,
    )
    with suppress(ZeroDivisionError):
        auditing.submit(Commit(len(topic.entries), b"", 1))
    with pytest.raises(ZeroDivisionError):
        auditing.drain(DEADLINE_S)
    with pytest.raises(ZeroDivisionError):  # and does not wait for a thread that has ended
        auditing.submit(Commit(len(topic.entries), b"", 1))
    auditing.stop()


def test_end_offset_not_after_the_marker_stops_the_task() -> None:
    """Rule 4: the stable end must advance by exactly the records and the marker."""
    publisher = opened(topic := ModelTopic())
    topic.outcomes = [Outcome.FOREIGN]
    with pytest.raises(Fatal) as raised:
        publish_and_close(publisher, 3)
    assert raised.value.code == "MR-3015"


def test_repeated_commit_marker_is_accepted() -> None:
    """A new coordinator repeats a marker that was not noted as sent: offsets move, visible records do not."""
    with running(topic := ModelTopic()) as publisher:
        for count in (3, 1, 4):
            topic.outcomes = [Outcome.MARKER_AGAIN]
            publisher.publish(batch_after(publisher.progress, count))
        publisher.drain()
        publisher.publish(batch_after(publisher.progress, 3))
        publisher.drain()
        assert publisher.hint.end_offset == len(topic.entries)
    assert topic.seqs() == list(range(1, 12))


def test_foreign_record_beside_a_repeated_marker_stops_the_task() -> None:
    """Moved offsets do not hide the records of another writer."""
    publisher = opened(topic := ModelTopic())
    topic.outcomes = [Outcome.MARKER_AGAIN]
    publisher.publish(batch_after(publisher.progress, 3))
    publisher.drain()
    topic.entries.append(Entry(b'{"kind": "schema"}', KafkaTransaction("foreign", "committed")))
    with pytest.raises(Fatal) as raised:
        publish_and_close(publisher, 3)
    assert raised.value.code == "MR-3014"


@pytest.mark.parametrize("is_followed", [False, True])
def test_foreign_record_before_a_marker_stops_the_task(
    is_followed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was written after the commit returned and before its marker: the marker is not a repeated one."""
    publisher = opened(topic := ModelTopic())
    topic.outcomes = [Outcome.FOREIGN_INSIDE]
    if is_followed:  # by the next commit, before the end is compared
        followed = threading.Event()
        begin, stable_end = ModelTransactions.begin, ModelPartition.stable_end

        def begin_next(transactions: ModelTransactions) -> None:
            begin(transactions)
            if topic.seqs():
                followed.set()

        def late_end(partition: ModelPartition) -> int:
            followed.wait(DEADLINE_S)
            return stable_end(partition)

        monkeypatch.setattr(ModelTransactions, "begin", begin_next)
        monkeypatch.setattr(ModelPartition, "stable_end", late_end)
        publisher.publish(batch_after(publisher.progress, 3))
    with pytest.raises(Fatal) as raised:
        publish_and_close(publisher, 3)
    assert raised.value.code == ("MR-3014" if is_followed else "MR-3015")


def test_busy_stream_asks_for_no_stable_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next commit's place proves as much; only the last commit has no successor."""
    asked: list[int] = []
    stable_end = ModelPartition.stable_end

    def counted(partition: ModelPartition) -> int:
        asked.append(stable_end(partition))
        return asked[-1]

    monkeypatch.setattr(audit, "IDLE_S", DEADLINE_S)
    with running(topic := ModelTopic()) as publisher:
        publisher.drain()
        monkeypatch.setattr(ModelPartition, "stable_end", counted)
        for _ in range(5):
            publisher.publish(batch_after(publisher.progress, 3))
            publisher.wait_visible()
        assert asked == []
        publisher.drain()
        assert asked == [len(topic.entries)]


def test_commit_is_visible_once_it_is_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next Kafka transaction waits for that: the marker is written then."""
    publisher = opened(topic := ModelTopic())
    publisher.drain()
    seen = threading.Event()
    next_record = ModelPartition.next_record

    def late(partition: ModelPartition, offset: int, *, timeout_s: float) -> TopicRecord | None:
        seen.wait(DEADLINE_S)
        return next_record(partition, offset, timeout_s=timeout_s)

    monkeypatch.setattr(ModelPartition, "next_record", late)
    assert publisher.wait_visible()
    publisher.publish(batch_after(publisher.progress, 3))
    monkeypatch.setattr(publishing, "MARKER_S", 0.01)
    assert not publisher.wait_visible()
    monkeypatch.setattr(publishing, "MARKER_S", DEADLINE_S)
    seen.set()
    assert publisher.wait_visible()
    publisher.close()
    assert topic.seqs() == [1, 2, 3]


def test_foreign_record_between_commits_stops_the_task() -> None:
    """Rule 4: the next commit's last record is not at its expected offset."""
    publisher = opened(topic := ModelTopic())
    foreign = KafkaTransaction("foreign", "committed")
    publisher.publish(batch_after(publisher.progress, 3))
    publisher.drain()
    topic.entries.append(Entry(b'{"kind": "schema"}', foreign))
    with pytest.raises(Fatal) as raised:
        publish_and_close(publisher, 3)
    assert raised.value.code == "MR-3014"
    with pytest.raises(Fatal):
        publisher.publish(batch_after(publisher.progress, 1))


def test_commits_removed_before_the_audit_are_no_violation() -> None:
    """Retention and operators may be faster than the audit."""
    topic = ModelTopic()
    publisher = opened(topic)
    for _ in range(5):
        publisher.publish(batch_after(publisher.progress, 3))
        topic.low = len(topic.entries)
    publisher.close()
    assert publisher.progress.seq == 15
