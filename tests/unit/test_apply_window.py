"""A ``resolved`` or ``fence`` record repeats the last seq; otherwise rows are missing."""

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest

from millrace.consumer.kernel import walk
from millrace.consumer.records.numbers import NO_SEQS
from millrace.consumer.records.row_schemas import RowSchemas
from millrace.consumer.tables.table_plans import Catalogue, TablePlans
from millrace.consumer.target.progress import Mark
from millrace.consumer.turn.executor import look_up_at
from millrace.consumer.window.window import LookUp, Window, read_window
from millrace.errors import Fatal
from millrace.schemas.documents import Registry
from millrace.schemas.gtid import Flavour, parse_gtid_set
from millrace.schemas.progress import OpenTransaction, Progress
from millrace.schemas.record.avro_schema import envelope_schema
from millrace.schemas.record.control import ResolvedRecord
from tests.kit.apply.tables import accounts, integer, table, text
from tests.kit.apply.topic import SET, UUID, RecordStream
from tests.kit.apply.values import values_of

_NO_SCHEMAS = RowSchemas()
_UNKNOWN = look_up_at(Registry(""))


def _read(
    values: list[bytes], seen: Mark, *, known: RowSchemas = _NO_SCHEMAS, look_up: LookUp = _UNKNOWN
) -> Window[TablePlans]:
    return read_window(
        values_of(values),
        np.arange(len(values)),
        plans=TablePlans(Catalogue("window", known)),
        seen=seen,
        applied=NO_SEQS,
        look_up=look_up,
    )


def _stream() -> RecordStream:
    """Return a schema, three rows and their resolved."""
    stream = RecordStream()
    for number in range(3):
        stream.insert(accounts("bank"), {"id": number, "amount": 0})
    stream.commit()
    return stream


@pytest.mark.parametrize(("seen", "code"), [(0, "MR-5031"), (1, "MR-5030"), (2, "MR-5030")])
def test_resolved_after_missing_rows_stops_the_task(seen: int, code: str) -> None:
    """Retention removed unapplied rows: the mark must not pass them with a later record."""
    stream = _stream()
    with pytest.raises(Fatal) as caught:
        _read(stream.values[-1:], Mark(seen, 0))
    assert caught.value.code == code


@pytest.mark.parametrize(("missing", "code"), [(1, "MR-5031"), (2, "MR-5030")])
def test_missing_row_stops_the_task_before_the_next_resolved(missing: int, code: str) -> None:
    """The row is missing before the rows or between two of them, while their source transaction is open."""
    values = _stream().values[:-1]
    with pytest.raises(Fatal) as caught:
        _read(values[:missing] + values[missing + 1 :], Mark(0, 0))
    assert caught.value.code == code


def test_resolved_of_the_last_seq_is_accepted() -> None:
    """Its rows came in the previous window."""
    assert len(_read(_stream().values[-1:], Mark(3, 0)).resolved) == 1


@pytest.mark.parametrize("kind", ["row", "resolved", "schema"])
def test_records_of_another_topic_after_the_mark_stop_the_task(kind: str) -> None:
    """Records with a seq that is already applied are not a replay: the mark must not pass them."""
    stream = RecordStream(seq=9)
    stream.introduce(accounts("bank"))
    stream.seq = 3
    match kind:
        case "row":
            stream.insert(accounts("bank"), {"id": 1, "amount": 0})
        case "resolved":
            stream.commit()
        case _:
            stream.introduce(accounts("bank"))
    with pytest.raises(Fatal) as caught:
        _read(stream.values, Mark(9, 0))
    assert caught.value.code == "MR-5035"
    assert caught.value.context["offset"] == "1"


def test_row_with_a_decreasing_seq_stops_the_task() -> None:
    """Two publishers wrote, or two topics were joined."""
    schema, *rows = _stream().values[:-1]
    with pytest.raises(Fatal) as caught:
        _read([schema, *rows, rows[1]], Mark(0, 0))
    assert caught.value.code == "MR-5035"


