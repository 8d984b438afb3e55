"""A batch of walked records: their numbers, the places of their values, and literals for SQL.

``walk_values`` stops before the first value that it can not walk and returns the reason; the caller decides. It also
stops after ``CELLS_MAX`` cells, because a NULL takes one byte in a record and 24 in a cell. All arrays cover the whole
batch. A *record number* counts from 0 in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millrace.consumer.kernel import json_numbers, literals, walk
from millrace.consumer.kernel.load_data import put_lines
from millrace.consumer.kernel.walk import CELL_WIDTH
from millrace.consumer.records.numbers import Ints, RecordNumbers, Seqs, Slots
from millrace.consumer.records.row_schemas import Programs

Bytes = npt.NDArray[np.uint8]

# 24 MiB; a window of 32,768 rows reaches it with more than 16 columns. Four windows are in memory at once.
CELLS_MAX = 1 << 20

_BINARY_INTRODUCER = np.frombuffer(b"_binary", np.uint8)


@dataclass(frozen=True)
class Values:
    """Record values in Arrow's layout: value ``i`` is ``payload[offsets[i]:offsets[i + 1]]``."""

    payload: Bytes
    offsets: npt.NDArray[np.integer[npt.NBitBase]]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def value(self, number: int) -> bytes:
        """The bytes of one value."""
        return self.payload[self.offsets[number] : self.offsets[number + 1]].tobytes()

    def part(self, first: int, end: int) -> "Values":
        """Values ``first`` to ``end - 1``."""
        return Values(self.payload, self.offsets[first : end + 1])

    @property
    def byte_count(self) -> int:
        """The size of all values."""
        return int(self.offsets[-1] - self.offsets[0])

    def sizes(self) -> Ints:
        """The size of each value in bytes."""
        return np.diff(self.offsets).astype(np.int64)


@dataclass(frozen=True)
class Rows:
    """Walked values. ``status``: the reason for stopping before the last one (``walk.OK``: none)."""

    values: Values
    programs: Programs
    records: Ints
    cells: Ints
    status: int

    def __len__(self) -> int:
        return len(self.records)

    def column(self, which: int) -> Ints:
        """One number of every record, such as ``walk.SEQ``."""
        column: Ints = self.records[:, which]
        return column

    def slots(self, numbers: RecordNumbers) -> Slots:
        """The slot of each of these records, -1 for a control record."""
        return Slots(self.records[numbers, walk.SLOT])

    def seqs(self, numbers: RecordNumbers) -> Seqs:
        """The seq of each of these records."""
        return Seqs(self.records[numbers, walk.SEQ])

    def has_changed(self, number: int, columns: tuple[int, ...]) -> bool:
        """Whether an UPDATE changes the bytes of one of these columns."""
        first, width = (
            int(self.records[number, walk.FIRST_CELL]),
            int(self.programs.widths[self.records[number, walk.SLOT]]),
        )
        return any(self._cell(first + at) != self._cell(first + width + at) for at in columns)

    def _cell(self, place: int) -> tuple[int, bytes]:
        kind, start, end = (int(part) for part in self.cells[place, :3])
        return kind, self.values.payload[start:end].tobytes() if kind != walk.NULL else b""

    def gtid(self, number: int) -> str:
        """The source transaction of one row record."""
        start, end = self.records[number, walk.GTID_START], self.records[number, walk.GTID_END]
        return self.values.payload[start:end].tobytes().decode("utf-8", "replace")

    def firsts(self, befores: Ints, afters: Ints | None = None) -> Ints:
        """For ``kernel.literals``: first cells of the records with the before images, and with the after images."""
        found: Ints = np.empty((len(befores), 2), np.int64)
        found[:, 0] = self.records[befores, walk.FIRST_CELL]
        found[:, 1] = found[:, 0] if afters is None else self.records[afters, walk.FIRST_CELL]
        return found

    def text_of(self, firsts: Ints, shape: Ints, around: Sequence[bytes] = (b"",) * 4) -> bytes:
        """Rows of literals joined by commas. ``around``: the lead, opening, closing, tail (``tables.table_plan``)."""
        size = int(literals.measure(firsts, self.cells, shape).sum()) + len(shape) * len(firsts)
        lead, opening, closing, tail = (np.frombuffer(text, np.uint8) for text in around)
        size += (len(opening) + len(closing) + 1) * len(firsts) + len(lead) + len(tail)
        out = np.empty(size, np.uint8)
        length = literals.put_rows(
            out,
            self.values.payload,
            firsts,
            self.cells,
            shape,
            lead,
            opening,
            closing,
            tail,
            _BINARY_INTRODUCER,
        )
        return out[:length].tobytes()

    def lines_of(self, firsts: Ints, shape: Ints) -> bytes:
        """Rows as the text that LOAD DATA reads (``kernel.load_text``)."""
        size = int(literals.measure(firsts, self.cells, shape).sum())
        out = np.empty(size + (len(shape) + 1) * len(firsts), np.uint8)
        length = put_lines(out, self.values.payload, firsts, self.cells, shape)
        return out[:length].tobytes()

    def filled(self, firsts: Ints, template: "Template") -> bytes:
        """A template filled with the literals of one row."""
        size = int(literals.measure(firsts, self.cells, template.shape)[0])
        out = np.empty(size + len(template.glue), np.uint8)
        length = literals.put_template(
            out,
            self.values.payload,
            firsts,
            self.cells,
            template.shape,
            template.glue,
            template.ends,
            _BINARY_INTRODUCER,
        )
        return out[:length].tobytes()

    def inexact(
        self, numbers: Ints, columns: tuple[int, ...], *, width: int, marks: int
    ) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        """True for the records of one table with a JSON text, in either image, that may be an inexact literal.

        ``marks``: see ``kernel.json_numbers``.
        """
        places = np.array([image * width + at for image in (0, 1) for at in columns], np.int64)
        found: npt.NDArray[np.uint8] = json_numbers.find_inexact(
            self.values.payload, self.records, numbers, self.cells, places, marks
        )
        return found.astype(np.bool_)

    def text_sizes(self, firsts: Ints, shape: Ints) -> Ints:
        """An upper limit of each row's literals in bytes."""
        found: Ints = literals.measure(firsts, self.cells, shape)
        return found


@dataclass(frozen=True)
class Template:
    """Fixed texts around literals, one more than lines of ``shape``. ``ends``: the ends of the texts in ``glue``."""

    glue: Bytes
    ends: Ints
    shape: Ints

    @property
    def first(self) -> bytes:
        """The text before the first literal."""
        return self.glue[: self.ends[0]].tobytes()

    @classmethod
    def of(cls, texts: list[bytes], shape: Ints) -> "Template":
        """From the texts, one more than literals."""
        assert len(texts) == len(shape) + 1
        ends = np.cumsum([len(text) for text in texts]).astype(np.int64)
        return cls(np.frombuffer(b"".join(texts), np.uint8), ends, shape)


def walk_values(values: Values, programs: Programs) -> Rows:
    """Walk up to the end, to the first value that can not be walked, or as far as the cells go; at least one row."""
    places = (values.payload, values.offsets, 0)
    counted = walk.count_cells(*places, len(values), programs.ids, programs.widths, CELLS_MAX)
    count, room = map(int, counted)
    records = np.zeros((count, walk.RECORD_WIDTH), np.int64)
    cells = np.zeros((room, CELL_WIDTH), np.int64)
    done, status = walk.walk(
        *places,
        count,
        programs.ids,
        programs.counts,
        programs.widths,
        programs.starts,
        programs.program,
        programs.names,
        records,
        cells,
    )
    return Rows(values, programs, records[:done], cells, int(status))
