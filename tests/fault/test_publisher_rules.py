"""The publisher's rules on a real broker: the topic stays whole.

``tests/mutants/publisher_broker.py`` removes each rule. A real broker can't produce some faults on demand, such as a
wrong answer or a lease lost between two steps: ``tests/unit/test_publisher_rules.py`` has them on a model.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import confluent_kafka
import pytest

from deploy.servers import KafkaServer
from drivers.kafka import errors
from drivers.kafka.errors import KINDS
from millrace.errors import Fatal, Fenced, MillraceError, Retryable
from producer.publish.opening import NO_END
from producer.publish.publisher import MID_PRODUCE, Publisher
from tests.kit.capture.topic_rows import RowStream
from tests.kit.faults.late_requests import (
    check_late_request,
    lost_commit_answer,
    slow_commit,
)
from tests.kit.kafka_topics import ANSWER_S
from tests.kit.publisher.rig import Rig, once_at, topic_named
from tests.kit.waiting import eventually

pytestmark = pytest.mark.usefixtures("trusting")

Patch = pytest.MonkeyPatch


def test_stale_owner_writes_nothing(rig: Rig) -> None:
    """Neither of two owners knows of the other, and the older one continues to send."""
    stale = rig.open(7)
    stream = rig.stream(stale)
    stale.publish(stream.next_batch(10))
    successor = rig.open(8)
    with suppress(MillraceError):
        stale.publish(stream.next_batch(10))
    with suppress(MillraceError):
        successor.publish(rig.stream(successor).next_batch(5))
    stale.discard()
    successor.discard()
    rig.assert_whole(15)


def test_foreign_record_in_another_partition_stops_the_task(rig: Rig) -> None:
    """A foreign client's partitioner chose it; subscribers read every partition."""
    rig.recreate(partition_count=2)
    foreign = confluent_kafka.Producer({"bootstrap.servers": rig.bootstrap})
    foreign.produce(rig.topic, b"hello", None, 1)
    assert foreign.flush(ANSWER_S) == 0
    is_refused = True
    with suppress(Fatal):
        publisher = rig.open(7)
        is_refused = _is_stopped(publisher, rig.stream(publisher))
    assert is_refused, "a foreign record was not reported"


def test_uncommitted_rows_of_dead_owner_are_not_progress(rig: Rig, monkeypatch: Patch) -> None:
    """An owner dies when half of a batch is in the log, uncommitted."""
    dead = rig.open(7)
    stream = rig.stream(dead)
    dead.publish(stream.next_batch(9))

    def die() -> None:
        rig.instance.flush()
        raise Retryable("MR-3001", "dies here")

    once_at(monkeypatch, MID_PRODUCE, die)
    with suppress(Retryable):
        dead.publish(stream.next_batch(20))
    with rig.running(8) as publisher:
        publisher.publish(rig.stream(publisher).next_batch(6))
    rig.assert_whole(15)


def test_older_owner_writes_nothing_after_newer_fence(rig: Rig) -> None:
    """An older owner starts again and its lease check passes by bad luck; its successor has sent no row yet."""
    rig.open(8).discard()
    with suppress(Fenced):
        stale = rig.open(7)
        stale.publish(rig.stream(stale).next_batch(3))
        stale.close()
    assert rig.verdict().counts.rows == 0, "a stale owner's rows follow a newer fence"


def test_lost_commit_answer_leaves_batch_committed_once(rig: Rig, monkeypatch: Patch) -> None:
    """The commit took effect, but its answer was lost."""
    publisher = rig.open(7)
    stream = rig.stream(publisher)
    publisher.publish(stream.next_batch(9))
    lost_commit_answer(monkeypatch)
    publisher.publish(stream.next_batch(9))
    publisher.publish(stream.next_batch(9))
    publisher.discard()
    rig.assert_whole(27)


def test_fenced_owner_does_not_fence_its_successor(rig: Rig, monkeypatch: Patch) -> None:
    """A fenced owner's later requests do not disturb the successor."""
    stale = rig.open(7)
    stream = rig.stream(stale)
    stale.publish(stream.next_batch(10))
    successor = rig.open(8)
    with suppress(MillraceError):
        stale.publish(stream.next_batch(10))
    monkeypatch.setattr(errors, "KINDS", KINDS)
    try:
        successor.publish(rig.stream(successor).next_batch(5))
        successor.close()
    except Fenced as fenced:
        raise AssertionError("the successor was fenced by the owner that it had fenced") from fenced
    rig.assert_whole(15)


def test_foreign_record_stops_the_task(rig: Rig) -> None:
    """A foreign client writes between two commits."""
    publisher = rig.open(7)
    stream = rig.stream(publisher)
    publisher.publish(stream.next_batch(3))
    foreign = confluent_kafka.Producer({"bootstrap.servers": rig.bootstrap})
    foreign.produce(rig.topic, b"hello", None, 0)
    assert foreign.flush(ANSWER_S) == 0
    assert _is_stopped(publisher, stream), "a foreign record was not reported"


def _is_stopped(publisher: Publisher, stream: RowStream) -> bool:
    """Whether the next commit, or its audit, ends the publisher."""
    try:
        publisher.publish(stream.next_batch(3))
        publisher.close()
    except Fatal:
        return True
    return False


