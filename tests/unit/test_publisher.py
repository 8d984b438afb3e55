"""The publisher's rules on a model of the topic: its content decides, not the answers to commits."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest

from millrace.errors import Fatal, Fenced, Retryable
from producer.publish.audit import Audit, Commit
from producer.publish.config import PublisherLimits
from producer.publish.opening import NO_END, TailHint
from producer.publish.publisher import Publisher
from schemas.documents import TopicOptions
from schemas.gtid import Flavour, parse_gtid_set
from schemas.progress import Progress
from tests.kit.faults.starved import no_thread_left
from tests.kit.publisher.model import (
    START,
    Entry,
    KafkaTransaction,
    ModelCodec,
    ModelDriver,
    ModelPartition,
    ModelTopic,
    ModelTransactions,
    Outcome,
    a_topic,
    batch_after,
    model_config,
    publish_and_close,
)

DEADLINE_S = 60.0


def opened(topic: ModelTopic, *, epoch: int = 7, hint: TailHint | None = None) -> Publisher:
    """Return a publisher on the model."""
    return Publisher.open_with(
        ModelDriver(topic),
        model_config(epoch),
        codec=ModelCodec(epoch),
        verify_lease=lambda: None,
        start=START,
        hint=hint,
    )


@contextmanager
def running(topic: ModelTopic, *, epoch: int = 7) -> Iterator[Publisher]:
    """Return a publisher on the model that is closed at the end."""
    publisher = opened(topic, epoch=epoch)
    yield publisher
    publisher.close()


def test_fresh_topic_starts_at_the_task_position_with_a_fence() -> None:
    """Rule 2: schema records and then the fence come first; progress is the given start."""
    topic = ModelTopic()
    with running(topic) as publisher:
        assert publisher.progress == START
    assert [b'"fence"' in record.value for record in topic.committed()] == [False, True]


def test_failed_start_keeps_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each client holds connections and threads, and the task may be retried for days."""
    topic, closed = ModelTopic(), []
    monkeypatch.setattr(ModelPartition, "close", lambda _: closed.append("reader"))
    monkeypatch.setattr(ModelTransactions, "discard", lambda _: closed.append("instance"))
    with no_thread_left(), pytest.raises(RuntimeError, match="new thread"):
        opened(topic)
    assert closed == ["instance", "reader"]

    def away(*_: object) -> ModelTransactions:
        raise Retryable("MR-3001", "no instance can be made")

    closed.clear()
    monkeypatch.setattr(ModelDriver, "transactions", away)
    with pytest.raises(Retryable):
        opened(topic)
    assert closed == ["reader"]


def test_second_start_resumes_after_the_published_records() -> None:
    """The tail is the truth: the task's start position is ignored once the topic has records."""
    topic = ModelTopic()
    with running(topic) as publisher:
        batch = batch_after(publisher.progress, 5)
        publisher.publish(batch)
    with running(topic, epoch=8) as publisher:
        assert publisher.progress == batch.progress


@pytest.mark.parametrize("outcome", list(Outcome)[:4])
def test_batch_is_published_exactly_once_for_any_commit_outcome(outcome: Outcome) -> None:
    """Rule 3: the tail settles an unknown outcome; a batch is never sent again blindly."""
    topic = ModelTopic()
    with running(topic) as publisher:
        publisher.publish(batch_after(publisher.progress, 4))
        topic.outcomes = [outcome]
        publisher.publish(batch_after(publisher.progress, 4))
        publisher.publish(batch_after(publisher.progress, 4))
        assert publisher.renewed_count == (0 if outcome is Outcome.OK else 1)
    assert topic.seqs() == list(range(1, 13))


def test_late_abort_is_repaired_by_a_new_producer() -> None:
    """Half a transaction was aborted late: none of it is in the topic, so all of it is sent again."""
    topic = ModelTopic()
    with running(topic) as publisher:
        topic.outcomes = [Outcome.LATE_ABORT]
        publisher.publish(batch_after(publisher.progress, 6))
        assert publisher.renewed_count == 1
    assert topic.seqs() == list(range(1, 7))


