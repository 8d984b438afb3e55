"""The rows of a chunk as records, and the keys that records change."""

import numpy as np
import pytest

from millrace.drivers.mysql.catalog import CatalogColumn, CatalogTable, UniqueKey
from millrace.drivers.mysql.table_schema import table_schema
from millrace.errors import Fatal
from millrace.producer.convert.arrays import KernelArrays
from millrace.producer.convert.charset_tables import CharsetTables
from millrace.producer.convert.column_program import ColumnProgram
from millrace.producer.convert.kernel import program as p
from millrace.producer.snapshot.encoder import EncodedRows, ReadPlace, RowEncoder
from millrace.producer.snapshot.kernel.rows import changed_keys
from millrace.producer.snapshot.select_list import Selection
from millrace.schemas.gtid import Flavour
from millrace.schemas.record.avro_codec import encode
from millrace.schemas.record.avro_schema import envelope_schema, key_schema
from millrace.schemas.record.control import Origin, RegisteredSchema, SchemaRecord
from millrace.schemas.record.framing import frame
from millrace.schemas.record.record import KnownSchemas, RowRecord, decode_record
from millrace.schemas.record.row_end import read_place, read_row_end
from millrace.schemas.table.structure import TableSchema
from tests.kit.capture.images import images_of
from tests.kit.capture.topic_rows import batch_of

GTID = "3e11fa47-71ca-11e1-9e33-c80aa9429562:7"
COLUMNS = (
    CatalogColumn("a", "int", "int", "", "", False, False),
    CatalogColumn("b", "varchar(9)", "varchar", "utf8mb4", "utf8mb4_bin", False, False, octets=36),
    CatalogColumn("e", "enum('x','y')", "enum", "", "", True, False),
    CatalogColumn("f", "float", "float", "", "", True, False),
    CatalogColumn("y", "binary(3)", "binary", "", "", True, False, octets=3),
)
TABLE = CatalogTable(
    "shop",
    "t",
    {column.name: column for column in COLUMNS},
    (UniqueKey("PRIMARY", ("b", "a"), True),),
)


def schema_of() -> TableSchema:
    """The structure of the table."""
    return table_schema(TABLE, Flavour.MYSQL, {"utf8mb4_bin": 46})


def encoded(*rows: tuple[bytes | None, ...]) -> EncodedRows:
    """Rows as SELECT returns them, in the second chunk."""
    selection = Selection.of(TABLE, schema_of())
    encoder = RowEncoder(Origin(Flavour.MYSQL, "task", "set"), selection)
    return encoder.encode(images_of(selection, rows), ReadPlace("s1", 1, GTID, 1_700_000_000_123))


def registered() -> tuple[RegisteredSchema, RegisteredSchema]:
    """The schemas of the value and of the key."""
    value, key = envelope_schema("set", schema_of()), key_schema("set", schema_of())
    assert key is not None
    return RegisteredSchema("v", 300, value), RegisteredSchema("k", 301, key)


def test_kept_rows_are_whole_records_with_the_next_numbers() -> None:
    """The others are left out by their key, which a change in the stream has."""
    rows = encoded(
        (b"1", b"x", b"2", b"0.1", b"ab"),
        (b"2", "ü".encode(), None, None, None),
        (b"-3", b"", b"1", b"0", b"abc"),
    )
    value, key = registered()
    kept = rows.without({encode(key.schema.text, {"b": "ü", "a": 2})})
    buffer, bounds = rows.stamp(kept, value=value, key=key, seq=8190)
    known = KnownSchemas()
    known.learn(SchemaRecord(value, key, "shop", "t", 0))
    found = []
    for a, b, c, d in bounds.tolist():
        octets = buffer[c:d].tobytes()
        record = decode_record(buffer[a:b].tobytes(), octets, known)
        assert isinstance(record, RowRecord)
        assert (record.change.op, record.source.is_snapshot) == ("r", True)
        assert record.source.place.gtid == record.transaction.gtid == GTID
        assert record.transaction.is_last
        assert record.key == {name: record.change.after[name] for name in ("b", "a")}  # type: ignore[index]
        found.append((record.source.seq, *read_place(octets, read_row_end(octets))))
    assert found == [(8191, 1, 0), (8192, 1, 2)]


def test_value_that_its_type_forbids_is_refused() -> None:
    """A longer BINARY than its column's: the column is named, and no record is made."""
    with pytest.raises(Fatal, match=r"MR-6520 .* y "):
        encoded((b"1", b"x", None, None, b"abcd"))


def test_moved_key_changes_both_keys() -> None:
    """An update has the keys of both images if they differ; other records have their record key."""
    value, key = registered()
    rows: dict[str, dict[str, object]] = {
        "one": {"a": 1, "b": "x" * 9, "e": "x", "f": 1.5, "y": b"abc"},
        "two": {"a": 1, "b": "ü", "e": 3, "f": None, "y": None},
        "same": {"a": 1, "b": "ü", "e": None, "f": 2.5, "y": b"abc"},
    }

    def record(before: str, after: str) -> tuple[bytes, bytes]:
        named = rows[after or before]
        body = encode(
            value.schema.text,
            {
                "before": rows.get(before),
                "after": rows.get(after),
                "source": SOURCE,
                "op": "u",
                "ts_ms": 1,
                "transaction": {"id": GTID, "total_order": 1, "last": True},
            },
        )
        return frame(301, key_body(named)), frame(300, body)

    def key_body(row: dict[str, object]) -> bytes:
        return encode(key.schema.text, {"b": row["b"], "a": row["a"]})

    batch = batch_of(
        [record("", "one"), record("one", "two"), record("two", "same"), record("same", "")],
        None,  # type: ignore[arg-type]
    )
    arrays = KernelArrays()
    program = ColumnProgram(schema_of(), arrays, CharsetTables())
    out, ends = np.zeros(4096, np.uint8), np.zeros(16, np.int64)
    count = changed_keys(
        batch.buffer.copy(),
        batch.bounds,
        program.columns,
        0,
        len(COLUMNS),
        2,
        np.zeros(2 * p.KEY_COLUMNS_MAX, np.int64),
        out,
        ends,
    )
    starts = [0, *ends[: count - 1].tolist()]
    keys = [out[a:b].tobytes() for a, b in zip(starts, ends[:count].tolist(), strict=True)]
    one, two = key_body(rows["one"]), key_body(rows["two"])
    assert keys == [one, two, one, two, two]


SOURCE: dict[str, object] = {
    **dict.fromkeys(("version", "connector", "name", "snapshot", "db", "table", "set"), "x"),
    **dict.fromkeys(("ts_ms", "server_id", "pos", "row", "event_flags", "seq"), 1),
    "gtid": GTID,
    "file": "f",
}
