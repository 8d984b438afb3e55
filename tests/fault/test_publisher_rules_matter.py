"""Each rule of the publisher is necessary: with it a scenario passes, without it the same scenario shows the harm.

The rules are those of DESIGN.md ("Publisher", 1 to 6) and of the docstrings of ``producer.publisher``. A rule is
switched off at a seam of its own; where a real broker can't be made to do the harm on demand (an answer that lies, a
commit whose answer is lost exactly then) the model of ``tests.unit.publisher_model`` does it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

import confluent_kafka
import pytest

import producer.publisher.publisher as publishing
from deploy.servers import KafkaServer
from millrace.errors import Fatal, Fenced, MillraceError, Retryable
from producer.publisher import failures, kafka, opening, tail
from producer.publisher.audit import Audit
from producer.publisher.config import PublisherLimits
from producer.publisher.driver import TopicRecord
from producer.publisher.failures import BRANCHES
from producer.publisher.kafka import KafkaTransactions
from producer.publisher.marks import Marks, Step, stepped
from producer.publisher.opening import NO_END, Opener, TailHint
from producer.publisher.publisher import MID_PRODUCE, Publisher
from schemas.progress import Progress
from tests.late_requests import late_end, listening
from tests.publisher_rig import Rig, topic_named
from tests.unit.publisher_model import (
    START,
    Entry,
    KafkaTransaction,
    ModelDriver,
    ModelMarks,
    ModelTopic,
    Outcome,
    batch_after,
    model_config,
)

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Rule:
    """``off`` takes the rule away; ``shows`` passes with it and fails without."""

    name: str
    off: Callable[[Patch], None]


# ---- on the real broker ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class BrokerRule(Rule):
    """Shown with a topic of its own."""

    shows: Callable[[Rig, Patch], None]


def _once_at(patch: Patch, point: str, act: Callable[[], None]) -> None:
    """Do something when a publisher passes a fault point for the first time."""
    planned = [act]

    def passed(name: str) -> None:
        if name == point and planned:
            planned.pop()()

    patch.setattr(publishing, "fault_point", passed)


def a_stale_owner_writes_nothing(rig: Rig, _: Patch) -> None:
    """Two owners, neither knows of the other; the older goes on sending."""
    stale = rig.open(7)
    stream = rig.stream(stale)
    stale.publish(stream.next_batch(10))
    successor = rig.open(8)
    with suppress(MillraceError):
        stale.publish(stream.next_batch(10))
    with suppress(MillraceError):
        successor.publish(rig.stream(successor).next_batch(5))
    stale._let_go()
    successor._let_go()
    rig.assert_whole(15)


def an_id_for_every_owner(patch: Patch) -> None:
    """Rule 1 off: no instance fences another."""
    config = Rig.config
    patch.setattr(
        Rig,
        "config",
        lambda rig, epoch: replace(config(rig, epoch), transactional_id=f"{rig.topic}/{epoch}"),
    )


def rows_of_a_dead_owner_are_not_progress(rig: Rig, patch: Patch) -> None:
    """An owner dies with half of a batch in the log, uncommitted."""
    dead = rig.open(7)
    stream = rig.stream(dead)
    dead.publish(stream.next_batch(9))

    def die() -> None:
        dead._live.flush()
        raise Retryable("MR-3001", "dies here")

    _once_at(patch, MID_PRODUCE, die)
    with suppress(Retryable):
        dead.publish(stream.next_batch(20))
    with rig.running(8) as publisher:
        publisher.publish(rig.stream(publisher).next_batch(6))
    rig.assert_whole(15)


def reading_uncommitted(patch: Patch) -> None:
    """Rule 2 off: the tail is what stands in the log, committed or not."""
    patch.setitem(kafka._READER_SETTINGS, "isolation.level", "read_uncommitted")


def nobody_writes_behind_a_newer_fence(rig: Rig, _: Patch) -> None:
    """A stale owner starts again (its lease check passes by bad luck) while its successor has sent nothing yet."""
    rig.open(8)._let_go()
    with suppress(Fenced):
        stale = rig.open(7)
        stale.publish(rig.stream(stale).next_batch(3))
        stale.close()
    assert rig.verdict().counts.rows == 0


def epochs_not_compared(patch: Patch) -> None:
    """Rule 2 off: a greater epoch in the tail stops nobody."""
    patch.setattr(Opener, "_fenced_by", lambda *_: None)


def no_fence(patch: Patch) -> None:
    """Rule 2 off: nothing is written before the first rows."""
    patch.setattr(Opener, "_fence", lambda *given: given[-1])


def no_late_request_ends_what_is_under_way(rig: Rig, patch: Patch) -> None:
    """A commit was slow: its EndTxn may have been sent twice. The duplicate comes when half of the next batch is in."""
    with listening(rig) as identity:
        publisher = rig.open(7)
        stream = rig.stream(publisher)
        with patch.context() as slow:
            commit = KafkaTransactions.commit
            slow.setattr(KafkaTransactions, "commit", lambda self: commit(self) + 1.0)
            publisher.publish(stream.next_batch(9))
        instance = identity.found
        seen: list[int | None] = []

        def intrude() -> None:
            publisher._live.flush()
            late_end(rig, instance, commit=True)
            seen.append(rig.verdict().last_seq)

        _once_at(patch, MID_PRODUCE, intrude)
        with suppress(MillraceError):
            publisher.publish(stream.next_batch(20))
        publisher._let_go()
    assert seen == [9]  # a subscriber sees nothing of a batch before its commit


def slow_commits_trusted(patch: Patch) -> None:
    """Rule 3 off: an instance is kept, however long its commit took."""
    patch.setattr(PublisherLimits, "suspicious_s", float("inf"))


def a_batch_whose_answer_is_lost_stands_once(rig: Rig, patch: Patch) -> None:
    """The commit took effect; its answer never came."""
    commit = KafkaTransactions.commit
    lost = [True]

    def commit_unheard(self: KafkaTransactions) -> float:
        took_s = commit(self)
        if lost:
            lost.pop()
            raise Retryable("MR-3002", "no answer")
        return took_s

    publisher = rig.open(7)
    stream = rig.stream(publisher)
    publisher.publish(stream.next_batch(9))
    patch.setattr(KafkaTransactions, "commit", commit_unheard)
    publisher.publish(stream.next_batch(9))
    publisher.publish(stream.next_batch(9))
    publisher._let_go()
    rig.assert_whole(27)


def sent_again_unasked(patch: Patch) -> None:
    """Rule 3 off: after an error a new instance sends the batch again; the tail is not asked."""

    def renew_blindly(self: Publisher, unknown: Retryable) -> bool:
        self._renew()
        return False

    patch.setattr(Publisher, "_stands_after", renew_blindly)


def a_fenced_owner_leaves_its_successor_alone(rig: Rig, patch: Patch) -> None:
    """What it does after it was fenced must not touch the one who fenced it, who keeps to the rule."""
    stale = rig.open(7)
    stream = rig.stream(stale)
    stale.publish(stream.next_batch(10))
    successor = rig.open(8)
    with suppress(MillraceError):
        stale.publish(stream.next_batch(10))
    patch.setattr(failures, "BRANCHES", BRANCHES)
    try:
        successor.publish(rig.stream(successor).next_batch(5))
        successor.close()
    except Fenced as fenced:
        raise AssertionError("the successor was fenced by the one it had fenced") from fenced
    rig.assert_whole(15)


def fences_answered_with_a_new_instance(patch: Patch) -> None:
    """Rule 3 off: being fenced is an error like any other."""
    spoiled = dict.fromkeys(failures._FENCED.split(), ("MR-3002", Retryable))
    patch.setattr(failures, "BRANCHES", {**failures.BRANCHES, **spoiled})


def a_foreign_record_stops_the_task(rig: Rig, _: Patch) -> None:
    """Somebody else writes between two commits."""
    publisher = rig.open(7)
    stream = rig.stream(publisher)
    publisher.publish(stream.next_batch(3))
    foreign = confluent_kafka.Producer({"bootstrap.servers": rig.bootstrap})
    foreign.produce(rig.topic, b"hello", None, 0)
    assert foreign.flush(10) == 0
    stopped = False
    try:
        publisher.publish(stream.next_batch(3))
        publisher.close()
    except Fatal:
        stopped = True
    assert stopped


def commits_not_read_back(patch: Patch) -> None:
    """Rule 4 off."""
    patch.setattr(Audit, "_read_back", lambda *_: None)


def a_torn_source_transaction_is_gone_on_with_inside(rig: Rig, _: Patch) -> None:
    """A part of a batch was committed that ends within a source transaction of three rows."""
    torn = rig.open(7)
    batch = rig.stream(torn).next_batch(9)
    live = torn._live
    live.begin()
    assert live.add_slices(batch.buffer, batch.bounds[:5]) is None  # a schema record and four rows
    live.flush()
    live.commit()
    torn._let_go()
    with rig.running(8) as publisher:
        publisher.publish(rig.stream(publisher).next_batch(9 - publisher.progress.seq))
    rig.assert_whole(9)


def any_row_finishes_its_gtid(patch: Patch) -> None:
    """Rule 5 off: a GTID is done as soon as one row of it is in."""

    def hasty(progress: Progress, step: Step) -> Progress:
        return stepped(progress, replace(step, last=True))

    patch.setattr(tail, "stepped", hasty)


def what_was_removed_is_not_sent_again(rig: Rig, _: Patch) -> None:
    """The status is older than the topic; then everything is removed. A subscriber has read it all."""
    with rig.running(7) as publisher:
        stream = rig.stream(publisher)
        publisher.publish(stream.next_batch(3))
        old = publisher.hint
        publisher.publish(stream.next_batch(3))
    rig.remove_before()
    for hint in (old, replace(old, end_offset=NO_END), None):
        with suppress(Fatal):
            publisher = rig.open(8, hint=hint)
            publisher.publish(rig.stream(publisher).next_batch(3))
            publisher.close()
    found = rig.verdict()
    assert (found.first_seq or 7) > 6


def hints_believed(patch: Patch) -> None:
    """Rule 6 off: whatever the status says."""
    patch.setattr(
        opening,
        "without_tail",
        lambda _, start, hint: start if hint is None else hint.progress,
    )


def begun_anew(patch: Patch) -> None:
    """Rule 6 off: an empty topic begins at the task's start."""
    patch.setattr(opening, "without_tail", lambda *given: given[1])


