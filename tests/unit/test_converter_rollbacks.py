"""Rows that the source rolled back after it had logged them: they are dropped, and nothing else."""

import struct
from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest

from millrace.errors import Fatal
from millrace.producer.convert.arrays import Bytes, Numbers
from millrace.producer.convert.batch import RecordBatch
from millrace.producer.convert.converter import Converter, ConverterSource
from millrace.producer.convert.interleave import Sink
from millrace.producer.convert.tables import KnownTables
from millrace.schemas.documents import TableFilter
from millrace.schemas.gtid import Flavour, GtidPosition, parse_gtid_set
from millrace.schemas.progress import OpenTransaction, Progress
from millrace.schemas.record.control import DdlRecord, SchemaRecord
from millrace.schemas.record.record import KnownSchemas, Record, RowRecord, seq_of
from tests.kit.binlog.builder import BinlogBuilder
from tests.kit.capture.converter import Conversion, MemoryRegistry, convert, decoded, raw_records

MANY = [(number, "x" * 200) for number in range(100, 1500)]
SMALL = {"rows_max": 10, "bytes_max": 4096}


class Log(BinlogBuilder):
    """MariaDB's binlog."""

    def begin(self, number: int) -> None:
        """A GTID of domain 0, which is also the BEGIN."""
        self.event(162, struct.pack("<QIB", number, 0, 0) + bytes(6))

    def rows(self, name: str, *ids: int) -> None:
        """Insert these rows."""
        self.map_shop_table(name, table_id=ord(name[0]))
        self.insert(ord(name[0]), [(number, "x") for number in ids])


def _conversion(log: Log) -> Conversion:
    return convert(log, flavour=Flavour.MARIADB)


def _batches(log: Log, **options: int) -> list[RecordBatch]:
    return list(_conversion(log).batches(**options))


def _records(batches: Sequence[RecordBatch]) -> list[Record]:
    """All records; their ``seq`` has no gap, and each control record repeats the last one."""
    seq, known, records = 0, KnownSchemas(), list[Record]()
    for batch in batches:
        values = [value for _, value in raw_records(batch)]
        for value, record in zip(values, decoded(batch, known), strict=True):
            assert seq_of(value) == seq + (not isinstance(record, SchemaRecord))
            seq = seq_of(value)
            records.append(record)
        assert batch.progress.seq == seq
    return records


def _ids(records: Sequence[Record]) -> list[object]:
    return [
        record.change.after["id"]
        for record in records
        if isinstance(record, RowRecord) and record.change.after is not None
    ]


def _lasts(records: Sequence[Record]) -> list[object]:
    return [
        record.change.after["id"]
        for record in records
        if isinstance(record, RowRecord)
        and record.change.after is not None
        and record.transaction.is_last
    ]


def test_rolled_back_transaction_publishes_no_row_but_counts() -> None:
    """Its GTID is in the progress, and ``seq`` continues. A schema that it used first is still published."""
    log = Log()
    log.begin(1)
    log.rows("t", 1)
    log.xid()
    log.begin(2)
    log.rows("t", 2)
    log.rows("u", 3)
    log.query("ROLLBACK")
    log.begin(3)
    log.rows("u", 4)
    log.xid()
    log.begin(4)
    log.rows("u", 5)
    log.query("ROLLBACK")
    batches = _batches(log)
    records = _records(batches)
    assert _ids(records) == [1, 4]
    assert _lasts(records) == [1, 4]
    assert [
        record.table for record in records if isinstance(record, SchemaRecord) and record.table
    ] == ["t", "u"]
    assert str(batches[-1].progress.gtid_set) == "0-11-4"
    assert sum(batch.rows for batch in batches) == 2


