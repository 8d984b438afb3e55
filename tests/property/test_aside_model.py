"""Rows that the target refuses are kept aside with all that follow, and a replay in any order gives the source's rows.

The real part, keys, careful writer, replay and progress work on ``tests.kit.apply.aside_model``.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.schemas.gtid import Flavour
from tests.kit.apply.aside_model import run_aside
from tests.kit.examples import examples


@pytest.mark.parametrize("flavour", Flavour)
@examples(30, deadline=None)  # the first example may compile the kernel
@given(st.integers(0, 2**32), st.integers(1, 90))
def test_kept_rows_and_their_followers_end_as_on_the_source(
    flavour: Flavour, seed: int, steps: int
) -> None:
    """Random refusals; lanes, shares, the serial path, crashes; replays between any two target transactions."""
    run_aside(seed, steps=steps, flavour=flavour)
