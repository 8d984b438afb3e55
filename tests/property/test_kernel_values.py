"""The kernel's primitives match Python's own numbers, codecs and compressors."""

import json
import math
import struct
import zlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.producer.convert.charset_tables import CharsetTables
from millrace.producer.convert.kernel import charsets, temporal
from millrace.producer.convert.kernel.avro import long_size, write_long
from millrace.producer.convert.kernel.decimals import (
    LIMBS,
    packed_size,
    write_decimal,
    write_unsigned_bytes,
)
from millrace.producer.convert.kernel.doubles import write_json_double
from millrace.producer.convert.kernel.inflate import inflate
from millrace.producer.convert.kernel.json_binary import BROKEN, STACK, write_json
from millrace.producer.convert.kernel.memory import Bytes
from millrace.schemas.table.charset import TABLE_CHARSETS, decode_text

OUT = np.zeros(1 << 16, np.uint8)
NUMBERS = np.zeros(max(STACK, LIMBS), np.int64)


def holds_for(
    *strategies: Any, **named: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """``given`` without a deadline: the first call of a kernel loads or compiles it."""
    wanted: Any = given(*strategies, **named)
    unlimited: Any = settings(deadline=None)
    return lambda test: unlimited(wanted(test))


def array(content: bytes) -> Bytes:
    """Return a writable array as the kernel is compiled for; never an empty one."""
    return np.frombuffer(bytearray(content or b"\0"), np.uint8)


def written(end: int, start: int = 0) -> bytes:
    """Return what a writer left in OUT."""
    return OUT[start:end].tobytes()


@holds_for(st.integers(-(2**63), 2**63 - 1))
def test_long_is_encoded_as_in_avro(value: int) -> None:
    """Every 64-bit number is covered, and its size."""
    wanted = BytesIO()
    fastavro.schemaless_writer(wanted, "long", value)
    assert written(write_long(OUT, 0, value)) == wanted.getvalue()
    if 0 <= value < 2**62:
        assert long_size(value) == len(wanted.getvalue())


@holds_for(st.integers(0, 2**64 - 1))
def test_unsigned_64_bit_integer_is_encoded_as_decimal(value: int) -> None:
    """The form is minimal two's complement, with a leading zero byte where the sign would be wrong."""
    bits = value - 2**64 if value >= 2**63 else value
    content = written(write_unsigned_bytes(OUT, 0, bits))
    assert content[0] == 2 * (len(content) - 1)
    assert int.from_bytes(content[1:], "big", signed=True) == value
    assert len(content) - 1 == value.bit_length() // 8 + 1


def packed_decimal(unscaled: int, precision: int, scale: int) -> bytes:
    """Pack the number as ``decimal2bin`` does."""
    digits = f"{abs(unscaled):0{precision}d}"
    front, back = digits[: precision - scale], digits[precision - scale :]
    sizes = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
    groups = [front[: len(front) % 9]]
    groups += [front[i : i + 9] for i in range(len(front) % 9, len(front), 9)]
    groups += [back[i : i + 9] for i in range(0, len(back), 9)]
    packed = bytearray(b"".join(int(g).to_bytes(sizes[len(g)], "big") for g in groups if g))
    packed[0] ^= 0x80
    return bytes(byte ^ 0xFF for byte in packed) if unscaled < 0 else bytes(packed)


@st.composite
def decimals(draw: st.DrawFn) -> tuple[int, int, int]:
    """Draw (unscaled, precision, scale)."""
    precision = draw(st.integers(1, 65))
    scale = draw(st.integers(0, min(30, precision)))
    limit = 10**precision - 1
    return draw(st.integers(-limit, limit)), precision, scale


@holds_for(decimals())
def test_packed_decimal_keeps_its_value(value: tuple[int, int, int]) -> None:
    """Numbers have up to 65 digits and take the fewest bytes."""
    unscaled, precision, scale = value
    packed = packed_decimal(unscaled, precision, scale)
    assert packed_size(precision, scale) == len(packed)
    content = written(write_decimal(OUT, 0, array(packed), 0, precision, scale, NUMBERS))
    assert int.from_bytes(content[1:], "big", signed=True) == unscaled
    fewest = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    assert content[0] == 2 * fewest == 2 * (len(content) - 1)


@holds_for(st.floats(allow_nan=False, allow_infinity=False))
def test_double_has_the_digits_of_repr(value: float) -> None:
    """The text is the shortest that gives the number back, plain or with an exponent as in MySQL."""
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    text = written(write_json_double(OUT, 0, bits)).decode()
    assert float(text) == value
    assert math.copysign(1, float(text)) == math.copysign(1, value)
    wanted, found = (Decimal(t).normalize().as_tuple().digits for t in (repr(value), text))
    assert found == wanted
    assert "e" in text or "." in text


@holds_for(st.integers(0, 9999), st.integers(0, 15), st.integers(0, 31))
def test_date_keeps_its_parts(year: int, month: int, day: int) -> None:
    """Invalid dates are kept too."""
    packed = (year << 9 | month << 5 | day).to_bytes(3, "little")
    assert (
        written(temporal.write_date(OUT, 0, array(packed), 0))
        == f"{year:04}-{month:02}-{day:02}".encode()
    )


def fraction_bytes(micros: int, digits: int) -> bytes:
    """Return the fraction of `digits` digits, rounded up to an even number."""
    even = (digits + 1) // 2 * 2
    return (micros // 10 ** (6 - even)).to_bytes(even // 2, "big") if even else b""


@holds_for(st.integers(0, 6), st.integers(0, 999_999), st.integers(0, 2**32 - 1))
def test_timestamp_is_utc(digits: int, micros: int, seconds: int) -> None:
    """Times reach to the year 2106; 0 is the zero timestamp."""
    micros -= micros % 10 ** (6 - digits)
    packed = seconds.to_bytes(4, "big") + fraction_bytes(micros, digits)
    text = written(temporal.write_timestamp2(OUT, 0, array(packed), 0, digits)).decode()
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds, microseconds=micros)
    wanted = f"{moment:%Y-%m-%d %H:%M:%S}"
    if seconds == micros == 0:
        wanted = "0000-00-00 00:00:00"
    assert text == wanted + (f".{micros:06}"[: digits + 1] if digits else "")


@holds_for(
    st.integers(0, 6),
    st.integers(0, 999_999),
    st.tuples(st.integers(0, 838), st.integers(0, 59), st.integers(0, 59)),
    st.booleans(),
)
def test_time_keeps_its_sign_and_fraction(
    digits: int, micros: int, clock: tuple[int, int, int], is_negative: bool
) -> None:
    """A negative time is one two's complement number that includes its fraction."""
    micros -= micros % 10 ** (6 - digits)
    bits = 8 * ((digits + 1) // 2)
    fraction = int.from_bytes(fraction_bytes(micros, digits), "big")
    number = (clock[0] << 12 | clock[1] << 6 | clock[2]) << bits | fraction
    is_negative = is_negative and number > 0
    packed = ((-number if is_negative else number) + (0x800000 << bits)).to_bytes(
        3 + bits // 8, "big"
    )
    text = written(temporal.write_time2(OUT, 0, array(packed), 0, digits)).decode()
    wanted = f"{'-' * is_negative}{clock[0]:02}:{clock[1]:02}:{clock[2]:02}"
    assert text == wanted + (f".{micros:06}"[: digits + 1] if digits else "")


@holds_for(
    st.integers(0, 6),
    st.integers(0, 999_999),
    st.tuples(st.integers(0, 9999), st.integers(0, 12), st.integers(0, 31)),
    st.tuples(st.integers(0, 23), st.integers(0, 59), st.integers(0, 59)),
)
def test_datetime_keeps_its_parts(
    digits: int, micros: int, date: tuple[int, int, int], clock: tuple[int, int, int]
) -> None:
    """Zero months and days are kept too."""
    micros -= micros % 10 ** (6 - digits)
    number = (
        (date[0] * 13 + date[1]) << 22 | date[2] << 17 | clock[0] << 12 | clock[1] << 6 | clock[2]
    )
    packed = (number + (1 << 39)).to_bytes(5, "big") + fraction_bytes(micros, digits)
    text = written(temporal.write_datetime2(OUT, 0, array(packed), 0, digits)).decode()
    wanted = "{:04}-{:02}-{:02} {:02}:{:02}:{:02}".format(*date, *clock)
    assert text == wanted + (f".{micros:06}"[: digits + 1] if digits else "")


@holds_for(st.integers(0, 6), st.binary(min_size=8, max_size=8))
def test_any_bits_of_a_time_give_ascii_text(digits: int, packed: bytes) -> None:
    """Damaged bits give ASCII text too."""
    buffer = array(packed)
    for end in (
        temporal.write_time2(OUT, 0, buffer, 0, digits),
        temporal.write_timestamp2(OUT, 0, buffer, 0, digits),
        temporal.write_datetime2(OUT, 0, buffer, 0, digits),
        temporal.write_old_time(OUT, 0, buffer, 0),
    ):
        assert 8 <= end <= temporal.TEXT_BYTES_MAX
        assert set(written(end)) <= set(b"0123456789-:. ")


@holds_for(st.binary(max_size=40) | st.text(max_size=20).map(str.encode))
def test_utf8_validation_matches_python(content: bytes) -> None:
    """Surrogates, overlong forms and codes above U+10FFFF are invalid; utf8mb3 ends at U+FFFF."""
    buffer = array(content)
    for charset, bytes_max in (("utf8mb4", 4), ("utf8mb3", 3)):
        is_valid = decode_text(charset, content) is not None
        assert charsets.is_utf8(buffer, 0, len(content), bytes_max) == is_valid


_TABLES = CharsetTables()
_ARITHMETIC = ("ucs2", "utf16", "utf16le", "utf32")


@pytest.mark.parametrize("charset", [*(c for c in TABLE_CHARSETS if c != "ascii"), *_ARITHMETIC])
@holds_for(content=st.binary(max_size=24))
def test_text_of_any_charset_matches_the_reference(charset: str, content: bytes) -> None:
    """The kernel gives text if the bytes are valid and round-trip, else nothing."""
    entry = _TABLES.entry(charset)
    end = charsets.convert_text(
        OUT,
        0,
        array(content),
        0,
        len(content),
        entry.kind,
        entry.first,
        entry.second,
        _TABLES.codes,
    )
    wanted = decode_text(charset, content)
    assert (written(end).decode() if end >= 0 else None) == wanted


def test_every_code_of_every_charset_matches_the_reference() -> None:
    """All codes of one and two bytes are covered."""
    for charset in TABLE_CHARSETS:
        if charset == "ascii":
            continue
        entry = _TABLES.entry(charset)
        for code in (
            *(bytes([b]) for b in range(256)),
            *(n.to_bytes(2, "big") for n in range(0x8000, 0x10000, 7)),
        ):
            end = charsets.convert_text(
                OUT,
                0,
                array(code),
                0,
                len(code),
                entry.kind,
                entry.first,
                entry.second,
                _TABLES.codes,
            )
            assert (written(end).decode() if end >= 0 else None) == decode_text(charset, code), (
                charset,
                code,
            )


@holds_for(
    st.binary(max_size=3000) | st.text(alphabet="ab", max_size=3000).map(str.encode),
    st.integers(0, 9),
)
def test_inflate_reverses_zlib(content: bytes, level: int) -> None:
    """With and without a header. A truncated or changed stream is refused; output never exceeds the limit."""
    size = len(content)
    packed = zlib.compress(content, level)
    assert inflate(OUT, 0, size, array(packed), 0, len(packed), False) == size
    assert written(size) == content
    raw = zlib.compressobj(level, wbits=-15)
    bare = raw.compress(content) + raw.flush()
    assert inflate(OUT, 0, size, array(bare), 0, len(bare), True) == size
    assert inflate(OUT, 0, size, array(packed), 0, len(packed) - 1, False) == -1
    if size:
        assert inflate(OUT, 0, size - 1, array(packed), 0, len(packed), False) == -2


# ---- JSON: an encoder of MySQL's binary form, small and large, for comparison ------------------------

_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=25,
)


def _length(count: int) -> bytes:
    out = b""
    while count > 127:
        out += bytes([count & 127 | 128])
        count >>= 7
    return out + bytes([count])


def _binary(value: object, large: bool) -> tuple[int, bytes]:
    """Return type and bytes of a JSON value."""
    if value is None or isinstance(value, bool):
        return 4, bytes([0 if value is None else 1 if value else 2])
    if isinstance(value, int):
        for kind, form, low, high in (
            (5, "<h", -(2**15), 2**15),
            (7, "<i", -(2**31), 2**31),
            (9, "<q", -(2**63), 2**63),
        ):
            if low <= value < high:
                return kind, struct.pack(form, value)
        return 10, struct.pack("<Q", value)
    if isinstance(value, float):
        return 11, struct.pack("<d", value)
    if isinstance(value, str):
        return 12, _length(len(value.encode())) + value.encode()
    assert isinstance(value, list | dict)
    width, form = (4, "<I") if large else (2, "<H")
    keys = [key.encode() for key in value] if isinstance(value, dict) else []
    items = list(value.values()) if isinstance(value, dict) else value
    at = 2 * width + len(keys) * (width + 2) + len(items) * (width + 1)
    key_entries = b""
    for key in keys:
        key_entries += struct.pack(form, at) + struct.pack("<H", len(key))
        at += len(key)
    entries = rest = b""
    for item in items:
        kind, content = _binary(item, large)
        if kind in (4, 5) or (large and kind == 7):
            entries += bytes([kind]) + content.ljust(width, b"\0")
        else:
            entries += bytes([kind]) + struct.pack(form, at + len(rest))
            rest += content
    content = key_entries + entries + b"".join(keys) + rest
    head = struct.pack(form, len(items)) + struct.pack(form, 2 * width + len(content))
    return (0 if keys or isinstance(value, dict) else 2) + large, head + content


@holds_for(_JSON, st.booleans())
def test_binary_json_gives_the_same_document_as_text(value: object, large: bool) -> None:
    """Every type is covered, small and large, inlined or not."""
    kind, content = _binary(value, large)
    document = bytes([kind]) + content
    end = write_json(OUT, 0, OUT.size, array(document), 0, len(document), NUMBERS)
    assert end > 0
    assert json.loads(written(end)) == value


@holds_for(_JSON, st.booleans(), st.data())
def test_damaged_json_is_refused_or_gives_a_document(
    value: object, large: bool, data: st.DataObject
) -> None:
    """Output never exceeds the limit and parsing ends. ``tests.kit.fuzz.json`` damages JSON that servers log."""
    kind, content = _binary(value, large)
    document = bytearray(bytes([kind]) + content)
    for _ in range(data.draw(st.integers(1, 4))):
        document[data.draw(st.integers(0, len(document) - 1))] = data.draw(st.integers(0, 255))
    OUT[4096:4104] = 77
    end = write_json(OUT, 0, 4096, array(bytes(document)), 0, len(document), NUMBERS)
    assert end in (-1, -2) or 0 < end <= 4096
    if end > 0:
        json.loads(written(end).decode(errors="replace"))
    assert (OUT[4096:4104] == 77).all()


def _nested_arrays(depth: int) -> bytes:
    """Return ``[[[…]]]`` as binary JSON of small arrays."""
    value = b"\0\0\4\0"
    for _ in range(depth - 1):
        value = (
            (1).to_bytes(2, "little") + (7 + len(value)).to_bytes(2, "little") + b"\2\7\0" + value
        )
    return b"\2" + value


@pytest.mark.parametrize("depth", [1, 100, 101, 102, 5_000, 9_000])
def test_binary_json_is_read_to_the_depth_limit_of_servers(depth: int) -> None:
    """Servers allow 100 levels; the kernel refuses more, however large the stack is."""
    document = _nested_arrays(depth)
    end = write_json(OUT, 0, OUT.size, array(document), 0, len(document), NUMBERS)
    if depth <= 101:
        assert written(end) == b"[" * depth + b"]" * depth
    else:
        assert end == BROKEN
