"""Literals of doubles and floats: the server's reading of the text must give the same number back."""

import struct

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from millrace.consumer.kernel.literals import put_literal
from millrace.consumer.kernel.walk import DOUBLE, FLOAT

SHORT = st.builds(
    lambda whole, scale: whole / 10**scale, st.integers(-(10**15), 10**15), st.integers(0, 6)
)


def _literal(kind: int, encoded: bytes) -> str:
    out: npt.NDArray[np.uint8] = np.empty(96, np.uint8)
    data = np.frombuffer(encoded, np.uint8)
    cells: npt.NDArray[np.int64] = np.array([[kind, 0, len(encoded)]], np.int64)
    end = put_literal(out, 0, data, cells, 0, 0, 0, data)
    return out[:end].tobytes().decode("ascii")


@given(SHORT | st.floats(allow_nan=False, allow_infinity=False))
def test_text_of_a_double_reads_back_as_the_same_bits(value: float) -> None:
    """It has an exponent, so the server takes it for a DOUBLE, and no more digits than ``repr``."""
    text = _literal(DOUBLE, struct.pack("<d", value))
    assert "e" in text
    assert struct.pack("<d", float(text)) == struct.pack("<d", value)
    digits = repr(abs(value)).partition("e")[0].replace(".", "").strip("0")
    assert text.lstrip("-").partition("e")[0].strip("0") == digits


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_text_of_a_float_reads_back_as_the_same_bits(value: float) -> None:
    """Through the double of the same value."""
    text = _literal(FLOAT, struct.pack("<f", value))
    assert struct.pack("<d", float(text)) == struct.pack("<d", value)


def test_zero_keeps_its_sign() -> None:
    """Both zeros are equal, so the properties' other values would not show it."""
    assert _literal(DOUBLE, struct.pack("<d", 0.0)) == "0e0"
    assert _literal(DOUBLE, struct.pack("<d", -0.0)) == "-0e0"
