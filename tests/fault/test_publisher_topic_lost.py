"""A topic is deleted, recreated, cut or emptied: the publisher stops with a code or continues after its tail."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

import millrace.producer.publish.publisher as publishing
from millrace.deploy.servers import KafkaServer
from millrace.drivers.kafka import wire
from millrace.errors import Fatal, MillraceError, Retryable
from millrace.producer.publish.opening import NO_END, TailHint
from millrace.producer.publish.publisher import MID_PRODUCE, Publisher
from tests.kit.capture.topic_rows import RowStream
from tests.kit.kafka_topics import ANSWER_S
from tests.kit.publisher.rig import PATIENT, Rig, topic_named
from tests.kit.waiting import answered, eventually

pytestmark = pytest.mark.usefixtures("trusting")

GIVEN_UP_S = 45.0  # on any machine; the client alone would retry for a minute


@pytest.fixture
def rig(kafka: KafkaServer, request: pytest.FixtureRequest) -> Rig:
    """A topic named after the test."""
    return Rig(kafka.bootstrap, topic_named("lost", request.node.name))


def published(rig: Rig, rows: int) -> TailHint:
    """Publish ``rows`` rows and close; returns the hint that the status keeps."""
    with rig.running(7) as publisher:
        publisher.publish(rig.stream(publisher).next_batch(rows))
    return publisher.hint


def assert_refused(rig: Rig, hint: TailHint | None, code: str = "MR-3017") -> None:
    """A start is refused with ``code`` and changes nothing that readers see; a missing topic is reported soon."""
    existed = rig.exists()
    rig.limits = PATIENT if existed else replace(PATIENT, stable_timeout_s=1.0)
    if existed:
        rig.wait_ended()
    seen = rig.verdict().counts if existed else None
    with pytest.raises(Fatal) as raised:
        rig.open(9, hint=hint)
    assert raised.value.code == code
    assert raised.value.fix
    assert rig.exists() == existed
    assert not existed or rig.verdict().counts == seen


def assert_found_out(rig: Rig, publisher: Publisher, stream: RowStream, hint: TailHint) -> None:
    """The publisher is spent, the topic begins in the middle, and every later start is refused, with any hint."""
    assert_spent(publisher, stream)
    rig.wait_ended()
    assert rig.verdict().violations
    for remembered in (hint, publisher.hint, None):
        assert_refused(rig, remembered)


def assert_spent(publisher: Publisher, stream: RowStream) -> None:
    """After an error it publishes no more."""
    with pytest.raises(MillraceError):
        publisher.publish(stream.next_batch(1))


def reopened(rig: Rig) -> Publisher:
    """Open until it succeeds, as the supervisor does."""
    return answered(lambda: rig.open(7), Retryable)


# ---- deleted ---------------------------------------------------------------------------------------------


def test_topic_deleted_between_runs_is_refused(rig: Rig) -> None:
    """The status remembers a topic: the start is refused and creates nothing, even if the end is unknown."""
    hint = published(rig, 9)
    rig.delete()
    assert_refused(rig, hint)
    assert_refused(rig, replace(hint, end_offset=NO_END))


def test_recreated_empty_topic_is_refused(rig: Rig) -> None:
    """It ends at 0: neither a hint with another end nor one without an end starts at seq 1."""
    hint = published(rig, 9)
    rig.delete()
    rig.recreate()
    assert_refused(rig, hint)
    assert_refused(rig, replace(hint, end_offset=NO_END))


@pytest.mark.parametrize("sent", ["rows", "resolved", "nothing"])
def test_deleting_the_topic_stops_the_publisher_in_bounded_time(rig: Rig, sent: str) -> None:
    """Retryable for rows, for a resolved record and for a look at the end; the next start decides, and refuses."""
    published(rig, 9)
    limits = replace(rig.limits, publish_timeout_s=4.0)
    if sent == "resolved":
        limits = replace(limits, resolved_interval_s=0.0)
    elif sent == "nothing":
        limits = replace(limits, resolved_interval_s=1000.0, look_interval_s=0.0)
    rig.limits = limits
    publisher = reopened(rig)
    rig.delete()
    batch = rig.stream(publisher).next_batch(9)
    began = time.monotonic()
    with pytest.raises(Retryable):
        publisher.publish(batch) if sent == "rows" else publisher.idle()
    assert time.monotonic() - began < GIVEN_UP_S
    assert_refused(rig, publisher.hint)


@pytest.mark.parametrize("moment", ["between", "middle"])
def test_recreated_topic_is_detected_by_the_running_publisher(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Kafka accepts the records into the new topic without an error; the audit and the next start refuse."""
    published(rig, 9)
    rig.limits = replace(PATIENT, audit_timeout_s=3.0)
    publisher = rig.open(7)
    stream = rig.stream(publisher)
    hint = publisher.hint

    def recreate() -> None:
        rig.delete()
        rig.recreate()

    def passed(name: str) -> None:
        if name == MID_PRODUCE:
            monkeypatch.setattr(publishing, "fault_point", lambda _: None)
            rig.instance.flush()  # half of the batch is in the former topic
            recreate()

    if moment == "between":
        recreate()
    else:
        monkeypatch.setattr(publishing, "fault_point", passed)

    def publish_more() -> None:
        for _ in range(4):
            publisher.publish(stream.next_batch(9))
        publisher.close()

    with pytest.raises(MillraceError):
        publish_more()
    assert_found_out(rig, publisher, stream, hint)


