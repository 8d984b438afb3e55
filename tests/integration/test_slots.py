"""The slots of a publish task on a real broker: resumption, fences, and what a start finds at the ends of topics."""

import json
import re
import time
from collections.abc import Callable
from dataclasses import replace

import confluent_kafka
import numpy as np
import pytest

from millrace.consumer.publish.mark import Definition, Description
from millrace.consumer.publish.slot import Slot
from millrace.deploy.servers import KafkaServer
from millrace.errors import Fatal, Fenced, MillraceError
from tests.kit.kafka_topics import ANSWER_S, make_topic, remove_records_before
from tests.kit.publish.rig import DESCRIPTION, PATIENT, SlotRig, position
from tests.kit.waiting import eventually


@pytest.fixture
def rig(kafka: KafkaServer, request: pytest.FixtureRequest) -> SlotRig:
    """A task named after the test, with one slot and one partition in each topic."""
    name = re.sub(r"[^a-z0-9_]", "-", request.node.name)[:80]
    return SlotRig(kafka.bootstrap, f"{name}-{time.time_ns()}")


def test_records_of_two_owners_appear_exactly_once(rig: SlotRig) -> None:
    """The second owner reads again what its predecessor wrote after its last mark, and it is left out."""
    with rig.running(7) as (slot,):
        rig.feed(slot, 400, step=70)
    with rig.running(9) as (slot,):
        assert slot.position == position(400)
        rig.feed(slot, 500)
    rig.assert_exact(500)


def test_slot_that_ends_without_close_repeats_nothing(rig: SlotRig) -> None:
    """Its last Kafka transaction is committed, and its mark is not: all is read again and left out."""
    rig.start(7)
    slot = rig.open()
    rig.feed(slot, 200)
    slot.write(rig.outgoing(201, 250))
    slot.discard()
    with rig.running(8) as (slot,):
        assert slot.position.seq == 150
        assert slot.write(rig.outgoing(151, 200)) == 0
        rig.feed(slot, 300)
    rig.assert_exact(300)


def _left(rig: SlotRig, *, is_closed: bool = True) -> None:
    """A run of epoch 7 with 100 records, the last of them with or without its mark."""
    rig.start(7)
    slot = rig.open()
    rig.feed(slot, 100)
    if is_closed:
        slot.close()
    slot.discard()


def _refused(rig: SlotRig, epoch: int = 8) -> MillraceError:
    """The error of the next start."""

    def open_next() -> None:
        rig.start(epoch)
        rig.open(epoch=epoch).discard()

    return _error_of(open_next)


def _error_of(act: Callable[[], object]) -> MillraceError:
    with pytest.raises(MillraceError) as raised:
        act()
    return raised.value


def _feed_and_close(rig: SlotRig, slot: Slot, seq: int) -> None:
    rig.feed(slot, seq)
    slot.close()


def _write_mark(rig: SlotRig, key: bytes, value: bytes) -> None:
    """Another program writes into the progress topic."""
    writer = confluent_kafka.Producer({"bootstrap.servers": rig.bootstrap})
    writer.produce(rig.order().progress_topic, value, key, 0)
    assert writer.flush(ANSWER_S) == 0


def test_unreadable_progress_of_a_publish_task_stops_it(rig: SlotRig) -> None:
    """A record of another program."""
    _left(rig)
    _write_mark(rig, b"progress", b"{}")
    assert _refused(rig).code == "MR-3101"


@pytest.mark.parametrize("when", ["before the task", "between runs", "during a run"])
def test_foreign_record_in_an_output_topic_stops_the_task(rig: SlotRig, when: str) -> None:
    """Whether it was there before the first record of the task, or came later."""
    if when == "before the task":
        make_topic(rig.admin(), rig.topics[1])
        rig.write_foreign(rig.topics[1])
        rig.start()
        with pytest.raises(Fatal) as raised:
            rig.feed(rig.open(), 100)
        assert raised.value.code == "MR-3102"
    elif when == "between runs":
        _left(rig)
        rig.write_foreign(rig.topics[1])
        assert _refused(rig).code == "MR-3102"
    else:
        rig.start()
        slot = rig.open()
        rig.feed(slot, 100)
        slot.verify()
        rig.write_foreign(rig.topics[1])
        assert _error_of(lambda: _feed_and_close(rig, slot, 200)).code == "MR-3102"


@pytest.mark.parametrize("what", ["output", "progress"])
@pytest.mark.parametrize("is_recreated", [True, False])
def test_deleted_topic_of_a_publish_task_stops_it(
    rig: SlotRig, what: str, is_recreated: bool
) -> None:
    """Also if it was created again. A progress topic without the mark makes the outputs foreign."""
    _left(rig)
    topic = rig.topics[0] if what == "output" else rig.order().progress_topic
    admin = rig.admin()
    admin.delete_topics([topic])[topic].result(ANSWER_S)
    eventually(lambda: topic not in admin.list_topics(timeout=ANSWER_S).topics, what="it is gone")
    if is_recreated:
        make_topic(admin, topic, replaces=True)
    if what == "output":
        assert _refused(rig).code == "MR-3103"
    else:
        rig.start(8)
        with pytest.raises(Fatal) as raised:
            rig.feed(rig.open(epoch=8), 100)
        assert raised.value.code == "MR-3102"


@pytest.mark.parametrize("is_closed", [True, False])
def test_emptied_output_topic_is_believed_only_at_its_mark(rig: SlotRig, is_closed: bool) -> None:
    """If the mark has its end, the task continues with the next number; otherwise nothing proves what it had."""
    _left(rig, is_closed=is_closed)
    before = {row.place: row.number("n") for row in rig.rows()}
    for topic in rig.topics:
        remove_records_before(rig.admin(), topic)
    if not is_closed:
        assert _refused(rig).code == "MR-3104"
        return
    with rig.running(8) as (slot,):
        rig.feed(slot, 103)
    after = {row.place: row.number("n") for row in rig.rows()}
    assert all(after[place] > before[place] for place in before)


