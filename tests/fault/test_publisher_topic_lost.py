"""A topic deleted, made anew, cut or emptied under a publisher: it stops with its code or goes on whole, never anew."""

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

import producer.publish.publisher as publishing
from deploy.servers import KafkaServer
from millrace.errors import Fatal, MillraceError, Retryable
from producer.publish import open_transactions
from producer.publish.opening import NO_END, TailHint
from producer.publish.publisher import MID_PRODUCE, Publisher
from tests.kit.capture.topic_rows import RowStream
from tests.kit.publisher.rig import ANSWER_S, PATIENT, Rig, topic_named
from tests.kit.waiting import answered, eventually

pytestmark = pytest.mark.usefixtures("trusting")

GIVEN_UP_S = 45.0  # however slow the machine; the client itself would try for a minute


@pytest.fixture
def rig(kafka: KafkaServer, request: pytest.FixtureRequest) -> Rig:
    """A topic named after the test."""
    return Rig(kafka.bootstrap, topic_named("lost", request.node.name))


def published(rig: Rig, rows: int) -> TailHint:
    """A publisher's whole life; what the status remembers of it."""
    with rig.running(7) as publisher:
        publisher.publish(rig.stream(publisher).next_batch(rows))
    return publisher.hint


def assert_refused(rig: Rig, hint: TailHint | None, code: str = "MR-3017") -> None:
    """A start is refused for good, and changes nothing that a reader sees; that there is no topic is found out soon."""
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


def assert_found_out(rig: Rig, publisher: Publisher, hint: TailHint) -> None:
    """What it sent before stands in the middle of nothing; no start goes on there, whatever is remembered."""
    assert publisher._transactions is None
    rig.wait_ended()
    assert rig.verdict().violations
    for remembered in (hint, publisher.hint, None):
        assert_refused(rig, remembered)


def reopened(rig: Rig) -> Publisher:
    """As the supervisor does: open until it succeeds in the time that it has."""
    return answered(lambda: rig.open(7), Retryable)


# ---- deleted ---------------------------------------------------------------------------------------------


def test_topic_deleted_between_runs_is_refused(rig: Rig) -> None:
    """The status remembers that there was one: refused, with nothing created, also when the end isn't known."""
    hint = published(rig, 9)
    rig.delete()
    assert_refused(rig, hint)
    assert_refused(rig, replace(hint, end_offset=NO_END))


def test_recreated_empty_topic_is_refused(rig: Rig) -> None:
    """It ends at 0: neither a hint of another end nor one without an end starts at seq 1."""
    hint = published(rig, 9)
    rig.delete()
    rig.make_anew()
    assert_refused(rig, hint)
    assert_refused(rig, replace(hint, end_offset=NO_END))


@pytest.mark.parametrize("busy", [True, False], ids=["busy", "idle"])
def test_deleting_the_topic_stops_the_publisher_in_bounded_time(rig: Rig, busy: bool) -> None:
    """Whether it sends rows or only says how far it is: Retryable; the next start decides, and refuses."""
    published(rig, 9)
    rig.limits = replace(rig.limits, publish_timeout_s=4.0)
    if not busy:
        rig.limits = replace(rig.limits, resolved_interval_s=0.0)
    publisher = reopened(rig)
    rig.delete()
    batch = rig.stream(publisher).next_batch(9)
    began = time.monotonic()
    with pytest.raises(Retryable):
        publisher.publish(batch) if busy else publisher.idle()
    assert time.monotonic() - began < GIVEN_UP_S
    assert_refused(rig, publisher.hint)


