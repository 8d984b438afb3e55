"""The kernel of copies against another encoder: any fields, cut anywhere, in any room for the text."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.consumer.copy.columns import CopyColumn, Kind
from millrace.consumer.copy.form import Form, insert_form, load_form
from millrace.consumer.kernel.text_rows import (
    DOCUMENT,
    FULL,
    MARK,
    NULL,
    OUT,
    ROWS,
    ROWS_MAX,
    ZEROS,
    make_state,
    put_text_rows,
)
from millrace.text_protocol.walk import AT, CONTINUES, DAMAGED, END, MORE, SEQUENCE, Ints
from tests.kit.text_protocol import EOF, ERROR, FIRST, encoded_row, packet, result

FIELDS = st.one_of(
    st.none(),
    st.binary(max_size=12),
    st.text(alphabet="\t\n\\\0'0N\"x", max_size=8).map(str.encode),
    st.builds(lambda size: b"\\" * size, st.sampled_from([250, 251, 252, 65535, 65536])),
)
ROWS_OF = st.integers(1, 4).flatmap(
    lambda width: st.lists(st.lists(FIELDS, min_size=width, max_size=width), max_size=6)
)
_LOAD = {9: b"\\t", 10: b"\\n", 92: b"\\\\", 0: b"\\0"}
_INSERT = {39: b"\\'", 92: b"\\\\", 0: b"\\0"}


def _escaped(value: bytes, escapes: dict[int, bytes]) -> bytes:
    return b"".join(escapes.get(byte, bytes([byte])) for byte in value)


def _lines(rows: list[list[bytes | None]]) -> bytes:
    """The lines that LOAD DATA reads."""
    return b"".join(
        b"\t".join(b"\\N" if value is None else _escaped(value, _LOAD) for value in row) + b"\n"
        for row in rows
    )


def _values(rows: list[list[bytes | None]]) -> bytes:
    """The text of INSERT after VALUES, with a comma after each row."""
    return b"".join(
        b"("
        + b",".join(
            b"NULL" if value is None else b"_binary'" + _escaped(value, _INSERT) + b"'"
            for value in row
        )
        + b"),"
        for row in rows
    )


@dataclass
class Run:
    """The kernel over all bytes. ``cuts``: how many bytes arrive each time; ``room``: bytes of ``out``."""

    form: Form
    cuts: list[int]
    room: int
    rows_max: int = 1 << 40

    def over(self, data: bytes) -> tuple[bytes, Ints, int]:
        """The text, the state, and why it stopped at last."""
        state = make_state(0, self.rows_max)
        state[SEQUENCE] = FIRST
        text = b""
        out = np.empty(max(self.room, self.form.margin + 2), np.uint8)
        arrived = 0
        cuts = iter(self.cuts)
        buffer = np.zeros(len(data) + 8, np.uint8)
        buffer[len(data) :] = 0xFB  # the kernel must not look there
        while True:
            form = self.form
            stopped = put_text_rows(
                state,
                buffer,
                arrived,
                0,
                out,
                form.escapes,
                form.texts,
                form.sizes,
                form.flags,
                form.margin,
            )
            assert state[AT] <= arrived
            if stopped == MORE:
                assert arrived < len(data)
                begin, arrived = arrived, min(len(data), arrived + next(cuts, len(data)))
                buffer[begin:arrived] = np.frombuffer(data[begin:arrived], np.uint8)
            elif stopped == FULL:
                text += out[: state[OUT]].tobytes()
                state[OUT] = state[MARK] = 0
                state[ROWS_MAX] = state[ROWS] + self.rows_max
            else:
                return text + out[: state[OUT]].tobytes(), state, stopped


def _columns(count: int, **about: object) -> tuple[CopyColumn, ...]:
    return tuple(CopyColumn(f"c{n}", f"c{n}", **about) for n in range(count))  # type: ignore[arg-type]


@given(ROWS_OF, st.lists(st.integers(1, 30), max_size=40), st.integers(0, 300), st.integers(1, 9))
def test_lines_are_those_of_another_encoder(
    rows: list[list[bytes | None]], cuts: list[int], room: int, rows_max: int
) -> None:
    """For any fields, however the bytes arrive and whatever fits into the text's room.

    A long text has more room: filled byte by byte, it would only take long.
    """
    form, data = load_form(_columns(len(rows[0]) if rows else 1)), result(rows)
    text, state, stopped = Run(form, cuts, max(room, len(data) // 50), rows_max).over(data)
    assert (text, state[ROWS], stopped) == (_lines(rows), len(rows), END)


@given(ROWS_OF, st.lists(st.integers(1, 30), max_size=40))
def test_rows_of_inserts_are_those_of_another_encoder(
    rows: list[list[bytes | None]], cuts: list[int]
) -> None:
    """MARK is the end of the last whole row."""
    form = insert_form(_columns(len(rows[0]) if rows else 1))
    text, state, _ = Run(form, cuts, 1 << 20).over(result(rows))
    assert text == _values(rows)
    assert state[MARK] == state[OUT] == len(text)


def test_error_of_the_server_ends_the_rows_before_it() -> None:
    """A row that begins with a length of eight bytes is no end, however it looks."""
    form = load_form(_columns(1))
    text, state, stopped = Run(form, [], 99).over(result([[b"a"]], ERROR))
    assert (text, state[ROWS], stopped) == (b"a\n", 1, END)
    longest = b"\xfe" + (300).to_bytes(8, "little") + b"y" * 300
    data = packet(longest, 250) + packet(EOF, 251)
    assert Run(form, [], 99).over(data)[0] == b"y" * 300 + b"\n"


def test_packet_that_continues_is_left_to_the_caller() -> None:
    """The caller gives the joined bytes, and the kernel reads on after them."""
    form = load_form(_columns(2))
    data = b"\xff\xff\xff\xfa"
    _, state, stopped = Run(form, [], 99).over(data + b"\0")
    assert (stopped, state[AT]) == (CONTINUES, 0)
    row = np.frombuffer(encoded_row([b"a\tb", None]), np.uint8)
    out = np.empty(99, np.uint8)
    about = (form.escapes, form.texts, form.sizes, form.flags, form.margin)
    assert put_text_rows(state, row, len(row), len(row), out, *about) == MORE
    assert out[: state[OUT]].tobytes() == b"a\\tb\t\\N\n"


@pytest.mark.parametrize(
    "data",
    [
        packet(b"", 250),
        packet(b"\1a", 251),  # a packet is missing
        packet(b"\1", 250),
        packet(b"\1a\1b", 250),  # a column too many
        packet(b"\xfc\1", 250),
        packet(b"\xfe" + b"\xff" * 8, 250),
        packet(b"\xfe" + b"\x7f" * 8, 250),
    ],
)
def test_bytes_that_are_no_rows_are_found(data: bytes) -> None:
    """And never read past."""
    assert Run(load_form(_columns(1)), [], 99).over(data + bytes(20))[2] == DAMAGED


def test_zeros_of_enums_and_refused_nulls_are_found() -> None:
    """A zero is counted with its row; a NULL names its column."""
    rows: list[list[bytes | None]] = [[b"0", b"0"], [b"00", b"0"], [None, b"1"]]
    form = insert_form((*_columns(1), CopyColumn("e", "e", Kind.ENUM)))
    text, state, _ = Run(form, [], 999).over(result(rows))
    assert state[ZEROS] == 2
    assert text.endswith(b"(NULL,1),")
    form = load_form((*_columns(1), CopyColumn("v", "v", refuses_null=True)))
    assert Run(form, [], 999).over(result(rows))[1][NULL] == 0
    assert Run(form, [], 999).over(result([[b"1", None]]))[1][NULL] == 2


def test_row_that_needs_an_expression_waits_for_the_caller() -> None:
    """Before anything of it is written. Called again, the kernel writes it."""
    form = load_form((*_columns(1), CopyColumn("j", "j", Kind.DOCUMENT)))
    run = Run(form, [], 999)
    text, state, stopped = run.over(result([[b"1.50", b"[1.5]"], [b"2", b"[1.50]"]]))
    assert (text, state[ROWS], stopped) == (b"1.50\t[1.5]\n", 1, DOCUMENT)
