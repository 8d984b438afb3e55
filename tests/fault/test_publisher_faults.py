"""Publishers killed, stopped and misled on a real broker: the topic stays whole, nothing missing, nothing twice."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import producer.publish.publisher as publishing
from deploy.servers import KafkaServer
from millrace.errors import Fenced, Retryable
from millrace.faults import registered
from producer.publish.publisher import BEFORE_COMMIT, MID_PRODUCE, Publisher
from tests.kit.faults.late_requests import Identity, late_end, listening
from tests.kit.paths import ROOT
from tests.kit.publisher.rig import PATIENT, Load, Rig
from tests.kit.waiting import answered, eventually

ROWS = 60
POINTS = [name for name in registered() if name.startswith("publisher.")]
ONCE = {
    "publisher.after_init",
    "publisher.after_tail_read",
    "publisher.before_fence",
    "publisher.after_fence",
    "publisher.before_renew",
    "publisher.after_renew",
}
GIVEN_UP_S = 45.0  # however slow the machine; the client itself would try for a minute


@pytest.fixture
def rig(kafka: KafkaServer, request: pytest.FixtureRequest) -> Rig:
    """A topic named after the test."""
    return named_rig(kafka, request)


@pytest.fixture
def lone_rig(new_kafka: KafkaServer, request: pytest.FixtureRequest) -> Rig:
    """The same on a broker of the test's own."""
    return named_rig(new_kafka, request)


def named_rig(kafka: KafkaServer, request: pytest.FixtureRequest) -> Rig:
    """By the test's name."""
    name = re.sub(r"[^a-z0-9_]", "-", request.node.name)[:120]
    return Rig(kafka.bootstrap, f"fault-{name}-{time.time_ns()}")


