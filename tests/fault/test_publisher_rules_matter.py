"""Each rule of the publisher is necessary: with it a scenario passes, without it the same scenario shows the harm.

The rules are those of DESIGN.md ("Publisher", 1 to 6) and of the docstrings of ``producer.publisher``. A rule is
switched off at a seam of its own; where a real broker can't be made to do the harm on demand (an answer that
lies, a foreign transaction that hides) the model does it: ``tests/unit/test_publisher_rules_matter.py``.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import confluent_kafka
import pytest

import producer.publisher.publisher as publishing
from deploy.servers import KafkaServer
from millrace.errors import Fatal, Fenced, MillraceError, Retryable
from producer.publisher import failures, kafka, opening, tail
from producer.publisher.audit import Audit
from producer.publisher.config import PublisherLimits
from producer.publisher.failures import BRANCHES
from producer.publisher.kafka import KafkaTransactions
from producer.publisher.marks import Step, stepped
from producer.publisher.opening import NO_END, Opener
from producer.publisher.publisher import MID_PRODUCE, Publisher
from schemas.progress import Progress
from tests.late_requests import late_end, listening
from tests.publisher_rig import Rig, topic_named

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Rule:
    """``off`` takes the rule away; ``shows`` passes with it and fails without, on a topic of its own."""

    name: str
    off: Callable[[Patch], None]
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
    patch.setattr(Opener, "_fence", lambda *given: (given[-1], 0.0))


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


RULES = [
    Rule(
        "1 a transactional id of the task's own",
        an_id_for_every_owner,
        a_stale_owner_writes_nothing,
    ),
    Rule(
        "2 the tail is read with read_committed",
        reading_uncommitted,
        rows_of_a_dead_owner_are_not_progress,
    ),
    Rule("2 a greater epoch stops us", epochs_not_compared, nobody_writes_behind_a_newer_fence),
    Rule("2 a fence is committed first", no_fence, nobody_writes_behind_a_newer_fence),
    Rule(
        "2 a topic begins with a run", beginnings_not_checked, nobody_goes_on_in_a_topic_made_anew
    ),
    Rule(
        "3 a slow commit spoils its instance",
        slow_commits_trusted,
        no_late_request_ends_what_is_under_way,
    ),
    Rule(
        "3 after an error the tail is asked",
        sent_again_unasked,
        a_batch_whose_answer_is_lost_stands_once,
    ),
    Rule(
        "3 a fence is never answered with a new instance",
        fences_answered_with_a_new_instance,
        a_fenced_owner_leaves_its_successor_alone,
    ),
    Rule("4 every commit is read back", commits_not_read_back, a_foreign_record_stops_the_task),
    Rule(
        "5 a GTID is done with its last row",
        any_row_finishes_its_gtid,
        a_torn_source_transaction_is_gone_on_with_inside,
    ),
    Rule(
        "6 a hint is believed only at its end", hints_believed, what_was_removed_is_not_sent_again
    ),
    Rule("6 an emptied topic is not begun anew", begun_anew, what_was_removed_is_not_sent_again),
    Rule("6 a deleted topic is not begun anew", hints_forgotten, a_deleted_topic_is_not_begun_anew),
]


@pytest.fixture
def rig(kafka: KafkaServer, request: pytest.FixtureRequest) -> Rig:
    """A topic named after the test."""
    return Rig(kafka.bootstrap, topic_named("rule", request.node.name))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_keeps_the_harm_away(rig: Rig, rule: Rule, monkeypatch: Patch) -> None:
    """With the rule the scenario passes."""
    rule.shows(rig, monkeypatch)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_without_its_rule_the_harm_is_done_and_seen(
    rig: Rig, rule: Rule, monkeypatch: Patch
) -> None:
    """The very same scenario, the rule switched off: a gap, a repeat, a stale or a foreign record."""
    rule.off(monkeypatch)
    with pytest.raises(AssertionError):
        rule.shows(rig, monkeypatch)
