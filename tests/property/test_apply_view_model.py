"""Apply under a view gives the rows of the source as the view has them, for any cuts, lanes, shares and crashes.

The real planner, view, keys and progress work on ``tests.kit.apply.view_model``. The oracle is Python's own view.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.schemas.gtid import Flavour
from tests.kit.apply.view_model import apply_merged, run_view
from tests.kit.examples import examples


@pytest.mark.parametrize("flavour", Flavour)
@examples(100, deadline=None)  # the first example may compile the kernel
@given(st.integers(0, 2**32), st.integers(1, 90))
def test_target_has_the_rows_of_the_view(flavour: Flavour, seed: int, steps: int) -> None:
    """Conditions, names, masks and added columns; rows leave the view, come back and exchange unique values."""
    run_view(seed, steps=steps, flavour=flavour)


@pytest.mark.parametrize("about", ["p", "accounts", "words"])
@examples(100, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 90))
def test_net_changes_of_a_view_give_its_rows(about: str, seed: int, steps: int) -> None:
    """Merged by every mode: inserts and deletes that the view makes of updates are changes like others."""
    apply_merged(seed, about=about, steps=steps)


SHARDS = st.sampled_from([("1", "2"), ("a", "b", "c"), ("1", "10", "100")])


@pytest.mark.parametrize("flavour", Flavour)
@examples(60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 90), SHARDS)
def test_merged_shards_leave_the_rows_of_all(
    flavour: Flavour, seed: int, steps: int, shards: tuple[str, ...]
) -> None:
    """Shards have the same keys and exchange unique values, each of its own rows: they never meet in the target."""
    run_view(seed, steps=steps, flavour=flavour, shards=shards)


@pytest.mark.parametrize("about", ["accounts", "words"])
@examples(60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 90), SHARDS)
def test_net_changes_of_shards_give_the_rows_of_all(
    about: str, seed: int, steps: int, shards: tuple[str, ...]
) -> None:
    """Chains of several sources in one table of the target, in any order that the levels allow."""
    apply_merged(seed, about=about, steps=steps, shards=shards)
