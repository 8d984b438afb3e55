"""Values of every column type, and what the formats write for them, by Python's own libraries.

A ``FormatCase`` is a column. ``values`` draws what the record has. ``debezium`` is the JSON value with the default
options of ``debezium-json``, ``exact`` with ``types: exact``, ``json`` in the format ``json``.
"""

import base64
import json
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal

import numpy as np
from hypothesis import strategies as st

from millrace.schemas.table.structure import ColumnType, TextEncoding, TypeCode

UTF8, BINARY = TextEncoding("utf8mb4", 45), TextEncoding("binary", 63)
EPOCH = datetime.fromisoformat("1970-01-01")

Convert = Callable[[object], object]


@dataclass(frozen=True, slots=True)
class FormatCase:
    """A column type with its values in each format; ``json`` and ``exact`` are the record's value if not given."""

    type: ColumnType
    values: "st.SearchStrategy[object]"
    debezium: Convert
    exact: Convert = lambda value: value
    json: Convert | None = None

    def in_json(self, value: object) -> object:
        """The value in the format ``json``."""
        return (self.json or self.exact)(value)


def same(value: object) -> object:
    """The record's value."""
    return value


def as_base64(value: object) -> str:
    """Bytes."""
    assert isinstance(value, bytes)
    return base64.b64encode(value).decode()


def _as_int(value: object) -> int:
    assert isinstance(value, Decimal)
    return int(value)


def _wrapped(value: object) -> int:
    number = _as_int(value)
    return number - 2**64 if number >= 2**63 else number


def _as_text(value: object) -> str:
    assert isinstance(value, Decimal)
    return f"{value:f}"


def unscaled(value: object) -> str:
    """A DECIMAL as Java's BigDecimal gives its unscaled bytes."""
    assert isinstance(value, Decimal)
    sign, digits, _ = value.as_tuple()
    number = int("".join(map(str, digits))) * (-1 if sign else 1)
    length = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return as_base64(number.to_bytes(length, "big", signed=True))


def moment(value: object) -> datetime:
    """A DATETIME of the record."""
    assert isinstance(value, str)
    return datetime.fromisoformat(value)


def since_epoch(unit: timedelta) -> Convert:
    """A DATETIME in a unit since 1970."""
    return lambda value: (moment(value) - EPOCH) // unit


def days(value: object) -> int:
    """A DATE in days since 1970."""
    assert isinstance(value, str)
    return date.fromisoformat(value).toordinal() - date(1970, 1, 1).toordinal()


def duration_us(value: object) -> int:
    """A TIME in microseconds."""
    assert isinstance(value, str)
    sign, hours, minutes, seconds, fraction = re.findall(
        r"(-?)(\d+):(\d+):(\d+)(?:\.(\d+))?", value
    )[0]
    total = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
    us = total * 1_000_000 + int((fraction or "0").ljust(6, "0"))
    return -us if sign else us


def _zoned(value: object) -> str:
    assert isinstance(value, str)
    return value.replace(" ", "T") + "Z"


def _bits(value: object) -> str:
    assert isinstance(value, bytes)
    return as_base64(value[::-1])


def _bit(value: object) -> bool:
    return value != b"\0"


def _number(value: object) -> int:
    assert isinstance(value, bytes)
    return int.from_bytes(value, "big")


def _compact(value: object) -> str:
    assert isinstance(value, str)
    return json.dumps(json.loads(value), separators=(",", ":"), ensure_ascii=False)


def _geometry(value: object) -> object:
    assert isinstance(value, bytes)
    srid = int.from_bytes(value[:4], "little", signed=True)
    return {"wkb": as_base64(value[4:]), "srid": srid or None}


def _point(value: object) -> object:
    assert isinstance(value, bytes)
    x, y = struct.unpack("<dd", value[9:25])
    return {"x": x, "y": y, "wkb": as_base64(value[4:]), "srid": 4326}


def _float(value: object) -> float:
    """The shortest digits of a 4-byte float, read as a double."""
    assert isinstance(value, float)
    return float(str(np.float32(value)))


def _vector(value: object) -> list[float]:
    assert isinstance(value, bytes)
    return [_float(number) for (number,) in struct.iter_unpack("<f", value)]


def _decimals(precision: int, scale: int) -> "st.SearchStrategy[object]":
    limit = 10**precision - 1
    return st.integers(-limit, limit).map(lambda number: Decimal(f"{number}e-{scale}"))


def fraction(digits: int) -> "st.SearchStrategy[str]":
    """The digits after the seconds, with their point."""
    return st.integers(0, 10**digits - 1).map(lambda n: f".{n:0{digits}}" if digits else "")


def _datetimes(digits: int) -> "st.SearchStrategy[object]":
    whole = st.datetimes(datetime.fromisoformat("1000-01-01"))
    return st.builds(
        lambda at, end: at.replace(microsecond=0).isoformat(" ") + end, whole, fraction(digits)
    )


def _times(digits: int) -> "st.SearchStrategy[object]":
    return st.builds(
        lambda sign, hours, seconds, end: (
            f"{sign}{hours:02}:{seconds // 60:02}:{seconds % 60:02}{end}"
        ),
        st.sampled_from(["", "-"]),
        st.integers(0, 838),
        st.integers(0, 3599),
        fraction(digits),
    )