@pytest.mark.parametrize("is_looked_up", [False, True])
@pytest.mark.parametrize(
    ("set_name", "database", "table"),
    [("shop", "bank", "b"), ("shop", "bang", "a"), ("s", "bank", "a"), ("shop", "ban", "ka")],
)
def test_row_of_a_table_unlike_its_schema_stops_the_task(
    set_name: str, database: str, table: str, *, is_looked_up: bool
) -> None:
    """A rebuilt registry gave the id to a table with the same columns: no row of it is read."""
    of_row = replace(accounts("bank"), table="a")
    stream = RecordStream()
    for number in range(3):
        stream.insert(of_row, {"id": number, "amount": 0})
    wrong = envelope_schema(set_name, replace(of_row, database=database, table=table)).text
    known = RowSchemas() if is_looked_up else RowSchemas({100: wrong})
    with pytest.raises(Fatal) as caught:
        _read(stream.values[1:], Mark(0, 0), known=known, look_up=lambda _: wrong)
    assert caught.value.code == "MR-5036"
    assert caught.value.context == {"offset": "0", "schema_id": "100"}
    assert "a row of bank.a of set shop" in caught.value.message
    assert f"known as {database}.{table} of set {set_name}" in caught.value.message


def test_damaged_row_of_another_table_is_reported_with_its_offset() -> None:
    """Its head names another table, and the bytes after it do not match the schema."""
    stream = RecordStream()
    stream.insert(accounts("bank"), {"id": 1, "amount": 0})
    wrong = envelope_schema(SET, accounts("bang")).text
    with pytest.raises(Fatal) as caught:
        _read([stream.values[1] + b"\0"], Mark(0, 0), known=RowSchemas({100: wrong}))
    assert caught.value.code == "MR-5032"
    assert caught.value.context == {"offset": "0", "schema_id": "100"}


@pytest.mark.parametrize("length", [1, 31, 32, 64, 400])
def test_tables_are_distinguished_by_their_whole_name(length: int) -> None:
    """Names have a length of one or two bytes in the record and differ only in their last letter."""
    table = replace(accounts("d" * length), table="t" * length)
    stream = RecordStream()
    stream.insert(table, {"id": 1, "amount": 0})
    assert len(_read(stream.values, Mark(0, 0)).waiting) == 1
    other = envelope_schema(SET, replace(table, table="t" * (length - 1) + "u")).text
    with pytest.raises(Fatal) as caught:
        _read(stream.values[1:], Mark(0, 0), known=RowSchemas({100: other}))
    assert caught.value.code == "MR-5036"


@pytest.mark.parametrize("flavour", list(Flavour))
@pytest.mark.parametrize("is_fence", [False, True])
def test_shrinking_gtid_set_stops_the_task(flavour: Flavour, *, is_fence: bool) -> None:
    """The seq matches by chance, but the topic's source transactions are not those applied."""
    stream = RecordStream(flavour, seq=7)
    stream.insert(accounts("bank"), {"id": 1, "amount": 0})
    stream.commit()
    if is_fence:
        stream.fence()
    applied = "0-1-1,1-1-5" if flavour is Flavour.MARIADB else f"{UUID}:1-2"
    _read(stream.values, Mark(7, 0, stream.gtid_set, flavour))
    with pytest.raises(Fatal, match="does not include") as caught:
        _read(stream.values, Mark(7, 0, applied, flavour))
    assert caught.value.code == "MR-5035"


def test_gtid_set_of_the_other_flavour_stops_the_task() -> None:
    """A topic of a MySQL set became one of a MariaDB set."""
    with pytest.raises(Fatal) as caught:
        _read(_stream().values, Mark(0, 0, "0-1-1", Flavour.MARIADB))
    assert caught.value.code == "MR-5035"


def test_gtid_set_shrinking_inside_a_window_stops_the_task() -> None:
    """Every GTID set is compared, not only the last one."""
    stream = RecordStream()
    for number in range(2):
        stream.insert(accounts("bank"), {"id": number, "amount": 0})
        stream.commit()
    stream.last_number = 0
    stream.commit()
    with pytest.raises(Fatal) as caught:
        _read(stream.values, Mark(0, 0))
    assert caught.value.code == "MR-5035"


def test_schema_record_reveals_missing_rows() -> None:
    """It repeats the last seq too: nothing after a gap is used."""
    stream = RecordStream(seq=5)
    stream.introduce(accounts("bank"))
    with pytest.raises(Fatal) as caught:
        _read(stream.values, Mark(3, 0))
    assert caught.value.code == "MR-5030"


def _transactions(count: int) -> list[bytes]:
    """Return a schema, then (row, resolved) of each."""
    stream = RecordStream()
    for number in range(count):
        stream.insert(accounts("bank"), {"id": number, "amount": 0})
        stream.commit()
    return stream.values


def _start(last: int) -> Mark:
    """Return the progress of a task that starts at a GTID set and has read nothing."""
    return Mark(-1, -2, f"{UUID}:1-{last}", Flavour.MYSQL, past_start=False)