def test_rollback_to_a_savepoint_drops_only_its_rows() -> None:
    """Names are compared without case. A savepoint stays, and one with the same name replaces it."""
    log = Log()
    log.begin(1)
    log.rows("t", 1)
    log.query("SAVEPOINT `A ``b`")
    log.rows("u", 2)
    log.query("SAVEPOINT `two`")
    log.rows("t", 3)
    log.query("ROLLBACK TO `TWO`")
    log.rows("u", 4)
    log.query("ROLLBACK TO `a ``B`")
    log.rows("u", 5)
    log.query("SAVEPOINT `a ``b`")
    log.rows("u", 6)
    log.query("ROLLBACK TO `a ``b`")
    log.xid()
    log.begin(2)
    log.query("SAVEPOINT `two`")
    log.rows("u", 7)
    log.query("ROLLBACK TO `two`")
    log.xid()
    log.begin(3)
    log.rows("u", 8)
    log.xid()
    records = _records(_batches(log))
    assert _ids(records) == [1, 5, 8]
    assert _lasts(records) == [5, 8]


@pytest.mark.parametrize("before", [0, 1])
def test_large_transaction_is_looked_up_before_it_leaves(before: int) -> None:
    """Batches of 4 KB; the transaction has 300 KB, in one or many events."""
    log = Log()
    if before:
        log.begin(1)
        log.rows("t", 1)
        log.xid()
    log.begin(2)
    log.map_shop_table("t", table_id=ord("t"))
    log.insert(ord("t"), MANY)
    for number in range(5000, 5100):
        log.rows("u", number)
    log.query("SAVEPOINT `s`")
    log.rows("u", 2)
    log.query("ROLLBACK TO `s`")
    log.query("ROLLBACK")
    log.begin(3)
    log.rows("u", 3)
    log.xid()
    batches = _batches(log, **SMALL)
    assert _ids(_records(batches)) == [1] * before + [3]
    assert str(batches[-1].progress.gtid_set) == "0-11-3"


def test_large_transaction_with_savepoints_is_cut() -> None:
    """The rows before the savepoint stay; the rows after it are dropped."""
    log = Log()
    log.begin(1)
    log.map_shop_table("t", table_id=ord("t"))
    log.insert(ord("t"), MANY)
    log.rows("u", 1, 2)
    log.query("SAVEPOINT `s`")
    log.rows("t", 3)
    log.query("ROLLBACK TO `s`")
    log.xid()
    batches = _batches(log, **SMALL)
    assert len(batches) > 3
    records = _records(batches)
    assert _ids(records) == [*(number for number, _ in MANY), 1, 2]
    assert _lasts(records) == [2]


def test_resumption_after_a_rollback_to_a_savepoint_repeats_no_row() -> None:
    """A dropped row still counts in the place where a conversion resumes."""
    log = Log()
    log.begin(1)
    log.rows("t", 1)
    log.query("SAVEPOINT `s`")
    log.rows("t", 2, 3)
    log.query("ROLLBACK TO `s`")
    log.map_shop_table("t", table_id=ord("t"))
    log.insert(ord("t"), MANY)
    log.xid()
    whole = _conversion(log)
    batches = list(whole.batches(**SMALL))
    expected = _ids(_records(batches))
    assert expected == [1, *(number for number, _ in MANY)]
    published = list[object]()
    known = KnownSchemas()
    assert len(batches) > 3
    for batch in batches:
        published += _ids(decoded(batch, known))
        rest = replace(whole, progress=batch.progress)
        known_again = KnownSchemas()
        again = [_ids(decoded(later, known_again)) for later in rest.batches(**SMALL)]
        assert published + [number for ids in again for number in ids] == expected


def test_rows_that_have_left_stop_the_task() -> None:
    """A savepoint before the part that is published, and a transaction that is published in part."""
    log = Log()
    log.begin(1)
    log.query("SAVEPOINT `s`")
    log.map_shop_table("t", table_id=ord("t"))
    log.insert(ord("t"), MANY)
    log.query("ROLLBACK TO `s`")
    log.xid()
    with pytest.raises(Fatal) as caught:
        _batches(log, **SMALL)
    assert caught.value.code == "MR-6507"
    assert caught.value.context["gtid"] == "0-11-1"
    log = Log()
    log.begin(1)
    log.rows("t", 1, 2)
    log.query("ROLLBACK")
    start = Progress(parse_gtid_set(Flavour.MARIADB, ""), OpenTransaction("0-11-1", 1), 1)
    with pytest.raises(Fatal) as caught:
        replace(_conversion(log), progress=start).records()
    assert caught.value.code == "MR-6507"


