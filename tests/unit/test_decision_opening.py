"""A start executes an operator's decision exactly once, on a model of the topic and with real records."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from millrace import faults
from millrace.client import DdlRecord, Place, RecordStream
from millrace.consumer.topic.verify import Summary, TopicVerifier
from millrace.errors import Fatal, Retryable
from millrace.producer.publish.codec import RecordCodec
from millrace.producer.publish.opening import NO_END, Basis, TailHint
from millrace.producer.publish.publisher import Publisher
from millrace.schemas.gtid import Flavour, parse_gtid_set
from millrace.schemas.progress import Progress
from millrace.schemas.record.gap import Gap, gap_of
from millrace.schemas.requests.decision import Approval, Decision, DecisionKind
from tests.kit.capture.topic_rows import UUID, Ids, RowStream, start_of
from tests.kit.publisher.model import ModelDriver, ModelTopic, Outcome, model_config

FLAVOURS = [Flavour.MYSQL, Flavour.MARIADB]
IDS = Ids()


def opened(
    topic: ModelTopic,
    *,
    epoch: int = 7,
    decision: Decision | None = None,
    hint: TailHint | None = None,
    flavour: Flavour = Flavour.MYSQL,
) -> Publisher:
    """A publisher on the model, with real records."""
    config = replace(model_config(epoch), flavour=flavour)
    return Publisher.open_with(
        ModelDriver(topic),
        config,
        codec=RecordCodec.register(config, IDS),
        verify_lease=lambda: None,
        basis=Basis(start_of(flavour), hint, decision),
    )


def publish(publisher: Publisher, rows: int) -> Progress:
    """Publish rows of source transactions of three; returns the progress."""
    publisher.publish(RowStream("shop", IDS, publisher.progress).next_batch(rows))
    return publisher.progress


def filled(rows: int, *, flavour: Flavour = Flavour.MYSQL) -> tuple[ModelTopic, Progress]:
    """A topic with rows, and its progress."""
    topic = ModelTopic()
    with closing(opened(topic, flavour=flavour)) as publisher:
        return topic, publish(publisher, rows)


def decided(
    before: Progress, after: str, kind: DecisionKind = DecisionKind.RESET_POSITION
) -> Decision:
    """A decision on ``before``."""
    return Decision(
        id="d1",
        kind=kind,
        task="shop",
        before=before,
        after=parse_gtid_set(before.gtid_set.flavour, after),
        approval=Approval("ann@db-ops", "purged", 1_790_000_000_000),
    )


def later(flavour: Flavour) -> str:
    """Ten source transactions after the rows of ``filled``."""
    return f"{UUID}:1-1020" if flavour is Flavour.MYSQL else "0-1-1020"


def verdict(topic: ModelTopic) -> Summary:
    """The findings of `millrace topic verify`."""
    verifier = TopicVerifier(from_beginning=topic.low == 0)
    for record in topic.committed():
        verifier.feed(record.offset, record.key, record.value)
    return verifier.finish()


def gaps(topic: ModelTopic) -> list[Gap]:
    """The gaps that a subscriber gets; it raises if any rule of the topic is broken."""
    stream = RecordStream(Place(topic.low), from_beginning=topic.low == 0)
    found = [stream.take(record.offset, record.key, record.value) for record in topic.committed()]
    named = [gap_of(record) for record in found if isinstance(record, DdlRecord)]
    return [gap for gap in named if gap is not None]


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    """No fault stays armed."""
    yield
    faults.arm("")


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_topic_with_a_decided_gap_is_whole_and_names_it(flavour: Flavour) -> None:
    """`seq` continues, rows after the gap follow, and subscribers get one gap record."""
    topic, before = filled(6, flavour=flavour)
    decision = decided(before, later(flavour))
    with closing(opened(topic, epoch=8, decision=decision, flavour=flavour)) as publisher:
        assert publisher.progress == decision.result
        assert publish(publisher, 6).seq == 13
    found = verdict(topic)
    assert (found.violations, found.counts.rows, found.last_seq) == ([], 12, 13)
    assert [(named.seq, named.gap.missing) for named in found.gaps] == [(7, decision.missing)]
    assert [gap.decision for gap in gaps(topic)] == ["d1"]


@pytest.mark.parametrize(
    "point",
    [
        "publisher.after_init",
        "publisher.after_tail_read",
        "decision.before_commit",
        "publisher.before_fence",
        "publisher.after_fence",
        "decision.after_commit",
    ],
)
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_start_that_fails_at_any_point_leaves_one_gap_record(flavour: Flavour, point: str) -> None:
    """The next start executes the decision, or finds that it is executed."""
    topic, before = filled(6, flavour=flavour)
    decision = decided(before, later(flavour))
    faults.arm(f"{point}:raise")
    with pytest.raises(Retryable, match="MR-9002"):
        opened(topic, epoch=8, decision=decision, flavour=flavour)
    for epoch in (9, 10):
        with closing(opened(topic, epoch=epoch, decision=decision, flavour=flavour)) as publisher:
            assert publisher.progress == decision.result
    assert verdict(topic).violations == []
    assert len(gaps(topic)) == 1


@pytest.mark.parametrize("outcome", [Outcome.LOST_BEFORE, Outcome.LOST_AFTER, Outcome.AWAY])
def test_unknown_commit_of_a_decision_leaves_one_gap_record(outcome: Outcome) -> None:
    """The answer is lost with or without effect: the next start reads the topic."""
    topic, before = filled(6)
    decision = decided(before, later(Flavour.MYSQL))
    topic.outcomes = [outcome]
    with pytest.raises(Retryable):
        opened(topic, epoch=8, decision=decision)
    with closing(opened(topic, epoch=9, decision=decision)) as publisher:
        publish(publisher, 3)
    assert verdict(topic).violations == []
    assert len(gaps(topic)) == 1


def test_stale_decision_writes_nothing() -> None:
    """MR-3022: another owner has published one row since, or has executed another decision."""
    topic, before = filled(6)
    decision = decided(before, later(Flavour.MYSQL))
    with closing(opened(topic, epoch=8)) as publisher:
        publish(publisher, 1)
    assert_refused(topic, decision)
    topic, before = filled(6)
    other = replace(decided(before, later(Flavour.MYSQL)), id="d2")
    opened(topic, epoch=8, decision=other).close()
    assert_refused(topic, decision)
    assert [gap.decision for gap in gaps(topic)] == ["d2"]


def assert_refused(topic: ModelTopic, decision: Decision) -> None:
    """A start with the decision is refused, and readers see no new record."""
    known = topic.committed()
    with pytest.raises(Fatal, match="MR-3022"):
        opened(topic, epoch=9, decision=decision)
    assert topic.committed() == known
    with closing(opened(topic, epoch=9)) as publisher:  # without it the task continues
        assert publisher.progress.seq >= 7


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_skipping_the_open_transaction_ends_it(flavour: Flavour) -> None:
    """Two of its three rows are published; the next source transaction follows the gap."""
    topic, before = filled(5, flavour=flavour)
    assert before.open is not None
    assert before.open.rows == 2
    after = f"{UUID}:1-1002" if flavour is Flavour.MYSQL else "0-1-1002"
    decision = decided(before, after, DecisionKind.SKIP_GTID)
    with closing(opened(topic, epoch=8, decision=decision, flavour=flavour)) as publisher:
        publish(publisher, 3)
    found = verdict(topic)
    assert (found.violations, found.last_seq, found.counts.transactions) == ([], 9, 3)
    assert [gap.kind for gap in gaps(topic)] == ["skip-gtid"]


@pytest.mark.parametrize("loss", ["deleted", "recreated", "emptied"])
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_topic_without_records_is_adopted_with_the_next_seq(loss: str, flavour: Flavour) -> None:
    """Without the decision MR-3017; with it `seq` continues after the status, whatever the end is."""
    topic, before = filled(6, flavour=flavour)
    hint = TailHint(before, NO_END)
    if loss == "emptied":
        topic.entries.append(topic.entries[-1])
        topic.low = len(topic.entries)
    else:
        topic = ModelTopic(exists=loss == "recreated")
    with pytest.raises(Fatal, match="MR-3017"):
        opened(topic, epoch=8, hint=hint, flavour=flavour)
    decision = decided(before, str(before.gtid_set), DecisionKind.ADOPT_TOPIC)
    for epoch in (9, 10):
        arguments = {"epoch": epoch, "decision": decision, "hint": hint, "flavour": flavour}
        opened(topic, **arguments).close()  # type: ignore[arg-type]
    with closing(opened(topic, epoch=11, hint=hint, flavour=flavour)) as publisher:
        assert publisher.progress == decision.result
        publish(publisher, 3)
    found = verdict(topic)
    assert (found.violations, found.first_seq, found.last_seq) == ([], 7, 10)
    assert [(gap.kind, gap.missing) for gap in gaps(topic)] == [("adopt-topic", "")]
    subscriber = RecordStream(Place(topic.low, before.seq), from_beginning=topic.low == 0)
    for record in topic.committed():  # one that had read everything finds nothing missing
        subscriber.take(record.offset, record.key, record.value)


def test_topic_is_not_adopted_after_the_status_moved() -> None:
    """The operator decided on an older status: MR-3017 as without a decision, and no topic is created."""
    before = Progress(start_of(Flavour.MYSQL).gtid_set, None, 6)
    decision = decided(before, str(before.gtid_set), DecisionKind.ADOPT_TOPIC)
    topic = ModelTopic()
    hint = TailHint(replace(before, seq=7), 100)
    with pytest.raises(Fatal, match="MR-3017"):
        opened(topic, decision=decision, hint=hint)
    assert not topic.exists


def test_slow_commit_of_a_decision_replaces_the_instance() -> None:
    """Rule 3 holds for the first Kafka transaction with a gap record, too."""
    topic, before = filled(6)
    topic.outcomes = [Outcome.SLOW]
    with closing(opened(topic, epoch=8, decision=decided(before, later(Flavour.MYSQL)))) as opened_:
        publish(opened_, 3)
        assert opened_.renewed_count == 1
    assert verdict(topic).violations == []


def test_gap_of_another_progress_is_not_taken_for_this_decision() -> None:
    """The result is reached by rows: one row of one source transaction, and the same GTID set."""
    topic = ModelTopic()
    with closing(opened(topic)) as publisher:
        before = publisher.progress
        publisher.publish(RowStream("shop", IDS, before, transaction_rows=1).next_batch(1))
        reached = publisher.progress
    decision = decided(before, str(reached.gtid_set), DecisionKind.SKIP_GTID)
    assert decision.result == reached
    with pytest.raises(Fatal, match="MR-3022"):
        opened(topic, epoch=8, decision=decision)
    assert gaps(topic) == []