def _integer(code: TypeCode, low: int, high: int, *, is_unsigned: bool = False) -> FormatCase:
    return FormatCase(ColumnType(code, is_unsigned=is_unsigned), st.integers(low, high), same)


_SPECIAL = st.sampled_from(list('"\\/\b\f\n\r\t\0\x1f\x7f\u2028é🛒'))
texts = st.one_of(st.text(max_size=40), st.text(_SPECIAL, max_size=12), st.just("x" * 200))
_WKB = struct.pack("<BIdd", 1, 1, 1.5, -2e300)
_DOCUMENTS = ('{"a": [1, 2], "b c": "d, e: \\"f"}', "[]", '"ü \\\\ "', '{"": {"k": null}}')

CASES: dict[str, FormatCase] = {
    "tiny": _integer(TypeCode.TINY, -128, 127),
    "short": _integer(TypeCode.SHORT, 0, 65535, is_unsigned=True),
    "medium": _integer(TypeCode.INT24, -(2**23), 2**23 - 1),
    "int": _integer(TypeCode.LONG, -(2**31), 2**31 - 1),
    "int_unsigned": _integer(TypeCode.LONG, 0, 2**32 - 1, is_unsigned=True),
    "bigint": _integer(TypeCode.LONGLONG, -(2**63), 2**63 - 1),
    "bigint_unsigned": FormatCase(
        ColumnType(TypeCode.LONGLONG, is_unsigned=True),
        st.integers(0, 2**64 - 1).map(Decimal),
        _wrapped,
        _as_text,
        _as_int,
    ),
    "year": _integer(TypeCode.YEAR, 1901, 2155),
    **{
        f"decimal_{precision}_{scale}": FormatCase(
            ColumnType(TypeCode.NEWDECIMAL, precision << 8 | scale),
            _decimals(precision, scale),
            unscaled,
            _as_text,
        )
        for precision, scale in ((5, 2), (10, 0), (18, 18), (19, 19), (30, 25), (65, 30))
    },
    "float": FormatCase(
        ColumnType(TypeCode.FLOAT, 4),
        st.floats(allow_nan=False, allow_infinity=False, width=32),
        _float,
        _float,
    ),
    "double": FormatCase(
        ColumnType(TypeCode.DOUBLE, 8), st.floats(allow_nan=False, allow_infinity=False), same
    ),
    "bit": FormatCase(
        ColumnType(TypeCode.BIT, 1), st.sampled_from([b"\0", b"\1"]), _bit, _bit, _number
    ),
    "bits": FormatCase(
        ColumnType(TypeCode.BIT, 33), st.binary(min_size=5, max_size=5), _bits, _bits, _number
    ),
    "date": FormatCase(
        ColumnType(TypeCode.DATE), st.dates(date(1, 1, 1)).map(date.isoformat), days
    ),
    "time": FormatCase(ColumnType(TypeCode.TIME2, 0), _times(0), duration_us),
    "time_6": FormatCase(ColumnType(TypeCode.TIME2, 6), _times(6), duration_us),
    "datetime": FormatCase(
        ColumnType(TypeCode.DATETIME2, 0), _datetimes(0), since_epoch(timedelta(milliseconds=1))
    ),
    "datetime_3": FormatCase(
        ColumnType(TypeCode.DATETIME2, 3), _datetimes(3), since_epoch(timedelta(milliseconds=1))
    ),
    "datetime_5": FormatCase(
        ColumnType(TypeCode.DATETIME2, 5), _datetimes(5), since_epoch(timedelta(microseconds=1))
    ),
    "timestamp_2": FormatCase(ColumnType(TypeCode.TIMESTAMP2, 2), _datetimes(2), _zoned),
    "text": FormatCase(ColumnType(TypeCode.VARCHAR, 400, text=UTF8), texts, same),
    "binary": FormatCase(
        ColumnType(TypeCode.VARCHAR, 40, text=BINARY), st.binary(max_size=40), as_base64, as_base64
    ),
    "enum": FormatCase(
        ColumnType(TypeCode.ENUM, 1, text=UTF8, labels=("a", 'b"')),
        st.sampled_from(["a", 'b"']),
        same,
    ),
    "set": FormatCase(
        ColumnType(TypeCode.SET, 1, text=UTF8, labels=("a", "b")),
        st.sampled_from(["", "a,b"]),
        same,
    ),
    "json": FormatCase(ColumnType(TypeCode.JSON, 4), st.sampled_from(_DOCUMENTS), _compact),
    "geometry": FormatCase(
        ColumnType(TypeCode.GEOMETRY, 4),
        st.binary(min_size=4, max_size=30),
        _geometry,
        as_base64,
    ),
    "point": FormatCase(
        ColumnType(TypeCode.GEOMETRY, 4, extent=1),
        st.just(struct.pack("<I", 4326) + _WKB),
        _point,
        as_base64,
    ),
    "vector": FormatCase(
        ColumnType(TypeCode.VECTOR, 4, extent=3),
        st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=3).map(
            lambda numbers: struct.pack(f"<{len(numbers)}f", *numbers)
        ),
        _vector,
        as_base64,
    ),
}
