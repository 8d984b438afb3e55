"""Publishers that are killed, frozen or disturbed on a real broker lose and repeat no row."""

import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import millrace.producer.publish.publisher as publishing
from millrace.deploy.servers import KafkaServer
from millrace.errors import Fenced, Retryable
from millrace.faults import registered
from millrace.producer.publish.publisher import BEFORE_COMMIT, MID_PRODUCE, Publisher
from tests.kit.faults.late_requests import Identity, late_end, listening, slow_commit
from tests.kit.forked import Fork, fork
from tests.kit.publisher.process import main
from tests.kit.publisher.rig import PATIENT, Load, Rig
from tests.kit.waiting import answered, eventually, is_stopped

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
# one before and one after the commit; all points are in chaos, and on a model in tests/unit/test_publisher_deaths.py
SOON = {"publisher.before_commit", "publisher.after_commit"}
GIVEN_UP_S = 45.0  # on any machine; the client alone would retry for a minute


@pytest.fixture
def rig(kafka: KafkaServer, request: pytest.FixtureRequest) -> Rig:
    """A topic named after the test."""
    return named_rig(kafka, request)


@pytest.fixture(scope="module")
def own_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A broker that these tests may break; see ``lone_kafka``."""
    server = KafkaServer(tmp_path_factory.mktemp("faults") / "kafka")
    yield server
    server.discard()


@pytest.fixture
def lone_kafka(own_kafka: KafkaServer) -> KafkaServer:
    """The broker, which runs, whatever an earlier test did to it."""
    if own_kafka.is_alive():
        own_kafka.resume()
    else:
        own_kafka.start()
    return own_kafka


@pytest.fixture
def lone_rig(lone_kafka: KafkaServer, request: pytest.FixtureRequest) -> Rig:
    """The same on a broker that no other file uses."""
    return named_rig(lone_kafka, request)


def named_rig(kafka: KafkaServer, request: pytest.FixtureRequest) -> Rig:
    """A topic named after the test."""
    name = re.sub(r"[^a-z0-9_]", "-", request.node.name)[:120]
    return Rig(kafka.bootstrap, f"fault-{name}-{time.time_ns()}")


@dataclass(frozen=True)
class PublisherProcess:
    """A publisher process and its output."""

    process: Fork
    log: Path

    def ended(self) -> str:
        """The last line of its output; empty if it was killed."""
        return self.log.read_text().splitlines()[-1] if self.process.wait(180) == 0 else ""


def spawn(rig: Rig, epoch: int, folder: Path, *, fault: str = "") -> PublisherProcess:
    """A publisher process with an armed fault."""
    log = folder / f"publisher-{epoch}"
    arguments = [rig.bootstrap, rig.topic, str(epoch), str(ROWS)]
    environment = {"MILLRACE_FAULT": fault}
    return PublisherProcess(fork(main, arguments, environment=environment, log=log), log)


@pytest.mark.parametrize(
    "point",
    [pytest.param(point, marks=[] if point in SOON else pytest.mark.chaos) for point in POINTS],
)
@pytest.mark.guarantee("resumed")
def test_next_owner_resumes_exactly_after_a_kill(rig: Rig, point: str, tmp_path: Path) -> None:
    """SIGKILL at each fault point, in the loop at the second pass; then a new owner publishes the rest."""
    # an instance is replaced only after an error: an injected one leads there
    prelude = "publisher.after_begin:raise@2," if "renew" in point else ""
    killed = spawn(rig, 7, tmp_path, fault=f"{prelude}{point}:kill@{1 if point in ONCE else 2}")
    assert killed.process.wait(180) == -signal.SIGKILL, killed.log.read_text()
    with rig.running(9) as publisher:
        seq = publisher.progress.seq
        publisher.publish(rig.stream(publisher).next_batch(ROWS - seq))
    rig.assert_whole(ROWS)


@pytest.mark.guarantee("fenced")
def test_owner_frozen_before_commit_writes_nothing_when_resumed(rig: Rig, tmp_path: Path) -> None:
    """SIGSTOP before the commit, a successor, SIGCONT: the stale owner is fenced, the successor is not disturbed."""
    stale = spawn(rig, 7, tmp_path, fault="publisher.before_commit:stop@2")
    eventually(lambda: is_stopped(stale.process.pid), what="the stale owner is stopped")
    assert stale.log.read_text() == "open 0\n"
    with rig.running(8) as successor:
        assert successor.progress.seq == 7
        stream = rig.stream(successor)
        successor.publish(stream.next_batch(10))
        stale.process.send_signal(signal.SIGCONT)
        assert stale.ended().startswith("Fenced MR-3003")
        successor.publish(stream.next_batch(10))
    rig.assert_whole(27)


@pytest.mark.chaos
@pytest.mark.usefixtures("trusting")
@pytest.mark.guarantee("outages")
def test_killed_broker_is_reported_and_no_row_is_lost(
    lone_rig: Rig, lone_kafka: KafkaServer
) -> None:
    """kill -9 of the broker: Retryable in bounded time. After its restart the tail decides."""
    publisher = with_rows(lone_rig, 30, publish_timeout_s=4.0)
    lone_kafka.kill()
    began = time.monotonic()
    with pytest.raises(Retryable):
        publisher.publish(lone_rig.stream(publisher).next_batch(30))
    assert time.monotonic() - began < GIVEN_UP_S
    lone_kafka.start()
    lone_rig.limits = PATIENT
    again = reopened(lone_rig)
    seq = again.progress.seq
    assert seq in (30, 60)
    again.publish(lone_rig.stream(again).next_batch(100 - seq))
    again.close()
    lone_rig.assert_whole(100)


@pytest.mark.chaos
@pytest.mark.usefixtures("trusting")
@pytest.mark.parametrize(
    ("point", "stop_s", "publish_timeout_s"),
    [
        pytest.param(BEFORE_COMMIT, 5.0, 3.0, id="committing, longer than the limit"),
        pytest.param(BEFORE_COMMIT, 40.0, 20.0, id="committing, 40 s"),
        pytest.param(MID_PRODUCE, 40.0, 20.0, id="sending, 40 s"),
    ],
)
def test_frozen_broker_loses_and_repeats_no_row(
    lone_rig: Rig,
    lone_kafka: KafkaServer,
    at_point: "AtPoint",
    point: str,
    stop_s: float,
    publish_timeout_s: float,
) -> None:
    """SIGSTOP while rows are sent or committed: Retryable in bounded time. The broker executes the requests later."""
    publisher = with_rows(lone_rig, 30, publish_timeout_s=publish_timeout_s)
    is_paused, is_given_up = threading.Event(), threading.Event()

    def wake() -> None:
        """Not before the publisher has failed, unless that takes too long."""
        is_given_up.wait(publish_timeout_s + GIVEN_UP_S)
        lone_kafka.resume()

    waking = threading.Timer(stop_s, wake)

    def pause() -> None:
        lone_kafka.pause()
        is_paused.set()
        waking.start()

    at_point(point, pause)
    while True:
        seq = publisher.progress.seq
        with pytest.raises(Retryable):
            publisher.publish(lone_rig.stream(publisher).next_batch(30))
        if is_paused.is_set():
            break
        publisher = reopened(lone_rig)  # it failed before that point
    is_given_up.set()
    lone_rig.limits = PATIENT
    again = reopened(lone_rig)
    waking.join()
    assert again.progress.seq in (seq, seq + 30)
    again.publish(lone_rig.stream(again).next_batch(seq + 70 - again.progress.seq))
    again.close()
    lone_rig.assert_whole(seq + 70)


@pytest.mark.chaos
def test_broker_restart_loses_and_repeats_no_row(lone_rig: Rig, lone_kafka: KafkaServer) -> None:
    """The broker is down for some seconds while rows are sent."""
    lone_rig.limits = replace(lone_rig.limits, publish_timeout_s=4.0)
    load = Load(lone_rig)
    try:
        load.wait_rows(20)
        lone_kafka.stop()
        lone_kafka.start()
        load.wait_rows(20)
    finally:
        seq = load.finish()
    lone_rig.assert_whole(seq)


def with_rows(rig: Rig, rows: int, *, publish_timeout_s: float) -> Publisher:
    """A publisher after ``rows`` committed rows; it reports a missing broker after ``publish_timeout_s``."""
    before = reopened(rig)  # the coordinator may still be loading
    before.publish(rig.stream(before).next_batch(rows))
    before.close()
    rig.limits = replace(rig.limits, publish_timeout_s=publish_timeout_s)
    return reopened(rig)


def reopened(rig: Rig) -> Publisher:
    """Open until it succeeds, as the supervisor does."""
    return answered(lambda: rig.open(7), Retryable)


def test_slow_commit_replaces_the_producer_instance(
    lone_rig: Rig, lone_kafka: KafkaServer, at_point: "AtPoint"
) -> None:
    """Rule 3: after a commit as slow as a hidden retry, the instance begins no other transaction."""
    publisher = reopened(lone_rig)
    stream = lone_rig.stream(publisher)
    publisher.publish(stream.next_batch(5))

    def pause() -> None:
        lone_kafka.pause()
        threading.Timer(1.2, lone_kafka.resume).start()

    while publisher.commit_s < lone_rig.limits.suspicious_s:  # again if the machine was slow
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
    """Run an action once when the publisher passes a fault point."""
    planned: dict[str, Callable[[], None]] = {}

    def passed(name: str) -> None:
        if name in planned:
            planned.pop(name)()

    monkeypatch.setattr(publishing, "fault_point", passed)
    return planned.__setitem__


@pytest.fixture
def identity(rig: Rig) -> Iterator[Identity]:
    """The newest instance, as librdkafka logs it."""
    with listening(rig) as found:
        yield found


@pytest.mark.usefixtures("trusting")
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_late_transaction_end_loses_and_repeats_no_row(
    rig: Rig, at_point: AtPoint, identity: Identity, commit: bool
) -> None:
    """A late EndTxn ends the next transaction when half of it is sent; the publisher recovers.

    A late abort always leads to an error. A late commit does too, unless the second half arrives before its marker:
    then it commits the whole batch, exactly once.
    """
    publisher = rig.open(7)
    stream = rig.stream(publisher)
    publisher.publish(stream.next_batch(9))
    instance = identity.found
    answers: list[int] = []

    def intrude() -> None:
        rig.instance.flush()  # half of the batch is in the log
        answers.append(late_end(rig, instance, commit=commit))

    at_point(MID_PRODUCE, intrude)
    try:
        publisher.publish(stream.next_batch(20))
        publisher.close()
        committed = 29
    except Retryable:  # readers see half of it
        committed = 19
    assert answers == [0]
    assert commit or publisher.renewed_count == 1
    with rig.running(8) as publisher:
        assert publisher.progress.seq == committed
        publisher.publish(rig.stream(publisher).next_batch(60 - publisher.progress.seq))
    rig.assert_whole(60)


@pytest.mark.usefixtures("trusting")
def test_new_producer_instance_makes_late_requests_fail(
    rig: Rig, at_point: AtPoint, identity: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Why rule 3 is enough: the new instance's epoch makes the same late request fail (47 or 90)."""
    publisher = rig.open(7)
    stream = rig.stream(publisher)
    with monkeypatch.context() as slow:
        slow_commit(slow)
        publisher.publish(stream.next_batch(9))
    former = identity.found
    answers: list[int] = []

    def intrude() -> None:
        rig.instance.flush()
        answers.append(late_end(rig, former, commit=False))

    at_point(MID_PRODUCE, intrude)
    publisher.publish(stream.next_batch(20))
    assert publisher.renewed_count == 1
    publisher.close()
    assert answers[0] in (47, 90)
    rig.assert_whole(29)


def test_timed_out_transaction_gets_no_new_producer_instance(rig: Rig, at_point: AtPoint) -> None:
    """The coordinator aborts the transaction and fences the publisher; the next open verifies the lease first."""
    with rig.running(7) as patient:
        patient.publish(rig.stream(patient).next_batch(9))
    rig.limits = replace(rig.limits, transaction_timeout_ms=1000)
    publisher = opened_in_time(rig)
    stream = rig.stream(publisher)

    def wait_for_abort() -> None:
        rig.instance.flush()
        rig.wait_ended()

    at_point(BEFORE_COMMIT, wait_for_abort)
    with pytest.raises((Fenced, Retryable)):
        publisher.publish(stream.next_batch(20))
    rig.limits = PATIENT
    with rig.running(8) as publisher:
        publisher.publish(rig.stream(publisher).next_batch(20))
    rig.assert_whole(29)


def opened_in_time(rig: Rig) -> Publisher:
    """Open until the fence is committed before its Kafka transaction times out."""
    return answered(lambda: rig.open(7), Fenced, Retryable)
