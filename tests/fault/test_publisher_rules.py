"""The publisher's rules on a real broker: the topic stays whole.

``tests/mutants/publisher_broker.py`` removes each rule. A real broker can't produce some faults on demand, such as a
wrong answer or a lease lost between two steps: ``tests/unit/test_publisher_rules.py`` has them on a model.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from millrace.deploy.servers import KafkaServer
from millrace.drivers.kafka import errors
from millrace.drivers.kafka.errors import KINDS
from millrace.errors import Fatal, Fenced, MillraceError, Retryable
from millrace.producer.publish.publisher import MID_PRODUCE
from tests.kit.faults.late_requests import (
    check_late_request,
    lost_commit_answer,
    slow_commit,
)
from tests.kit.publisher.contract import (
    is_stopped,
    test_foreign_record_stops_the_task,
    test_nothing_is_written_after_an_open_transaction,
    test_older_owner_writes_nothing_after_newer_fence,
    test_oversized_row_is_not_skipped,
    test_removed_records_are_not_published_again,
    test_rows_hidden_by_open_transaction_stop_the_task,
    test_stale_owner_writes_nothing,
)
from tests.kit.publisher.rig import Rig, once_at, topic_named

# run here on a real broker
__all__ = [
    "test_foreign_record_stops_the_task",
    "test_nothing_is_written_after_an_open_transaction",
    "test_older_owner_writes_nothing_after_newer_fence",
    "test_oversized_row_is_not_skipped",
    "test_removed_records_are_not_published_again",
    "test_rows_hidden_by_open_transaction_stop_the_task",
    "test_stale_owner_writes_nothing",
]
pytestmark = pytest.mark.usefixtures("trusting")

Patch = pytest.MonkeyPatch


def test_foreign_record_in_another_partition_stops_the_task(rig: Rig) -> None:
    """A foreign client's partitioner chose it; subscribers read every partition."""
    rig.recreate(partition_count=2)
    rig.write_foreign(partition=1)
    is_refused = True
    with suppress(Fatal):
        publisher = rig.open(7)
        is_refused = is_stopped(publisher, rig.stream(publisher))
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
