"""Kills, stops and late requests in the slots of a publish task: every record exactly once."""

import re
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from millrace import faults
from millrace.consumer.publish import slot as slots
from millrace.consumer.publish.outgoing import TOPIC
from millrace.consumer.publish.slot import Slot
from millrace.deploy.servers import KafkaServer
from millrace.drivers.kafka.access import GivenAccess
from millrace.drivers.kafka.names import transactional_id
from millrace.errors import Fenced, MillraceError, Retryable
from tests.kit.faults.campaign import POINTS
from tests.kit.faults.late_requests import Identity, debug_log, end_late
from tests.kit.forked import Fork
from tests.kit.publish.process import launch
from tests.kit.publish.rig import PATIENT, SlotRig, position
from tests.kit.waiting import PATIENCE_S, eventually, is_stopped

OF_SLOTS = [point for point in POINTS if point.startswith("slot.")]
# passed again and again; a later passage is in the stream, not at the start of a topic
IN_STREAM = (
    "before_begin",
    "after_begin",
    "mid_write",
    "before_commit",
    "after_commit",
    "after_verify",
)
STEP = 60


@pytest.fixture
def rig(kafka: KafkaServer, request: pytest.FixtureRequest) -> SlotRig:
    """A task named after the test, with two slots."""
    name = re.sub(r"[^a-z0-9_]", "-", request.node.name)[:80]
    return SlotRig(kafka.bootstrap, f"{name}-{time.time_ns()}", slots=2, partitions=2)


def _kill_at(rig: SlotRig, point: str, number: int, folder: Path) -> None:
    """A run that ends at the point. One that a busy broker ends before is repeated, as a supervisor does."""
    name = point.removeprefix("slot.")
    fault = f"{point}:kill@{4 if name in IN_STREAM else 1}"
    backoff_ms = 1 if point == slots.BEFORE_RENEW else 1000
    log, seq = folder / point, number * STEP

    def is_killed() -> bool:
        process = launch(rig, epoch=number, seq=seq, fault=fault, log=log, backoff_ms=backoff_ms)
        status = process.wait(PATIENCE_S)
        assert status != 0 or log.read_text().startswith("Retryable"), (fault, log.read_text())
        return status == -signal.SIGKILL

    eventually(is_killed, what=f"killed at {point}")


@pytest.mark.guarantee("complete")
@pytest.mark.parametrize(
    "points",
    [
        pytest.param(OF_SLOTS, id="each", marks=pytest.mark.chaos),
        pytest.param((slots.AFTER_MARK, slots.BEFORE_COMMIT, slots.AFTER_COMMIT), id="three"),
    ],
)
def test_slots_killed_at_every_point_repeat_no_record(
    rig: SlotRig, tmp_path: Path, points: Sequence[str]
) -> None:
    """Each run meets new topics. The next one continues from the mark; a partition leaves out what it has."""
    rig.era = STEP
    for number, point in enumerate(points, start=1):
        _kill_at(rig, point, number, tmp_path)
    with rig.running(len(points) + 1) as opened:
        for slot in opened:
            rig.feed(slot, len(points) * STEP)
    rig.assert_exact(len(points) * STEP)


@pytest.mark.parametrize(
    ("point", "backoff_ms", "code"),
    [("slot.mid_write", 1000, "MR-3003"), ("slot.before_renew", 1, "MR-3010")],
    ids=["it writes on", "it fences its successor"],
)
def test_frozen_owner_of_slots_that_wakes_changes_nothing(
    rig: SlotRig, tmp_path: Path, *, point: str, backoff_ms: int, code: str
) -> None:
    """It finds that it is fenced. If it fences its successor first, that one starts again."""
    log = tmp_path / "log"
    fault = f"{point}:stop@5"
    stale = launch(rig, epoch=7, seq=300, fault=fault, log=log, backoff_ms=backoff_ms)
    try:
        eventually(lambda: is_stopped(stale.pid), what="it is frozen")
        is_fenced = _wake_during_a_successor(rig, stale)
    finally:  # a stopped process would keep this one from ending
        stale.kill()
    assert log.read_text() == f"Fenced {code}\n"
    assert is_fenced == (code == "MR-3010")
    with rig.running(9) as opened:
        for slot in opened:
            rig.feed(slot, 250)
    rig.assert_exact(250)