def spawn(rig: Rig, epoch: int, *, fault: str = "") -> subprocess.Popen[str]:
    """A publisher process with a fault armed."""
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.kit.publisher.process",
            rig.bootstrap,
            rig.topic,
            str(epoch),
            str(ROWS),
        ],
        cwd=ROOT,
        env=os.environ | {"MILLRACE_FAULT": fault, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> str:
    """Its last line (empty when it was killed)."""
    out, _ = process.communicate(timeout=180)
    return out.splitlines()[-1] if out and process.returncode == 0 else ""


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.guarantee("resumed")
def test_next_owner_resumes_exactly_after_a_kill(rig: Rig, point: str) -> None:
    """SIGKILL at each registered fault point (of the loop's, at the second passage), then a new owner."""
    # an instance is made anew only after an error: an injected one leads there
    prelude = "publisher.after_begin:raise@2," if "renew" in point else ""
    process = spawn(rig, 7, fault=f"{prelude}{point}:kill@{1 if point in ONCE else 2}")
    said = ended(process)
    assert process.returncode == -signal.SIGKILL, said
    with rig.running(9) as publisher:
        stood = publisher.progress.seq
        publisher.publish(rig.stream(publisher).next_batch(ROWS - stood))
    rig.assert_whole(ROWS)


@pytest.mark.guarantee("fenced")
def test_owner_frozen_before_commit_writes_nothing_when_resumed(rig: Rig) -> None:
    """SIGSTOP before the commit, a successor, SIGCONT: the stale one is fenced; the successor goes on undisturbed."""
    stale = spawn(rig, 7, fault="publisher.before_commit:stop@2")
    assert stale.stdout is not None
    assert stale.stdout.readline() == "open 0\n"
    eventually(lambda: _state_of(stale.pid) == "T", what="the stale owner is stopped")
    with rig.running(8) as successor:
        assert successor.progress.seq == 7
        stream = rig.stream(successor)
        successor.publish(stream.next_batch(10))
        stale.send_signal(signal.SIGCONT)
        assert ended(stale).startswith("Fenced MR-3003")
        successor.publish(stream.next_batch(10))
    rig.assert_whole(27)


def _state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.usefixtures("trusting")
@pytest.mark.guarantee("outages")
def test_killed_broker_is_reported_and_no_row_is_lost(
    lone_rig: Rig, new_kafka: KafkaServer
) -> None:
    """kill -9 of the broker: Retryable in bounded time; after its start the tail decides, nothing lost or doubled."""
    publisher = with_rows(lone_rig, 30, publish_timeout_s=4.0)
    new_kafka.kill()
    began = time.monotonic()
    with pytest.raises(Retryable):
        publisher.publish(lone_rig.stream(publisher).next_batch(30))
    assert time.monotonic() - began < GIVEN_UP_S
    new_kafka.start()
    lone_rig.limits = PATIENT
    again = reopened(lone_rig)
    stood = again.progress.seq
    assert stood in (30, 60)
    again.publish(lone_rig.stream(again).next_batch(100 - stood))
    again.close()
    lone_rig.assert_whole(100)


@pytest.mark.usefixtures("trusting")
@pytest.mark.parametrize(
    ("point", "stop_s", "publish_timeout_s"),
    [
        pytest.param(BEFORE_COMMIT, 5.0, 3.0, id="committing, longer than it may take"),
        pytest.param(BEFORE_COMMIT, 40.0, 20.0, marks=pytest.mark.chaos, id="committing, 40 s"),
        pytest.param(MID_PRODUCE, 40.0, 20.0, marks=pytest.mark.chaos, id="sending, 40 s"),
    ],
)
def test_frozen_broker_loses_and_repeats_no_row(
    lone_rig: Rig,
    new_kafka: KafkaServer,
    at_point: "AtPoint",
    point: str,
    stop_s: float,
    publish_timeout_s: float,
) -> None:
    """SIGSTOP while rows are sent or committed: given up in bounded time; awake, it still does what it was asked."""
    publisher = with_rows(lone_rig, 30, publish_timeout_s=publish_timeout_s)
    is_paused, is_given_up = threading.Event(), threading.Event()

    def wake() -> None:
        """Not before it was given up, unless that takes for ever."""
        is_given_up.wait(publish_timeout_s + GIVEN_UP_S)
        new_kafka.resume()

    waking = threading.Timer(stop_s, wake)

    def pause() -> None:
        new_kafka.pause()
        is_paused.set()
        waking.start()

    at_point(point, pause)
    while True:
        stood = publisher.progress.seq
        with pytest.raises(Retryable):
            publisher.publish(lone_rig.stream(publisher).next_batch(30))
        if is_paused.is_set():
            break
        publisher = reopened(lone_rig)  # given up before it came there
    is_given_up.set()
    lone_rig.limits = PATIENT
    again = reopened(lone_rig)
    waking.join()
    assert again.progress.seq in (stood, stood + 30)
    again.publish(lone_rig.stream(again).next_batch(stood + 70 - again.progress.seq))
    again.close()
    lone_rig.assert_whole(stood + 70)


def test_broker_restart_loses_and_repeats_no_row(lone_rig: Rig, new_kafka: KafkaServer) -> None:
    """The broker is away for some seconds while rows are sent: every row stands once, whoever had to retry."""
    lone_rig.limits = replace(lone_rig.limits, publish_timeout_s=4.0)
    load = Load(lone_rig)
    try:
        load.wait_rows(20)
        new_kafka.stop()
        new_kafka.start()
        load.wait_rows(20)
    finally:
        stood = load.finish()
    lone_rig.assert_whole(stood)


def with_rows(rig: Rig, rows: int, *, publish_timeout_s: float) -> Publisher:
    """Behind so many rows, of a publisher that had time; from here on a broker that is away is found out soon."""
    before = reopened(rig)  # its coordinator may still be loading
    before.publish(rig.stream(before).next_batch(rows))
    before.close()
    rig.limits = replace(rig.limits, publish_timeout_s=publish_timeout_s)
    return reopened(rig)


def reopened(rig: Rig) -> Publisher:
    """As the supervisor does: open until it succeeds."""
    return answered(lambda: rig.open(7), Retryable)


def test_slow_commit_replaces_the_producer_instance(
    lone_rig: Rig, new_kafka: KafkaServer, at_point: "AtPoint"
) -> None:
    """Rule 3: a commit that took as long as a hidden retry needs is not trusted with another transaction."""
    publisher = reopened(lone_rig)
    stream = lone_rig.stream(publisher)
    publisher.publish(stream.next_batch(5))

    def pause() -> None:
        new_kafka.pause()
        threading.Timer(1.2, new_kafka.resume).start()

    while publisher.commit_s < lone_rig.limits.suspicious_s:  # again if we were held up meanwhile
        at_point(BEFORE_COMMIT, pause)
        publisher.publish(stream.next_batch(5))
    renewed_count = publisher.renewed_count
    publisher.publish(stream.next_batch(5))
    assert publisher.renewed_count == renewed_count + 1
    publisher.close()
    lone_rig.assert_whole(publisher.progress.seq)


AtPoint = Callable[[str, Callable[[], None]], None]


@pytest.fixture
def at_point(monkeypatch: pytest.MonkeyPatch) -> AtPoint:
    """Run something once when the publisher passes a fault point."""
    planned: dict[str, Callable[[], None]] = {}

    def passed(name: str) -> None:
        if name in planned:
            planned.pop(name)()

    monkeypatch.setattr(publishing, "fault_point", passed)
    return planned.__setitem__


@pytest.fixture
def identity(rig: Rig) -> Iterator[Identity]:
    """Listens to librdkafka."""
    with listening(rig) as found:
        yield found


@pytest.mark.usefixtures("trusting")
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_late_transaction_end_loses_and_repeats_no_row(
    rig: Rig, at_point: AtPoint, identity: Identity, commit: bool
) -> None:
    """The published attack: a late EndTxn ends the next transaction when half of it is in. It is healed.

    A late abort is always refused visibly. A late commit is, unless the second half arrives before its marker: then
    all of the batch is committed by it, exactly once.
    """
    publisher = rig.open(7)
    stream = rig.stream(publisher)
    publisher.publish(stream.next_batch(9))
    instance = identity.found
    answers: list[int] = []

    def intrude() -> None:
        publisher._live.flush()  # half of the batch stands in the log
        answers.append(late_end(rig, instance, commit=commit))

    at_point(MID_PRODUCE, intrude)
    try:
        publisher.publish(stream.next_batch(20))
        publisher.close()
        stood = {29}
    except Retryable:  # half of it is what readers see
        stood = {19}
    assert answers == [0]
    assert commit or publisher.renewed_count == 1
    with rig.running(8) as publisher:
        assert {publisher.progress.seq} == stood
        publisher.publish(rig.stream(publisher).next_batch(60 - publisher.progress.seq))
    rig.assert_whole(60)


@pytest.mark.usefixtures("trusting")
def test_new_producer_instance_makes_late_requests_fail(
    rig: Rig, at_point: AtPoint, identity: Identity
) -> None:
    """Why rule 3 is enough: the new instance's epoch makes the same late request fail (47 or 90), the batch stands."""
    publisher = rig.open(7)
    stream = rig.stream(publisher)
    publisher.publish(stream.next_batch(9))
    former = identity.found
    publisher._is_suspicious = True
    answers: list[int] = []

    def intrude() -> None:
        publisher._live.flush()
        answers.append(late_end(rig, former, commit=False))

    at_point(MID_PRODUCE, intrude)
    publisher.publish(stream.next_batch(20))
    assert publisher.renewed_count == 1
    publisher.close()
    assert answers[0] in (47, 90)
    rig.assert_whole(29)


def test_timed_out_transaction_gets_no_new_producer_instance(rig: Rig, at_point: AtPoint) -> None:
    """T08: the coordinator aborted it and fenced us; whoever opens again verifies the lease and sends it once."""
    with rig.running(7) as patient:
        patient.publish(rig.stream(patient).next_batch(9))
    rig.limits = replace(rig.limits, transaction_timeout_ms=1000)
    publisher = opened_in_time(rig)
    stream = rig.stream(publisher)

    def is_ended() -> bool:
        ends = publisher._partition.ends()
        return ends.stable == ends.high

    def sleep_through() -> None:
        publisher._live.flush()
        eventually(is_ended, what="abort")

    at_point(BEFORE_COMMIT, sleep_through)
    with pytest.raises((Fenced, Retryable)):
        publisher.publish(stream.next_batch(20))
    rig.limits = PATIENT
    with rig.running(8) as publisher:
        publisher.publish(rig.stream(publisher).next_batch(20))
    rig.assert_whole(29)


def opened_in_time(rig: Rig) -> Publisher:
    """Its fence, too, has to be committed before the Kafka transaction times out: opened until that succeeds."""
    return answered(lambda: rig.open(7), Fenced, Retryable)