def test_late_commit_of_half_a_batch_resumes_after_it() -> None:
    """Half a transaction was committed late: the next start resumes exactly after the last visible record."""
    topic = ModelTopic()
    publisher = opened(topic)
    topic.outcomes = [Outcome.LATE_COMMIT]
    with pytest.raises(Retryable) as raised:
        publisher.publish(batch_after(publisher.progress, 6))
    assert raised.value.code == "MR-3002"
    with running(topic) as publisher:
        assert publisher.progress.seq == 3
        publisher.publish(batch_after(publisher.progress, 6))
    assert topic.seqs() == list(range(1, 10))


def test_abort_reported_as_commit_stops_the_task() -> None:
    """Rule 4: the audit reads every commit back; the first disagreement is fatal."""
    publisher = opened(topic := ModelTopic())
    topic.outcomes = [Outcome.ABORTED_OK]
    with pytest.raises(Fatal) as raised:
        publish_and_close(publisher, 3)
    assert raised.value.code == "MR-3014"


def test_commit_is_looked_up_once_more_after_a_pause() -> None:
    """A worker that was paused past the deadline wakes up: records that are there are no disagreement."""
    config = model_config()
    config = replace(config, limits=replace(config.limits, audit_timeout_s=-1.0))
    publisher = Publisher.open_with(
        ModelDriver(topic := ModelTopic()),
        config,
        codec=ModelCodec(7),
        verify_lease=lambda: None,
        start=START,
    )
    publish_and_close(publisher, 3)
    assert topic.seqs() == [1, 2, 3]


def test_any_audit_failure_reaches_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unexpected errors count too: the stream would wait forever for a thread that ended silently."""
    publisher = opened(topic := ModelTopic())
    unforeseen = ZeroDivisionError("by an audit")

    def fail(*_: object) -> None:
        raise unforeseen

    monkeypatch.setattr(ModelPartition, "next_record", fail)
    with pytest.raises(ZeroDivisionError):
        publish_and_close(publisher, 3)
    audit = Audit(
        ModelPartition(topic),
        end=0,
        limits=PublisherLimits(),
        find_successor=lambda: None,
        find_hider=lambda _: None,
    )
    with suppress(ZeroDivisionError):
        audit.submit(Commit(len(topic.entries), b"", 1))
    with pytest.raises(ZeroDivisionError):
        audit.drain(DEADLINE_S)
    with pytest.raises(ZeroDivisionError):  # and does not wait for a thread that has ended
        audit.submit(Commit(len(topic.entries), b"", 1))
    audit.stop()


def test_end_offset_not_after_the_marker_stops_the_task() -> None:
    """Rule 4: the stable end must advance by exactly the records and the marker."""
    publisher = opened(topic := ModelTopic())
    topic.outcomes = [Outcome.FOREIGN]
    with pytest.raises(Fatal) as raised:
        publish_and_close(publisher, 3)
    assert raised.value.code == "MR-3015"


def test_repeated_commit_marker_is_accepted() -> None:
    """A new coordinator repeats a marker that was not noted as sent: offsets move, visible records do not."""
    with running(topic := ModelTopic()) as publisher:
        for count in (3, 1, 4):
            topic.outcomes = [Outcome.MARKER_AGAIN]
            publisher.publish(batch_after(publisher.progress, count))
        publisher.drain()
        publisher.publish(batch_after(publisher.progress, 3))
        publisher.drain()
        assert publisher.hint.end_offset == len(topic.entries)
    assert topic.seqs() == list(range(1, 12))


def test_foreign_record_beside_a_repeated_marker_stops_the_task() -> None:
    """Moved offsets do not hide the records of another writer."""
    publisher = opened(topic := ModelTopic())
    topic.outcomes = [Outcome.MARKER_AGAIN]
    publisher.publish(batch_after(publisher.progress, 3))
    publisher.drain()
    topic.entries.append(Entry(b'{"kind": "schema"}', KafkaTransaction("foreign", "committed")))
    with pytest.raises(Fatal) as raised:
        publish_and_close(publisher, 3)
    assert raised.value.code == "MR-3014"


@pytest.mark.parametrize("is_followed", [False, True])
def test_foreign_record_before_a_marker_stops_the_task(
    is_followed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was written after the commit returned and before its marker: the marker is not a repeated one."""
    publisher = opened(topic := ModelTopic())
    topic.outcomes = [Outcome.FOREIGN_INSIDE]
    if is_followed:  # by the next commit, before the end is compared
        followed = threading.Event()
        begin, stable_end = ModelTransactions.begin, ModelPartition.stable_end

        def begin_next(transactions: ModelTransactions) -> None:
            begin(transactions)
            if topic.seqs():
                followed.set()

        def late_end(partition: ModelPartition) -> int:
            followed.wait(DEADLINE_S)
            return stable_end(partition)

        monkeypatch.setattr(ModelTransactions, "begin", begin_next)
        monkeypatch.setattr(ModelPartition, "stable_end", late_end)
        publisher.publish(batch_after(publisher.progress, 3))
    with pytest.raises(Fatal) as raised:
        publish_and_close(publisher, 3)
    assert raised.value.code == ("MR-3014" if is_followed else "MR-3015")


