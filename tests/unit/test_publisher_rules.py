"""The publisher's rules on a model of the broker keep the topic whole.

``tests/mutants/publisher_model.py`` removes each. Those that a real broker shows, too: ``test_publisher_contract.py``.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from millrace.errors import Fatal, Fenced, Retryable
from millrace.producer.publish.opening import Basis, TailHint
from millrace.producer.publish.publisher import Publisher
from tests.kit.publisher.model import (
    START,
    Entry,
    ModelCodec,
    ModelDriver,
    ModelTopic,
    Outcome,
    batch_after,
    model_config,
    publish_and_close,
)


def opened(
    topic: ModelTopic,
    *,
    epoch: int = 7,
    hint: TailHint | None = None,
    verify_lease: Callable[[], None] = lambda: None,
) -> Publisher:
    """Return a publisher on the model."""
    return Publisher.open_with(
        ModelDriver(topic),
        model_config(epoch),
        codec=ModelCodec(epoch),
        verify_lease=verify_lease,
        basis=Basis(START, hint),
    )


@contextmanager
def spent(publisher: Publisher) -> Iterator[Publisher]:
    """Return a publisher whose threads end with the block."""
    yield publisher
    publisher.discard()


def assert_whole(topic: ModelTopic, last_seq: int) -> None:
    """Assert that the topic has every row up to ``last_seq`` exactly once."""
    found, wanted = topic.seqs(), list(range(1, last_seq + 1))
    assert sorted(set(wanted) - set(found)) == [], f"rows are lost: {found}"
    assert sorted(set(found) - set(wanted)) == [], f"forbidden rows are in the topic: {found}"
    assert found == wanted, f"rows are in the topic twice or out of order: {found}"


def _is_stopped(act: Callable[[], object]) -> bool:
    try:
        act()
    except Fatal:
        return True
    return False


def test_owner_without_its_lease_writes_nothing_at_start() -> None:
    """A stale owner starts again; ZooKeeper would have reported the loss."""
    topic = ModelTopic()

    def lost() -> None:
        raise Fenced("MR-4003", "lost")

    with spent(opened(topic, epoch=8)) as successor:
        with suppress(Fenced):
            opened(topic, epoch=7, verify_lease=lost)
        try:
            successor.publish(batch_after(successor.progress, 3))
        except Fenced as fenced:
            raise AssertionError("the successor was fenced") from fenced


def test_aborted_fence_opens_nothing() -> None:
    """The broker answers OK and aborts."""
    topic = ModelTopic(outcomes=[Outcome.ABORTED_OK])
    stopped = True
    with suppress(Fatal), spent(opened(topic)):
        stopped = False
    assert stopped, "a run was opened although its fence was aborted"


@pytest.mark.parametrize("outcome", [Outcome.LOST_AFTER, Outcome.LOST_BEFORE])
def test_no_row_is_lost_or_doubled(outcome: Outcome) -> None:
    """The answer to a commit does not matter."""
    topic = ModelTopic()
    with spent(opened(topic)) as publisher:
        publisher.publish(batch_after(publisher.progress, 4))
        topic.outcomes = [outcome]
        publisher.publish(batch_after(publisher.progress, 4))
        publisher.publish(batch_after(publisher.progress, 4))
    assert_whole(topic, 12)


def test_abort_acknowledged_as_commit_stops_the_task() -> None:
    """A commit answers OK and its records are aborted."""
    topic = ModelTopic()
    with spent(opened(topic)) as publisher:
        topic.outcomes = [Outcome.ABORTED_OK]
        assert _is_stopped(lambda: publish_and_close(publisher, 3)), (
            "missing committed rows were not reported"
        )


def test_foreign_record_at_the_end_stops_the_task() -> None:
    """No record of Millrace follows it that could be at a wrong offset."""
    topic = ModelTopic()
    with spent(opened(topic)) as publisher:
        topic.outcomes = [Outcome.FOREIGN]
        assert _is_stopped(lambda: publish_and_close(publisher, 3)), (
            "a foreign record was not reported"
        )


def test_owner_that_loses_its_lease_later_writes_nothing() -> None:
    """It started in order; a successor took over, and a slow commit makes the former owner want a new producer."""
    topic, leases = ModelTopic(), [True]

    def verify() -> None:
        if not leases[0]:
            raise Fenced("MR-4003", "lost")

    with spent(opened(topic, epoch=7, verify_lease=verify)) as stale:
        topic.outcomes = [Outcome.SLOW]
        stale.publish(batch_after(stale.progress, 3))
        stale.drain()  # otherwise its audit may be what sees the successor
        with spent(opened(topic, epoch=8)) as successor:
            leases[0] = False
            with suppress(Fenced):
                stale.publish(batch_after(stale.progress, 3))
            try:
                successor.publish(batch_after(successor.progress, 3))
            except Fenced as fenced:
                raise AssertionError("the successor was fenced") from fenced
    assert_whole(topic, 6)


def test_foreign_tail_is_not_progress() -> None:
    """A tail that is not Millrace's stops the start."""
    topic = ModelTopic()
    opened(topic).close()
    topic.entries.append(Entry(b"junk", None))
    is_stopped = _is_stopped(lambda: opened(topic, epoch=8).close())
    assert is_stopped, "a run was opened after a foreign record"


def test_hint_was_once_the_true_end() -> None:
    """Half of a batch is in the topic and the publisher failed; then retention removes everything."""
    topic = ModelTopic()
    with spent(opened(topic)) as publisher:
        publisher.publish(batch_after(publisher.progress, 3))
        topic.outcomes = [Outcome.LATE_COMMIT]
        with suppress(Retryable):
            publisher.publish(batch_after(publisher.progress, 6))
    read = topic.seqs()
    topic.low = len(topic.entries)
    with suppress(Fatal), spent(opened(topic, epoch=8, hint=publisher.hint)) as successor:
        successor.publish(batch_after(successor.progress, 3))
    read += topic.seqs()
    assert read == sorted(set(read)), f"a subscriber is sent what it has read: {read}"