def _wake_during_a_successor(rig: SlotRig, stale: Fork) -> bool:
    """Whether the successor was fenced by it. No commit is so slow that the successor renews its producer."""
    rig.limits = replace(rig.limits, retry_backoff_ms=20_000)
    with rig.running(8) as opened:
        for slot in opened:
            rig.feed(slot, 150)
        stale.send_signal(signal.SIGCONT)
        assert stale.wait(PATIENCE_S) == 0
        is_fenced = False
        try:
            for slot in opened:
                rig.feed(slot, 200)
        except Fenced:
            is_fenced = True
        for slot in opened:
            slot.discard()
    return is_fenced


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("is_visible", [True, False], ids=["visible", "hidden"])
def test_late_request_that_tears_a_transaction_loses_nothing(
    rig: SlotRig, *, commit: bool, is_visible: bool
) -> None:
    """It ends the transaction over several partitions when a part of its records is there.

    If no later record is for a partition of that part, the commit succeeds: after an abort the slot finds out before
    the next transaction. Otherwise the broker refuses the later records.
    """
    rig.slots, rig.partitions = 1, 2
    rig.brokers = GivenAccess(rig.bootstrap, {"debug": "eos"})
    identity = Identity()
    outgoing = rig.outgoing(101, 150)
    is_first = np.arange(len(outgoing.lines)) < 20 if is_visible else outgoing.lines[:, TOPIC] == 0

    def tear(slot: Slot) -> None:
        slot.write(replace(outgoing, lines=outgoing.lines[is_first]))
        slot.flush()
        own_id = transactional_id(rig.order().progress_topic)
        assert end_late(rig.bootstrap, own_id, identity.found, commit=commit) == 0
        slot.write(replace(outgoing, lines=outgoing.lines[~is_first]))
        slot.commit(position(150))
        assert not is_visible
        slot.close()

    with debug_log(identity):
        rig.start(7)
        slot = rig.open()
        rig.feed(slot, 100)
        slot.verify()
        error: MillraceError | None = None
        try:
            tear(slot)
        except Retryable as torn:
            error = torn
    assert (error is None) == (commit and not is_visible)
    assert error is None or error.code == "MR-3002"
    with rig.running(8) as opened:
        rig.feed(opened[0], 200)
    rig.assert_exact(200)


@pytest.mark.chaos
def test_frozen_broker_is_retried_at_every_step_of_a_slot(new_kafka: KafkaServer) -> None:
    """Retryable in bounded time. The broker executes the requests later, and each record is there once."""
    rig = SlotRig(new_kafka.bootstrap, "frozen", partitions=2)
    points = (slots.BEFORE_BEGIN, slots.BEFORE_COMMIT, slots.AFTER_COMMIT)
    for number, point in enumerate(points, start=1):
        rig.limits = PATIENT
        rig.start(number)
        rig.limits = replace(PATIENT, publish_timeout_s=15.0, audit_timeout_s=15.0)
        slot = rig.open(epoch=number)
        rig.feed(slot, slot.position.seq + 60, step=20)
        slot.verify()
        paused: list[str] = []

        def freeze(name: str, point: str = point, paused: list[str] = paused) -> None:
            if name == point and not paused:
                new_kafka.pause()
                paused.append(name)

        begun_s = time.monotonic()
        try:
            with faults.watched(freeze), pytest.raises(Retryable) as raised:
                _feed_and_verify(rig, slot)
        finally:
            new_kafka.resume()
        assert (raised.value.code, paused) == ("MR-3001", [point])
        assert time.monotonic() - begun_s < PATIENCE_S
    rig.limits = PATIENT
    with rig.running(9) as (slot,):
        rig.feed(slot, 300)
    rig.assert_exact(300)


def _feed_and_verify(rig: SlotRig, slot: Slot) -> None:
    rig.feed(slot, slot.position.seq + 20, step=20)
    slot.verify()
