"""The record schemas that apply knows, by id, and their programs for the kernel.

A ``Book`` is a value: it grows by ``learned`` and is sent to executors as it is. Layouts are parsed and programs are
made where they are needed (once per book and process). Not done here: finding a schema that is not in the book.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from consumer.kernel import text, walk
from schemas.row_layout import RowLayout, parse_row_layout
from schemas.table import Column, TypeCode

Ints = npt.NDArray[np.int64]

_KINDS = {
    "null": walk.NULL,
    "int": walk.INT,
    "long": walk.INT,
    "float": walk.FLOAT,
    "double": walk.DOUBLE,
    "bytes": walk.BYTES,
    "string": walk.STRING,
}


@dataclass(frozen=True, slots=True)
class Book:
    """Texts of ``Envelope`` schemas by id. Control schemas are not in it: they are part of the format."""

    texts: Mapping[int, str] = field(default_factory=dict)

    def learned(self, schema_id: int, text: str) -> "Book":
        """This book and one schema more, or another text for an id (a registry that was made anew)."""
        if self.texts.get(schema_id) == text:
            return self
        return Book({**self.texts, schema_id: text})


@dataclass(frozen=True, slots=True)
class Programs:
    """What ``kernel.walk`` needs: slot ``s`` is ``layouts[s]``, its lines begin at ``lines[s]``."""

    ids: Ints
    slots: Ints
    lines: Ints
    widths: Ints
    program: Ints
    layouts: tuple[RowLayout, ...]


def make_programs(book: Book) -> Programs:
    """The programs of every schema in the book."""
    ids = sorted(book.texts)
    layouts = tuple(layout_of(book.texts[schema_id]) for schema_id in ids)
    widths = np.array([len(layout.branches) for layout in layouts], np.int64)
    lines = np.concatenate([np.zeros(1, np.int64), np.cumsum(widths)])[:-1].astype(np.int64)
    program = [_line(column, branches) for at in layouts for column, branches in _columns(at)]
    return Programs(
        np.array(ids, np.int64),
        np.arange(len(ids), dtype=np.int64),
        lines,
        widths,
        np.array(program or [[0] * walk.PROGRAM_WIDTH], np.int64),
        layouts,
    )


@lru_cache(maxsize=16384)
def layout_of(schema_text: str) -> RowLayout:
    """The layout of one schema; Fatal MR-6010."""
    return parse_row_layout(schema_text)


def _columns(layout: RowLayout) -> list[tuple[Column, tuple[str, ...]]]:
    return list(zip(layout.table.columns, layout.branches, strict=True))


def _line(column: Column, branches: tuple[str, ...]) -> list[int]:
    kinds = [_KINDS[branch] for branch in branches]
    if is_decimal(column):
        kinds = [walk.DECIMAL if kind == walk.BYTES else kind for kind in kinds]
    return [len(kinds), *kinds, *[0] * (walk.PROGRAM_WIDTH - 1 - len(kinds))]


def is_decimal(column: Column) -> bool:
    """True where the bytes are a number: DECIMAL and unsigned BIGINT."""
    code = column.type.code
    return code is TypeCode.NEWDECIMAL or (code is TypeCode.LONGLONG and column.type.is_unsigned)


def literal_form(column: Column) -> int:
    """How ``kernel.text`` writes the column's bytes."""
    return text.BITS if column.type.code is TypeCode.BIT else text.PLAIN
