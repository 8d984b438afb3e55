"""Each rule of the publisher is necessary: with it a scenario passes, without it the same scenario shows the harm.

The rules are those of ``producer.publisher``. A rule is switched off at a seam of its own, and must then do the harm
that it names: a scenario that breaks in another way is red. Where a real broker can't be made to do the harm on demand
(an answer that lies, a lease lost between two steps, a hint of the wrong moment) the model does it:
``tests/unit/test_publisher_rules_matter.py``.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import confluent_kafka
import pytest

from deploy.servers import KafkaServer
from millrace.errors import Fatal, Fenced, MillraceError, Retryable
from producer.publisher import failures, kafka, opening, tail
from producer.publisher.audit import Audit
from producer.publisher.config import PublisherLimits
from producer.publisher.driver import Bounds, Octets, TopicSettings, Transactions
from producer.publisher.failures import BRANCHES
from producer.publisher.kafka import KafkaTopicAdmin
from producer.publisher.marks import Step, stepped
from producer.publisher.opening import NO_END, Opener
from producer.publisher.publisher import MID_PRODUCE, Publisher
from schemas.progress import Progress
from tests.late_requests import (
    a_commit_is_not_heard_of,
    a_commit_is_slow,
    no_late_request_ends_what_is_under_way,
)
from tests.publisher_rig import ANSWER_S, GIVE_UP_S, Rig, once_at, topic_named
from tests.topic_rows import RowStream
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("trusting")

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Rule:
    """``off`` takes the rule away; ``shows`` passes with it and fails without, by ``harm``, on a topic of its own."""

    name: str
    off: Callable[[Patch], None]
    shows: Callable[[Rig, Patch], None]
    harm: str  # a pattern of what the assertion says
    is_chaos: bool = False


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


def a_foreign_record_in_another_partition_stops_the_task(rig: Rig, _: Patch) -> None:
    """Somebody else's partitioner chooses it; subscribers read what they find in the topic."""
    rig.make_anew(partition_count=2)
    foreign = confluent_kafka.Producer({"bootstrap.servers": rig.bootstrap})
    foreign.produce(rig.topic, b"hello", None, 1)
    assert foreign.flush(ANSWER_S) == 0
    is_told = True
    with suppress(Fatal):
        publisher = rig.open(7)
        is_told = _is_stopped(publisher, rig.stream(publisher))
    assert is_told, "nobody was told of a foreign record"


def any_partition_count_will_do(patch: Patch) -> None:
    """Rule 1 off: we write to the first partition, and look at no other."""
    settings = KafkaTopicAdmin.settings

    def one(self: KafkaTopicAdmin) -> TopicSettings | None:
        found = settings(self)
        return None if found is None else replace(found, partition_count=1)

    patch.setattr(KafkaTopicAdmin, "settings", one)


def rows_of_a_dead_owner_are_not_progress(rig: Rig, patch: Patch) -> None:
    """An owner dies with half of a batch in the log, uncommitted."""
    dead = rig.open(7)
    stream = rig.stream(dead)
    dead.publish(stream.next_batch(9))

    def die() -> None:
        dead._live.flush()
        raise Retryable("MR-3001", "dies here")

    once_at(patch, MID_PRODUCE, die)
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
    assert rig.verdict().counts.rows == 0, "a stale owner's rows stand behind a newer fence"


def epochs_not_compared(patch: Patch) -> None:
    """Rule 2 off: a greater epoch in the tail stops nobody."""
    patch.setattr(Opener, "_fenced_by", lambda *_: None)


def no_fence(patch: Patch) -> None:
    """Rule 2 off: nothing is written before the first rows."""
    patch.setattr(Opener, "_fence", lambda *given: (given[-1], 0.0))


def slow_commits_trusted(patch: Patch) -> None:
    """Rule 3 off: an instance is kept, however long its commit took."""
    patch.setattr(PublisherLimits, "suspicious_s", float("inf"))


def the_same_instance_goes_on(patch: Patch) -> None:
    """Rule 3 off: after an error the tail is asked, but nothing is thrown away."""

    def ask_only(self: Publisher) -> Progress:
        self._drain()
        self._audit.stop()
        ends = opening.settled_ends(self._partition, self._opener.config)
        found = tail.read_tail(self._partition, ends, self._opener.marks)
        assert found is not None
        self._end, self._is_suspicious = ends.stable, False
        self._audit = self._audited()
        return found.progress

    patch.setattr(Publisher, "_renew", ask_only)


def a_batch_whose_answer_is_lost_stands_once(rig: Rig, patch: Patch) -> None:
    """The commit took effect; its answer never came."""
    publisher = rig.open(7)
    stream = rig.stream(publisher)
    publisher.publish(stream.next_batch(9))
    a_commit_is_not_heard_of(patch)
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
    assert foreign.flush(ANSWER_S) == 0
    assert _is_stopped(publisher, stream), "nobody was told of a foreign record"


