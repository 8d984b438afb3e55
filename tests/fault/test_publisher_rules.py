"""Rules of the publisher on a real broker: the topic stays whole.

``tests/mutants/publisher_broker.py`` takes each rule away. Where a real broker can't be made to do the harm on demand
(an answer that lies, a lease lost between two steps) the model does it: ``tests/unit/test_publisher_rules.py``.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import confluent_kafka
import pytest

from deploy.servers import KafkaServer
from millrace.errors import Fatal, Fenced, MillraceError, Retryable
from producer.publish import errors
from producer.publish.errors import BRANCHES
from producer.publish.opening import NO_END
from producer.publish.publisher import MID_PRODUCE, Publisher
from tests.kit.capture.topic_rows import RowStream
from tests.kit.faults.late_requests import (
    a_commit_is_not_heard_of,
    a_commit_is_slow,
    no_late_request_ends_what_is_under_way,
)
from tests.kit.publisher.rig import ANSWER_S, Rig, once_at, topic_named
from tests.kit.waiting import eventually

pytestmark = pytest.mark.usefixtures("trusting")

Patch = pytest.MonkeyPatch


def test_stale_owner_writes_nothing(rig: Rig) -> None:
    """Two owners, neither knows of the other; the older goes on sending."""
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
    """Somebody else's partitioner chooses it; subscribers read what they find in the topic."""
    rig.make_anew(partition_count=2)
    foreign = confluent_kafka.Producer({"bootstrap.servers": rig.bootstrap})
    foreign.produce(rig.topic, b"hello", None, 1)
    assert foreign.flush(ANSWER_S) == 0
    is_told = True
    with suppress(Fatal):
        publisher = rig.open(7)
        is_told = _is_stopped(publisher, rig.stream(publisher))
    assert is_told, "nobody was told of a foreign record"


def test_uncommitted_rows_of_dead_owner_are_not_progress(rig: Rig, monkeypatch: Patch) -> None:
    """An owner dies with half of a batch in the log, uncommitted."""
    dead = rig.open(7)
    stream = rig.stream(dead)
    dead.publish(stream.next_batch(9))

    def die() -> None:
        dead._live.flush()
        raise Retryable("MR-3001", "dies here")

    once_at(monkeypatch, MID_PRODUCE, die)
    with suppress(Retryable):
        dead.publish(stream.next_batch(20))
    with rig.running(8) as publisher:
        publisher.publish(rig.stream(publisher).next_batch(6))
    rig.assert_whole(15)


def test_older_owner_writes_nothing_after_newer_fence(rig: Rig) -> None:
    """A stale owner starts again (its lease check passes by bad luck) while its successor has sent nothing yet."""
    rig.open(8).discard()
    with suppress(Fenced):
        stale = rig.open(7)
        stale.publish(rig.stream(stale).next_batch(3))
        stale.close()
    assert rig.verdict().counts.rows == 0, "a stale owner's rows stand behind a newer fence"


def test_lost_commit_answer_leaves_batch_committed_once(rig: Rig, monkeypatch: Patch) -> None:
    """The commit took effect; its answer never came."""
    publisher = rig.open(7)
    stream = rig.stream(publisher)
    publisher.publish(stream.next_batch(9))
    a_commit_is_not_heard_of(monkeypatch)
    publisher.publish(stream.next_batch(9))
    publisher.publish(stream.next_batch(9))
    publisher.discard()
    rig.assert_whole(27)


def test_fenced_owner_does_not_fence_its_successor(rig: Rig, monkeypatch: Patch) -> None:
    """What it does after it was fenced must not touch the one who fenced it, who keeps to the rule."""
    stale = rig.open(7)
    stream = rig.stream(stale)
    stale.publish(stream.next_batch(10))
    successor = rig.open(8)
    with suppress(MillraceError):
        stale.publish(stream.next_batch(10))
    monkeypatch.setattr(errors, "BRANCHES", BRANCHES)
    try:
        successor.publish(rig.stream(successor).next_batch(5))
        successor.close()
    except Fenced as fenced:
        raise AssertionError("the successor was fenced by the one it had fenced") from fenced
    rig.assert_whole(15)


def test_foreign_record_stops_the_task(rig: Rig) -> None:
    """Somebody else writes between two commits."""
    publisher = rig.open(7)
    stream = rig.stream(publisher)
    publisher.publish(stream.next_batch(3))
    foreign = confluent_kafka.Producer({"bootstrap.servers": rig.bootstrap})
    foreign.produce(rig.topic, b"hello", None, 0)
    assert foreign.flush(ANSWER_S) == 0
    assert _is_stopped(publisher, stream), "nobody was told of a foreign record"


def _is_stopped(publisher: Publisher, stream: RowStream) -> bool:
    """Whether the next commit, or the look back at it, is refused."""
    try:
        publisher.publish(stream.next_batch(3))
        publisher.close()
    except Fatal:
        return True
    return False