def a_deleted_topic_is_not_begun_anew(rig: Rig, _: Patch) -> None:
    """Subscribers have read six rows of it."""
    with rig.running(7) as publisher:
        publisher.publish(rig.stream(publisher).next_batch(6))
    rig.limits = replace(rig.limits, stable_timeout_s=1.0)
    rig.delete()
    with suppress(Fatal):
        publisher = rig.open(8, hint=publisher.hint)
        publisher.publish(rig.stream(publisher).next_batch(3))
        publisher.close()
    assert not rig.exists()


def hints_forgotten(patch: Patch) -> None:
    """Rule 6 off: the status is not asked."""
    opened = Opener.open
    patch.setattr(Opener, "open", lambda self, start, _: opened(self, start, None))


def nobody_goes_on_in_a_topic_made_anew(rig: Rig, patch: Patch) -> None:
    """The topic is made anew when half of a batch is in: that half is in no topic."""
    publisher = rig.open(7)
    stream = rig.stream(publisher)
    publisher.publish(stream.next_batch(9))

    def make_anew() -> None:
        publisher._live.flush()
        rig.delete()
        rig.make_anew()

    _once_at(patch, MID_PRODUCE, make_anew)
    with suppress(MillraceError):
        publisher.publish(stream.next_batch(9))
    publisher._let_go()
    seen = rig.verdict().counts
    with suppress(Fatal):
        rig.open(8, hint=publisher.hint)._let_go()
    assert rig.verdict().counts == seen