@pytest.mark.parametrize("moment", ["between", "middle"])
def test_recreated_topic_is_detected_by_the_running_publisher(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Kafka takes our records into the new topic without a word. Audit and next start don't."""
    publisher = rig.open(7)
    stream = rig.stream(publisher)
    publisher.publish(stream.next_batch(9))
    publisher.drain()
    publisher._audit._limits = replace(PATIENT, audit_timeout_s=3.0)
    hint = publisher.hint

    def make_anew() -> None:
        rig.delete()
        rig.make_anew()

    def passed(name: str) -> None:
        if name == MID_PRODUCE:
            monkeypatch.setattr(publishing, "fault_point", lambda _: None)
            publisher._live.flush()  # half of the batch stands in the former topic
            make_anew()

    if moment == "between":
        make_anew()
    else:
        monkeypatch.setattr(publishing, "fault_point", passed)

    def go_on() -> None:
        for _ in range(4):
            publisher.publish(stream.next_batch(9))
        publisher.close()

    with pytest.raises(MillraceError):
        go_on()
    assert_found_out(rig, publisher, hint)


# ---- cut from the front ----------------------------------------------------------------------------------


def test_publisher_resumes_while_the_last_mark_remains(rig: Rig) -> None:
    """Cut inside the last Kafka transaction, up to its mark: the tail is found, the next run goes on."""
    published(rig, 9)
    for before_end in (5, 2):
        with rig.running(8) as publisher:
            stood = publisher.progress.seq
            publisher.publish(rig.stream(publisher).next_batch(9))
            end = publisher.hint.end_offset
        assert rig.remove_before(end - before_end) == end - before_end
        with rig.running(8) as publisher:
            assert publisher.progress.seq == stood + 9
    assert rig.verdict().violations == []


@pytest.mark.parametrize("before_end", [1, 0], ids=["its marker is left", "nothing is left"])
def test_topic_without_its_tail_is_resumed_only_by_hint(rig: Rig, before_end: int) -> None:
    """Without the last mark nothing says how far we were, but a hint of the same end."""
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


def test_removing_records_does_not_disturb_a_busy_publisher(rig: Rig) -> None:
    """An operator empties the topic again and again while rows are sent: no error, no gap in what is left."""
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
    assert len(set(cuts)) >= 20  # each took what came since the one before
    assert cuts == sorted(cuts)
    found = rig.verdict()
    assert (found.first_seq or 0) > 1
    assert (found.violations, found.last_seq) == ([], publisher.progress.seq)


def test_paused_task_resumes_by_hint_after_retention_removed_its_tail(rig: Rig) -> None:
    """The broker's own retention, not an operator: the segment with the tail is gone, the hint leads on."""
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


# ---- cut from the end ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Owner:
    """Of a topic: it committed nine rows, and nine more behind ``first_end``."""

    rig: Rig
    publisher: Publisher
    stream: RowStream
    first_end: int
    hint: TailHint


def owner_of(rig: Rig) -> Owner:
    """It has audited what it committed, and goes on."""
    publisher = rig.open(7)
    stream = rig.stream(publisher)
    publisher.publish(stream.next_batch(9))
    first_end = publisher.hint.end_offset
    publisher.publish(stream.next_batch(9))
    publisher.drain()
    return Owner(rig, publisher, stream, first_end, publisher.hint)


def cut(kafka: KafkaServer, topic: str, offset: int) -> None:
    """The log of a broker that is down ends in front of the batch at ``offset``: its disk did not have the rest."""
    log = kafka.folder / "data" / f"{topic}-0" / f"{0:020}.log"
    octets = log.read_bytes()
    at = 0
    while (
        int.from_bytes(octets[at : at + 8], "big") < offset
    ):  # each begins with its offset and the size behind it
        at += 12 + int.from_bytes(octets[at + 8 : at + 12], "big")
    assert 0 <= at < len(octets)
    log.write_bytes(octets[:at])


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Owner]]:
    """Owners at work on a broker that crashed, and came back without an end of their topics: which, is their name."""
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


def test_batch_lost_by_the_broker_is_reported_and_sent_again(
    crashed: dict[str, Owner],
) -> None:
    """The owner stops in front of the hole; the next start sends what is missing, with the seq that it had."""
    owner = crashed["a batch"]
    rig, publisher = owner.rig, owner.publisher
    with pytest.raises(MillraceError) as raised:
        publisher.publish(owner.stream.next_batch(9))
    # the client whose reader has not heard of the leader's new epoch can't be told how far the topic goes
    assert raised.value.code in ("MR-3001", "MR-3018")
    assert publisher._transactions is None
    rig.assert_whole(9)
    again = rig.open(8, hint=owner.hint)
    again.publish(rig.stream(again).next_batch(18))
    again.close()
    rig.assert_whole(27)


def test_topic_emptied_by_a_broker_crash_is_detected(crashed: dict[str, Owner]) -> None:
    """Kafka takes what is sent behind the hole without a word. Audit and next start don't."""
    owner = crashed["everything"]
    publisher = owner.publisher

    def go_on() -> None:
        for _ in range(4):
            publisher.publish(owner.stream.next_batch(9))
        publisher.close()

    with pytest.raises(MillraceError):
        go_on()
    assert_found_out(owner.rig, publisher, owner.hint)


def test_batch_with_lost_commit_marker_is_sent_again(
    crashed: dict[str, Owner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody sees it, and Kafka ends it no more: a start does, and the next one sends what nobody saw."""
    monkeypatch.setattr(open_transactions, "ANSWER_TIMEOUT_S", ANSWER_S)
    owner = crashed["a marker"]
    rig = owner.rig
    rig.limits = replace(PATIENT, stable_timeout_s=1.0)
    with pytest.raises(Retryable, match="has lost the marker") as raised:
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