def test_nothing_is_written_after_an_open_transaction(rig: Rig) -> None:
    """Somebody else's, found by who starts: what is written behind it, nobody would see."""
    with rig.running(7) as publisher:
        publisher.publish(rig.stream(publisher).next_batch(3))
    rig.limits = replace(rig.limits, stable_timeout_s=0.3)
    with rig.foreign_transaction():
        before = rig.high_end()
        eventually(lambda: _is_decided(rig), what="an end of the start")
        assert rig.high_end() == before, (
            "a record is committed after another writer's open transaction"
        )


def _is_decided(rig: Rig) -> bool:
    """Whether a start succeeds or is refused: in a short time the topic's beginning may not be read."""
    try:
        rig.open(8).discard()
    except Retryable:
        return False
    except Fatal:
        pass
    return True


def test_rows_hidden_by_open_transaction_stop_the_task(rig: Rig) -> None:
    """Somebody else's begins between two commits: the second returns OK, and nobody sees its rows."""
    publisher = rig.open(7)
    stream = rig.stream(publisher)
    publisher.publish(stream.next_batch(3))
    publisher.drain()
    publisher._audit._limits = replace(rig.limits, audit_timeout_s=0.3)
    with rig.foreign_transaction():
        is_told = _is_stopped(publisher, stream)
        assert rig.verdict().last_seq == 3
    assert is_told, "nobody was told of committed rows that nobody sees"


def test_oversized_row_is_not_skipped(rig: Rig) -> None:
    """It stops the task; the whole batch comes again."""
    rig.make_anew({"max.message.bytes": "600000"})
    publisher = rig.open(7)
    stream = rig.stream(publisher)
    publisher.publish(stream.next_batch(3))
    with suppress(Fatal):
        publisher.publish(stream.next_batch(2, filler="y" * 700_000))
        publisher.publish(stream.next_batch(4))
    publisher.discard()
    rig.assert_whole(3)


def test_partly_published_source_transaction_is_resumed_inside(rig: Rig) -> None:
    """A part of a batch was committed that ends within a source transaction of three rows."""
    torn = rig.open(7)
    batch = rig.stream(torn).next_batch(9)
    live = torn._live
    live.begin()
    assert live.add_slices(batch.buffer, batch.bounds[:5]) is None  # a schema record and four rows
    live.flush()
    live.commit()
    torn.discard()
    with rig.running(8) as publisher:
        publisher.publish(rig.stream(publisher).next_batch(9 - publisher.progress.seq))
    rig.assert_whole(9)


@pytest.mark.parametrize("remembered", [True, False], ids=["remembered", "forgotten"])
def test_removed_records_are_not_published_again(rig: Rig, remembered: bool) -> None:
    """Everything is removed, a subscriber has read it all; the status is older than the topic, or knows nothing."""
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
    assert (found.first_seq or 7) > 6, "a subscriber is sent what it has read"


@pytest.mark.parametrize(
    "commit", [True, pytest.param(False, marks=pytest.mark.chaos)], ids=["commit", "abort"]
)
@pytest.mark.parametrize("trouble", [a_commit_is_slow, a_commit_is_not_heard_of])
def test_late_request_does_not_end_the_current_transaction(
    rig: Rig, trouble: Callable[[Patch], None], commit: bool, monkeypatch: Patch
) -> None:
    """A late duplicate of a commit or an abort comes when half of the next batch is in."""
    no_late_request_ends_what_is_under_way(trouble, commit=commit)(rig, monkeypatch)


def test_deleted_topic_is_not_created_again(rig: Rig) -> None:
    """Subscribers have read six rows of it."""
    with rig.running(7) as publisher:
        publisher.publish(rig.stream(publisher).next_batch(6))
    rig.limits = replace(rig.limits, stable_timeout_s=1.0)
    rig.delete()
    with suppress(Fatal):
        rig.open(8, hint=publisher.hint).discard()
    assert not rig.exists(), "a topic that was deleted is begun anew"


def test_publisher_does_not_resume_in_a_recreated_topic(rig: Rig, monkeypatch: Patch) -> None:
    """The topic is made anew when half of a batch is in: that half is in no topic."""
    publisher = rig.open(7)
    stream = rig.stream(publisher)
    publisher.publish(stream.next_batch(9))

    def make_anew() -> None:
        publisher._live.flush()
        rig.delete()
        rig.make_anew()

    once_at(monkeypatch, MID_PRODUCE, make_anew)
    with suppress(MillraceError):
        publisher.publish(stream.next_batch(9))
    publisher.discard()
    rig.wait_ended()
    seen = rig.verdict().counts
    with suppress(Fatal):
        rig.open(8, hint=publisher.hint).discard()
    assert rig.verdict().counts == seen, "a topic that begins in the middle was gone on with"


@pytest.fixture
def rig(kafka: KafkaServer, request: pytest.FixtureRequest) -> Rig:
    """A topic named after the test."""
    return Rig(kafka.bootstrap, topic_named("rule", request.node.name))