def beginnings_not_checked(patch: Patch) -> None:
    """Rule 2 off: a topic is gone on with whatever it begins with."""
    patch.setattr(Opener, "_check_beginning", lambda *_: None)


BROKER_RULES = [
    BrokerRule(
        "1 a transactional id of the task's own",
        an_id_for_every_owner,
        a_stale_owner_writes_nothing,
    ),
    BrokerRule(
        "2 the tail is read with read_committed",
        reading_uncommitted,
        rows_of_a_dead_owner_are_not_progress,
    ),
    BrokerRule(
        "2 a greater epoch stops us", epochs_not_compared, nobody_writes_behind_a_newer_fence
    ),
    BrokerRule("2 a fence is committed first", no_fence, nobody_writes_behind_a_newer_fence),
    BrokerRule(
        "2 a topic begins with a run", beginnings_not_checked, nobody_goes_on_in_a_topic_made_anew
    ),
    BrokerRule(
        "3 a slow commit spoils its instance",
        slow_commits_trusted,
        no_late_request_ends_what_is_under_way,
    ),
    BrokerRule(
        "3 after an error the tail is asked",
        sent_again_unasked,
        a_batch_whose_answer_is_lost_stands_once,
    ),
    BrokerRule(
        "3 a fence is never answered with a new instance",
        fences_answered_with_a_new_instance,
        a_fenced_owner_leaves_its_successor_alone,
    ),
    BrokerRule(
        "4 every commit is read back", commits_not_read_back, a_foreign_record_stops_the_task
    ),
    BrokerRule(
        "5 a GTID is done with its last row",
        any_row_finishes_its_gtid,
        a_torn_source_transaction_is_gone_on_with_inside,
    ),
    BrokerRule(
        "6 a hint is believed only at its end", hints_believed, what_was_removed_is_not_sent_again
    ),
    BrokerRule(
        "6 an emptied topic is not begun anew", begun_anew, what_was_removed_is_not_sent_again
    ),
    BrokerRule(
        "6 a deleted topic is not begun anew", hints_forgotten, a_deleted_topic_is_not_begun_anew
    ),
]