def test_output_topic_that_lost_records_stops_the_task(rig: SlotRig) -> None:
    """The mark has verified more than the partition has."""
    _left(rig)
    with rig.running(8) as (slot,):
        tail = slot.mark.tails[rig.topics[0], 0]
    further = {"topic_id": tail.topic_id, "end": tail.end + 9, "n": 99, "seq": 999, "part": 0}
    key = f"partition/{rig.topics[0]}/0".encode()
    _write_mark(rig, key, json.dumps(further).encode())
    assert _refused(rig, 9).code == "MR-3105"


@pytest.mark.parametrize("by", ["client", "broker"])
def test_record_over_an_output_topics_limit_is_named(rig: SlotRig, by: str) -> None:
    """The client refuses it by the size of new topics, or the broker by that of the topic."""
    small = {"max.message.bytes": "300"}
    for topic in rig.topics:
        make_topic(rig.admin(), topic, config=small)
    if by == "client":
        rig.limits = replace(rig.limits, record_bytes_max=1000)
    rig.start()
    slot = rig.open()
    outgoing = rig.outgoing(1, 2)
    outgoing.lines[0, 4:6] = 0, 2000
    noise = np.random.default_rng(1).integers(0, 256, 2000, np.uint8)  # it can't be compressed
    outgoing = replace(outgoing, payload=noise)

    def write() -> None:
        slot.write(outgoing)
        slot.commit(position(2))

    assert _error_of(write).code == "MR-3106"
    slot.discard()


def test_stale_owner_of_a_slot_is_fenced(rig: SlotRig) -> None:
    """By its successor's instance, and, if it opens the slot again, by the epoch in the mark."""
    rig.start(7)
    stale = rig.open(epoch=7)
    rig.feed(stale, 50)
    rig.start(8)
    with pytest.raises(Fenced) as fenced:
        rig.feed(stale, 100)
    assert fenced.value.code == "MR-3003"
    stale.discard()
    with pytest.raises(Fenced) as fenced:
        rig.open(epoch=7)
    assert fenced.value.code == "MR-3010"
    with rig.running(9) as (slot,):
        rig.feed(slot, 100)
    rig.assert_exact(100)


def test_partitions_of_an_output_topic_can_be_added(rig: SlotRig) -> None:
    """By an operator before the task, or by the task when its document wants more: each counts from 1."""
    make_topic(rig.admin(), rig.topics[0])
    with rig.running(7) as (slot,):
        rig.feed(slot, 100)
    rig.partitions = 3
    with rig.running(8) as (slot,):
        rig.feed(slot, 200)
    rig.assert_exact(200)
    assert {row.place for row in rig.rows()} == {
        (topic, part) for topic in rig.topics for part in range(3)
    }


@pytest.mark.parametrize("slots", [[1, 3], [3, 2, 4]], ids=str)
def test_task_continues_with_another_number_of_slots(rig: SlotRig, slots: list[int]) -> None:
    """All slots begin at the earliest position of the former ones, and each partition leaves out what it has.

    The last run of each number ends without a mark, at another seq in each slot.
    """
    rig.partitions = 4
    last = 0
    for epoch, count in enumerate(slots, start=7):
        rig.slots = count
        started = rig.start(epoch)
        assert {one.seq for one in started.positions} == {max(last - 50, 0)}
        for number in range(count):
            slot = rig.open(number, epoch)
            rig.feed(slot, last + 200 + number)
            slot.discard()
        last += 200
    with rig.running(20) as opened:
        for slot in opened:
            rig.feed(slot, last + 100)
    rig.assert_exact(last + 100)
    assert [one.seq for one in rig.start(21).positions] == [last + 100] * slots[-1]


def test_new_document_holds_from_the_greatest_seq_of_any_slot(rig: SlotRig) -> None:
    """The records after the last mark count, too. The history is in every progress partition."""
    rig.slots, rig.partitions = 2, 4
    assert rig.start(7).definitions == (Definition(0, DESCRIPTION),)
    for number in range(2):
        slot = rig.open(number)
        rig.feed(slot, 100 + 10 * number)
        slot.discard()
    later = Description("v2", {"hash": "{}"})
    started = rig.start(8, later)
    reached = max(row.number("seq") for row in rig.rows())
    assert reached > 100
    assert started.definitions == (Definition(0, DESCRIPTION), Definition(reached, later))
    assert rig.start(9, later).definitions == started.definitions
    assert rig.open(1, 9).mark.definitions == started.definitions


@pytest.mark.parametrize("is_ours", [True, False])
def test_open_transaction_in_an_output_topic_is_ended_or_named(rig: SlotRig, is_ours: bool) -> None:
    """Our own is aborted by the start of the next owner; another writer's hides our records."""
    rig.start(7)
    slot = rig.open()
    rig.feed(slot, 100)
    slot.write(rig.outgoing(101, 150))
    if is_ours:
        assert rig.open(epoch=7).position.seq == 50
        rig.start(8)
        slot.discard()
    else:
        slot.discard()
        with rig.foreign_transaction(rig.topics[2]):
            rig.limits = replace(rig.limits, stable_timeout_s=1.0)
            refused = _refused(rig)
            assert refused.code == "MR-3013"
            assert "foreign" in refused.context["transactional_id"]
        rig.limits = PATIENT
    with rig.running(9) as (slot,):
        rig.feed(slot, 200)
    rig.assert_exact(200)