# ---- records removed from the front ----------------------------------------------------------------------------------


def test_publisher_resumes_while_the_last_mark_remains(rig: Rig) -> None:
    """Records are removed up to the mark of the last Kafka transaction: the next run finds the tail."""
    published(rig, 9)
    for before_end in (5, 2):
        with rig.running(8) as publisher:
            seq = publisher.progress.seq
            publisher.publish(rig.stream(publisher).next_batch(9))
            end = publisher.hint.end_offset
        assert rig.remove_before(end - before_end) == end - before_end
        with rig.running(8) as publisher:
            assert publisher.progress.seq == seq + 9
    assert rig.verdict().violations == []


@pytest.mark.parametrize("before_end", [1, 0], ids=["its marker is left", "nothing is left"])
def test_topic_without_its_tail_is_resumed_only_by_hint(rig: Rig, before_end: int) -> None:
    """Without the last mark, only a hint with the same end gives the progress."""
    hint = published(rig, 9)
    rig.remove_before(hint.end_offset - before_end)
    assert_refused(rig, None)
    assert_refused(rig, replace(hint, end_offset=hint.end_offset - 2))
    assert_refused(rig, replace(hint, end_offset=NO_END))
    publisher = rig.open(9, hint=hint)
    assert publisher.progress == hint.progress
    publisher.publish(rig.stream(publisher).next_batch(9))
    publisher.close()
    found = rig.verdict()
    assert (found.violations, found.first_seq, found.last_seq) == ([], 10, 18)


@pytest.mark.chaos
def test_removing_records_does_not_disturb_a_busy_publisher(rig: Rig) -> None:
    """An operator empties the topic repeatedly while rows are sent: no error, and no gap in the remaining rows."""
    publisher = rig.open(7)
    stream = rig.stream(publisher)
    stop = threading.Event()
    cuts: list[int] = []

    def cut() -> None:
        while not stop.is_set():
            cuts.append(rig.remove_before())

    cutting = threading.Thread(target=cut)
    cutting.start()
    try:

        def is_cut_often() -> bool:
            publisher.publish(stream.next_batch(20))
            return len(set(cuts)) >= 20

        eventually(is_cut_often, what="records are removed twenty times")
    finally:
        stop.set()
        cutting.join()
    publisher.publish(stream.next_batch(20))
    publisher.close()
    assert len(set(cuts)) >= 20  # each removed the records since the previous one
    assert cuts == sorted(cuts)
    found = rig.verdict()
    assert (found.first_seq or 0) > 1
    assert (found.violations, found.last_seq) == ([], publisher.progress.seq)


def test_paused_task_resumes_by_hint_after_retention_removed_its_tail(rig: Rig) -> None:
    """The broker's retention removes the segment with the tail; the hint still matches the end."""
    hint = published(rig, 9)
    _set_retention(rig, 1)
    eventually(lambda: rig.ends().low == hint.end_offset, what="retention")
    _set_retention(rig, 3_600_000)
    assert_refused(rig, None)
    publisher = rig.open(9, hint=hint)
    publisher.publish(rig.stream(publisher).next_batch(9))
    publisher.close()
    found = rig.verdict()
    assert (found.violations, found.first_seq, found.last_seq) == ([], 10, 18)


def _set_retention(rig: Rig, retention_ms: int) -> None:
    entry = ConfigEntry(
        "retention.ms", str(retention_ms), incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ConfigResource.Type.TOPIC, rig.topic, incremental_configs=[entry])
    rig.admin.incremental_alter_configs([resource])[resource].result(ANSWER_S)