@pytest.fixture
def rig(kafka: KafkaServer, request: pytest.FixtureRequest) -> Rig:
    """A topic named after the test."""
    return Rig(kafka.bootstrap, topic_named("rule", request.node.name))


@pytest.mark.parametrize("rule", BROKER_RULES, ids=lambda rule: rule.name)
def test_a_rule_keeps_the_harm_away(rig: Rig, rule: BrokerRule, monkeypatch: Patch) -> None:
    """With the rule the scenario passes."""
    rule.shows(rig, monkeypatch)


@pytest.mark.parametrize("rule", BROKER_RULES, ids=lambda rule: rule.name)
def test_without_its_rule_the_harm_is_done_and_seen(
    rig: Rig, rule: BrokerRule, monkeypatch: Patch
) -> None:
    """The very same scenario, the rule switched off: a gap, a repeat, a stale or a foreign record."""
    rule.off(monkeypatch)
    with pytest.raises(AssertionError):
        rule.shows(rig, monkeypatch)


# ---- on the model ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModelRule(Rule):
    """Shown on a partition that does what it is told."""

    shows: Callable[[], None]


def opened(
    topic: ModelTopic,
    *,
    epoch: int = 7,
    hint: TailHint | None = None,
    verify_lease: Callable[[], None] = lambda: None,
) -> Publisher:
    """A publisher on the model."""
    return Publisher.open_with(
        ModelDriver(topic),
        model_config(epoch),
        marks=ModelMarks(epoch),
        verify_lease=verify_lease,
        start=START,
        hint=hint,
    )


@contextmanager
def spent(publisher: Publisher) -> Iterator[Publisher]:
    """A publisher whose threads end with the block."""
    yield publisher
    publisher._let_go()


def _is_stopped(act: Callable[[], object]) -> bool:
    try:
        act()
    except Fatal:
        return True
    return False


