"""JSON that a MySQL target would read differently is written by expression; other text is sent unchanged."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.consumer.kernel.json_numbers import MARKS, NO_MARKS, SIGN_MARKS, find_inexact
from millrace.consumer.kernel.walk import CELL_WIDTH, FIRST_CELL, RECORD_WIDTH, STRING
from millrace.consumer.tables.json_documents import by_expression, is_read_exactly, unmarked
from millrace.producer.convert.kernel.doubles import TEXT_BYTES_MAX, write_json_double


def _is_found(text: bytes, marks: int = NO_MARKS) -> bool:
    """Return whether the kernel flags the text."""
    records = np.zeros((1, RECORD_WIDTH), np.int64)
    cells = np.zeros((1, CELL_WIDTH), np.int64)
    records[0, FIRST_CELL] = 0
    cells[0, :3] = STRING, 0, len(text)
    data = np.frombuffer(text + b"]1.50", np.uint8)  # the kernel must not look past its end
    zero = np.zeros(1, np.int64)
    return bool(find_inexact(data, records, zero, cells, zero, marks)[0])


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("[1.50]", "JSON_REPLACE('[1.50]','$[0]',1.50)"),
        ("1.50", "JSON_REPLACE('1.50','$',1.50)"),
        (
            '{"a\'": [0, {"": 0.00}]}',
            'JSON_REPLACE(\'{"a\\\'": [0, {"": 0.00}]}\',\'$."a\\\'"[1].""\',0.00)',
        ),
        (
            '{"a": 18446744073709551616, "b": [], "c\\"": 2.0, "d": -0.10}',
            'JSON_REPLACE(\'{"a": 18446744073709551616, "b": [], "c\\\\"": 2.0, "d": -0.10}\','
            "'$.\"a\"',18446744073709551616,'$.\"d\"',-0.10)",
        ),
    ],
)
def test_number_that_mysql_would_reformat_is_set_by_path(text: str, wanted: str) -> None:
    """Keys are written as in the text."""
    assert by_expression(text.encode()) == wanted.encode()
    assert _is_found(text.encode())


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "null",
        '["1.50", {"1.50": 1.5}]',
        "[1.0, 1e300, -0.0, 0, 18446744073709551615, -9223372036854775808]",
        "1" * 66,  # no DECIMAL has so many digits
        "}]1.50",
    ],
)
def test_json_that_mysql_reads_exactly_is_sent_as_text(text: str) -> None:
    """Numbers in strings, doubles and 64-bit integers are sent as text, and so is invalid JSON."""
    assert by_expression(text.encode()) is None


MARKED = (
    ('"2024-01-31" ', "'$',CAST('2024-01-31' AS DATE)"),
    ('["-838:59:59.000001" ]', "'$[0]',CAST('-838:59:59.000001' AS TIME(6))"),
    (
        '{"a": "2024-00-00 10:00:00.500000" }',
        "'$.\"a\"',CAST('2024-00-00 10:00:00.500000' AS DATETIME(6))",
    ),
    ("[1.5 , 1.50 ]", "'$[0]',1.5,'$[1]',1.50"),
    ("[[2], -3 ]", "'$[1]',CAST(-3 AS DECIMAL(1,0))"),
    ('"base64:type15:AP8n" ', "'$',x'00ff27'"),
    ('"base64:type15:' + "YWFh" * 19 + '\\nYQ==" ', f"'$',x'{'61' * 58}'"),
    ("[7  ]", "'$[0]',CAST(7 AS UNSIGNED)"),
    ("[5000000000  ]", "'$[0]',CAST(5000000000 AS SIGNED)"),
)


@pytest.mark.parametrize(("text", "wanted"), MARKED)
def test_marked_value_is_set_with_its_type(text: str, wanted: str) -> None:
    """Without marks, as in a text of MariaDB, the same blanks mean nothing."""
    octets = text.encode()
    found = by_expression(octets, is_marked=True)
    assert found is not None
    assert found.endswith(f"',{wanted})".encode())
    assert _is_found(octets, SIGN_MARKS)
    assert _is_found(octets, MARKS) == ("  ]" not in text)
    assert b" ]" not in unmarked(octets)
    assert not unmarked(octets).endswith(b" ")


@pytest.mark.parametrize("text", ['"base64:type16:AAU=" ', '["x" , {"b": 1, "c d": [2, 3]} ]'])
def test_type_that_no_expression_gives_stays_a_string(text: str) -> None:
    """Its text is the same."""
    assert by_expression(text.encode(), is_marked=True) is None


@given(st.floats(allow_nan=False, allow_infinity=False).filter(lambda value: abs(value) > 0))
def test_double_printed_by_mysql_is_read_exactly(value: float) -> None:
    """The rule matches the kernel that prints doubles."""
    out = np.zeros(TEXT_BYTES_MAX, np.uint8)
    bits = int(np.float64(value).view(np.int64))
    end = write_json_double(out, 0, bits)
    assert is_read_exactly(out[:end].tobytes())


_NUMBERS = st.from_regex(re.compile(r"-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,30})?"), fullmatch=True)
_TEXTS = st.recursive(
    _NUMBERS | st.sampled_from(["null", '"1.50"', '"\\\\"', '"\\""', "1e300"]),
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda parts: f"[{', '.join(parts)}]")
        | st.lists(inner, max_size=4).map(
            lambda parts: "{" + ", ".join(f'"k{n}": {part}' for n, part in enumerate(parts)) + "}"
        )
    ),
    max_leaves=8,
)


@given(_TEXTS)
def test_kernel_flags_every_document_that_needs_an_expression(text: str) -> None:
    """The kernel may flag more of them."""
    if by_expression(text.encode()) is not None:
        assert _is_found(text.encode())


@given(st.lists(st.sampled_from([*'[]{},:"1.50-e\\ ', "1.50"])).map("".join))
def test_invalid_json_is_left_to_the_server(text: str) -> None:
    """An expression may or may not be made; its text is in it."""
    made = by_expression(text.encode())
    if made is not None:
        assert made.startswith(b"JSON_REPLACE('" + text.encode().replace(b"\\", b"\\\\") + b"'")
