"""Doubles from decimal digits: the same bits that Python reads."""

import struct

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millrace.doubles import as_float, nearest

DIGITS = st.integers(0, 10**19 - 1)


def bits_of(digits: int, exponent: int) -> int:
    """As Python reads it."""
    (bits,) = struct.unpack("<Q", struct.pack("<d", float(f"{digits}e{exponent}")))
    return int(bits)


def signed(number: int) -> int:
    """As the kernel takes it."""
    return number - ((number >> 63) << 64)


@given(DIGITS, st.integers(-345, 312))
@example(9007199254740993, 0)  # halfway between two doubles
@example(9007199254740995, 0)
@example(22250738585072014, -324)  # the smallest normal double, and the largest below it
@example(22250738585072011, -324)
@example(49406564584124654, -340)
@example(24703282292062327, -340)  # half of the smallest
@example(24703282292062328, -340)
@example(17976931348623157, 292)
@example(17976931348623159, 292)  # more than the largest
@example(8191999999999999999, -19)
def test_nearest_double_is_the_one_that_python_reads(digits: int, exponent: int) -> None:
    """For up to 19 digits, also at the ends of the range and halfway between two doubles."""
    assert nearest(signed(digits), exponent) == bits_of(digits, exponent)


@given(st.floats(min_value=0.0, allow_nan=False, allow_infinity=False))
def test_digits_of_a_double_name_it_exactly(value: float) -> None:
    """As a server prints it."""
    mantissa, _, exponent = f"{value:.16e}".partition("e")
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    assert nearest(int(mantissa.replace(".", "")), int(exponent) - 16) == bits


@given(st.floats(min_value=0.0, allow_nan=False, allow_infinity=False))
@example(1.401298464324817e-45)
@example(7.006492321624085e-46)
@example(1.1754942807573643e-38)
@example(3.4028234663852886e38)
def test_float_is_the_nearest_one(value: float) -> None:
    """Every double is rounded as numpy rounds it."""
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    with np.errstate(over="ignore"):
        (wanted,) = struct.unpack("<i", np.float32(value).tobytes())
    assert as_float(bits) == wanted


@pytest.mark.parametrize("exponent", [-343, 309])
def test_number_beyond_every_double_is_zero_or_infinity(exponent: int) -> None:
    """And zero is zero."""
    assert nearest(1, exponent) == (0 if exponent < 0 else 0x7FF << 52)
    assert nearest(0, exponent) == 0
