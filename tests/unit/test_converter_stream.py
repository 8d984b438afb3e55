"""The converter on generated binlogs: rows, batches, resumption and deadlines."""

from itertools import pairwise
from types import SimpleNamespace

import pytest

from millrace.errors import Fatal
from millrace.producer.convert import converter as converting
from millrace.producer.convert import event_sources, output
from millrace.schemas.documents import TableFilter
from millrace.schemas.place import Coordinates
from millrace.schemas.progress import OpenTransaction, Progress
from millrace.schemas.record.control import CONTROL_SCHEMAS
from millrace.schemas.record.record import KnownSchemas, RowRecord
from tests.kit.binlog.builder import SOURCE_UUID, TIME_S, BinlogBuilder
from tests.kit.capture.converter import (
    UUID_TEXT,
    Conversion,
    FileReader,
    FileSpan,
    convert,
    decoded,
    mysql_progress,
    raw_records,
    two_transactions,
)


def test_rows_carry_their_position_and_a_last_flag() -> None:
    """Records have values, keys, order in the transaction, seq and coordinates."""
    rows = convert(two_transactions()).rows()
    assert [row.change.after for row in rows] == [
        {"id": 1, "v": "a"},
        {"id": 2, "v": None},
        {"id": 3, "v": "ü"},
        {"id": 4, "v": "d"},
    ]
    assert [row.key for row in rows] == [{"id": n} for n in (1, 2, 3, 4)]
    assert [row.source.seq for row in rows] == [1, 2, 3, 4]
    assert [row.source.row for row in rows] == [0, 1, 2, 0]
    assert [row.transaction.total_order for row in rows] == [1, 2, 3, 1]
    assert [row.transaction.is_last for row in rows] == [False, False, True, True]
    assert {row.source.place.gtid for row in rows[:3]} == {f"{UUID_TEXT}:1"}
    assert rows[0].ts_ms == TIME_S * 1000
    assert rows[0].source.place.file == "mysql-bin.000001"


def test_updates_and_deletes_have_their_images() -> None:
    """An update has both images and the key of the after image; a delete has the before image."""
    builder = BinlogBuilder()
    builder.gtid(1)
    builder.query("BEGIN")
    builder.map_shop_table("t", table_id=7)
    builder.update(7, [((1, "a"), (10, "b"))])
    builder.delete(7, [(10, "b")])
    builder.xid()
    update, delete = convert(builder).rows()
    assert update.change.before == {"id": 1, "v": "a"}
    assert update.change.after == {"id": 10, "v": "b"}
    assert update.key == {"id": 10}
    assert delete.change.before == {"id": 10, "v": "b"}
    assert delete.change.after is None
    assert [update.change.op, delete.change.op] == ["u", "d"]


def test_split_transaction_still_flags_its_last_row() -> None:
    """Every batch but the last ends inside; progress counts the rows before the one read ahead."""
    builder = BinlogBuilder()
    builder.transaction(1, 7, "t", [(n, "x" * 70) for n in range(3000)])
    schemas, *made = convert(builder).batches(rows_max=200, bytes_max=4096)
    assert len(made) > 3
    assert [batch.progress.open is None for batch in made] == [False] * (len(made) - 1) + [True]
    known = KnownSchemas()
    decoded(schemas, known)
    rows = [r for batch in made for r in decoded(batch, known) if isinstance(r, RowRecord)]
    assert [row.transaction.total_order for row in rows] == list(range(1, 3001))
    assert [row.transaction.is_last for row in rows] == [False] * 2999 + [True]
    known = KnownSchemas()
    count = 0
    for batch in made[:-1]:
        count += sum(isinstance(r, RowRecord) for r in decoded(batch, known))
        assert batch.progress.open == OpenTransaction(f"{UUID_TEXT}:1", count)
        assert batch.progress.seq == count


class SlowReader(FileReader):
    """Each window takes one second of the clock, which does not move otherwise."""

    now_s = 0.0
    reads = 0

    def read(self, at: Coordinates, *, bytes_max: int, cuts_payloads: bool = False) -> FileSpan:
        """Read a window and advance the clock."""
        self.now_s += 1
        self.reads += 1
        return super().read(at, bytes_max=bytes_max, cuts_payloads=cuts_payloads)