def _is_stopped(publisher: Publisher, stream: RowStream) -> bool:
    """Whether the next commit, or the look back at it, is refused."""
    try:
        publisher.publish(stream.next_batch(3))
        publisher.close()
    except Fatal:
        return True
    return False


def nothing_is_written_behind_an_open_transaction(rig: Rig, _: Patch) -> None:
    """Somebody else's, found by who starts: what is written behind it, nobody would see."""
    with rig.running(7) as publisher:
        publisher.publish(rig.stream(publisher).next_batch(3))
    rig.limits = replace(rig.limits, stable_timeout_s=0.3)
    with rig.foreign_transaction():
        before = rig.high_end()
        eventually(lambda: _is_decided(rig), timeout_s=GIVE_UP_S, what="an end of the start")
        assert rig.high_end() == before, "somebody wrote behind another writer's open transaction"


def _is_decided(rig: Rig) -> bool:
    """Whether a start succeeds or is refused: in a short time the topic's beginning may not be read."""
    try:
        rig.open(8)._let_go()
    except Retryable:
        return False
    except Fatal:
        pass
    return True


def ends_not_compared(patch: Patch) -> None:
    """Rule 2 off: the stable end is taken as the end."""
    patch.setattr(opening, "settled_ends", lambda partition, _: partition.ends())


def what_an_open_transaction_hides_is_missed(rig: Rig, _: Patch) -> None:
    """Somebody else's begins between two commits: the second returns OK, and nobody sees its rows."""
    publisher = rig.open(7)
    stream = rig.stream(publisher)
    publisher.publish(stream.next_batch(3))
    publisher._drain()
    publisher._audit._limits = replace(rig.limits, audit_timeout_s=0.3)
    with rig.foreign_transaction():
        is_told = _is_stopped(publisher, stream)
        assert rig.verdict().last_seq == 3
    assert is_told, "nobody was told of committed rows that nobody sees"


def a_row_over_the_limit_is_not_left_out(rig: Rig, _: Patch) -> None:
    """It stops the task; the whole batch comes again."""
    rig.make_anew({"max.message.bytes": "600000"})
    publisher = rig.open(7)
    stream = rig.stream(publisher)
    publisher.publish(stream.next_batch(3))
    with suppress(Fatal):
        publisher.publish(stream.next_batch(2, filler="y" * 700_000))
        publisher.publish(stream.next_batch(4))
    publisher._let_go()
    rig.assert_whole(3)


def refusals_ignored(patch: Patch) -> None:
    """What the client doesn't take is left out."""

    def add(self: Publisher, transactions: Transactions, buffer: Octets, bounds: Bounds) -> None:
        transactions.add_slices(buffer, bounds)

    patch.setattr(Publisher, "_add", add)


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


def what_was_removed_is_not_sent_again(*, remembered: bool) -> Callable[[Rig, Patch], None]:
    """Everything is removed, a subscriber has read it all; the status is older than the topic, or knows nothing."""

    def shows(rig: Rig, _: Patch) -> None:
        with rig.running(7) as publisher:
            stream = rig.stream(publisher)
            publisher.publish(stream.next_batch(3))
            old = publisher.hint
            publisher.publish(stream.next_batch(3))
        rig.remove_before()
        for hint in (old, replace(old, end_offset=NO_END)) if remembered else (None,):
            with suppress(Fatal):
                publisher = rig.open(8, hint=hint)
                publisher.publish(rig.stream(publisher).next_batch(3))
                publisher.close()
        found = rig.verdict()
        assert (found.first_seq or 7) > 6, "a subscriber is sent what it has read"

    return shows


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
        rig.open(8, hint=publisher.hint)._let_go()
    assert not rig.exists(), "a topic that was deleted is begun anew"


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

    once_at(patch, MID_PRODUCE, make_anew)
    with suppress(MillraceError):
        publisher.publish(stream.next_batch(9))
    publisher._let_go()
    rig.wait_ended()
    seen = rig.verdict().counts
    with suppress(Fatal):
        rig.open(8, hint=publisher.hint)._let_go()
    assert rig.verdict().counts == seen, "a topic that begins in the middle was gone on with"


def beginnings_not_checked(patch: Patch) -> None:
    """Rule 2 off: a topic is gone on with whatever it begins with."""
    patch.setattr(Opener, "_check_beginning", lambda *_: None)


