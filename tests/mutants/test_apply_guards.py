"""Guards of apply removed on the model target: some history ends with other rows, or the target refuses it."""

import re
from collections.abc import Callable

import pytest

from consumer import window
from consumer.apply import batch, executor
from consumer.kernel import hashes
from consumer.plan import keys
from consumer.row_schemas import Ints
from consumer.target.connection import TargetConnection
from consumer.target.progress import delete_applied
from millrace.errors import MillraceError
from tests.kit.apply.model_run import OTHER_ROWS, REFUSED, run_history

SEEDS_MAX = 150  # enough to show the harm of each missing guard


def _fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(executor, "check_fence", lambda *_: None)
    patch.setattr(batch, "check_fence", lambda *_: None)


def _mark_of_a_lane(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(executor, "check_mark", lambda *_: None)


def _mark_compared(patch: pytest.MonkeyPatch) -> None:
    def move(session: object, task: str, *, before: object, after: object) -> None:
        session.work.mark = after  # type: ignore[attr-defined]

    patch.setattr(executor, "move_mark", move)
    patch.setattr(batch, "move_mark", move)


def _bitmaps(patch: pytest.MonkeyPatch) -> None:
    def above(seqs: Ints, *, mark: int, applied: Ints) -> object:
        return seqs > mark

    patch.setattr(executor, "not_applied", above)
    patch.setattr(window, "not_applied", above)


def _bitmaps_above_the_mark(patch: pytest.MonkeyPatch) -> None:
    def forget(session: TargetConnection, task: str, *, run: int | None) -> None:
        delete_applied(session, task, run=run and None)

    patch.setattr(batch, "delete_applied", forget)


def _place_of_a_part(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(executor._BitmapClaim, "make", lambda *_: True)


def _further_unique_keys(patch: pytest.MonkeyPatch) -> None:
    made = keys.key_lines
    patch.setattr(
        "consumer.sql.table_plans.key_lines",
        lambda *given: tuple(line for line in made(*given) if line.kind != hashes.UNIQUE),
    )


def _collations(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(keys, "_method", lambda *_: (hashes.EXACT, 0))


def _foreign_keys(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(keys, "_foreign_lines", lambda *_: ())


def _cascades(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(keys, "_reach", lambda *_: set())


def _bags(patch: pytest.MonkeyPatch) -> None:
    made = keys.key_lines
    patch.setattr(
        "consumer.sql.table_plans.key_lines",
        lambda *given: tuple(line for line in made(*given) if line.kind != hashes.BAG),
    )


GUARDS = (
    (_fence, "bag", OTHER_ROWS),
    (_mark_of_a_lane, "bag", OTHER_ROWS),
    (_mark_compared, "bag", REFUSED),
    (_bitmaps, "bag", OTHER_ROWS),
    (_bitmaps_above_the_mark, "bag", OTHER_ROWS),
    (_place_of_a_part, "bag", OTHER_ROWS),
    (_further_unique_keys, "accounts", REFUSED),
    (_collations, "words", REFUSED),
    (_foreign_keys, "c", REFUSED),
    (_cascades, "c", REFUSED),
    (_bags, "bag", REFUSED),
)


@pytest.mark.parametrize(
    ("guard", "about", "harm"),
    GUARDS,
    ids=[guard.__name__.strip("_") for guard, _, _ in GUARDS],
)
def test_apply_without_any_one_guard_corrupts_the_target(
    guard: Callable[[pytest.MonkeyPatch], None], about: str, harm: str
) -> None:
    """Without the guard, some history ends with other rows or the target refuses it; with the guard none does."""
    for seed in range(SEEDS_MAX):
        try:
            run_history(seed, steps=60, about=about, faults=0.3, guard=guard)
        except (AssertionError, MillraceError) as done:
            assert re.match(harm, str(done)), done  # noqa: PT017 - in one of many histories
            run_history(seed, steps=60, about=about, faults=0.3)
            return
    pytest.fail(f"{SEEDS_MAX} histories came through without it")
