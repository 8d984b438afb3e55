"""The driver chooses between solo and spread turns, and how far the mark moves."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from millrace.consumer.target.progress import Mark, Owner
from millrace.consumer.turn.context import TURN_S
from millrace.consumer.turn.order import (
    Assignment,
    Offsets,
    Rules,
    Share,
    ShareEnd,
    ShareStop,
    Step,
    TurnOrder,
)
from millrace.consumer.turn.spread_turn import (
    BACKLOG_MIN,
    SOLO_S,
    STEPS_MIN,
    Conductor,
    common_steps,
)
from millrace.drivers.mysql.connection import Endpoint
from millrace.errors import Fatal
from millrace.schemas.documents import Brokers, ConflictPolicy, Consistency, TopicAddress

ASSIGNMENT = Assignment(
    endpoint=Endpoint("t1", 0, "", ""),
    source=TopicAddress(topic="shop", brokers=Brokers("")),
    rules=Rules(policy=ConflictPolicy.STOP, lane_count=4),
)
ORDER = TurnOrder(
    owner=Owner("task", 1, 1), assignment=ASSIGNMENT, offsets=Offsets(end=BACKLOG_MIN)
)
START = Mark(0, 0)
SAFE = "0-1-5"
AT_SAFE = replace(START, gtid_set=SAFE, flavour="mariadb")
LITTLE = replace(ORDER, offsets=Offsets(begin=9, end=BACKLOG_MIN))
UNTIL = replace(ORDER.offsets, until=BACKLOG_MIN)
WHOLE = Consistency.TRANSACTIONAL


def _ruled(**rules: object) -> TurnOrder:
    changed = replace(ASSIGNMENT, rules=replace(ASSIGNMENT.rules, **rules))  # type: ignore[arg-type]
    return replace(ORDER, assignment=changed)


@dataclass
class _Cluster:
    executors: int

    def executor_count(self) -> int:
        return self.executors

    def apply_shares(self, shares: Sequence[Share]) -> Sequence[ShareEnd]:
        raise AssertionError(shares)


@pytest.mark.parametrize(
    ("executors", "order", "mark", "count"),
    [
        pytest.param(1, ORDER, START, 0, id="local mode"),
        pytest.param(2, ORDER, START, 2, id="two executors"),
        pytest.param(9, ORDER, START, 4, id="no more shares than lanes"),
        pytest.param(9, _ruled(lane_count=1), START, 0, id="one lane"),
        pytest.param(2, ORDER, Mark(1, 1), 0, id="a small backlog"),
        pytest.param(
            2,
            replace(ORDER, offsets=Offsets(begin=9, end=BACKLOG_MIN)),
            Mark(0, -2),
            0,
            id="retention left little",
        ),
        pytest.param(2, ORDER, Mark(-1, -2), 0, id="a start that is not proven"),
        pytest.param(2, ORDER, replace(START, past_start=False), 0, id="before a start"),
        pytest.param(2, _ruled(safe_until=SAFE), START, 0, id="safe mode"),
        pytest.param(2, _ruled(safe_until=SAFE), AT_SAFE, 2, id="after safe mode"),
        pytest.param(2, replace(ORDER, turn_s=1.0), START, 0, id="a short turn"),
        pytest.param(2, replace(ORDER, is_partial=True), START, 0, id="tables are loaded"),
        pytest.param(2, replace(ORDER, offsets=UNTIL), START, 0, id="a side stream"),
        pytest.param(2, _ruled(consistency=WHOLE), START, 0, id="source transactions"),
    ],
)
def test_backlog_is_shared_by_executors(
    executors: int, order: TurnOrder, mark: Mark, count: int
) -> None:
    """Everything else is applied by one Spark task."""
    assert Conductor().share_count(_Cluster(executors), order, mark) == count


def _end(steps: int, stop: ShareStop = ShareStop.EARLY) -> ShareEnd:
    made = tuple(Step(Mark(n, n), {}, bytes([n])) for n in range(1, steps + 1))
    return ShareEnd(steps=made, stop=stop)


def test_mark_moves_over_the_windows_that_all_have_applied() -> None:
    """A share that ended early decides; one that disagrees leaves everything to the next turn."""
    assert common_steps([_end(5), _end(3), _end(4)]) == _end(3).steps
    assert common_steps([_end(5), _end(0)]) == ()
    assert common_steps([_end(5), _end(0, ShareStop.DISAGREED)]) == ()


@pytest.mark.parametrize("change", [{"plan": b"?"}, {"after": Mark(9, 2)}])
def test_other_plans_for_the_same_window_block_the_task(change: dict[str, object]) -> None:
    """Equal plan keys must give equal plans: rows of a window would be applied twice or never."""
    good, other = _end(3), _end(3)
    changed = replace(other.steps[1], **change)  # type: ignore[arg-type]
    other = replace(other, steps=(other.steps[0], changed, other.steps[2]))
    with pytest.raises(Fatal, match="window 2") as caught:
        common_steps([good, other])
    assert caught.value.code == "MR-5055"
    assert common_steps([good, replace(other, steps=other.steps[:1])]) == good.steps[:1]


def test_solo_turns_grow_while_spread_turns_come_not_far() -> None:
    """A barrier needs a short one; a topic of barriers gets mostly solo turns, until a spread turn comes far again."""
    conductor = Conductor()
    assert conductor.solo_s() == 0
    conductor.note([_end(STEPS_MIN)], STEPS_MIN)
    assert conductor.solo_s() == 0
    conductor.note([_end(STEPS_MIN, ShareStop.SOLO)], STEPS_MIN)
    assert [conductor.solo_s() for _ in range(2)] == [SOLO_S, 0]
    found = []
    for _ in range(8):
        conductor.note([_end(1)], 1)
        found.append(conductor.solo_s())
    assert found == sorted(found)
    assert (found[0], found[-1]) == (2 * SOLO_S, TURN_S)
    conductor.note([_end(1, ShareStop.READ)], 1)
    conductor.note([_end(0)], 0)
    assert conductor.solo_s() == SOLO_S
