"""Guards of apply removed on the model target: some history ends with other rows, or the target refuses it.

Not here: a turn takes the fence from its own predecessor, and the mark moves from the value that was read. Rows are
right without them, because each turn reads the progress after it has taken the fence.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from millrace.consumer.kernel import hashes
from millrace.consumer.kernel.groups import bind_groups
from millrace.consumer.records import source_transactions
from millrace.consumer.records.numbers import Ints
from millrace.consumer.records.pieces import Taken
from millrace.consumer.tables import causality_keys
from millrace.consumer.target.progress import Owner, delete_applied
from millrace.consumer.turn import applier, lane_planner
from millrace.consumer.window import window
from millrace.consumer.window.units import units_of
from millrace.consumer.write import large_transaction, target_transaction
from millrace.drivers.mysql.connection import MySqlSession
from millrace.errors import MillraceError
from tests.kit.apply.model import whole_turn
from tests.kit.apply.model_run import OTHER_ROWS, REFUSED, TORN, run_history

SEEDS_MAX = 150  # enough to show the harm of each missing guard
WRONG = f"{OTHER_ROWS}|{REFUSED}"  # rows are applied twice: the second time an insert adds one, a delete finds none


def _fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(target_transaction, "check_fence", lambda *_: None)


def _bitmaps(patch: pytest.MonkeyPatch) -> None:
    def above(seqs: Ints, *, mark: int, applied: Ints) -> object:
        return seqs > mark

    patch.setattr(window, "not_applied", above)


def _bitmaps_of_flights(patch: pytest.MonkeyPatch) -> None:
    """The first flight that ends deletes the bitmaps of the later ones."""

    def forget(session: MySqlSession, owner: Owner, *, through: int) -> None:
        delete_applied(session, owner, through=1 << 60)

    patch.setattr(target_transaction, "delete_applied", forget)


def _bitmap_of_a_part(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(target_transaction.BitmapClaim, "make", lambda *_: None)


def _keys_of_flights(patch: pytest.MonkeyPatch) -> None:
    """A window's rows go to any lane while earlier flights are under way."""
    patch.setattr(lane_planner, "bind_groups", lambda *_: True)


def _several_lanes(patch: pytest.MonkeyPatch) -> None:
    """A group that needs two lanes goes to one of them."""
    patch.setattr(lane_planner, "bind_groups", lambda *given: bind_groups(*given) or True)


def _flights_under_way(patch: pytest.MonkeyPatch) -> None:
    """Keys of flights that are under way are forgotten."""
    bind: Any = bind_groups

    def forget(*given: Any) -> Any:
        *keys_held, done_flight, bound = given
        return bind(*keys_held, done_flight + 1, bound)

    patch.setattr(lane_planner, "bind_groups", forget)


def _further_unique_keys(patch: pytest.MonkeyPatch) -> None:
    made = causality_keys.key_lines
    patch.setattr(
        "millrace.consumer.tables.table_plans.key_lines",
        lambda *given: tuple(line for line in made(*given) if line.kind != hashes.UNIQUE),
    )


def _collations(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(causality_keys, "_method", lambda *_: (hashes.EXACT, 0))


def _foreign_keys(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(causality_keys, "_foreign_lines", lambda *_: ())


def _cascades(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(causality_keys, "_reach", lambda *_: set())


def _bags(patch: pytest.MonkeyPatch) -> None:
    made = causality_keys.key_lines
    patch.setattr(
        "millrace.consumer.tables.table_plans.key_lines",
        lambda *given: tuple(line for line in made(*given) if line.kind != hashes.BAG),
    )


def _units(patch: pytest.MonkeyPatch) -> None:
    """Lanes and parts are cut by rows."""
    patch.setattr(applier, "units_of", lambda rows, **_: units_of(rows, is_whole=False))


def _ends(patch: pytest.MonkeyPatch) -> None:
    """Windows end anywhere."""
    patch.setattr(source_transactions, "last_end", len)


def _windows_of_many_cells(patch: pytest.MonkeyPatch) -> None:
    """A window that ends because its rows have many cells ends anywhere."""
    patch.setattr(applier, "last_end", len)


def _open_transactions(patch: pytest.MonkeyPatch) -> None:
    """A ``resolved`` record inside a source transaction counts as its end."""
    patch.setattr(source_transactions, "_ends", lambda _: True)


def _one_target_transaction(patch: pytest.MonkeyPatch) -> None:
    """Each window of a large source transaction is committed."""
    apply = large_transaction.LargeTransaction.apply

    def piece_by_piece(given: large_transaction.LargeTransaction, pieces: Iterable[Taken]) -> int:
        return [apply(given, [piece]) for piece in pieces][-1]

    patch.setattr(large_transaction.LargeTransaction, "apply", piece_by_piece)


GUARDS = (
    (_fence, "bag", f"{WRONG}|MR-5010 it is there"),  # or a late part repeats a bitmap
    (_bitmaps, "bag", WRONG),
    (_bitmaps_of_flights, "bag", WRONG),
    (_bitmap_of_a_part, "bag", WRONG),
    (_keys_of_flights, "accounts", REFUSED),
    (_several_lanes, "accounts", REFUSED),
    (_flights_under_way, "accounts", REFUSED),
    (_further_unique_keys, "accounts", REFUSED),
    (_collations, "words", REFUSED),
    (_foreign_keys, "c", REFUSED),
    (_cascades, "c", REFUSED),
    (_bags, "bag", REFUSED),
)


WHOLE_GUARDS = (
    _units,
    _ends,
    _windows_of_many_cells,
    _open_transactions,
    _one_target_transaction,
)


@pytest.mark.parametrize(
    "guard", WHOLE_GUARDS, ids=[guard.__name__.strip("_") for guard in WHOLE_GUARDS]
)
def test_transactional_apply_without_any_one_guard_shows_a_part(
    guard: Callable[[pytest.MonkeyPatch], None],
) -> None:
    """Without the guard, an observer of some history sees a part of a source transaction."""
    for seed in range(SEEDS_MAX):
        try:
            run_history(seed, steps=60, turns=[whole_turn], guard=guard)
        except AssertionError as done:
            assert str(done).startswith(TORN), done  # noqa: PT017 - in one of many histories
            run_history(seed, steps=60, turns=[whole_turn])
            return
    pytest.fail(f"{SEEDS_MAX} histories came through without it")


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