def test_nothing_is_written_after_an_open_transaction(rig: Rig) -> None:
    """A start finds another writer's open transaction: readers would not see records after it."""
    with rig.running(7) as publisher:
        publisher.publish(rig.stream(publisher).next_batch(3))
    rig.limits = replace(rig.limits, stable_timeout_s=0.3)
    with rig.foreign_transaction():
        before = rig.high_end()
        eventually(lambda: _is_decided(rig), what="the start succeeds or is refused")
        assert rig.high_end() == before, (
            "a record is committed after another writer's open transaction"
        )


def _is_decided(rig: Rig) -> bool:
    """Whether a start succeeds or is refused; with short limits the start of the topic may not be read in time."""
    try:
        rig.open(8).discard()
    except Retryable:
        return False
    except Fatal:
        pass
    return True


def test_rows_hidden_by_open_transaction_stop_the_task(rig: Rig) -> None:
    """Another writer's transaction opens between two commits: the second returns OK, but readers don't see its rows."""
    with rig.running(7) as publisher:
        publisher.publish(rig.stream(publisher).next_batch(3))
    rig.limits = replace(rig.limits, audit_timeout_s=0.3)
    publisher = rig.open(7)
    with rig.foreign_transaction():
        is_reported = _is_stopped(publisher, rig.stream(publisher))
        assert rig.verdict().last_seq == 3
    assert is_reported, "hidden committed rows were not reported"


def test_oversized_row_is_not_skipped(rig: Rig) -> None:
    """An oversized row stops the task; the whole batch is sent again later."""
    rig.recreate({"max.message.bytes": "600000"})
    publisher = rig.open(7)
    stream = rig.stream(publisher)
    publisher.publish(stream.next_batch(3))
    with suppress(Fatal):
        publisher.publish(stream.next_batch(2, filler="y" * 700_000))
        publisher.publish(stream.next_batch(4))
    publisher.discard()
    rig.assert_whole(3)


def test_partly_published_source_transaction_is_resumed_inside(rig: Rig) -> None:
    """The committed part of a batch ends inside a source transaction of three rows."""
    torn = rig.open(7)
    batch = rig.stream(torn).next_batch(9)
    rig.instance.begin()
    refused = rig.instance.add_slices(batch.buffer, batch.bounds[:5])  # a schema record, four rows
    assert refused is None
    rig.instance.flush()
    rig.instance.commit()
    torn.discard()
    with rig.running(8) as publisher:
        publisher.publish(rig.stream(publisher).next_batch(9 - publisher.progress.seq))
    rig.assert_whole(9)


@pytest.mark.parametrize("remembered", [True, False], ids=["remembered", "forgotten"])
def test_removed_records_are_not_published_again(rig: Rig, remembered: bool) -> None:
    """A subscriber has read all records, then they are removed; the status is older than the topic, or empty."""
    with rig.running(7) as publisher:
        stream = rig.stream(publisher)
        publisher.publish(stream.next_batch(3))
        old = publisher.hint
        publisher.publish(stream.next_batch(3))
    rig.remove_before()
    for hint in (old, replace(old, end_offset=NO_END)) if remembered else (None,):
        with suppress(Fatal):
            publisher = rig.open(8, hint=hint)
            publisher.publish(rig.stream(publisher).next_batch(3))
            publisher.close()
    found = rig.verdict()
    assert (found.first_seq or 7) > 6, "a subscriber receives records that it has read before"


@pytest.mark.parametrize(
    "commit", [True, pytest.param(False, marks=pytest.mark.chaos)], ids=["commit", "abort"]
)
@pytest.mark.parametrize("trouble", [slow_commit, lost_commit_answer])
def test_late_request_does_not_end_the_current_transaction(
    rig: Rig, trouble: Callable[[Patch], None], commit: bool, monkeypatch: Patch
) -> None:
    """A late duplicate of a commit or an abort arrives when half of the next batch is sent."""
    check_late_request(trouble, commit=commit)(rig, monkeypatch)


def test_deleted_topic_is_not_created_again(rig: Rig) -> None:
    """Subscribers have read six rows; then the topic is deleted."""
    with rig.running(7) as publisher:
        publisher.publish(rig.stream(publisher).next_batch(6))
    rig.limits = replace(rig.limits, stable_timeout_s=1.0)
    rig.delete()
    with suppress(Fatal):
        rig.open(8, hint=publisher.hint).discard()
    assert not rig.exists(), "a deleted topic is created again"


def test_publisher_does_not_resume_in_a_recreated_topic(rig: Rig, monkeypatch: Patch) -> None:
    """The topic is deleted and created again in the middle of a batch; the first half is lost."""
    publisher = rig.open(7)
    stream = rig.stream(publisher)
    publisher.publish(stream.next_batch(9))

    def recreate() -> None:
        rig.instance.flush()
        rig.delete()
        rig.recreate()

    once_at(monkeypatch, MID_PRODUCE, recreate)
    with suppress(MillraceError):
        publisher.publish(stream.next_batch(9))
    publisher.discard()
    rig.wait_ended()
    seen = rig.verdict().counts
    with suppress(Fatal):
        rig.open(8, hint=publisher.hint).discard()
    assert rig.verdict().counts == seen, "a publisher resumed in a topic that begins in the middle"


@pytest.fixture
def rig(kafka: KafkaServer, request: pytest.FixtureRequest) -> Rig:
    """A topic named after the test."""
    return Rig(kafka.bootstrap, topic_named("rule", request.node.name))