def test_foreign_record_between_commits_stops_the_task() -> None:
    """Rule 4: the next commit's last record is not at its expected offset."""
    publisher = opened(topic := ModelTopic())
    foreign = KafkaTransaction("foreign", "committed")
    publisher.publish(batch_after(publisher.progress, 3))
    publisher.drain()
    topic.entries.append(Entry(b'{"kind": "schema"}', foreign))
    with pytest.raises(Fatal) as raised:
        publish_and_close(publisher, 3)
    assert raised.value.code == "MR-3014"
    with pytest.raises(Fatal):
        publisher.publish(batch_after(publisher.progress, 1))


def test_unreachable_broker_is_reported_without_a_second_attempt() -> None:
    """Retryable MR-3001; the next start reads the outcome of the batch."""
    publisher = opened(topic := ModelTopic())
    topic.outcomes = [Outcome.AWAY]
    with pytest.raises(Retryable) as raised:
        publisher.publish(batch_after(publisher.progress, 3))
    assert raised.value.code == "MR-3001"
    with running(topic) as publisher:
        assert publisher.progress == START


def test_second_unknown_outcome_is_left_to_the_supervisor() -> None:
    """publish does not retry endlessly."""
    publisher = opened(topic := ModelTopic())
    topic.outcomes = [Outcome.LOST_BEFORE, Outcome.LOST_BEFORE]
    with pytest.raises(Retryable):
        publisher.publish(batch_after(publisher.progress, 3))
    with running(topic) as publisher:
        assert publisher.progress == START


def test_stale_owner_writes_nothing_and_stays_fenced() -> None:
    """The successor's producer fences it; a fenced publisher never recovers."""
    topic = ModelTopic()
    stale = opened(topic, epoch=7)
    stale.publish(batch_after(stale.progress, 3))
    with running(topic, epoch=8) as successor:
        with pytest.raises(Fenced):
            stale.publish(batch_after(stale.progress, 3))
        successor.publish(batch_after(successor.progress, 3))
    assert topic.seqs() == list(range(1, 7))


