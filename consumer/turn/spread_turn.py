"""The driver's part of a spread turn: choose it, give out its shares, and move the mark over what all have applied.

    chosen      a backlog of ``BACKLOG_MIN`` records or more, several executors and lanes, and neither a start at a GTID
                set nor safe mode under way
    fence       taken once, before the shares; they all write as its owner
    agreement   the shares compare plan keys through their claims. If two differ, the mark does not move, and a turn of
                one Spark task follows (a *solo* turn), which skips what bitmaps show as applied
    mark        moves over the windows that every share has applied, if all had the same plan for them. Other plans are
                a defect: Fatal MR-5055, and the mark does not move

If the driver is killed:

    after the fence, before an answer    shares apply or do not; the next run's fence refuses the rest
    after the answers                    as above: the next run skips all rows by their bitmaps
    after the move                       the next run continues at the mark

A solo turn follows where a spread turn ends at a record that needs one. It lasts ``SOLO_S``, and twice as long each
time that a spread turn came less than ``STEPS_MIN`` windows far: such a topic is no work for several tasks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from millrace.consumer.target.claims import forget_claims
from millrace.consumer.target.fence import take_turn
from millrace.consumer.target.progress import Mark
from millrace.consumer.target.sessions import Sessions
from millrace.consumer.turn.context import TURN_S
from millrace.consumer.turn.order import (
    Counts,
    Outcome,
    Share,
    ShareEnd,
    ShareStop,
    Step,
    TurnOrder,
)
from millrace.consumer.window.safe_mode import SafeMode
from millrace.consumer.write.target_transaction import MarkClaim, move_over
from millrace.errors import Fatal
from millrace.faults import fault_point, register

BACKLOG_MIN = 100_000  # records: about a second of work, ten times what a Spark job costs
STEPS_MIN = 4
SOLO_S = 1.0

AFTER_SPREAD_FENCE = register("spread.after_fence")
BEFORE_SPREAD_MARK = register("spread.before_mark")


class Cluster(Protocol):
    """The executors, in Spark or in a test."""

    def executor_count(self) -> int:
        """How many there are now."""

    def apply_shares(self, shares: Sequence[Share]) -> Sequence[ShareEnd]:
        """Execute the shares at the same time, if there is room; raises the error of one."""


@dataclass(slots=True)
class Conductor:
    """The choice between solo and spread turns of one run."""

    backlog_min: int = BACKLOG_MIN
    _solo_s: float = 0.0  # the next turn, if a backlog waits; 0: a spread turn
    _next_solo_s: float = SOLO_S

    def share_count(self, cluster: Cluster, order: TurnOrder, mark: Mark) -> int:
        """The number of shares of the next turn; 0 for a solo turn."""
        rules, waiting = (
            order.assignment.rules,
            order.offsets.end - max(mark.next_offset, order.offsets.begin, 0),
        )
        if waiting < self.backlog_min or mark.is_unproven or not mark.past_start:
            return 0
        safe_mode = SafeMode.of(rules.safe_until)
        if order.why_solo or (safe_mode is not None and not safe_mode.is_over(mark)):
            return 0
        count = min(cluster.executor_count(), rules.lane_count)
        return count if count > 1 else 0

    def solo_s(self) -> float:
        """How long a solo turn lasts while a spread turn would be possible; 0 if it is the spread turn's turn."""
        solo_s, self._solo_s = self._solo_s, 0.0
        return solo_s

    def note(self, ends: Sequence[ShareEnd], steps: int) -> None:
        """Choose the turn after a spread turn of ``steps`` windows."""
        is_short = steps < STEPS_MIN and not _all_read(ends)
        if not is_short:
            self._next_solo_s = SOLO_S
        if is_short or any(end.stop is ShareStop.SOLO for end in ends):
            self._solo_s = self._next_solo_s
            self._next_solo_s = min(2 * self._next_solo_s, TURN_S)


def spread_turn(
    cluster: Cluster,
    order: TurnOrder,
    *,
    mark: Mark,
    count: int,
    sessions: Sessions,
    note: Callable[[Sequence[ShareEnd], int], None],
) -> Outcome:
    """One turn of ``count`` shares. ``note`` gets their ends and the number of windows. Leaves ``sessions`` open."""
    owner = take_turn(sessions.for_lane(), order.owner)
    sessions = sessions.of(owner)
    session = sessions.for_lane()
    forget_claims(session, owner)
    session.commit()
    fault_point(AFTER_SPREAD_FENCE)
    ordered = replace(order, owner=owner)
    ends = cluster.apply_shares([Share(ordered, place, count) for place in range(count)])
    steps = common_steps(ends)
    if steps:
        learned = {number: text for step in steps for number, text in step.learned.items()}
        after = steps[-1].after
        is_passed = all(end.left_to <= after.seq for end in ends)
        fault_point(BEFORE_SPREAD_MARK)
        session = sessions.for_lane(is_checked=True)
        claim = MarkClaim(mark, after, learned, is_passed)
        move_over(session, owner, claim, through=len(steps))
        mark = after
    note(ends, len(steps))
    furthest = max(ends, key=lambda end: len(end.steps))
    return Outcome(
        owner=owner,
        mark=mark,
        counts=sum((end.counts for end in ends), Counts()),
        notes=furthest.notes,
        is_idle=_all_read(ends) and all(len(end.steps) == len(steps) for end in ends),
    )


def _all_read(ends: Sequence[ShareEnd]) -> bool:
    return all(end.stop is ShareStop.READ for end in ends)


def common_steps(ends: Sequence[ShareEnd]) -> tuple[Step, ...]:
    """The windows that all shares have applied; none if they disagree. Fatal MR-5055 if their plans differ."""
    if any(end.stop is ShareStop.DISAGREED for end in ends):
        return ()
    count = min(len(end.steps) for end in ends)
    steps = ends[0].steps[:count]
    for end in ends:
        for number, (one, other) in enumerate(zip(steps, end.steps, strict=False)):
            if (one.plan, one.after) != (other.plan, other.after):
                what = f"window {number + 1}, up to seq {one.after.seq} and {other.after.seq}"
                raise Fatal("MR-5055", f"shares of a turn have different plans for {what}")
    return steps
