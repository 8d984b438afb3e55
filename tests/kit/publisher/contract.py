"""The publisher's rules that a broker and its model both show, as tests that two files import.

``tests/unit/test_publisher_contract.py`` has the model, ``tests/fault/test_publisher_rules.py`` a real broker. Each
has its own fixture ``rig``.
"""

from contextlib import suppress
from dataclasses import replace

import pytest

from millrace.errors import Fatal, Fenced, MillraceError, Retryable
from millrace.producer.publish.opening import NO_END
from millrace.producer.publish.publisher import Publisher
from tests.kit.capture.topic_rows import RowStream
from tests.kit.publisher.rig import Rig
from tests.kit.waiting import eventually


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


def test_older_owner_writes_nothing_after_newer_fence(rig: Rig) -> None:
    """An older owner starts again and its lease check passes by bad luck; its successor has sent no row yet."""
    rig.open(8).discard()
    with suppress(Fenced):
        stale = rig.open(7)
        stale.publish(rig.stream(stale).next_batch(3))
        stale.close()
    assert rig.verdict().counts.rows == 0, "a stale owner's rows follow a newer fence"


def test_foreign_record_stops_the_task(rig: Rig) -> None:
    """A foreign client writes between two commits."""
    publisher = rig.open(7)
    stream = rig.stream(publisher)
    publisher.publish(stream.next_batch(3))
    rig.write_foreign()
    assert is_stopped(publisher, stream), "a foreign record was not reported"


def is_stopped(publisher: Publisher, stream: RowStream) -> bool:
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
        eventually(lambda: _is_decided(rig), what="the start succeeds or is refused")
    rig.wait_ended()
    epochs = [epoch for epoch, _ in rig.verdict().epochs]
    assert epochs == [7], "a record is committed after another writer's open transaction"


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
        is_reported = is_stopped(publisher, rig.stream(publisher))
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