def test_restarted_stale_owner_finds_the_greater_epoch() -> None:
    """Even if its lease check passes by bad luck, the tail names the successor."""
    topic = ModelTopic()
    with running(topic, epoch=8) as successor:
        with pytest.raises(Fenced) as raised:
            opened(topic, epoch=7)
        assert raised.value.code == "MR-3010"
        with pytest.raises(Fenced):  # fenced by the stale one, once …
            successor.publish(batch_after(successor.progress, 3))
    with running(topic, epoch=8) as successor:  # … and not permanently
        successor.publish(batch_after(successor.progress, 3))
    assert topic.seqs() == [1, 2, 3]


def test_producer_is_replaced_only_with_a_verified_lease() -> None:
    """Rule 3 creates a new producer only after the lease is verified."""
    topic = ModelTopic()
    lease = iter([True, False])

    def verify() -> None:
        if not next(lease):
            raise Fenced("MR-4003", "lost")

    publisher = Publisher.open_with(
        ModelDriver(topic), model_config(), codec=ModelCodec(7), verify_lease=verify, start=START
    )
    topic.outcomes = [Outcome.SLOW]
    publisher.publish(batch_after(publisher.progress, 3))
    with pytest.raises(Fenced) as raised:
        publisher.publish(batch_after(publisher.progress, 3))
    assert raised.value.code == "MR-4003"
    assert topic.producer_epochs == {"task": 1}


def test_producer_with_a_slow_fence_sends_no_row() -> None:
    """Rule 3 also covers the first commit: its late duplicate would end the first batch in the middle."""
    topic = ModelTopic(outcomes=[Outcome.SLOW])
    with running(topic) as publisher:
        assert topic.producer_epochs == {"task": 1}
        publisher.publish(batch_after(publisher.progress, 3))
        assert topic.producer_epochs == {"task": 2}


def test_open_transaction_of_another_writer_is_named() -> None:
    """Rule 2: it would hide Millrace's records from readers."""
    topic = ModelTopic(exists=True)
    topic.entries.append(Entry(b"{}", KafkaTransaction("foreign")))
    with pytest.raises(Fatal) as raised:
        opened(topic)
    assert raised.value.code == "MR-3013"


def test_foreign_record_at_the_tail_is_named_with_its_offset() -> None:
    """Unreadable records are never mistaken for progress."""
    topic = ModelTopic(exists=True, entries=[Entry(b"junk", None)])
    with pytest.raises(Fatal) as raised:
        opened(topic)
    assert raised.value.code == "MR-3011"
    assert raised.value.context["offset"] == "0"


def test_tail_before_many_aborted_records_is_found() -> None:
    """The windows double backwards until the last committed mark."""
    topic = ModelTopic()
    with running(topic) as publisher:
        publisher.publish(batch_after(publisher.progress, 3))
    aborted = KafkaTransaction("task", "aborted")
    topic.entries += [Entry(b"{}", aborted) for _ in range(1000)] + [Entry(None, None)]
    with running(topic) as publisher:
        assert publisher.progress.seq == 3


def test_emptied_topic_resumes_only_by_a_hint_of_its_end() -> None:
    """Rule 6: a hint is valid while the partition still ends there; other cases are the operator's."""
    topic = ModelTopic()
    with running(topic) as publisher:
        publisher.publish(batch_after(publisher.progress, 3))
        hint = publisher.hint
    topic.low = len(topic.entries)
    for wrong in (None, TailHint(hint.progress, hint.end_offset - 1)):
        with pytest.raises(Fatal) as raised:
            opened(topic, hint=wrong)
        assert raised.value.code == "MR-3017"
    publisher = opened(topic, hint=hint)
    assert publisher.progress == hint.progress
    publisher.close()


def test_first_start_killed_before_its_fence_starts_over() -> None:
    """Aborted records have offsets, but nothing was ever committed or removed."""
    topic = ModelTopic(exists=True)
    topic.entries = [Entry(b"{}", KafkaTransaction("task", "aborted")), Entry(None, None)]
    with running(topic) as publisher:
        assert publisher.progress == START


