"""The converter on generated binlogs: groups, splits, resumption, filters and refusals."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pytest

from millrace.errors import Fatal
from producer.convert import arrays, event_sources, output, tables
from producer.convert import converter as converting
from producer.convert.output import ROOM_BYTES
from schemas.documents import TableFilter
from schemas.gtid import Flavour, parse_gtid_set
from schemas.place import Coordinates
from schemas.progress import OpenTransaction, Progress
from schemas.record.control import DdlRecord, SchemaRecord
from schemas.record.record import KnownSchemas, RowRecord, decode_record
from schemas.sql.statement import Kind
from tests.kit.binlog.builder import SOURCE_UUID, TIME_S, BinlogBuilder, Row
from tests.kit.capture.converter import (
    SUBDIR,
    Conversion,
    FileReader,
    FileSpan,
    decoded,
    raw_records,
)

UUID_TEXT = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def conversion(builder: BinlogBuilder, **options: object) -> Conversion:
    """Return a conversion of one file."""
    return Conversion(FileReader({"mysql-bin.000001": bytes(builder.content)}), **options)  # type: ignore[arg-type]


def progress(gtid_set: str, *, seq: int, opened: OpenTransaction | None = None) -> Progress:
    """Return a MySQL progress."""
    return Progress(parse_gtid_set(Flavour.MYSQL, gtid_set), opened, seq)


def two_transactions() -> BinlogBuilder:
    """Return a transaction of three rows and one of one row."""
    builder = BinlogBuilder()
    builder.transaction(1, 7, "t", [(1, "a"), (2, None), (3, "ü")])
    builder.transaction(2, 7, "t", [(4, "d")])
    return builder


def test_rows_carry_their_position_and_a_last_flag() -> None:
    """Records have values, keys, order in the transaction, seq and coordinates."""
    rows = conversion(two_transactions()).rows()
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
    update, delete = conversion(builder).rows()
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
    schemas, *made = conversion(builder).batches(rows_max=200, bytes_max=4096)
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

    def read(self, at: Coordinates, *, bytes_max: int) -> FileSpan:
        """Read a window and advance the clock."""
        self.now_s += 1
        self.reads += 1
        return super().read(at, bytes_max=bytes_max)


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
    while not covered or covered[-1] != progress(f"{UUID_TEXT}:1-500", seq=0):
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
    reached, end = None, progress(f"{UUID_TEXT}:1", seq=300)
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
        for batch in conversion(builder).batches(rows_max=1, bytes_max=100):
            assert batch.progress.open is None or batch.progress.open.rows > 0
            if [value[6:9] for _, value in raw_records(batch)] == [b"sch"]:
                alone.append(batch.progress)
    assert alone
    assert set(map(str, alone)) == {str(progress(f"{UUID_TEXT}:1", seq=1))}


def test_transaction_that_does_not_fit_waits_for_the_next_batch() -> None:
    """A batch that holds a whole transaction ends between transactions."""
    builder = BinlogBuilder()
    builder.transaction(1, 7, "t", [(1, "a")])
    builder.transaction(2, 7, "t", [(n, "x" * 70) for n in range(700)])
    first, *_ = conversion(builder).batches(rows_max=1000, bytes_max=20_000)
    assert first.progress == progress(f"{UUID_TEXT}:1", seq=1)


def test_published_transactions_are_skipped_and_seq_continues() -> None:
    """Covered transactions are not decoded; rows are counted in the open one."""
    done = progress(f"{UUID_TEXT}:1", seq=3)
    rows = conversion(two_transactions(), progress=done).rows()
    assert [(row.source.seq, row.change.after) for row in rows] == [(4, {"id": 4, "v": "d"})]
    inside = progress("", seq=2, opened=OpenTransaction(f"{UUID_TEXT}:1", 2))
    rows = conversion(two_transactions(), progress=inside).rows()
    assert [(row.source.seq, row.transaction.total_order) for row in rows] == [(3, 3), (4, 1)]


def test_resumed_source_transaction_is_open_until_complete() -> None:
    """The records that open a run are a separate batch if the next part is large or has not arrived."""
    builder = BinlogBuilder()
    builder.transaction(1, 7, "t", [(n, "x" * 70) for n in range(3000)])
    opened = OpenTransaction(f"{UUID_TEXT}:1", 100)
    inside = progress("", seq=100, opened=opened)
    first, *made = conversion(builder, progress=inside).batches(rows_max=200, bytes_max=4096)
    assert (len(first.bounds), first.progress) == (4, inside)
    assert [batch.progress.open is None for batch in made] == [False] * (len(made) - 1) + [True]
    (alone,) = conversion(BinlogBuilder(), progress=inside).batches()
    assert alone.progress == inside


def test_resuming_inside_another_transaction_is_refused() -> None:
    """The open transaction must be the next one that is not covered."""
    elsewhere = progress("", seq=2, opened=OpenTransaction(f"{UUID_TEXT}:2", 1))
    with pytest.raises(Fatal) as caught:
        conversion(two_transactions(), progress=elsewhere).rows()
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
    some = conversion(builder, filter=TableFilter(exclude=("shop.audit",)))
    (row,) = some.rows()
    assert (row.source.seq, row.transaction.total_order, row.transaction.is_last) == (1, 3, True)
    assert list(some.batches())[-1].progress == progress(f"{UUID_TEXT}:1-2", seq=1)


@pytest.mark.parametrize("pattern", ["shop.*", "Shop.*", "SHOP.T"])
def test_filters_ignore_case_on_a_case_folding_source(pattern: str) -> None:
    """lower_case_table_names: rows are logged in lower case, a statement as it was written."""
    builder = BinlogBuilder()
    builder.transaction(1, 7, "t", [(1, "a")])
    statements = ["TRUNCATE TABLE Shop.T", "ALTER TABLE t ADD c INT", "DROP TABLE SHOP.t"]
    for number, sql in enumerate(statements, 2):
        builder.gtid(number)
        builder.query(sql)
    builder.gtid(9)
    builder.query("ALTER DATABASE SHOP CHARACTER SET latin1", database="")
    wanted = TableFilter(include=(pattern,), exclude=("Shop.u",))
    run = conversion(builder, filter=wanted, folds_names=True)
    assert [record.statement.sql for record in run.statements()] == [
        *statements,
        "ALTER DATABASE SHOP CHARACTER SET latin1",
    ]
    assert len(run.rows()) == 1
    builder.transaction(10, 8, "u", [(1, "a")])
    assert len(conversion(builder, filter=wanted, folds_names=True).rows()) == 1
    exact = conversion(builder, filter=wanted).records()
    assert len(exact) < 5


def test_statement_about_unpublished_tables_too_is_kept_as_unknown() -> None:
    """The target may keep the other tables, so an operator decides. An unknown statement may concern any table."""
    wanted = {
        "DROP TABLE t, crm.b": Kind.UNKNOWN,
        "RENAME TABLE crm.a TO t": Kind.UNKNOWN,
        "DROP TABLE crm.b, crm.c": None,
        "DROP TABLE t, u": Kind.DROP_TABLE,
        "FROBNICATE crm.b": Kind.UNKNOWN,
        "SET STATEMENT a = 1 FOR TRUNCATE crm.b": None,
    }
    builder = BinlogBuilder()
    for number, sql in enumerate(wanted, 1):
        builder.gtid(number)
        builder.query(sql, database="crm" if sql.startswith("FROB") else "shop")
    run = conversion(builder, filter=TableFilter(include=("shop.*",)))
    found = {record.statement.sql: record.statement.kind for record in run.statements()}
    assert found == {sql: kind for sql, kind in wanted.items() if kind is not None}


def test_record_of_mixed_statement_names_excluded_table() -> None:
    """The record of a RENAME from an excluded to an included table says why apply must not execute it."""
    builder = BinlogBuilder()
    builder.gtid(1)
    builder.query("RENAME TABLE legacy.t TO t")
    builder.gtid(2)
    builder.query("DROP TABLE t, legacy.a, legacy.b, legacy.a", status=b"\x7e\0")
    run = conversion(builder, filter=TableFilter(include=("shop.*",)))
    rename, drop = run.statements()
    assert rename.statement.kind == drop.statement.kind == "unknown"
    assert (
        rename.statement.session["in_doubt"] == "names legacy.t, which the capture task leaves out"
    )
    assert drop.statement.session["in_doubt"].endswith(
        "; names legacy.a, legacy.b, which the capture task leaves out"
    )


@pytest.mark.parametrize(
    ("include", "database", "seq", "is_warned"),
    [
        ("shpo.*", "shop", 0, True),
        ("shpo.*", "mysql", 0, False),
        ("shop.*", "shop", 0, False),
        ("shpo.*", "shop", 5, False),
    ],
    ids=["no match", "the server's own table", "match", "a topic with rows"],
)
def test_filter_without_match_is_reported(
    include: str, database: str, seq: int, *, is_warned: bool
) -> None:
    """The warning names an excluded table; it comes only while the topic has never had a row."""
    builder = BinlogBuilder()
    builder.gtid(1)
    builder.query("BEGIN")
    builder.map_shop_table("t", table_id=7, database=database)
    builder.insert(7, [(1, "a")])
    builder.xid()
    converter = conversion(
        builder, filter=TableFilter(include=(include,)), progress=progress("", seq=seq)
    ).converter()
    assert converter.filter_warning == ""
    had_caught_up = converter.is_caught_up
    converter.next_batch(rows_max=100, bytes_max=1 << 20, timeout_s=600)
    assert (had_caught_up, converter.is_caught_up) == (False, True)
    assert ("such as shop.t" in converter.filter_warning) is is_warned


def test_system_tables_are_never_published() -> None:
    """They are not published even if an include names them."""
    builder = BinlogBuilder()
    builder.gtid(1)
    builder.query("BEGIN")
    builder.map_shop_table("user", table_id=7, database="mysql")
    builder.insert(7, [(1, "a")])
    builder.xid()
    assert conversion(builder, filter=TableFilter(include=("mysql.*",))).rows() == []


def test_schema_precedes_its_first_row_once_per_run() -> None:
    """A new table id needs no new schema; another structure does."""
    builder = two_transactions()
    builder.transaction(3, 99, "t", [(5, "e")])
    builder.transaction(4, 100, "u", [(6, "f")])
    (batch,) = conversion(builder).batches()
    kinds = [value[6:9] for _, value in raw_records(batch)]
    assert [kind for kind in kinds if kind == b"sch"] == [
        b"sch"
    ] * 6  # four control schemas, two tables


def test_statement_becomes_a_record_in_order() -> None:
    """DDL has a seq, is last in its transaction and names its tables; account statements lose their text."""
    builder = BinlogBuilder()
    builder.transaction(1, 7, "t", [(1, "a")])
    builder.gtid(2)
    builder.query("ALTER TABLE t ADD c INT")
    builder.gtid(3)
    builder.query("CREATE USER x IDENTIFIED BY 'secret'")
    _, ddl, account = conversion(builder).records()
    assert isinstance(ddl, DdlRecord)
    assert isinstance(account, DdlRecord)
    assert (ddl.statement.sql, ddl.statement.kind) == ("ALTER TABLE t ADD c INT", "alter_table")
    assert ddl.statement.tables == (("shop", "t"),)
    assert (ddl.source.seq, ddl.transaction.is_last, ddl.transaction.total_order) == (2, True, 1)
    assert "secret" not in account.statement.sql


def test_doubtful_statement_is_recorded_as_unknown() -> None:
    """A later server has a new session variable: the variables after it are unread, so apply must block."""
    builder = BinlogBuilder()
    builder.gtid(1)
    builder.query("ALTER TABLE t ADD c INT", status=b"\x7e\0")
    (ddl,) = conversion(builder).statements()
    assert ddl.statement.kind == "unknown"
    assert "126" in ddl.statement.session["in_doubt"]


def test_statement_with_undecodable_names_is_kept() -> None:
    """Whether the filter admits them is unknown."""
    builder = BinlogBuilder()
    builder.gtid(1)
    builder.query("TRUNCATE `a\\b`", status=b"\x04" + struct.pack("<HHH", 13, 13, 13))  # sjis
    (ddl,) = conversion(builder, filter=TableFilter(include=("shop.é",))).statements()
    assert ddl.statement.kind == "unknown"


def test_create_select_is_one_transaction() -> None:
    """CREATE TABLE … SELECT in row format: the statement is the first unit of its transaction."""
    builder = BinlogBuilder()
    builder.gtid(1)
    builder.query("BEGIN")
    builder.query("CREATE TABLE `t` (`id` int) START TRANSACTION")
    builder.map_shop_table("t", table_id=7)
    builder.insert(7, [(1, "a")])
    builder.xid()
    ddl, row = conversion(builder).records()
    assert isinstance(ddl, DdlRecord)
    assert isinstance(row, RowRecord)
    assert [x.transaction.total_order for x in (ddl, row)] == [1, 2]
    assert [x.transaction.is_last for x in (ddl, row)] == [False, True]


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
    (row,) = conversion(builder).rows()
    assert row.transaction.is_last


def test_group_rolled_back_before_any_row_gives_no_records() -> None:
    """Its GTID is covered nevertheless."""
    builder = BinlogBuilder()
    builder.gtid(1)
    builder.query("BEGIN")
    builder.query("ROLLBACK")
    (batch,) = conversion(builder).batches()
    assert batch.progress == progress(f"{UUID_TEXT}:1", seq=0)


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
    (row,) = conversion(builder).rows()
    assert row.ts_ms == 1_600_000_000_123


def _in_transaction(kind: int, body: bytes) -> BinlogBuilder:
    builder = BinlogBuilder()
    builder.gtid(1)
    builder.query("BEGIN")
    builder.map_shop_table("t", table_id=7)
    builder.event(kind, body)
    builder.xid()
    return builder


def _with_query(text: str) -> BinlogBuilder:
    builder = BinlogBuilder()
    builder.gtid(1)
    builder.query("BEGIN")
    builder.query(text)
    builder.xid()
    return builder


def _bare(kind: int, body: bytes) -> BinlogBuilder:
    builder = BinlogBuilder()
    builder.event(kind, body)
    return builder


def _rolled_back() -> BinlogBuilder:
    builder = BinlogBuilder()
    builder.gtid(1)
    builder.query("BEGIN")
    builder.map_shop_table("t", table_id=7)
    builder.insert(7, [(1, "a")])
    builder.query("ROLLBACK")
    return builder


ROWS_HEAD = (7).to_bytes(6, "little") + b"\1\0" + b"\2\0"
IMAGE = b"\0" + (1).to_bytes(4, "little") + b"\1a"


@pytest.mark.parametrize(
    ("builder", "code"),
    [
        (_with_query("INSERT INTO t VALUES (1)"), "MR-6501"),
        (_with_query("CREATE TABLE x AS SELECT 1"), "MR-6501"),
        (_in_transaction(18, bytes(30)), "MR-6501"),
        (_in_transaction(99, bytes(4)), "MR-6502"),
        (_in_transaction(20, bytes(20)), "MR-6502"),
        (_bare(34, bytes(42)), "MR-6503"),
        (_in_transaction(30, ROWS_HEAD + b"\2\1" + IMAGE), "MR-6504"),
        (_in_transaction(39, bytes(30)), "MR-6505"),
        (_in_transaction(30, (8).to_bytes(6, "little") + b"\1\0\2\0\2\xff" + IMAGE), "MR-6506"),
        (_bare(30, ROWS_HEAD + b"\2\xff" + IMAGE), "MR-6506"),
        (_bare(16, bytes(8)), "MR-6506"),
        (_in_transaction(33, b"\0" + SOURCE_UUID + bytes(25)), "MR-6506"),
        (_rolled_back(), "MR-6507"),
        (_bare(164, bytes(17)), "MR-6509"),
        (_in_transaction(26, bytes(4)), "MR-6510"),
        (_bare(26, bytes(4)), "MR-6510"),
        (_in_transaction(30, ROWS_HEAD + b"\2\xff" + IMAGE[:-1]), "MR-6003"),
        (_in_transaction(30, ROWS_HEAD + b"\3\xff" + IMAGE), "MR-6003"),
        (_in_transaction(30, b"\7"), "MR-6003"),
        (_bare(33, bytes(10)), "MR-6003"),
        (_bare(2, bytes(5)), "MR-6003"),
        (_bare(33, b"\0" + SOURCE_UUID + bytes(25)), "MR-6003"),
        (_bare(42, b"\2\0\0" + b"\x02" + b"\2" * 16 + b"\4\2" + b"\6\2A"), "MR-6003"),
        # a tag with all 64 bits of its length set: negative as a signed number
        (_bare(42, b"\2\0\0\2" + b"\2" * 16 + b"\4\2\6" + b"\xff" * 9), "MR-6003"),
        (_in_transaction(19, bytes(20)), "MR-6003"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_event_that_could_lose_a_row_stops_with_its_code(builder: BinlogBuilder, code: str) -> None:
    """Nothing is skipped or guessed: the error names the event."""
    with pytest.raises(Fatal) as caught:
        conversion(builder).records()
    assert caught.value.code == code
    assert "mysql-bin.000001:" in caught.value.context["coordinates"]


@pytest.mark.parametrize(
    ("sql", "database", "table"),
    [("INSERT INTO x.t VALUES (1)", "", "x.t"), ("CREATE TABLE y AS SELECT 1", "d", "d.y")],
)
def test_error_names_the_source_transaction_and_its_table(
    sql: str, database: str, table: str
) -> None:
    """MR-6501 has the GTID to start after and the table to reload, even without a default database."""
    builder = BinlogBuilder()
    builder.gtid(7)
    builder.query("BEGIN")
    builder.query(sql, database=database)
    with pytest.raises(Fatal) as caught:
        conversion(builder).records()
    assert caught.value.code == "MR-6501"
    assert f"on {table}" in caught.value.message
    assert caught.value.context["gtid"].endswith(":7")
    assert "mysql-bin.000001:" in caught.value.full_message


def test_xa_commit_without_its_rows_is_refused() -> None:
    """MR-6511 is raised; the transaction is not treated as empty."""
    builder = BinlogBuilder()
    builder.gtid(1)
    builder.query("XA COMMIT X'61',X'',1")
    with pytest.raises(Fatal) as caught:
        conversion(builder).records()
    assert caught.value.code == "MR-6511"


def _xa(
    builder: BinlogBuilder,
    number: int,
    *,
    one_phase: bool = False,
    rows: Sequence[Row] = ((1, "a"), (2, "b")),
) -> None:
    builder.gtid(number)
    builder.query("XA START X'61',X'62',3")
    builder.map_shop_table("t", table_id=7)
    builder.insert(7, rows)
    builder.query("XA END X'61',X'62',3")
    body = bytes([one_phase]) + (3).to_bytes(4, "little") + (1).to_bytes(4, "little") * 2 + b"ab"
    builder.event(38, body)


def test_prepared_rows_come_out_at_their_commit() -> None:
    """They have the GTID of the XA COMMIT and follow the transactions committed in between."""
    builder = BinlogBuilder()
    _xa(builder, 1)
    builder.transaction(2, 7, "t", [(3, "c")])
    builder.gtid(3)
    builder.query("XA COMMIT X'61',X'62',3")
    seen = [
        (r.key, r.transaction.gtid[-1], r.transaction.is_last) for r in conversion(builder).rows()
    ]
    assert seen == [({"id": 3}, "2", True), ({"id": 1}, "3", False), ({"id": 2}, "3", True)]
    later = conversion(builder, progress=progress(f"{UUID_TEXT}:1-2", seq=1)).rows()
    assert [r.key for r in later] == [{"id": 1}, {"id": 2}]
    inside = progress(f"{UUID_TEXT}:1-2", seq=2, opened=OpenTransaction(f"{UUID_TEXT}:3", 1))
    assert [r.key for r in conversion(builder, progress=inside).rows()] == [{"id": 2}]


def test_prepare_in_an_earlier_file_is_found() -> None:
    """A converter that starts after it searches the relay log for it."""
    first, second = BinlogBuilder(), BinlogBuilder()
    _xa(first, 1)
    second.gtid(2)
    second.query("XA COMMIT X'61',X'62',3")
    reader = FileReader(
        {"mysql-bin.000001": bytes(first.content), "mysql-bin.000002": bytes(second.content)}
    )
    second_file = Coordinates(SUBDIR, "mysql-bin.000002", 4)
    run = Conversion(reader, progress=progress(f"{UUID_TEXT}:1", seq=0), at=second_file)
    assert [r.key for r in run.rows()] == [{"id": 1}, {"id": 2}]
    assert {r.source.place.file for r in run.rows()} == {"mysql-bin.000001"}


def test_prepared_transaction_pins_the_relay_log() -> None:
    """The coordinates of a batch stay before it until it is decided."""
    builder = BinlogBuilder()
    _xa(builder, 1)
    pinned = len(BinlogBuilder().content)
    builder.transaction(2, 7, "t", [(3, "c")])
    (batch,) = conversion(builder).batches()
    assert pinned < batch.coordinates.pos < len(builder.content) - 300
    builder.gtid(3)
    builder.query("XA COMMIT X'61',X'62',3")
    (batch,) = conversion(builder).batches()
    assert batch.coordinates.pos == len(builder.content)


@pytest.mark.parametrize("is_known", [True, False])
def test_file_of_a_prepared_transaction_is_held_until_its_end(
    is_known: bool,
) -> None:
    """Its rows are separate batches, read from an earlier file, even if that file had to be searched for."""
    first, second = BinlogBuilder(), BinlogBuilder()
    _xa(first, 1, rows=[(n, "x" * 70) for n in range(2000)])
    second.gtid(2)
    second.query("XA COMMIT X'61',X'62',3")
    second.transaction(3, 7, "t", [(3, "c")])
    files = {"mysql-bin.000001": bytes(first.content), "mysql-bin.000002": bytes(second.content)}
    run = Conversion(FileReader(files))
    if not is_known:
        at = Coordinates(SUBDIR, "mysql-bin.000002", 4)
        run = replace(run, progress=progress(f"{UUID_TEXT}:1", seq=0), at=at)
    _schemas, *made = run.batches(rows_max=200, bytes_max=4096)
    *parts, last = [(batch.progress.open is None, batch.coordinates.file) for batch in made]
    assert len(parts) > 3
    assert set(parts) == {(False, "mysql-bin.000001")}
    assert last == (True, "mysql-bin.000002")


def test_searched_file_is_held_until_its_rows_are_published() -> None:
    """Batches made before the search are published after it and report that later files suffice."""
    first, second = BinlogBuilder(), BinlogBuilder()
    _xa(first, 1)
    second.transaction(2, 7, "t", [(3, "c")])
    second.gtid(3)
    second.query("XA COMMIT X'61',X'62',3")
    files = {"mysql-bin.000001": bytes(first.content), "mysql-bin.000002": bytes(second.content)}
    reader = FileReader(files)
    at = Coordinates(SUBDIR, "mysql-bin.000002", 4)
    run = Conversion(reader, progress=progress(f"{UUID_TEXT}:1", seq=0), at=at)
    batches = list(run.batches(rows_max=1))
    assert [held.file for held in reader.held] == ["mysql-bin.000001"]
    for batch in batches:
        assert reader.held
        batch.release()
    assert reader.held == []


def test_newest_prepare_of_an_xid_needs_no_older_files() -> None:
    """Names are reused: the latest prepare counts, and the search starts at the newest file."""
    contents = {}
    for number, value in enumerate("abc", 1):
        builder = BinlogBuilder()
        _xa(builder, number, rows=[(number, value)])
        contents[f"mysql-bin.00000{number}"] = bytes(builder.content)
    last = BinlogBuilder()
    last.gtid(4)
    last.query("XA COMMIT X'61',X'62',3")
    reader = CountingReader({**contents, "mysql-bin.000004": bytes(last.content)})
    at = Coordinates(SUBDIR, "mysql-bin.000004", 4)
    run = Conversion(reader, progress=progress(f"{UUID_TEXT}:1-3", seq=0), at=at)
    assert [row.change.after for row in run.rows()] == [{"id": 3, "v": "c"}]
    assert reader.files_read == {"mysql-bin.000003", "mysql-bin.000004"}


class CountingReader(FileReader):
    """A reader that records which files were read."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        super().__init__(files)
        self.files_read: set[str] = set()

    def read(self, at: Coordinates, *, bytes_max: int) -> FileSpan:
        """Record the file and read."""
        self.files_read.add(at.file)
        return super().read(at, bytes_max=bytes_max)


def test_rolled_back_prepared_rows_never_come_out() -> None:
    """XA ROLLBACK discards them."""
    builder = BinlogBuilder()
    _xa(builder, 1)
    builder.gtid(2)
    builder.query("XA ROLLBACK X'61',X'62',3")
    assert conversion(builder).rows() == []


def test_one_phase_commit_comes_out_at_once() -> None:
    """XA COMMIT … ONE PHASE is logged as a prepare with a flag."""
    builder = BinlogBuilder()
    _xa(builder, 1, one_phase=True)
    assert [r.transaction.is_last for r in conversion(builder).rows()] == [False, True]


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
    for batch in conversion(_two_tables(800)).batches(rows_max=40, bytes_max=batch_bytes):
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
    assert len(conversion(builder).rows()) == 120


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
    assert len(conversion(builder).rows()) == 100


def test_schema_is_not_repeated_without_need() -> None:
    """Without the rule, each table has one schema record."""
    known = KnownSchemas()
    records = [
        record
        for batch in conversion(_two_tables(800)).batches(rows_max=40, bytes_max=4096)
        for record in decoded(batch, known)
    ]
    tables = [r.table for r in records if isinstance(r, SchemaRecord) and r.table]
    assert tables == ["often", "seldom"]
