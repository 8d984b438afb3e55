"""Apply under a view gives the rows of the source as the view has them, for any cuts, lanes, shares and crashes.

The real planner, view, keys and progress work on ``tests.kit.apply.view_model``. The oracle is Python's own view.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.schemas.gtid import Flavour
from tests.kit.apply.view_model import run_view
from tests.kit.examples import examples


@pytest.mark.parametrize("flavour", Flavour)
@examples(100, deadline=None)  # the first example may compile the kernel
@given(st.integers(0, 2**32), st.integers(1, 90))
def test_target_has_the_rows_of_the_view(flavour: Flavour, seed: int, steps: int) -> None:
    """Conditions, names, masks and added columns; rows leave the view, come back and exchange unique values."""
    run_view(seed, steps=steps, flavour=flavour)