def another_writers_open_transaction_is_found_before_anything_is_written() -> None:
    """Whatever we would write behind it, nobody would see."""
    topic = ModelTopic()
    opened(topic).close()
    topic.entries.append(Entry(b"{}", KafkaTransaction("foreign")))
    before = len(topic.entries)
    assert _is_stopped(lambda: opened(topic, epoch=8).close())
    assert len(topic.entries) == before


def ends_not_compared(patch: Patch) -> None:
    """Rule 2 off: the stable end is taken as the end."""

    patch.setattr(opening, "settled_ends", lambda partition, _: partition.ends())


def who_lost_the_lease_disturbs_nobody() -> None:
    """A stale owner starts again, and ZooKeeper would have told it."""
    topic = ModelTopic()

    def lost() -> None:
        raise Fenced("MR-4003", "lost")

    with spent(opened(topic, epoch=8)) as successor:
        with suppress(Fenced):
            opened(topic, epoch=7, verify_lease=lost)
        try:
            successor.publish(batch_after(successor.progress, 3))
        except Fenced as fenced:
            raise AssertionError("the successor was fenced") from fenced


def leases_not_verified(patch: Patch) -> None:
    """Rule 2 off: init_transactions comes first."""
    opened_ = Opener.open
    patch.setattr(
        Opener,
        "open",
        lambda self, start, hint: opened_(replace(self, verify_lease=lambda: None), start, hint),
    )


def a_fence_that_does_not_stand_opens_nothing() -> None:
    """The broker says OK and aborts."""
    topic = ModelTopic(outcomes=[Outcome.ABORTED_OK])
    stopped = True
    with suppress(Fatal), spent(opened(topic)):
        stopped = False
    assert stopped


def fences_not_read_back(patch: Patch) -> None:
    """Step 7 of a start off."""
    patch.setattr(Opener, "_read_back", lambda *given: given[-1] + len(given[-2]) + 1)


def no_row_is_lost_or_doubled(outcome: Outcome) -> Callable[[], None]:
    """Whatever a commit answers."""

    def shows() -> None:
        topic = ModelTopic()
        with spent(opened(topic)) as publisher:
            publisher.publish(batch_after(publisher.progress, 4))
            topic.outcomes = [outcome]
            publisher.publish(batch_after(publisher.progress, 4))
            publisher.publish(batch_after(publisher.progress, 4))
        assert topic.seqs() == list(range(1, 13))

    return shows


def errors_taken_for_success(patch: Patch) -> None:
    """Rule 3 off: an error is taken for a lost answer."""

    def believe(self: Publisher, unknown: Retryable) -> bool:
        self._renew()
        self._stand(self._end)
        return True

    patch.setattr(Publisher, "_stands_after", believe)


def a_broker_that_lies_stops_the_task() -> None:
    """A commit answers OK and its records are aborted."""
    topic = ModelTopic()
    with spent(opened(topic)) as publisher:
        topic.outcomes = [Outcome.ABORTED_OK]
        publisher.publish(batch_after(publisher.progress, 3))
        assert _is_stopped(publisher.close)


def a_foreign_record_at_the_end_stops_the_task() -> None:
    """Nothing of ours follows it that could stand in the wrong place."""
    topic = ModelTopic()
    with spent(opened(topic)) as publisher:
        topic.outcomes = [Outcome.FOREIGN]
        publisher.publish(batch_after(publisher.progress, 3))
        assert _is_stopped(publisher.close)


def ends_not_audited(patch: Patch) -> None:
    """Rule 4 off: only the last record is looked at."""
    patch.setattr(Audit, "_compare_end", lambda *_: None)


def records_not_audited(patch: Patch) -> None:
    """Rule 4 off: only the end is looked at."""
    patch.setattr(Audit, "_read_back", lambda self, commit: self._compare_end(commit, float("inf")))


def a_row_over_the_limit_is_not_left_out() -> None:
    """It stops the task; the whole batch comes again."""
    topic = ModelTopic()
    with spent(opened(topic)) as publisher, suppress(Fatal):
        publisher.publish(batch_after(publisher.progress, 2))
        publisher.publish(batch_after(publisher.progress, 2, filler="x" * (2 << 20)))
        publisher.publish(batch_after(publisher.progress, 2))
    assert topic.seqs() == [1, 2]


