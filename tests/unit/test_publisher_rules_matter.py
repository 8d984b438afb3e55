"""Rules of the publisher on a model of the broker: with a rule the topic stays whole, without it not.

Here are those whose harm no real broker does on demand, and some whose harm is seen on both. The other half, on a real
broker, is ``tests/fault/test_publisher_rules_matter.py``.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

import pytest

from millrace.errors import Fatal, Fenced, Retryable
from producer.publisher import opening, tail
from producer.publisher.audit import Audit
from producer.publisher.driver import TopicRecord
from producer.publisher.marks import Marks
from producer.publisher.opening import Opener, TailHint
from producer.publisher.publisher import Publisher
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
    publish_and_close,
)

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Rule:
    """``off`` takes the rule away; ``shows`` passes with it and fails without, by ``harm``."""

    name: str
    off: Callable[[Patch], None]
    shows: Callable[[], None]
    harm: str  # a pattern of what the assertion says


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


def assert_whole(topic: ModelTopic, last_seq: int) -> None:
    """Every row up to ``last_seq``, once."""
    found, wanted = topic.seqs(), list(range(1, last_seq + 1))
    assert sorted(set(wanted) - set(found)) == [], f"rows are lost: {found}"
    assert sorted(set(found) - set(wanted)) == [], f"rows stand that must not: {found}"
    assert found == wanted, f"rows stand twice or out of order: {found}"


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
    is_stopped = _is_stopped(lambda: opened(topic, epoch=8).close())
    assert len(topic.entries) == before, "somebody wrote behind another writer's open transaction"
    assert is_stopped


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
    assert stopped, "a run was opened whose fence does not stand"


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
        assert_whole(topic, 12)

    return shows


def sent_again_unasked(patch: Patch) -> None:
    """Rule 3 off: after an error a new instance sends the batch again; the tail is not asked."""

    def renew_blindly(self: Publisher, unknown: Retryable) -> bool:
        self._renew()
        return False

    patch.setattr(Publisher, "_stands_after", renew_blindly)


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
        assert _is_stopped(lambda: publish_and_close(publisher, 3)), (
            "nobody was told that committed rows are gone"
        )


def a_foreign_record_at_the_end_stops_the_task() -> None:
    """Nothing of ours follows it that could stand in the wrong place."""
    topic = ModelTopic()
    with spent(opened(topic)) as publisher:
        topic.outcomes = [Outcome.FOREIGN]
        assert _is_stopped(lambda: publish_and_close(publisher, 3)), (
            "nobody was told of a foreign record"
        )


def ends_not_audited(patch: Patch) -> None:
    """Rule 4 off: only the last record is looked at."""
    patch.setattr(Audit, "_compare_end", lambda *_: None)


def records_not_audited(patch: Patch) -> None:
    """Rule 4 off: only the end is looked at."""
    patch.setattr(Audit, "_read_back", lambda self, commit: self._compare_end(commit, float("inf")))


def another_writers_open_transaction_under_way_stops_the_task() -> None:
    """What is committed behind it, nobody sees."""
    topic = ModelTopic()
    with spent(opened(topic)) as publisher:
        topic.entries.append(Entry(b"{}", KafkaTransaction("foreign")))
        assert _is_stopped(lambda: publish_and_close(publisher, 3)), "nobody was told"


def commits_not_read_back(patch: Patch) -> None:
    """Rule 4 off."""
    patch.setattr(Audit, "_read_back", lambda *_: None)


def who_lost_the_lease_later_disturbs_nobody() -> None:
    """It opened in order; a successor took over, and a slow commit makes the former want a new instance."""
    topic, leases = ModelTopic(), [True]

    def verify() -> None:
        if not leases[0]:
            raise Fenced("MR-4003", "lost")

    with spent(opened(topic, epoch=7, verify_lease=verify)) as stale:
        topic.outcomes = [Outcome.SLOW]
        stale.publish(batch_after(stale.progress, 3))
        stale._drain()  # else its audit may be what sees the successor
        with spent(opened(topic, epoch=8)) as successor:
            leases[0] = False
            with suppress(Fenced):
                stale.publish(batch_after(stale.progress, 3))
            try:
                successor.publish(batch_after(successor.progress, 3))
            except Fenced as fenced:
                raise AssertionError("the successor was fenced") from fenced
    assert_whole(topic, 6)


def leases_not_verified_again(patch: Patch) -> None:
    """Rule 2 off for an instance that is made anew."""
    renew = Opener.renew
    patch.setattr(
        Opener,
        "renew",
        lambda self, *given: renew(replace(self, verify_lease=lambda: None), *given),
    )


def a_row_over_the_limit_is_not_left_out() -> None:
    """It stops the task; the whole batch comes again."""
    topic = ModelTopic()
    with spent(opened(topic)) as publisher, suppress(Fatal):
        publisher.publish(batch_after(publisher.progress, 2))
        publisher.publish(batch_after(publisher.progress, 2, filler="x" * (2 << 20)))
        publisher.publish(batch_after(publisher.progress, 2))
    assert_whole(topic, 2)


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
    is_stopped = _is_stopped(lambda: opened(topic, epoch=8).close())
    assert is_stopped, "a run was opened behind a foreign record"


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
    assert read == sorted(set(read)), f"a subscriber is sent what it has read: {read}"


def hints_of_the_moment(patch: Patch) -> None:
    """Rule 6 off: whatever progress and end are known."""
    patch.setattr(Publisher, "hint", property(lambda self: TailHint(self._progress, self._end)))


RULES = [
    Rule(
        "2 the stable end is the end",
        ends_not_compared,
        another_writers_open_transaction_is_found_before_anything_is_written,
        "somebody wrote behind",
    ),
    Rule(
        "2 the lease comes first",
        leases_not_verified,
        who_lost_the_lease_disturbs_nobody,
        "the successor was fenced",
    ),
    Rule(
        "2 the lease comes first again",
        leases_not_verified_again,
        who_lost_the_lease_later_disturbs_nobody,
        "the successor was fenced",
    ),
    Rule(
        "2 a foreign tail stops the start",
        foreign_records_passed_over,
        a_foreign_tail_is_not_progress,
        "opened behind a foreign record",
    ),
    Rule(
        "2 the fence is read back",
        fences_not_read_back,
        a_fence_that_does_not_stand_opens_nothing,
        "whose fence does not stand",
    ),
    Rule(
        "3 an error says nothing (it stood)",
        sent_again_unasked,
        no_row_is_lost_or_doubled(Outcome.LOST_AFTER),
        "rows stand twice",
    ),
    Rule(
        "3 an error says nothing (it did not)",
        errors_taken_for_success,
        no_row_is_lost_or_doubled(Outcome.LOST_BEFORE),
        "rows are lost",
    ),
    Rule(
        "4 the last record is readable",
        records_not_audited,
        a_broker_that_lies_stops_the_task,
        "nobody was told that committed rows are gone",
    ),
    Rule(
        "4 the end is behind the marker",
        ends_not_audited,
        a_foreign_record_at_the_end_stops_the_task,
        "nobody was told of a foreign record",
    ),
    Rule(
        "4 what an open transaction hides is missed",
        commits_not_read_back,
        another_writers_open_transaction_under_way_stops_the_task,
        "nobody was told",
    ),
    Rule(
        "a row over the limit stops",
        refusals_ignored,
        a_row_over_the_limit_is_not_left_out,
        r"rows stand that must not: \[1, 2, 5, 6\]",
    ),
    Rule(
        "6 a hint stood once",
        hints_of_the_moment,
        a_hint_stood_once,
        "is sent what it has read",
    ),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_on_the_model_a_rule_keeps_the_harm_away(rule: Rule) -> None:
    """With the rule the scenario passes."""
    rule.shows()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_on_the_model_without_its_rule_the_harm_is_done_and_seen(
    rule: Rule, monkeypatch: Patch
) -> None:
    """The very same scenario, the rule switched off: the harm that the rule names."""
    rule.off(monkeypatch)
    with pytest.raises(AssertionError, match=rule.harm):
        rule.shows()
