"""Runs the kernel of snapshots once, so that it is compiled before a task needs it (``producer.task.warm_up``)."""

import numpy as np

from producer.convert.arrays import KernelArrays
from producer.convert.charset_tables import CharsetTables
from producer.convert.kernel import program as p
from producer.snapshot.encoder import ReadPlace, RowEncoder
from producer.snapshot.images import read_images
from producer.snapshot.kernel.rows import changed_keys
from producer.snapshot.select_list import Selection, selection_program
from producer.snapshot.structure import CatalogColumn, CatalogTable, keys_of, table_schema
from schemas.gtid import Flavour, any_gtid_of, parse_gtid_set
from schemas.record.avro_schema import envelope_schema, key_schema
from schemas.record.control import Origin, RegisteredSchema


def warm_snapshot() -> None:
    """Encode and stamp one row of a table with one column, and find its key."""
    columns = (CatalogColumn(name="a", full_type="int", nullable=False),)
    table = CatalogTable("warm", "t", columns, keys_of([("PRIMARY", "a", 0, False, False)]), {})
    schema = table_schema(table, Flavour.MYSQL)
    selection = Selection.of(table, schema)
    gtid = any_gtid_of(parse_gtid_set(Flavour.MYSQL, ""))
    encoder = RowEncoder(Origin(Flavour.MYSQL, "warm", "warm"), selection)
    images = read_images(_OneRow(), selection, keys=0, bytes_max=1)
    rows = encoder.encode(images, ReadPlace("warm", 0, gtid, 0))
    key = key_schema("warm", schema)
    assert key is not None
    buffer, bounds = rows.stamp(
        rows.without(()),
        value=RegisteredSchema("v", 1, envelope_schema("warm", schema)),
        key=RegisteredSchema("k", 2, key),
        seq=0,
    )
    program = selection_program(schema, KernelArrays(), CharsetTables())
    spans = np.zeros(2 * p.KEY_COLUMNS_MAX, np.int64)
    out, ends = np.zeros(len(buffer) + 64, np.uint8), np.zeros(2, np.int64)
    changed_keys(buffer, bounds, program.columns, 0, 1, 1, spans, out, ends)


class _OneRow:
    """The packets of a result with one row, which has the text 1 (``RowPackets``)."""

    sequence = 0

    def __init__(self) -> None:
        self._left = memoryview(b"\2\0\0\0\0011" + b"\5\0\0\1\xfe\0\0\2\0")

    def read(self, room: memoryview) -> int:
        """See ``RowPackets``."""
        taken, self._left = self._left[: len(room)], self._left[len(room) :]
        room[: len(taken)] = taken
        return len(taken)

    def end(self, _packet: bytes) -> None:
        """See ``RowPackets``."""
