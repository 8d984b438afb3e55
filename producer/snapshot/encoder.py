"""Encodes the rows of a chunk by the converter's kernel, as records that need only their ids and ``seq``.

    packets of a SELECT ─► row images (``images``) ─► convert_rows ─► EncodedRows ─► stamp_rows, where they are inserted

A row that does not belong into the topic any more is left out by its key when the others are stamped.
Not done here: reading; deciding which rows are left out.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from millrace.errors import Fatal
from millrace.producer.convert.arrays import RECORD_BYTES_MAX, Bytes, KernelArrays, Numbers
from millrace.producer.convert.charset_tables import CharsetTables
from millrace.producer.convert.column_program import avro_string
from millrace.producer.convert.kernel import program as p
from millrace.producer.convert.kernel import state as s
from millrace.producer.convert.kernel.rows import CREATE, convert_rows, write_event_head
from millrace.producer.convert.tables import source_head
from millrace.producer.snapshot.images import Images
from millrace.producer.snapshot.kernel.rows import FRAME_BYTES, GROWTH_BYTES, stamp_rows
from millrace.producer.snapshot.select_list import Selection, selection_program
from millrace.schemas.record.control import Origin, RegisteredSchema
from millrace.schemas.table.structure import TableSchema

_FIRST_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class ReadPlace:
    """The fields of the chunk's rows: its snapshot and number, a published source transaction, the time of reading."""

    snapshot: str
    chunk: int
    gtid: str
    read_ms: int


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """Records with their keys in ``buffer``; ``bounds`` as in ``RecordBatch``. ``head_size``: see ``stamp_rows``."""

    schema: TableSchema
    buffer: Bytes
    bounds: Numbers
    head_size: int

    def __len__(self) -> int:
        return len(self.bounds)

    def without(self, keys: Collection[bytes]) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        """Whether each row is kept: those with one of these keys are not."""
        if not keys:
            return np.ones(len(self.bounds), np.bool_)
        octets = self.buffer.tobytes()
        spans = self.bounds[:, :2].tolist()
        return np.array([octets[a + FRAME_BYTES : b] not in keys for a, b in spans], np.bool_)

    def stamp(
        self,
        kept: "np.ndarray[tuple[int], np.dtype[np.bool_]]",
        *,
        value: RegisteredSchema,
        key: RegisteredSchema,
        seq: int,
    ) -> tuple[Bytes, Numbers]:
        """The kept records, with ``seq`` + 1 and on, and their bounds."""
        out = np.empty(len(self.buffer) + GROWTH_BYTES * len(self.bounds), np.uint8)
        bounds = np.empty((int(kept.sum()), 4), np.int64)
        end, _ = stamp_rows(
            self.buffer,
            self.bounds,
            kept,
            self.head_size,
            value.id,
            key.id,
            seq,
            out,
            0,
            bounds,
            0,
        )
        return out[:end], bounds


class RowEncoder:
    """Encodes the rows of one table. Used by one thread."""

    def __init__(self, origin: Origin, selection: Selection) -> None:
        self._selection = selection
        self._charsets = CharsetTables()
        arrays = self._arrays = KernelArrays()
        schema = selection.schema
        program = selection_program(schema, arrays, self._charsets)
        head = source_head(origin, schema, is_snapshot=True)
        row = np.zeros(p.TABLE_WIDTH, np.int64)
        row[p.FIRST_COLUMN], row[p.COLUMN_COUNT] = (
            arrays.add_columns(program.columns),
            len(schema.columns),
        )
        row[p.RESERVE_BYTES], row[p.IS_INCLUDED] = program.reserve_bytes, 1
        row[p.HEAD_START], row[p.HEAD_SIZE] = arrays.add_blob(head), len(head)
        row[p.KEY_COUNT] = len(schema.primary_key)
        self._slot = arrays.add_table()
        arrays.tables[self._slot] = row
        self._out = np.empty(_FIRST_BYTES, np.uint8)

    def encode(self, images: Images, place: ReadPlace) -> EncodedRows:
        head = self._begin(place)
        st, bounds = self._arrays.state, np.empty((max(images.rows, 1), 4), np.int64)
        pos = 0
        while (status := self._convert(images.octets, pos, bounds, head)) != s.NEED_EVENTS:
            pos = int(st[s.ROW_POS])
            if status != s.OUT_FULL:
                column = int(st[s.ERROR_DETAIL])
                name = self._selection.schema.columns[column].name
                raise Fatal("MR-6520", f"a value of {name} can't be encoded")
            self._make_room(len(images.octets) - pos)
        return EncodedRows(
            self._selection.schema,
            self._out[: st[s.OUT_AT]].copy(),
            bounds[: images.rows],
            int(st[s.TRANSACTION_HEAD_SIZE]),
        )

    def _begin(self, place: ReadPlace) -> int:
        """Write what all rows of the chunk share; the size of the event's head."""
        st = self._arrays.state
        st[:] = 0
        st[s.EVENT_TIME_S] = place.read_ms // 1000
        id_ = avro_string(place.gtid)
        of_transaction = _avro_long(place.read_ms) + id_
        of_file = avro_string(place.snapshot)
        self._arrays.set_head(s.HEAD_TRANSACTION, s.HEAD_FILE, of_transaction)
        self._arrays.set_head(s.HEAD_FILE, s.HEAD_EVENT, of_file)
        st[s.TRANSACTION_HEAD_SIZE], st[s.GTID_SIZE] = len(of_transaction), len(id_)
        st[s.FILE_SIZE] = len(of_file)
        arrays = self._arrays
        size: int = write_event_head(
            arrays.heads, arrays.blob, arrays.tables, self._slot, st, 0, place.chunk
        )
        return size

    def _convert(self, images: Bytes, pos: int, bounds: Numbers, head: int) -> int:
        arrays = self._arrays
        status: int = convert_rows(
            images,
            pos,
            len(images),
            CREATE,
            self._slot,
            0,
            head,
            arrays.state,
            self._out,
            bounds,
            arrays.tables,
            arrays.columns,
            arrays.blob,
            arrays.labels,
            self._charsets.codes,
            arrays.heads,
            arrays.scratch,
            arrays.numbers,
            arrays.key_spans,
        )
        return status

    def _make_room(self, left: int) -> None:
        need = int(self._arrays.state[s.OUT_AT] + self._arrays.state[s.NEED_BYTES]) + left
        if self._out.size >= RECORD_BYTES_MAX:
            raise Fatal("MR-6512", f"a record needs more than {RECORD_BYTES_MAX} bytes")
        larger = np.empty(max(2 * self._out.size, need), np.uint8)
        larger[: self._arrays.state[s.OUT_AT]] = self._out[: self._arrays.state[s.OUT_AT]]
        self._out = larger


def _avro_long(value: int) -> bytes:
    """A number that is not negative."""
    rest, out = value << 1, b""
    while rest >= 128:
        out += bytes([rest & 127 | 128])
        rest >>= 7
    return out + bytes([rest])