def refusals_ignored(patch: Patch) -> None:
    """What the client doesn't take is left out."""

    def add(self: Publisher, transactions: object, buffer: object, bounds: object) -> None:
        transactions.add_slices(buffer, bounds)  # type: ignore[attr-defined]

    patch.setattr(Publisher, "_add", add)


def a_foreign_tail_is_not_progress() -> None:
    """What can't be read as ours stops the start."""
    topic = ModelTopic()
    opened(topic).close()
    topic.entries.append(Entry(b"junk", None))
    assert _is_stopped(lambda: opened(topic, epoch=8).close())


def foreign_records_passed_over(patch: Patch) -> None:
    """What can't be read is taken for nothing."""
    meaning = tail._meaning

    def careless(record: TopicRecord, marks: Marks) -> object:
        with suppress(Fatal):
            return meaning(record, marks)
        return None

    patch.setattr(tail, "_meaning", careless)


def a_hint_stood_once() -> None:
    """Half of a batch stands and the publisher gave up; then retention takes everything."""
    topic = ModelTopic()
    with spent(opened(topic)) as publisher:
        publisher.publish(batch_after(publisher.progress, 3))
        topic.outcomes = [Outcome.LATE_COMMIT]
        with suppress(Retryable):
            publisher.publish(batch_after(publisher.progress, 6))
    read = topic.seqs()
    topic.low = len(topic.entries)
    with suppress(Fatal), spent(opened(topic, epoch=8, hint=publisher.hint)) as successor:
        successor.publish(batch_after(successor.progress, 3))
    read += topic.seqs()
    assert read == sorted(set(read))


def hints_of_the_moment(patch: Patch) -> None:
    """Rule 6 off: whatever progress and end are known."""
    patch.setattr(Publisher, "hint", property(lambda self: TailHint(self._progress, self._end)))


MODEL_RULES = [
    ModelRule(
        "2 the stable end is the end",
        ends_not_compared,
        another_writers_open_transaction_is_found_before_anything_is_written,
    ),
    ModelRule("2 the lease comes first", leases_not_verified, who_lost_the_lease_disturbs_nobody),
    ModelRule(
        "2 a foreign tail stops the start",
        foreign_records_passed_over,
        a_foreign_tail_is_not_progress,
    ),
    ModelRule(
        "2 the fence is read back", fences_not_read_back, a_fence_that_does_not_stand_opens_nothing
    ),
    ModelRule(
        "3 an error says nothing (it stood)",
        sent_again_unasked,
        no_row_is_lost_or_doubled(Outcome.LOST_AFTER),
    ),
    ModelRule(
        "3 an error says nothing (it did not)",
        errors_taken_for_success,
        no_row_is_lost_or_doubled(Outcome.LOST_BEFORE),
    ),
    ModelRule(
        "4 the last record is readable", records_not_audited, a_broker_that_lies_stops_the_task
    ),
    ModelRule(
        "4 the end is behind the marker",
        ends_not_audited,
        a_foreign_record_at_the_end_stops_the_task,
    ),
    ModelRule("a row over the limit stops", refusals_ignored, a_row_over_the_limit_is_not_left_out),
    ModelRule("6 a hint stood once", hints_of_the_moment, a_hint_stood_once),
]


@pytest.mark.parametrize("rule", MODEL_RULES, ids=lambda rule: rule.name)
def test_on_the_model_a_rule_keeps_the_harm_away(rule: ModelRule) -> None:
    """With the rule the scenario passes."""
    rule.shows()


@pytest.mark.parametrize("rule", MODEL_RULES, ids=lambda rule: rule.name)
def test_on_the_model_without_its_rule_the_harm_is_done_and_seen(
    rule: ModelRule, monkeypatch: Patch
) -> None:
    """The very same scenario, the rule switched off."""
    rule.off(monkeypatch)
    with pytest.raises(AssertionError):
        rule.shows()
