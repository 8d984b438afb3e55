"""Doubles of few decimal places are written by a kernel, which must not change them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from consumer.kernel.literals import FLOAT_TEXT_BYTES, put_short_floats

SHORT = st.builds(
    lambda whole, scale: whole / 10**scale, st.integers(-(10**15), 10**15), st.integers(0, 6)
)


@given(st.lists(SHORT | st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_written_text_reads_back_as_the_same_double(values: list[float]) -> None:
    """The kernel lists the values that it leaves out."""
    texts = np.zeros((len(values), FLOAT_TEXT_BYTES), np.uint8)
    others = put_short_floats(np.array(values), texts)
    for place, value in enumerate(values):
        text = texts[place].tobytes().rstrip(b"\0").decode()
        assert (text == "") == (place in others)
        assert text == "" or np.float64(text).tobytes() == np.float64(value).tobytes()


@given(st.lists(st.integers(-(10**9), 10**9).map(lambda whole: whole / 100), min_size=1))
def test_amounts_are_written(values: list[float]) -> None:
    """Two decimal places need no other way; zero does, because it has a sign."""
    texts = np.zeros((len(values), FLOAT_TEXT_BYTES), np.uint8)
    others = put_short_floats(np.array(values), texts)
    assert [values[place] for place in others] == [0.0] * values.count(0.0)
