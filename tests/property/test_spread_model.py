"""Any mix of solo and spread turns on a model target gives the same rows: windows, lanes, replays, shares, crashes.

The real planner, claims and mark work on ``tests.kit.apply.model_spread``. ``tests/mutants/test_spread_guards.py``
removes each guard.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.schemas.gtid import Flavour
from tests.kit.apply.model_spread import run_spread_history
from tests.kit.examples import examples


@pytest.mark.parametrize("flavour", Flavour)
@examples(50, deadline=None)  # the first example may compile the kernel
@given(st.integers(0, 2**32), st.integers(1, 90))
def test_shares_of_a_history_give_its_rows(flavour: Flavour, seed: int, steps: int) -> None:
    """Shares die, run twice, end early and plan differently, between solo turns that die, too."""
    run_spread_history(seed, steps=steps, flavour=flavour)
