"""Any split of a stream into batches and any restart give the same records exactly once."""

from hypothesis import given
from hypothesis import strategies as st

from millrace.schemas.documents import TableFilter
from millrace.schemas.record.control import RecordKind
from millrace.schemas.record.framing import peek_kind
from tests.kit.binlog.builder import BinlogBuilder
from tests.kit.capture.converter import Conversion, FileReader, MemoryRegistry, raw_records
from tests.kit.examples import examples

_ROWS = st.lists(
    st.tuples(st.integers(-5, 5), st.text(max_size=20) | st.none()), min_size=1, max_size=60
)
_TRANSACTIONS = st.lists(
    st.lists(st.tuples(st.sampled_from(["a", "b", "hidden"]), _ROWS), min_size=1, max_size=4),
    min_size=1,
    max_size=6,
)
_IDS = {"a": 1, "b": 2, "hidden": 3}


def _stream(
    transactions: list[list[tuple[str, list[tuple[int, str | None]]]]], files: int
) -> FileReader:
    contents: dict[str, bytes] = {}
    builder = BinlogBuilder()
    for number, statements in enumerate(transactions, 1):
        builder.gtid(number)
        builder.query("BEGIN")
        for table, rows in statements:
            builder.map_shop_table(table, table_id=_IDS[table])
            builder.insert(_IDS[table], rows)
        builder.xid()
        builder.gtid(1000 + number)
        builder.query(f"TRUNCATE TABLE a{number}")
        if number % files == 0:
            contents[f"mysql-bin.{number:06d}"] = bytes(builder.content)
            builder = BinlogBuilder()
    contents["mysql-bin.999999"] = bytes(builder.content)
    return FileReader(contents)


def _numbered(
    run: Conversion, *, rows_max: int, bytes_max: int
) -> list[tuple[bytes | None, bytes]]:
    return [
        record
        for batch in run.batches(rows_max=rows_max, bytes_max=bytes_max)
        for record in raw_records(batch)
        if peek_kind(record[1]) in (RecordKind.ROW, RecordKind.DDL)
    ]


@given(_TRANSACTIONS, st.integers(1, 3), st.integers(1, 40), st.integers(1, 6000), st.data())
@examples(60, deadline=None)
def test_any_cut_and_restart_give_the_same_bytes(
    transactions: list[list[tuple[str, list[tuple[int, str | None]]]]],
    files: int,
    rows_max: int,
    bytes_max: int,
    data: st.DataObject,
) -> None:
    """One large batch, many small ones, and a run that restarts after any batch give the same records."""
    wanted = TableFilter(exclude=("shop.hidden",))
    reader = _stream(transactions, files)
    registry = MemoryRegistry()
    cut = Conversion(reader, filter=wanted, registry=registry)
    whole = _numbered(cut, rows_max=100_000, bytes_max=1 << 24)
    batches = list(cut.batches(rows_max=rows_max, bytes_max=bytes_max))
    pieces = [
        [r for r in raw_records(b) if peek_kind(r[1]) in (RecordKind.ROW, RecordKind.DDL)]
        for b in batches
    ]
    assert [record for piece in pieces for record in piece] == whole
    assert [b.progress.seq for b in batches] == [
        sum(map(len, pieces[: n + 1])) for n in range(len(pieces))
    ]
    stop = data.draw(st.integers(0, len(batches) - 1))
    resumed = Conversion(reader, filter=wanted, registry=registry, progress=batches[stop].progress)
    rest = [record for piece in pieces[stop + 1 :] for record in piece]
    assert _numbered(resumed, rows_max=rows_max + 1, bytes_max=bytes_max + 1) == rest