@pytest.mark.parametrize(
    "lines",
    [
        ("ROLLBACK TO `s`",),
        ("SAVEPOINT `s`", "ROLLBACK TO `t`"),
        ("SAVEPOINT `s`", "SAVEPOINT `é`", "ROLLBACK TO `s`"),
        ("SAVEPOINT `s`", "SAVEPOINT `t`", "ROLLBACK TO `s`", "ROLLBACK TO `t`"),
    ],
)
def test_unsure_savepoint_stops_the_task(lines: tuple[str, ...]) -> None:
    """The servers compare names without accents; one that is not there was never logged."""
    log = Log()
    log.begin(1)
    log.query("SAVEPOINT `t`")
    log.rows("t", 1)
    log.xid()
    log.begin(2)
    log.rows("t", 2)
    for line in lines:
        log.query(line)
    log.xid()
    with pytest.raises(Fatal) as caught:
        _batches(log)
    assert caught.value.code == "MR-6507"


def test_rollback_of_excluded_rows_does_not_stop() -> None:
    """There is nothing to drop."""
    log = Log()
    log.begin(1)
    log.rows("t", 1)
    log.query("ROLLBACK")
    log.begin(2)
    log.rows("u", 2)
    log.xid()
    run = replace(_conversion(log), filter=TableFilter(include=("shop.u",)))
    assert _ids(run.records()) == [2]


class Watcher:
    """``Inserts`` of a snapshot of ``shop.t`` that inserts nothing."""

    is_active = True
    watched: Collection[tuple[str, str]] = (("shop", "t"),)

    def __init__(self) -> None:
        self.seen = list[int]()

    def records(self, buffer: Bytes, bounds: Numbers, tables: KnownTables) -> None:
        """Note the numbers of these rows."""
        del tables
        for key, _, start, end in bounds.tolist():
            if key >= 0:
                self.seen.append(seq_of(buffer[start:end].tobytes()))

    def statement(self, record: DdlRecord) -> None:
        """There is none."""
        raise AssertionError(record)

    def wants_boundary(self, position: GtidPosition, *, is_near: bool) -> bool:
        """Ask at each place."""
        del position, is_near
        return True

    def insert(self, progress: Progress, sink: Sink, *, is_near: bool) -> Progress | None:
        """Insert nothing."""
        del progress, sink, is_near
        return None


@pytest.mark.parametrize("size", [{"rows_max": 32_768, "bytes_max": 1 << 20}, SMALL])
def test_snapshot_sees_no_key_of_a_rolled_back_row(size: dict[str, int]) -> None:
    """A key that seems changed is left out of a chunk, so its row would be lost. Others are seen once, in order."""
    log = Log()
    log.begin(1)
    log.rows("t", 1)
    log.query("SAVEPOINT `s`")
    log.rows("t", 2, 3)
    log.rows("u", 3)
    log.query("ROLLBACK TO `s`")
    log.rows("t", 4)
    log.xid()
    log.begin(2)
    log.map_shop_table("t", table_id=ord("t"))
    log.insert(ord("t"), MANY)
    log.query("ROLLBACK")
    log.begin(3)
    log.map_shop_table("t", table_id=ord("t"))
    log.insert(ord("t"), MANY)
    log.xid()
    log.begin(4)
    log.rows("t", 6)
    log.query("ROLLBACK")
    inserts = Watcher()
    run = _conversion(log)
    converter = Converter(
        source=ConverterSource("shop", "shop-capture", Flavour.MARIADB, "shop"),
        reader=run.reader,
        register=MemoryRegistry(),
        progress=Progress(parse_gtid_set(Flavour.MARIADB, ""), None, 0),
        at=run.reader.first(),
        inserts=inserts,
    )
    batches = list[RecordBatch]()
    while batch := converter.next_batch(
        rows_max=size["rows_max"], bytes_max=size["bytes_max"], timeout_s=0.02
    ):
        batches.append(batch)
    records = _records(batches)
    assert _ids(records) == [1, 4, *(number for number, _ in MANY)]
    assert inserts.seen == list(range(1, 3 + len(MANY)))
