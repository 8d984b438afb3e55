r"""The texts around values for ``kernel.text_rows``, in LOAD DATA and in INSERT.

LOAD DATA      value TAB value LF           NULL is \N
INSERT         (_binary'value',3),          NULL is NULL
"""

from dataclasses import dataclass

import numpy as np

from millrace.consumer.copy.columns import CopyColumn, Kind
from millrace.consumer.kernel.text_rows import COUNTS_ZERO, IS_DOCUMENT, REFUSES_NULL
from millrace.text_protocol.walk import Bytes, Ints

_OPENINGS = {Kind.TEXT: b"_utf8mb4'", Kind.DOCUMENT: b"_utf8mb4'", Kind.PLAIN: b"_binary'"}
_LOAD_ESCAPES = {0: "0", 9: "t", 10: "n", 92: "\\"}
_INSERT_ESCAPES = {0: "0", 39: "'", 92: "\\"}


@dataclass(frozen=True, slots=True)
class Form:
    """Arguments of the kernel. ``zeros``: each 0 in such a column is one warning (index 0 of an ENUM)."""

    texts: Bytes
    sizes: Ints
    flags: Bytes
    escapes: Bytes
    margin: int


def load_form(columns: tuple[CopyColumn, ...]) -> Form:
    """Lines of LOAD DATA."""
    lines = [(b"\t" if place else b"", b"", b"") for place in range(len(columns))]
    zeros = [column.kind is Kind.ENUM and bool(column.load) for column in columns]
    return _form(columns, [*lines, (b"\n", b"\\N", b"")], zeros, _LOAD_ESCAPES)


def insert_form(columns: tuple[CopyColumn, ...]) -> Form:
    """Rows of INSERT, each with a comma after it."""
    lines = []
    for place, column in enumerate(columns):
        opening = opening_of(column)
        lines.append((b"," if place else b"(", opening, b"'" if opening else b""))
    zeros = [column.kind is Kind.ENUM for column in columns]
    return _form(columns, [*lines, (b"),", b"NULL", b"")], zeros, _INSERT_ESCAPES)


def opening_of(column: CopyColumn) -> bytes:
    """The beginning of a literal up to the quote; empty for a number."""
    return _OPENINGS.get(column.kind, b"")


def _form(
    columns: tuple[CopyColumn, ...],
    lines: list[tuple[bytes, bytes, bytes]],
    zeros: list[bool],
    escapes: dict[int, str],
) -> Form:
    sizes = np.array([[len(text) for text in line] for line in lines], np.int64)
    texts = np.zeros((*sizes.shape, int(sizes.max())), np.uint8)
    for place, line in enumerate(lines):
        for which, text in enumerate(line):
            texts[place, which, : len(text)] = np.frombuffer(text, np.uint8)
    table = np.zeros(256, np.uint8)
    for byte, letter in escapes.items():
        table[byte] = ord(letter)
    flags = np.array(
        [
            column.refuses_null * REFUSES_NULL
            + is_zero * COUNTS_ZERO
            + (column.kind is Kind.DOCUMENT) * IS_DOCUMENT
            for column, is_zero in zip(columns, zeros, strict=True)
        ],
        np.uint8,
    )
    return Form(texts, sizes, flags, table, int(sizes[:-1].sum(axis=1).max() + sizes[-1].sum()))
