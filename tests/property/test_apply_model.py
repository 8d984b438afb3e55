"""Apply on a model target gives the same rows for any cuts, lanes, orders, lost answers, dead drivers and late lanes.

The real planner, executor functions and progress statements work on ``tests.kit.apply.model``.
``tests/mutants/test_apply_guards.py`` removes each guard.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.schemas.gtid import Flavour
from tests.kit.apply.history import Tables, make_history
from tests.kit.apply.model import one_turn, whole_turn
from tests.kit.apply.model_run import run_history
from tests.kit.examples import examples


@pytest.mark.parametrize("flavour", Flavour)
@examples(50, deadline=None)  # the first example may compile the kernel
@given(st.integers(0, 2**32), st.integers(1, 90))
def test_applying_a_history_in_any_way_gives_its_rows(
    flavour: Flavour, seed: int, steps: int
) -> None:
    """Unique keys with NULLs, swapped keys, texts that ignore case, no key, cascades; crashes and replays anywhere."""
    run_history(seed, steps=steps, flavour=flavour)


@pytest.mark.parametrize("flavour", Flavour)
@examples(50, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 90))
def test_transactional_apply_never_shows_a_part_of_a_source_transaction(
    flavour: Flavour, seed: int, steps: int
) -> None:
    """An observer reads the target after every commit. Source transactions are smaller and larger than windows."""
    run_history(seed, steps=steps, flavour=flavour, turns=[whole_turn])


@examples(30, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 90))
def test_consistency_may_change_between_turns(seed: int, steps: int) -> None:
    """Bitmaps of a causal turn hold parts of source transactions, which the next turns complete."""
    run_history(seed, steps=steps, turns=[one_turn, whole_turn])


@given(st.integers(0, 2**32))
def test_generated_histories_are_valid(seed: int) -> None:
    """A server accepts each change of a generated history, and the changes give its rows."""
    history = make_history("bank", seed=seed, steps=40)
    tables = Tables()
    for change in history.changes.values():
        tables.apply(*change)
    assert tables == history.tables