RULES = [
    Rule(
        "1 a transactional id of the task's own",
        an_id_for_every_owner,
        a_stale_owner_writes_nothing,
        "epoch 7 writes behind epoch 8",
    ),
    Rule(
        "1 the topic has one partition",
        any_partition_count_will_do,
        a_foreign_record_in_another_partition_stops_the_task,
        "nobody was told of a foreign record",
    ),
    Rule(
        "2 the tail is read with read_committed",
        reading_uncommitted,
        rows_of_a_dead_owner_are_not_progress,
        r"seq \d\d stands behind seq 9",
    ),
    Rule(
        "2 a greater epoch stops us",
        epochs_not_compared,
        nobody_writes_behind_a_newer_fence,
        "a stale owner's rows stand",
    ),
    Rule(
        "2 a fence is committed first",
        no_fence,
        nobody_writes_behind_a_newer_fence,
        "a stale owner's rows stand",
    ),
    Rule(
        "2 the stable end is the end",
        ends_not_compared,
        nothing_is_written_behind_an_open_transaction,
        "somebody wrote behind",
    ),
    Rule(
        "2 a topic begins with a run",
        beginnings_not_checked,
        nobody_goes_on_in_a_topic_made_anew,
        "begins in the middle",
    ),
    Rule(
        "3 a slow commit spoils its instance (late commit)",
        slow_commits_trusted,
        no_late_request_ends_what_is_under_way(a_commit_is_slow, commit=True),
        "sees a part of a batch",
    ),
    Rule(
        "3 a slow commit spoils its instance (late abort)",
        slow_commits_trusted,
        no_late_request_ends_what_is_under_way(a_commit_is_slow, commit=False),
        "a late abort ended",
        is_chaos=True,
    ),
    Rule(
        "3 an error spoils its instance (late commit)",
        the_same_instance_goes_on,
        no_late_request_ends_what_is_under_way(a_commit_is_not_heard_of, commit=True),
        "sees a part of a batch",
    ),
    Rule(
        "3 an error spoils its instance (late abort)",
        the_same_instance_goes_on,
        no_late_request_ends_what_is_under_way(a_commit_is_not_heard_of, commit=False),
        "a late abort ended",
        is_chaos=True,
    ),
    Rule(
        "3 after an error the tail is asked",
        sent_again_unasked,
        a_batch_whose_answer_is_lost_stands_once,
        "was delivered before",
    ),
    Rule(
        "3 a fence is never answered with a new instance",
        fences_answered_with_a_new_instance,
        a_fenced_owner_leaves_its_successor_alone,
        "the successor was fenced by the one it had fenced",
    ),
    Rule(
        "4 every commit is read back",
        commits_not_read_back,
        a_foreign_record_stops_the_task,
        "nobody was told of a foreign record",
    ),
    Rule(
        "4 what an open transaction hides is missed",
        commits_not_read_back,
        what_an_open_transaction_hides_is_missed,
        "nobody was told of committed rows",
    ),
    Rule(
        "a row over the limit stops",
        refusals_ignored,
        a_row_over_the_limit_is_not_left_out,
        r"seq \d stands behind seq 3",
    ),
    Rule(
        "5 a GTID is done with its last row",
        any_row_finishes_its_gtid,
        a_torn_source_transaction_is_gone_on_with_inside,
        "has no last record",
    ),
    Rule(
        "6 a hint is believed only at its end",
        hints_believed,
        what_was_removed_is_not_sent_again(remembered=True),
        "is sent what it has read",
    ),
    Rule(
        "6 an emptied topic is not begun anew",
        begun_anew,
        what_was_removed_is_not_sent_again(remembered=False),
        "is sent what it has read",
    ),
    Rule(
        "6 a deleted topic is not begun anew",
        hints_forgotten,
        a_deleted_topic_is_not_begun_anew,
        "is begun anew",
    ),
]

PARAMS = [
    pytest.param(rule, id=rule.name, marks=[pytest.mark.chaos] * rule.is_chaos) for rule in RULES
]


@pytest.fixture
def rig(kafka: KafkaServer, request: pytest.FixtureRequest) -> Rig:
    """A topic named after the test."""
    return Rig(kafka.bootstrap, topic_named("rule", request.node.name))


@pytest.mark.parametrize("rule", PARAMS)
def test_a_rule_keeps_the_harm_away(rig: Rig, rule: Rule, monkeypatch: Patch) -> None:
    """With the rule the scenario passes."""
    rule.shows(rig, monkeypatch)


@pytest.mark.parametrize("rule", PARAMS)
def test_without_its_rule_the_harm_is_done_and_seen(
    rig: Rig, rule: Rule, monkeypatch: Patch
) -> None:
    """The very same scenario, the rule switched off: the gap, the repeat, the stale or foreign record it names."""
    rule.off(monkeypatch)
    with pytest.raises(AssertionError, match=rule.harm):
        rule.shows(rig, monkeypatch)
