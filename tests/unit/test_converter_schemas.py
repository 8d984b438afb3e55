"""The converter writes schema records before rows and repeats them; its table cache is bounded."""

from collections.abc import Sequence

import pytest

from millrace.errors import Fatal
from millrace.producer.convert import arrays, tables
from millrace.producer.convert import converter as converting
from millrace.producer.convert.output import ROOM_BYTES
from millrace.schemas.documents import TableFilter
from millrace.schemas.record.control import SchemaRecord
from millrace.schemas.record.record import KnownSchemas, RowRecord, decode_record
from tests.kit.binlog.builder import BinlogBuilder, shop_table_map
from tests.kit.capture.converter import (
    MemoryRegistry,
    convert,
    decoded,
    raw_records,
    two_transactions,
)


def test_schema_precedes_its_first_row_once_per_run() -> None:
    """A new table id needs no new schema; another structure does."""
    builder = two_transactions()
    builder.transaction(3, 99, "t", [(5, "e")])
    builder.transaction(4, 100, "u", [(6, "f")])
    (batch,) = convert(builder).batches()
    kinds = [value[6:9] for _, value in raw_records(batch)]
    assert [kind for kind in kinds if kind == b"sch"] == [
        b"sch"
    ] * 7  # five control schemas, two tables


def test_new_tables_of_a_window_are_registered_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first new one brings those that follow, a bounded number; excluded and known ones are left out."""
    monkeypatch.setattr(tables, "TABLES_AHEAD", 4)
    builder = BinlogBuilder()
    for number, name in enumerate(["a", "b", "tmp1", "b", "c", "d", "e", "a", "f"], 1):
        builder.transaction(number, 100 + number, name, [(number, "x")])
    prepared: list[list[str]] = []
    registry = MemoryRegistry()

    def prepare(schemas: Sequence[tuple[str, str]]) -> None:
        assert not any(pair in registry.ids for pair in schemas), "before each is registered"
        prepared.append([subject for subject, _ in schemas])

    conversion = convert(builder, filter=TableFilter(exclude=("shop.tmp*",)), registry=registry)
    converter = conversion.converter(prepare=prepare)
    batch = converter.next_batch(rows_max=100, bytes_max=1 << 20, timeout_s=600)
    assert batch is not None
    assert batch.rows == 8
    names = [[subject.split(".")[-2] for subject in each] for each in prepared]
    assert names == [["a", "a", "b", "b", "c", "c"], ["d", "d", "e", "e", "f", "f"]]


def test_malformed_map_ahead_is_no_error_before_its_turn() -> None:
    """The rows before it come out; then it is named with its place."""
    builder = two_transactions()
    builder.gtid(3)
    builder.query("BEGIN")
    at = builder.event(19, shop_table_map("bad", 9)[:-30])
    builder.xid()
    rows: list[RowRecord] = []
    known = KnownSchemas()
    with pytest.raises(Fatal) as caught:  # noqa: PT012 - the batches before it are kept
        for batch in convert(builder).batches(rows_max=1):
            rows += [row for row in decoded(batch, known) if isinstance(row, RowRecord)]
    assert len(rows) == 4
    assert str(caught.value.context["coordinates"]).endswith(f":{at}")


def _two_tables(count: int) -> BinlogBuilder:
    """``often`` is in every source transaction, ``seldom`` in each tenth; the last one is large."""
    builder = BinlogBuilder()
    for number in range(1, count):
        builder.transaction(number, 7, "often", [(number, "x" * 60)])
        if number % 10 == 0:
            builder.transaction(count + number, 8, "seldom", [(number, "y")])
    builder.transaction(3 * count, 7, "often", [(n, "z" * 60) for n in range(5 * count)])
    return builder


@pytest.mark.parametrize("cause", ["bytes", "time"])
@pytest.mark.guarantee("provable")
def test_schema_is_repeated_within_a_bounded_number_of_records(
    cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever retention cuts, each schema is repeated soon, even inside a large source transaction."""
    every, batch_bytes = 20_000, 4096
    slack = 2 * batch_bytes + ROOM_BYTES  # the bound is checked between batches
    if cause == "bytes":
        monkeypatch.setattr(converting, "SCHEMA_REPEAT_BYTES", every)
    else:
        monkeypatch.setattr(converting, "SCHEMA_REPEAT_S", 0.0)
    explained: dict[str, int] = {}
    at = furthest = count = 0
    known, last_seq = KnownSchemas(), 0
    for batch in convert(_two_tables(800)).batches(rows_max=40, bytes_max=batch_bytes):
        for _, value in raw_records(batch):
            record = decode_record(None, value, known)
            if isinstance(record, SchemaRecord) and record.table:
                explained[record.table] = at
                count += 1
                assert record.seq == last_seq
            elif isinstance(record, RowRecord):
                furthest = max(furthest, at - explained[record.source.table])
                assert record.source.seq == last_seq + 1
                last_seq = record.source.seq
            at += len(value)
    assert last_seq == 799 + 79 + 4000
    assert at > 10 * (every + slack)
    assert furthest < every + slack
    assert count > at // (every + slack)


@pytest.mark.parametrize(("tables_max", "table_ids"), [(8, 1 << 16), (1 << 13, 16)])
def test_full_table_cache_keeps_tables_of_the_statement(
    monkeypatch: pytest.MonkeyPatch, tables_max: int, table_ids: int
) -> None:
    """One statement changes two tables; the second fills the cache of structures or of ids."""
    monkeypatch.setattr(tables, "TABLES_MAX", tables_max)
    monkeypatch.setattr(arrays, "TABLE_IDS", table_ids)
    builder = BinlogBuilder()
    for number in range(40):
        builder.gtid(1 + number)
        builder.query("BEGIN")
        for table in (2 * number, 2 * number + 1, 2 * number + 2):
            builder.map_shop_table(f"t{table}", table_id=100 + table)
        for table in (2 * number, 2 * number + 1, 2 * number + 2):
            builder.insert(100 + table, [(number, None)])
        builder.xid()
    assert len(convert(builder).rows()) == 120


def test_statement_may_map_more_tables_than_the_cache_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Structures and ids of the open source transaction are kept, in any number."""
    monkeypatch.setattr(tables, "TABLES_MAX", 8)
    monkeypatch.setattr(arrays, "TABLE_IDS", 16)
    builder = BinlogBuilder()
    for number in (1, 2):
        builder.gtid(number)
        builder.query("BEGIN")
        for table in range(50):
            builder.map_shop_table(f"t{table}", table_id=100 * number + table)
        for table in range(50):
            builder.insert(100 * number + table, [(table, None)])
        builder.xid()
    assert len(convert(builder).rows()) == 100


def test_schema_is_not_repeated_without_need() -> None:
    """Without the rule, each table has one schema record."""
    known = KnownSchemas()
    records = [
        record
        for batch in convert(_two_tables(800)).batches(rows_max=40, bytes_max=4096)
        for record in decoded(batch, known)
    ]
    tables = [r.table for r in records if isinstance(r, SchemaRecord) and r.table]
    assert tables == ["often", "seldom"]