# `make test` has these without a broker: tests/unit/test_publisher_deaths.py, test_publisher.py (a lost marker)
# ---- records lost at the end ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Owner:
    """A topic's owner: it committed nine rows up to ``first_end``, and nine more."""

    rig: Rig
    publisher: Publisher
    stream: RowStream
    first_end: int
    hint: TailHint


def owner_of(rig: Rig) -> Owner:
    """An owner with two audited commits."""
    publisher = rig.open(7)
    stream = rig.stream(publisher)
    publisher.publish(stream.next_batch(9))
    first_end = publisher.hint.end_offset
    publisher.publish(stream.next_batch(9))
    publisher.drain()
    return Owner(rig, publisher, stream, first_end, publisher.hint)


def cut(kafka: KafkaServer, topic: str, offset: int) -> None:
    """Cut the log of a stopped broker before the batch at ``offset``: the rest was not on its disk."""
    log = kafka.folder / "data" / f"{topic}-0" / f"{0:020}.log"
    octets = log.read_bytes()
    at = 0
    # a batch begins with its offset (8 bytes) and the size of the rest (4 bytes)
    while int.from_bytes(octets[at : at + 8], "big") < offset:
        at += 12 + int.from_bytes(octets[at + 8 : at + 12], "big")
    assert 0 <= at < len(octets)
    log.write_bytes(octets[:at])


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Owner]]:
    """Owners on a broker that crashed and lost the end of their topics; the key names the loss."""
    kafka = KafkaServer(tmp_path_factory.mktemp("crashed") / "kafka")
    with ExitStack() as ended:
        ended.callback(kafka.discard)
        kafka.start()
        owners: dict[str, Owner] = {}
        for lost in ("a batch", "everything", "a marker"):
            rig = Rig(kafka.bootstrap, topic_named("crashed", lost.replace(" ", "-")))
            owners[lost] = owner_of(rig)
            ended.callback(owners[lost].publisher.discard)
        kafka.kill()
        cut(kafka, owners["a batch"].rig.topic, owners["a batch"].first_end)
        cut(kafka, owners["everything"].rig.topic, 0)
        cut(kafka, owners["a marker"].rig.topic, owners["a marker"].hint.end_offset - 1)
        kafka.start()
        yield owners


@pytest.mark.chaos
def test_batch_lost_by_the_broker_is_reported_and_sent_again(
    crashed: dict[str, Owner],
) -> None:
    """The owner stops before the gap; the next start sends the missing rows with their original seq."""
    owner = crashed["a batch"]
    rig, publisher = owner.rig, owner.publisher
    with pytest.raises(MillraceError) as raised:
        publisher.publish(owner.stream.next_batch(9))
    # a client whose reader does not know the leader's new epoch can't read the end of the topic
    assert raised.value.code in ("MR-3001", "MR-3018")
    assert_spent(publisher, owner.stream)
    rig.assert_whole(9)
    again = rig.open(8, hint=owner.hint)
    again.publish(rig.stream(again).next_batch(18))
    again.close()
    rig.assert_whole(27)


@pytest.mark.chaos
def test_topic_emptied_by_a_broker_crash_is_detected(crashed: dict[str, Owner]) -> None:
    """Kafka accepts records after the gap without an error; the audit and the next start refuse."""
    owner = crashed["everything"]
    publisher = owner.publisher

    def publish_more() -> None:
        for _ in range(4):
            publisher.publish(owner.stream.next_batch(9))
        publisher.close()

    with pytest.raises(MillraceError):
        publish_more()
    assert_found_out(owner.rig, publisher, owner.stream, owner.hint)


@pytest.mark.chaos
def test_batch_with_lost_commit_marker_is_sent_again(
    crashed: dict[str, Owner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka never ends the transaction: one start ends it, the next one sends the invisible rows again."""
    monkeypatch.setattr(wire, "ANSWER_TIMEOUT_S", ANSWER_S)
    owner = crashed["a marker"]
    rig = owner.rig
    rig.limits = replace(PATIENT, stable_timeout_s=1.0)
    with pytest.raises(Retryable, match="lost the end marker") as raised:
        rig.open(8, hint=owner.hint)
    assert raised.value.code == "MR-3001"
    rig.wait_ended()
    found = rig.verdict()
    assert (found.violations, found.last_seq) == ([], 9)
    rig.limits = PATIENT
    again = rig.open(8, hint=owner.hint)
    again.publish(rig.stream(again).next_batch(18))
    again.close()
    rig.assert_whole(27)