def slowed(builder: BinlogBuilder, monkeypatch: pytest.MonkeyPatch) -> SlowReader:
    """Return a conversion of one file in windows of a few KB."""
    reader = SlowReader({"mysql-bin.000001": bytes(builder.content)})
    monkeypatch.setattr(event_sources, "WINDOW_BYTES", 4096)
    monkeypatch.setattr(converting, "time", SimpleNamespace(monotonic=lambda: reader.now_s))
    return reader


NO_AUDIT = TableFilter(exclude=("shop.audit",))


def test_fully_filtered_backlog_yields_progress_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The relay log may be of any length: progress arrives, holds are released, and a stop request is seen."""
    builder = BinlogBuilder()
    for number in range(1, 501):
        builder.transaction(number, 8, "audit", [(n, "x") for n in range(20)])
    reader = slowed(builder, monkeypatch)
    converter = Conversion(reader, filter=NO_AUDIT).converter()
    covered: list[Progress] = []
    reads: list[int] = []
    while not covered or covered[-1] != mysql_progress(f"{UUID_TEXT}:1-500", seq=0):
        began = reader.reads
        batch = converter.next_batch(rows_max=32_768, bytes_max=1 << 20, timeout_s=3.5)
        reads.append(reader.reads - began)
        assert batch is not None
        covered.append(batch.progress)
    assert len(covered) > 10
    assert max(reads) == 4
    assert all(b.gtid_set.includes(a.gtid_set) for a, b in pairwise(covered))


def test_transaction_of_many_windows_comes_out_whole_under_deadlines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The deadline passes at every window: nothing is lost or repeated, and None is not the end."""
    builder = BinlogBuilder()
    builder.gtid(1)
    builder.query("BEGIN")
    builder.map_shop_table("t", table_id=7)
    builder.map_shop_table("audit", table_id=8)
    for n in range(300):
        builder.insert(8, [(k, "x" * 10) for k in range(50)])
        builder.insert(7, [(n, "a")])
    builder.xid()
    reader = slowed(builder, monkeypatch)
    converter = Conversion(reader, filter=NO_AUDIT).converter()
    known, rows, nones = KnownSchemas(), [], 0
    reached, end = None, mysql_progress(f"{UUID_TEXT}:1", seq=300)
    while reached != end:
        began = reader.reads
        batch = converter.next_batch(rows_max=32_768, bytes_max=1 << 20, timeout_s=0)
        assert reader.reads - began <= 2
        if batch is None:
            nones += 1
        else:
            reached = batch.progress
            rows += [r for r in decoded(batch, known) if isinstance(r, RowRecord)]
    assert [row.key for row in rows] == [{"id": n} for n in range(300)]
    assert [row.transaction.is_last for row in rows] == [False] * 299 + [True]
    assert nones > 10