def test_recreated_topic_is_not_mistaken_for_a_new_task() -> None:
    """T11: a topic deleted under a task that had published is refused, not started over."""
    hint = TailHint(Progress(parse_gtid_set(Flavour.MARIADB, "0-1-200"), None, 50), 70)
    with pytest.raises(Fatal) as raised:
        opened(ModelTopic(), hint=hint)
    assert raised.value.code == "MR-3017"


@pytest.mark.parametrize(
    "changed",
    [
        {"partition_count": 2},
        {"cleanup_policy": "compact"},
        {"record_bytes_max": 1000},
        {"min_insync_replicas": 4},
    ],
    ids=str,
)
def test_unsuitable_topic_is_refused(changed: dict[str, object]) -> None:
    """Rule 2's checks name the setting."""
    topic = ModelTopic(exists=True, settings=a_topic(**changed))
    with pytest.raises(Fatal) as raised:
        opened(topic)
    assert raised.value.code == "MR-3009"


def _opened_as(topic: ModelTopic, options: TopicOptions) -> Publisher:
    config = replace(model_config(), options=options)
    codec = ModelCodec(7)
    return Publisher.open_with(
        ModelDriver(topic), config, codec=codec, verify_lease=lambda: None, start=START
    )


@pytest.mark.parametrize(
    ("options", "is_named"),
    [
        (TopicOptions(replication_factor=2), "replication_factor is 3"),
        (TopicOptions(min_insync_replicas=1), "min_insync_replicas is 2"),
        (TopicOptions(retention_ms=-1), "retention_ms is 604800000"),
    ],
)
def test_topic_that_differs_from_the_document_is_refused(
    options: TopicOptions, is_named: str
) -> None:
    """It is refused before a record is sent; settings that the document omits are the operator's."""
    with pytest.raises(Fatal, match=is_named) as raised:
        _opened_as(ModelTopic(exists=True), options)
    assert raised.value.code == "MR-3020"
    as_it_is = TopicOptions(replication_factor=3, min_insync_replicas=2, retention_ms=604_800_000)
    _opened_as(ModelTopic(exists=True), as_it_is).close()


def test_topic_that_can_lose_records_is_reported_unless_requested() -> None:
    """One replica, or one that suffices to acknowledge: the task runs and its status reports the risk."""
    weak = a_topic(replication_factor=1, min_insync_replicas=1)
    publisher = _opened_as(ModelTopic(exists=True, settings=weak), TopicOptions())
    assert "MR-3021" in publisher.topic_warning
    assert "one replica" in publisher.topic_warning
    publisher.close()
    asked_for = TopicOptions(replication_factor=1, min_insync_replicas=1)
    for settings, options in ((weak, asked_for), (a_topic(), TopicOptions())):
        publisher = _opened_as(ModelTopic(exists=True, settings=settings), options)
        assert publisher.topic_warning == ""
        publisher.close()


def test_oversized_record_loses_nothing() -> None:
    """The error is Fatal with the sizes; the other records of its batch are not committed and are sent again."""
    topic = ModelTopic()
    publisher = opened(topic)
    with pytest.raises(Fatal) as raised:
        publisher.publish(batch_after(publisher.progress, 3, filler="x" * (2 << 20)))
    assert raised.value.code == "MR-3004"
    assert raised.value.context["limit_bytes"] == str(1 << 20)
    with running(topic) as publisher:
        publisher.publish(batch_after(publisher.progress, 3))
    assert topic.seqs() == [1, 2, 3]


