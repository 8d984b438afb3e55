"""Guards of spread turns removed on the model target: rows are wrong, or the target or the driver refuses the turn."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from millrace.consumer.records.numbers import LaneNumbers
from millrace.consumer.target import claims
from millrace.consumer.turn import spread_applier, spread_turn
from millrace.consumer.turn.lane_planner import LanePlanner, Load
from millrace.consumer.turn.order import ShareEnd, Step
from millrace.consumer.turn.spread_applier import SpreadApplier
from millrace.errors import MillraceError
from tests.kit.apply import model_spread
from tests.kit.apply.model import DriverDiedError
from tests.kit.apply.model_run import OTHER_ROWS, REFUSED
from tests.kit.apply.model_spread import End, run_spread_history

SEEDS_MAX = 150
WRONG = f"{OTHER_ROWS}|{REFUSED}"
TWICE = "MR-5010 it is there"  # the bitmap of the first execution
OTHER_PLANS = f"MR-5055 |{REFUSED}"  # the target may refuse a row first


def _claims(patch: pytest.MonkeyPatch) -> None:
    """A second execution of a share is not refused."""
    patch.setattr(spread_applier, "claim_share", lambda *_: True)


def _plan_keys(patch: pytest.MonkeyPatch) -> None:
    """Claims are made and not compared."""
    claim: Any = claims.claim_share
    patch.setattr(spread_applier, "claim_share", lambda *given: claim(*given) or True)


def _plan_keys_and_digests(patch: pytest.MonkeyPatch) -> None:
    _plan_keys(patch)

    def unchecked(ends: Sequence[ShareEnd]) -> tuple[Step, ...]:
        return ends[0].steps[: min(len(end.steps) for end in ends)]

    patch.setattr(spread_turn, "common_steps", unchecked)


def _slowest_share(patch: pytest.MonkeyPatch) -> None:
    """The mark moves as far as the share that came farthest."""

    def farthest(ends: Sequence[ShareEnd]) -> tuple[Step, ...]:
        return max((end.steps for end in ends), key=len)

    patch.setattr(spread_turn, "common_steps", farthest)


def _failed_share(patch: pytest.MonkeyPatch) -> None:
    """The mark moves although a share has failed."""

    def first_error(ends: Sequence[End]) -> BaseException | None:
        return None if any(isinstance(end, ShareEnd) for end in ends) else DriverDiedError()

    patch.setattr(model_spread, "first_error", first_error)


def _same_rule(patch: pytest.MonkeyPatch) -> None:
    """Each share counts the lanes from another one."""
    begun = SpreadApplier.__post_init__

    def turned(self: SpreadApplier) -> None:
        begun(self)
        self._planner = _Turned(self._planner.lane_count, self._planner.keys_max)
        self._planner.place = self.share.place

    patch.setattr(SpreadApplier, "__post_init__", turned)


class _Turned(LanePlanner):
    place = 0

    def plan(self, load: Load, *, flight: int, done: int) -> LaneNumbers | None:
        lanes = super().plan(load, flight=flight, done=done)
        return None if lanes is None else LaneNumbers((lanes + self.place) % self.lane_count)


class _Forgetful(LanePlanner):
    """Keys of earlier windows bind nothing, as if their rows were applied."""

    def plan(self, load: Load, *, flight: int, done: int) -> LaneNumbers | None:
        self.clear()
        return super().plan(load, flight=flight, done=done)


def _keys_of_the_turn(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(spread_applier, "LanePlanner", _Forgetful)


GUARDS = (
    (_claims, "", TWICE),
    (_plan_keys, "words", OTHER_PLANS),
    (_plan_keys_and_digests, "words", WRONG),
    (_slowest_share, "bag", WRONG),
    (_failed_share, "bag", WRONG),
    (_same_rule, "", OTHER_PLANS),
    (_keys_of_the_turn, "accounts", REFUSED),
)


@pytest.mark.parametrize(
    ("guard", "about", "harm"),
    GUARDS,
    ids=[guard.__name__.strip("_") for guard, _, _ in GUARDS],
)
def test_spread_turns_without_any_one_guard_do_harm(
    guard: Callable[[pytest.MonkeyPatch], None], about: str, harm: str
) -> None:
    """Without the guard, some history ends with other rows or an error; with the guard none does."""
    for seed in range(SEEDS_MAX):
        try:
            run_spread_history(seed, steps=60, about=about, faults=0.3, guard=guard)
        except (AssertionError, MillraceError) as done:
            assert re.match(harm, str(done)), done  # noqa: PT017 - in one of many histories
            run_spread_history(seed, steps=60, about=about, faults=0.3)
            return
    pytest.fail(f"{SEEDS_MAX} histories came through without it")
