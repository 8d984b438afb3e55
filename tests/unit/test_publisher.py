"""The publisher's rules on a model of the topic: its content decides, not the answers to commits."""

import time
from contextlib import suppress

import numpy as np
import pytest

from millrace.errors import Fatal, Fenced, Retryable
from millrace.producer.publish.audit import Audit, Commit
from millrace.producer.publish.opening import NO_END, Basis, TailHint
from millrace.producer.publish.publisher import Publisher
from millrace.schemas.gtid import Flavour, parse_gtid_set
from millrace.schemas.progress import Progress
from tests.kit.faults.starved import no_thread_left
from tests.kit.publisher.model import (
    START,
    Batch,
    Entry,
    KafkaTransaction,
    ModelCodec,
    ModelDriver,
    ModelPartition,
    ModelTopic,
    ModelTransactions,
    Outcome,
    batch_after,
    model_config,
)
from tests.kit.publisher.opened import opened, running


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


@pytest.mark.parametrize("outcome", [Outcome.LOST_BEFORE, Outcome.LOST_AFTER])
def test_unknown_outcome_loses_no_schema_record(outcome: Outcome) -> None:
    """A batch of schema records alone keeps the progress, so the tail cannot prove that they were committed."""
    topic = ModelTopic()
    with running(topic) as publisher:
        schema = b'{"kind": "schema", "of": "accounts"}'
        bounds = np.array([[-1, -1, 0, len(schema)]], np.int64)
        topic.outcomes = [outcome]
        publisher.publish(Batch(np.frombuffer(schema, np.uint8), bounds, publisher.progress))
        publisher.publish(batch_after(publisher.progress, 2))
    values = [record.value for record in topic.committed()]
    assert schema in values
    assert topic.seqs() == [1, 2]


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
        ModelDriver(topic),
        model_config(),
        codec=ModelCodec(7),
        verify_lease=verify,
        basis=Basis(START),
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
        monkeypatch.setattr("millrace.producer.publish.publisher.time.monotonic", lambda: later_s)
        publisher.publish(type(batch)(batch.buffer, batch.bounds, moved))
        assert publisher.progress == moved
        publisher.idle()
    assert len(topic.committed()) == 3


def test_hint_without_an_end_is_never_used() -> None:
    """It only shows that records existed."""
    topic = ModelTopic(exists=True)
    hint = TailHint(Progress(parse_gtid_set(Flavour.MARIADB, "0-1-200"), None, 50), NO_END)
    with pytest.raises(Fatal) as raised:
        opened(topic, hint=hint)
    assert raised.value.code == "MR-3017"
    assert topic.committed() == []


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


@pytest.mark.parametrize("outcome", list(Outcome)[:4])
def test_batches_together_are_published_exactly_once_for_any_commit_outcome(
    outcome: Outcome,
) -> None:
    """Several batches in one Kafka transaction: only the last one is still here, so it is not sent again in part."""
    topic = ModelTopic()
    publisher = opened(topic)
    publisher.publish(batch_after(publisher.progress, 4))
    topic.outcomes = [outcome]
    first = batch_after(publisher.progress, 4)
    second = batch_after(first.progress, 4)
    publisher.add(first)
    publisher.add(second)
    if outcome is Outcome.LOST_BEFORE:
        with pytest.raises(Retryable, match="2 batches"):
            publisher.commit()
        assert topic.seqs() == list(range(1, 5))
        publisher = opened(topic)
        publisher.publish(batch_after(publisher.progress, 8))
    else:
        publisher.commit()
    publisher.publish(batch_after(publisher.progress, 4))
    publisher.close()
    assert topic.seqs() == list(range(1, 17))
    resolved = [record for record in topic.committed() if b'"resolved"' in record.value]
    assert len(resolved) == 3


def test_error_before_the_second_batch_sends_the_first_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The instance is replaced, and the next batches join the new Kafka transaction."""
    topic, begin = ModelTopic(), ModelTransactions.begin
    errors = [Retryable("MR-3002", "the client is out of order")]

    def fail_once(transactions: ModelTransactions) -> None:
        if errors and topic.seqs():
            raise errors.pop()
        begin(transactions)

    with running(topic) as publisher:
        publisher.publish(batch_after(publisher.progress, 3))
        monkeypatch.setattr(ModelTransactions, "begin", fail_once)
        first = batch_after(publisher.progress, 4)
        publisher.add(first)
        publisher.publish(batch_after(first.progress, 4))
        assert (publisher.renewed_count, errors) == (1, [])
    assert topic.seqs() == list(range(1, 12))


def test_failed_audit_of_a_commit_sends_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit returned OK; an error of the audit is no unknown outcome."""
    topic = ModelTopic()
    publisher = opened(topic)

    def refuse(_audit: Audit, _commit: Commit) -> None:
        raise Retryable("MR-3013", "another writer's transaction is open")

    monkeypatch.setattr(Audit, "submit", refuse)
    with pytest.raises(Retryable, match="MR-3013"):
        publisher.publish(batch_after(publisher.progress, 3))
    assert topic.seqs() == [1, 2, 3]
