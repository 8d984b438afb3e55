"""Row images of a SELECT against another encoder: any values, cut anywhere, in any room."""

import struct
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.drivers.mysql.catalog import CatalogTable
from millrace.errors import Fatal, Retryable
from millrace.producer.snapshot.images import read_images
from millrace.producer.snapshot.select_list import Selection
from millrace.schemas.table.structure import (
    BINARY,
    BINARY_COLLATION_ID,
    Column,
    ColumnType,
    TableSchema,
    TextEncoding,
    TypeCode,
)
from tests.kit.capture.images import Packets, images_of
from tests.kit.text_protocol import encoded_row, packet, result

TYPES = (
    ColumnType(TypeCode.TINY),
    ColumnType(TypeCode.LONGLONG, is_unsigned=True),
    ColumnType(TypeCode.YEAR),
    ColumnType(TypeCode.FLOAT, 4),
    ColumnType(TypeCode.DOUBLE, 8),
    ColumnType(TypeCode.NEWDECIMAL, 38 << 8 | 12),
    ColumnType(TypeCode.BIT, 12),
    ColumnType(TypeCode.VARCHAR, 99, text=TextEncoding(BINARY, BINARY_COLLATION_ID)),
)
DOUBLES = st.floats(allow_nan=False, allow_infinity=False)
VALUES = (
    st.integers(-128, 127).map(lambda n: (b"%d" % n, struct.pack("<b", n))),
    st.integers(0, 2**64 - 1).map(lambda n: (b"%d" % n, struct.pack("<Q", n))),
    st.integers(1901, 2155).map(lambda n: (b"%d" % n, bytes([n - 1900]))),
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(
        lambda n: (repr(n).encode(), struct.pack("<f", n))
    ),
    DOUBLES.map(lambda n: (repr(n).encode(), struct.pack("<d", n))),
    st.integers(1 - 10**38, 10**38 - 1).map(lambda n: (_decimal_text(n), _packed(n))),
    st.binary(min_size=2, max_size=2).map(lambda octets: (octets, octets)),
    st.binary(max_size=300).map(lambda octets: (octets, struct.pack("<I", len(octets)) + octets)),
)
ROWS = st.lists(st.tuples(*(st.none() | value for value in VALUES)), max_size=5)


def _decimal_text(unscaled: int) -> bytes:
    sign, digits, _ = Decimal(unscaled).as_tuple()
    text = "".join(map(str, digits)).rjust(13, "0")
    return f"{'-' if sign else ''}{text[:-12]}.{text[-12:]}".encode()


def _packed(unscaled: int) -> bytes:
    """26 digits before the point, in groups of 8, 9 and 9, and 12 after it, in groups of 9 and 3."""
    digits = str(abs(unscaled)).rjust(38, "0")
    parts = ((0, 8, 4), (8, 17, 4), (17, 26, 4), (26, 35, 4), (35, 38, 2))
    octets = bytearray(b"".join(int(digits[a:b]).to_bytes(size, "big") for a, b, size in parts))
    if unscaled < 0:
        octets = bytearray(byte ^ 255 for byte in octets)
    octets[0] ^= 128
    return bytes(octets)


def selection_of(*types: ColumnType) -> Selection:
    """Nullable columns of these types."""
    columns = tuple(Column(f"c{number}", type_, True) for number, type_ in enumerate(types))
    return Selection.of(CatalogTable("d", "t", {}, ()), TableSchema("d", "t", columns, (), ()))


@given(ROWS, st.lists(st.integers(1, 40), max_size=60), st.integers(5, 3000))
def test_images_are_those_of_another_encoder(
    rows: list[tuple[tuple[bytes, bytes] | None, ...]], cuts: list[int], held_bytes: int
) -> None:
    """However the bytes arrive, and however few are held. The last row's key is returned as it was sent."""
    keys = [[b"k%d" % number, b""] for number in range(len(rows))]
    sent = [
        (*key, *(value and value[0] for value in row)) for key, row in zip(keys, rows, strict=True)
    ]
    images = read_images(
        Packets(result(sent), cuts),
        selection_of(*TYPES),
        keys=2,
        bytes_max=1 << 20,
        held_bytes=held_bytes,
    )
    wanted = b"".join(
        bytes([sum(1 << n for n, value in enumerate(row) if value is None)])
        + b"".join(value[1] for value in row if value is not None)
        for row in rows
    )
    assert images.octets.tobytes() == wanted
    assert images.rows == len(rows)
    assert images.key == ((f"k{len(rows) - 1}", "") if rows else ())


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (TYPES[0], b""),
        (TYPES[0], b"1x"),
        (TYPES[0], b"-"),
        (TYPES[4], b""),
        (TYPES[4], b"1.2.3"),
        (TYPES[4], b"1e"),
        (TYPES[4], b"12345678901234567891"),
        (TYPES[5], b"1.5"),
        (TYPES[5], b"-"),
        (TYPES[5], b"1.12345678901x"),
        (TYPES[5], b"9" * 27 + b"." + b"0" * 12),
        (TYPES[6], b"abc"),
    ],
)
def test_value_that_is_none_of_its_type_is_refused(type_: ColumnType, text: bytes) -> None:
    """The column is named."""
    with pytest.raises(Fatal, match=r"MR-6520 .* c0 "):
        images_of(selection_of(type_), [(text,)])


def test_rows_beyond_the_limit_are_left() -> None:
    """Whole rows up to the limit, and one row however large it is."""
    selection = selection_of(TYPES[7])
    rows = [(b"x" * 100,)] * 9
    images = read_images(Packets(result(rows)), selection, keys=0, bytes_max=350)
    assert (images.rows, images.is_cut) == (3, True)
    huge = b"y" * 5000
    assert images_of(selection, [(huge,)]).octets.tobytes()[5:] == huge
    images = read_images(Packets(result([(huge,)])), selection, keys=0, bytes_max=350)
    assert (images.rows, images.is_cut) == (1, False)


@pytest.mark.parametrize("row", [b"\1a", b"\1a\1b\1c", b"\1a\xff", b"\xfc\1"])
def test_bytes_that_are_no_row_cost_a_retry(row: bytes) -> None:
    """Nothing of them is returned."""
    two = selection_of(TYPES[7], TYPES[7])
    with pytest.raises(Retryable, match="MR-1006"):
        read_images(Packets(packet(row, 250) + encoded_row([])), two, keys=0, bytes_max=99)


def test_row_of_several_packets_is_one_image() -> None:
    """The server continues a row of 16 MiB in a second packet."""
    size = (1 << 24) + 5
    row = encoded_row([np.zeros(size, np.uint8).tobytes(), b"7"])
    parts = row[: (1 << 24) - 1], row[(1 << 24) - 1 :]
    sent = packet(parts[0], 250) + packet(parts[1], 251) + packet(b"\xfe\0\0\2\0", 252)
    images = read_images(Packets(sent), selection_of(TYPES[7], TYPES[0]), keys=0, bytes_max=1)
    assert (images.rows, len(images.octets), int(images.octets[-1])) == (1, size + 6, 7)