def test_start_gtid_is_accepted_if_the_topic_is_complete() -> None:
    """Covered rows alone prove nothing: the mark has no seq until a control record passes."""
    schema, *values = _transactions(4)
    window = _read([schema, *values], _start(2))
    assert list(window.waiting) == [5, 7]
    assert [window.mark_after(end, before=_start(2)).seq for end in (2, 3, 9)] == [-1, 1, 4]
    behind = _read([schema, *values[3:]], _start(2))  # the resolved of 2, and the records after it
    assert list(behind.waiting) == [2, 4]


@pytest.mark.parametrize(
    ("first", "missing", "last", "what"),
    [
        (2, (), 1, "comes first"),  # the row of 2 is there; were all transactions before it in 1?
        (4, (), 1, "comes first"),
        (3, (), 1, "begins after"),  # the resolved of 2 without its row
        (5, (), 2, "begins after"),
        (0, (2,), 1, "follows"),  # after the proof, a gap is a gap
    ],
)
def test_start_gtid_before_the_topic_stops_the_task(
    first: int, missing: tuple[int, ...], last: int, what: str
) -> None:
    """Retention, or a capture task that began later: the records before it are unknown."""
    schema, *values = _transactions(4)
    left = [
        value for number, value in enumerate(values) if number >= first and number not in missing
    ]
    with pytest.raises(Fatal, match=what) as caught:
        _read([schema, *left], _start(last))
    assert caught.value.code in ("MR-5030", "MR-5031")


def test_topic_beginning_inside_a_source_transaction_is_incomplete() -> None:
    """Its first rows are missing, although all whole transactions before it are covered."""
    schema, *_ = _transactions(1)
    position = parse_gtid_set(Flavour.MYSQL, f"{UUID}:1")
    for number, is_refused in ((1, False), (2, True)):
        stream = RecordStream()
        inside = OpenTransaction(f"{UUID}:{number}", 1)
        stream.control(ResolvedRecord(Progress(position, inside, 2), "shop", 1, 0))
        with pytest.raises(Fatal, match="begins after") if is_refused else nullcontext():
            _read([schema, *stream.values], _start(1))


def test_resolved_after_the_rows_of_its_window_is_accepted() -> None:
    """In the usual case, rows and their resolved come together."""
    window = _read(_stream().values, Mark(0, 0))
    assert len(window.waiting) == 3
    assert window.mark_after(5, before=Mark(0, 0)).seq == 3


@pytest.mark.parametrize("is_looked_up", [False, True])
def test_wide_rows_end_a_window_early(
    monkeypatch: pytest.MonkeyPatch, *, is_looked_up: bool
) -> None:
    """A cell takes 32 bytes, also for a NULL: a window holds no more cells than the limit, and at least one row."""
    columns = (text(f"c{number}") for number in range(99))
    wide = table("bank", "wide", integer("id"), *columns)
    stream = RecordStream()
    for number in range(7):
        stream.insert(wide, {"id": number, **{f"c{at}": None for at in range(99)}})
        stream.commit()
    stream.introduce(accounts("bank"))
    known, values = envelope_schema(SET, wide).text, stream.values
    if is_looked_up:
        del values[0]
    for cells_max, most in ((600, 3), (1, 1)):
        monkeypatch.setattr("millrace.consumer.records.rows.CELLS_MAX", cells_max)
        seen, first, seqs, learned, ends = Mark(0, 0), 0, list[int](), dict[int, str](), 0
        while first < len(values):
            window = _read(values[first:], seen, look_up=lambda _: known)
            assert len(window.rows.cells) <= max(cells_max, 200)
            assert 0 < len(window.waiting) <= most
            seqs += window.rows.column(walk.SEQ)[window.waiting].tolist()
            learned |= window.learned
            ends += len(window.resolved)
            seen = window.mark_after(len(window.rows), before=seen)
            first += len(window.rows)
        assert seqs == list(range(1, 8))
        assert len(learned) == 2
        assert ends == 7


def test_mark_is_whole_only_between_source_transactions() -> None:
    """Its GTID set then says exactly what is applied: a task can continue in another topic by it."""
    stream = _stream()
    whole = [len(stream.values)]
    stream.insert(accounts("bank"), {"id": 3, "amount": 0})
    stream.pause()  # a resolved record inside a source transaction
    stream.insert(accounts("bank"), {"id": 4, "amount": 0})
    stream.commit()
    whole.append(len(stream.values))
    window = _read(stream.values, Mark(0, 0))
    marks = {end: window.mark_after(end, before=Mark(0, 0)) for end in range(1, whole[-1] + 1)}
    assert [end for end, mark in marks.items() if mark.is_whole] == whole
    assert not Mark(-1, 0).is_whole