def test_idle_writes_progress_without_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Filtered source transactions advance the resolved GTID set, though no row is sent."""
    topic = ModelTopic()
    with running(topic) as publisher:
        moved = Progress(parse_gtid_set(Flavour.MARIADB, "0-1-150"), None, 0)
        batch = batch_after(publisher.progress, 0)
        later_s = time.monotonic() + 1.0
        monkeypatch.setattr("producer.publish.publisher.time.monotonic", lambda: later_s)
        publisher.publish(type(batch)(batch.buffer, batch.bounds, moved))
        assert publisher.progress == moved
        publisher.idle()
    assert len(topic.committed()) == 3


def test_topic_beginning_inside_a_run_is_not_resumed() -> None:
    """A topic recreated under its owner has records without the start of a run: the earlier ones are lost."""
    topic = ModelTopic()
    publisher = opened(topic)
    publisher.publish(batch_after(publisher.progress, 3))
    publisher.drain()
    topic.entries.clear()
    with pytest.raises(Fatal):
        publish_and_close(publisher, 3)
    with pytest.raises(Fatal) as raised:
        opened(topic)
    assert raised.value.code == "MR-3017"
    topic.low = 1  # the records at its beginning are not kept: nothing is known
    opened(topic).close()


def test_deleted_topic_is_not_recreated() -> None:
    """A task that remembers records in it gets an error before any topic is created."""
    topic = ModelTopic()
    hint = TailHint(Progress(parse_gtid_set(Flavour.MARIADB, "0-1-200"), None, 50), NO_END)
    with pytest.raises(Fatal) as raised:
        opened(topic, hint=hint)
    assert raised.value.code == "MR-3017"
    assert not topic.exists


def test_hint_without_an_end_is_never_used() -> None:
    """It only shows that records existed."""
    topic = ModelTopic(exists=True)
    hint = TailHint(Progress(parse_gtid_set(Flavour.MARIADB, "0-1-200"), None, 50), NO_END)
    with pytest.raises(Fatal) as raised:
        opened(topic, hint=hint)
    assert raised.value.code == "MR-3017"
    assert topic.committed() == []


def test_commits_removed_before_the_audit_are_no_violation() -> None:
    """Retention and operators may be faster than the audit."""
    topic = ModelTopic()
    publisher = opened(topic)
    for _ in range(5):
        publisher.publish(batch_after(publisher.progress, 3))
        topic.low = len(topic.entries)
    publisher.close()


@pytest.mark.parametrize("outcome", [Outcome.LATE_COMMIT, Outcome.LOST_AFTER, Outcome.LOST_BEFORE])
def test_hint_pairs_a_progress_with_its_own_end(outcome: Outcome) -> None:
    """After any failure and retention past the tail, the hint is right or is refused."""
    topic = ModelTopic()
    publisher = opened(topic)
    publisher.publish(batch_after(publisher.progress, 3))
    topic.outcomes = [outcome, Outcome.AWAY]
    with suppress(Retryable):
        publisher.publish(batch_after(publisher.progress, 6))
    topic.outcomes = []
    stood = topic.seqs()[-1]
    hint = publisher.hint
    publisher.discard()
    topic.end_open("task", "aborted")
    topic.low = len(topic.entries)
    with suppress(Fatal):
        successor = opened(topic, epoch=8, hint=hint)
        successor.close()
        assert successor.progress.seq == stood


class _LostMarkers(ModelTopic):
    """A broker that crashed before its disk had a marker: a new producer ends no open transaction."""

    is_lost = True

    def end_open(self, owner: str, state: str) -> None:
        if not self.is_lost:
            super().end_open(owner, state)
        self.is_lost = False


@pytest.mark.parametrize("owner", ["task", "foreign"])
def test_lost_marker_is_replaced_without_broker_details(owner: str) -> None:
    """With TLS and SASL the broker cannot be asked. An abort ends only Millrace's own transaction."""
    topic = _LostMarkers()
    topic.is_lost = False
    opened(topic).close()
    topic.append(KafkaTransaction(owner), [(None, b"left open")])
    stood, topic.is_lost = topic.committed(), True
    with pytest.raises(Retryable if owner == "task" else Fatal) as raised:
        opened(topic, epoch=8)
    assert raised.value.code == ("MR-3001" if owner == "task" else "MR-3013")
    assert topic.committed() == stood
    if owner == "task":
        opened(topic, epoch=8).close()
