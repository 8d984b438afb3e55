"""The row schemas that apply knows, by ID, and their programs for the kernel.

``RowSchemas`` is a value: ``learned`` returns a larger one, and Spark sends it to executors. Each process parses
layouts and makes programs when it needs them. Not done here: looking up an unknown ID.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from millrace.consumer.kernel import walk
from millrace.consumer.records.numbers import Ints
from millrace.schemas.record.row_layout import RowLayout, parse_row_layout
from millrace.schemas.table.structure import Column, TypeCode

KINDS = {
    "null": walk.NULL,
    "int": walk.INT,
    "long": walk.INT,
    "float": walk.FLOAT,
    "double": walk.DOUBLE,
    "bytes": walk.BYTES,
    "string": walk.STRING,
}


@dataclass(frozen=True, slots=True)
class RowSchemas:
    """Texts of ``Envelope`` schemas by ID. Control schemas are not included: they are part of the format."""

    texts: Mapping[int, str] = field(default_factory=dict)

    def learned(self, schema_id: int, text: str) -> "RowSchemas":
        """With one more schema, or with another text for a known ID (the registry was created again)."""
        if self.texts.get(schema_id) == text:
            return self
        return RowSchemas({**self.texts, schema_id: text})


NOTHING_ADDED: Mapping[int, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Programs:
    """Input of ``kernel.walk``. Slot ``s`` belongs to the schema ``ids[s]`` with ``layouts[s]``.

    A record of it has ``counts[s]`` columns in an image, and its cells ``widths[s]``: a view may add some.
    """

    ids: Ints
    counts: Ints
    widths: Ints
    starts: Ints
    program: Ints
    names: npt.NDArray[np.uint8]
    layouts: tuple[RowLayout, ...]


def make_programs(schemas: RowSchemas, added: Mapping[int, int] = NOTHING_ADDED) -> Programs:
    """The programs of all known schemas; those of the last few values are kept.

    ``added``: how many cells a view adds to each image of a schema's rows, by the schema's ID.

    A DDL statement changes the inventory and not the schemas, and a new schema leaves the others as they are. So
    neither parses all schemas again.
    """
    for known, more, programs in tuple(_made):
        if known is schemas and more == added:
            return programs
    ids = sorted(schemas.texts)
    parts = [_part(schemas.texts[schema_id]) for schema_id in ids]
    starts = np.zeros((len(ids) + 1, 2), np.int64)
    starts[1:, 0] = np.cumsum([len(part.program) for part in parts])
    starts[1:, 1] = np.cumsum([len(part.names) for part in parts])
    lines = [part.program for part in parts if len(part.program)]
    counts = np.array([len(part.program) for part in parts], np.int64)
    programs = Programs(
        np.array(ids, np.int64),
        counts,
        counts + np.array([added.get(schema_id, 0) for schema_id in ids], np.int64),
        starts,
        np.concatenate(lines) if lines else np.zeros((1, walk.PROGRAM_WIDTH), np.int64),
        np.frombuffer(b"".join(part.names for part in parts), np.uint8),
        tuple(part.layout for part in parts),
    )
    _made.append((schemas, added, programs))
    return programs


MADE_MAX = 4  # for the tasks of one driver
_made: deque[tuple[RowSchemas, Mapping[int, int], Programs]] = deque(maxlen=MADE_MAX)


@dataclass(frozen=True, slots=True)
class _Part:
    """The part of one schema in ``Programs``."""

    layout: RowLayout
    program: Ints
    names: bytes


@lru_cache(maxsize=16384)
def _part(schema_text: str) -> _Part:
    layout = layout_of(schema_text)
    lines = [_line(column, branches) for column, branches in _columns(layout)]
    program = np.array(lines, np.int64).reshape(-1, walk.PROGRAM_WIDTH)
    return _Part(layout, program, _names(layout))


@lru_cache(maxsize=16384)
def layout_of(schema_text: str) -> RowLayout:
    """The layout of one schema; Fatal MR-6010."""
    return parse_row_layout(schema_text)


def _names(layout: RowLayout) -> bytes:
    """Database, table and set, encoded as in ``source`` of a row."""
    found = (layout.table.database, layout.table.table, layout.set_name)
    return b"".join(_avro_string(name.encode()) for name in found)


def _avro_string(text: bytes) -> bytes:
    length, left = bytearray(), 2 * len(text)
    while left > 0x7F:
        length.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*length, left]) + text


def _columns(layout: RowLayout) -> list[tuple[Column, tuple[str, ...]]]:
    return list(zip(layout.table.columns, layout.branches, strict=True))


def _line(column: Column, branches: tuple[str, ...]) -> list[int]:
    kinds = [KINDS[branch] for branch in branches]
    if is_decimal(column):
        kinds = [walk.DECIMAL if kind == walk.BYTES else kind for kind in kinds]
    return [len(kinds), *kinds, *[0] * (walk.PROGRAM_WIDTH - 1 - len(kinds))]


def is_decimal(column: Column) -> bool:
    """True if the bytes are a number: DECIMAL and unsigned BIGINT."""
    code = column.type.code
    return code is TypeCode.NEWDECIMAL or (code is TypeCode.LONGLONG and column.type.is_unsigned)