def test_transaction_with_only_schemas_delivered_is_not_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There is room for the schema and one row, which is read ahead: an open transaction has a delivered row."""
    builder = BinlogBuilder()
    builder.transaction(1, 7, "t", [(1, "x" * 70)])
    builder.transaction(2, 8, "u", [(n, "x" * 70) for n in range(4)])
    alone = []
    for room_bytes in range(4000, 7000, 200):  # the kernel asks for more than a row has
        monkeypatch.setattr(output, "ROOM_BYTES", room_bytes)
        for batch in convert(builder).batches(rows_max=1, bytes_max=100):
            assert batch.progress.open is None or batch.progress.open.rows > 0
            if [value[6:9] for _, value in raw_records(batch)] == [b"sch"]:
                alone.append(batch.progress)
    assert alone
    assert set(map(str, alone)) == {str(mysql_progress(f"{UUID_TEXT}:1", seq=1))}


def test_transaction_that_does_not_fit_waits_for_the_next_batch() -> None:
    """A batch that holds a whole transaction ends between transactions."""
    builder = BinlogBuilder()
    builder.transaction(1, 7, "t", [(1, "a")])
    builder.transaction(2, 7, "t", [(n, "x" * 70) for n in range(700)])
    first, *_ = convert(builder).batches(rows_max=1000, bytes_max=20_000)
    assert first.progress == mysql_progress(f"{UUID_TEXT}:1", seq=1)


def test_published_transactions_are_skipped_and_seq_continues() -> None:
    """Covered transactions are not decoded; rows are counted in the open one."""
    done = mysql_progress(f"{UUID_TEXT}:1", seq=3)
    rows = convert(two_transactions(), progress=done).rows()
    assert [(row.source.seq, row.change.after) for row in rows] == [(4, {"id": 4, "v": "d"})]
    inside = mysql_progress("", seq=2, opened=OpenTransaction(f"{UUID_TEXT}:1", 2))
    rows = convert(two_transactions(), progress=inside).rows()
    assert [(row.source.seq, row.transaction.total_order) for row in rows] == [(3, 3), (4, 1)]


def test_resumed_source_transaction_is_open_until_complete() -> None:
    """The records that open a run are a separate batch if the next part is large or has not arrived."""
    builder = BinlogBuilder()
    builder.transaction(1, 7, "t", [(n, "x" * 70) for n in range(3000)])
    opened = OpenTransaction(f"{UUID_TEXT}:1", 100)
    inside = mysql_progress("", seq=100, opened=opened)
    first, *made = convert(builder, progress=inside).batches(rows_max=200, bytes_max=4096)
    assert (len(first.bounds), first.progress) == (len(CONTROL_SCHEMAS), inside)
    assert [batch.progress.open is None for batch in made] == [False] * (len(made) - 1) + [True]
    (alone,) = convert(BinlogBuilder(), progress=inside).batches()
    assert alone.progress == inside


def test_resuming_inside_another_transaction_is_refused() -> None:
    """The open transaction must be the next one that is not covered."""
    elsewhere = mysql_progress("", seq=2, opened=OpenTransaction(f"{UUID_TEXT}:2", 1))
    with pytest.raises(Fatal) as caught:
        convert(two_transactions(), progress=elsewhere).rows()
    assert caught.value.code == "MR-6508"


def test_filtered_rows_are_counted() -> None:
    """total_order counts before any filter, seq and `last` after it; progress advances in any case."""
    builder = BinlogBuilder()
    builder.gtid(1)
    builder.query("BEGIN")
    builder.map_shop_table("t", table_id=7)
    builder.map_shop_table("audit", table_id=8)
    builder.insert(8, [(1, "a"), (2, "b")])
    builder.insert(7, [(1, "a")])
    builder.insert(8, [(3, "c")])
    builder.xid()
    builder.transaction(2, 8, "audit", [(4, "d")])
    some = convert(builder, filter=TableFilter(exclude=("shop.audit",)))
    (row,) = some.rows()
    assert (row.source.seq, row.transaction.total_order, row.transaction.is_last) == (1, 3, True)
    assert list(some.batches())[-1].progress == mysql_progress(f"{UUID_TEXT}:1-2", seq=1)


def test_savepoints_and_harmless_events_are_skipped() -> None:
    """ROTATE, STOP, ROWS_QUERY, PREVIOUS_GTIDS, INTVAR …: no rows, no structure."""
    builder = BinlogBuilder()
    builder.event(35, bytes(8))
    builder.gtid(1)
    builder.query("BEGIN")
    for kind in (5, 13, 14, 28, 29, 36):
        builder.event(kind, bytes(12))
    builder.query("SAVEPOINT `a`")
    builder.map_shop_table("t", table_id=7)
    builder.insert(7, [(1, "a")])
    builder.query("COMMIT")
    builder.event(4, bytes(8) + b"mysql-bin.000002")
    (row,) = convert(builder).rows()
    assert row.transaction.is_last


def test_group_rolled_back_before_any_row_gives_no_records() -> None:
    """Its GTID is covered nevertheless."""
    builder = BinlogBuilder()
    builder.gtid(1)
    builder.query("BEGIN")
    builder.query("ROLLBACK")
    (batch,) = convert(builder).batches()
    assert batch.progress == mysql_progress(f"{UUID_TEXT}:1", seq=0)


def test_commit_time_is_the_original_one() -> None:
    """The top bit of the immediate commit time says that the original one follows."""
    builder = BinlogBuilder()
    original, immediate = 1_600_000_000_123_456, 1_700_000_000_000_000
    body = b"\0" + SOURCE_UUID + (1).to_bytes(8, "little") + b"\2" + bytes(16)
    body += (immediate | 1 << 55).to_bytes(7, "little") + original.to_bytes(7, "little")
    builder.event(33, body)
    builder.query("BEGIN")
    builder.map_shop_table("t", table_id=7)
    builder.insert(7, [(1, "a")])
    builder.xid()
    (row,) = convert(builder).rows()
    assert row.ts_ms == 1_600_000_000_123
