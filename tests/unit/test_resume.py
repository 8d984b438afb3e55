"""Resuming inside a source transaction: another member's log is compared with the topic."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from millrace.errors import Retryable
from millrace.producer.convert.converter import Converter
from millrace.producer.task.resume import Resumed, resume_inside
from millrace.schemas.documents import TableFilter
from millrace.schemas.gtid import Flavour, parse_gtid_set
from millrace.schemas.place import FIRST_POS, Coordinates
from millrace.schemas.progress import OpenTransaction, Progress
from millrace.schemas.record.control import RecordKind
from millrace.schemas.record.framing import peek_kind
from tests.kit.binlog.builder import BinlogBuilder
from tests.kit.capture.converter import Conversion, FileReader, MemoryRegistry, raw_records

GTID = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1"
NOTHING = parse_gtid_set(Flavour.MYSQL, "")
SOME = TableFilter(exclude=("shop.audit",))
T, AUDIT = 7, 8

Rows = list[tuple[int, int]]  # (table, id), in the order in which they were logged
LOGGED: Rows = [(T, 1), (T, 2), (AUDIT, 3), (T, 4), (T, 5)]


def member(rows: Rows, *, before: int = 0, at: int = 0, statement: str = "") -> BinlogBuilder:
    """Return a binlog of one source transaction, ``at`` bytes late, after ``before`` others with other rows."""
    builder = BinlogBuilder()
    builder.event(28, bytes(at))  # IGNORABLE
    for other in range(before):
        builder.transaction(100 + other, T, "t", [(other, "other")])
    builder.gtid(1)
    builder.query("BEGIN")
    if statement:
        builder.query(statement)
    for table, identity in rows:
        builder.map_shop_table("t" if table == T else "audit", table_id=table)
        builder.insert(table, [(identity, "v")])
    builder.xid()
    return builder


def conversion(builder: BinlogBuilder, registry: MemoryRegistry | None = None) -> Conversion:
    """Return a conversion of this member's binlog."""
    reader = FileReader({"mysql-bin.000001": bytes(builder.content)})
    return Conversion(reader, filter=SOME, registry=registry or MemoryRegistry())


@dataclass(frozen=True)
class Part:
    """The first values that a member's binlog is converted to."""

    values: list[bytes]

    def units(self) -> Iterator[bytes]:
        """Act as ``producer.task.resume.PublishedRows``."""
        return iter(self.values)


def published(builder: BinlogBuilder, count: int) -> Part:
    """Return its first ``count`` rows and statements."""
    values = [v for batch in conversion(builder).batches() for _, v in raw_records(batch)]
    return Part([v for v in values if peek_kind(v) is not RecordKind.SCHEMA][:count])


def resumed(part: Part, rows: int, *members: BinlogBuilder) -> Resumed | None:
    """Resume with members in sub-directories 1, 2, …; their schema ids differ from those in the topic."""
    registry = MemoryRegistry()
    registry("another", "schema")

    def convert(progress: Progress, at: Coordinates) -> Converter:
        tried = conversion(members[int(at.subdir[-1]) - 1], registry)
        return Conversion(
            tried.reader, filter=SOME, registry=registry, progress=progress
        ).converter()

    places = [
        Coordinates(f"s.00000{n}", "mysql-bin.000001", FIRST_POS)
        for n in range(1, len(members) + 1)
    ]
    progress = Progress(NOTHING, OpenTransaction(GTID, rows), len(part.values))
    return resume_inside(part, places, progress, convert=convert, may_wait=lambda: False)


def test_equal_rows_at_other_coordinates_resume_the_transaction() -> None:
    """Position, times and schema ids may differ; a filtered row is counted."""
    found = resumed(published(member(LOGGED), 3), 4, member(LOGGED, at=300))
    assert found is not None
    assert found.progress == Progress(NOTHING, OpenTransaction(GTID, 4), 3)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(T, 2), (T, 1), (AUDIT, 3), (T, 4), (T, 5)], "row 1 of"),
        ([(T, 1), (AUDIT, 3), (T, 2), (T, 4), (T, 5)], "row 2 of"),
        ([(T, 1), (T, 2), (AUDIT, 3), (T, 5), (T, 4)], "row 4 of"),
        ([(T, 1), (T, 2), (AUDIT, 3), (T, 9), (T, 5)], "row 4 of"),
        ([(T, 1), (T, 2)], "it has only 2 of"),
    ],
    ids=["order", "order before a filter", "order at the end", "another row", "fewer"],
)
def test_different_rows_or_order_are_refused(rows: Rows, message: str) -> None:
    """The error names the row and none of its values."""
    with pytest.raises(Retryable) as refused:
        resumed(published(member(LOGGED), 3), 4, member(rows))
    assert refused.value.code == "MR-6508"
    assert message in refused.value.message


def test_row_filtered_there_but_wanted_here_is_refused() -> None:
    """The published rows are equal, but a counted row was filtered there and is wanted here."""
    part = published(member([(T, 1), (T, 2), (AUDIT, 3), (AUDIT, 4), (T, 5)]), 2)
    with pytest.raises(Retryable, match=r"row 4 of .* was not published"):
        resumed(part, 4, member(LOGGED))


def test_another_source_transaction_first_is_refused() -> None:
    """A replica commits in another order: its next transaction is not the open one."""
    with pytest.raises(Retryable, match="MR-6508"):
        resumed(published(member(LOGGED), 3), 4, member(LOGGED, before=1))


def test_matching_sub_directory_is_chosen() -> None:
    """The newest sub-directory belongs to another server."""
    found = resumed(published(member(LOGGED), 3), 4, member(LOGGED[::-1]), member(LOGGED))
    assert found is not None
    assert found.at.subdir == "s.000002"


def test_transaction_without_published_rows_restarts_anywhere() -> None:
    """All counted rows were filtered."""
    found = resumed(Part([]), 1, member(LOGGED[::-1]))
    assert found is not None
    assert found.progress == Progress(NOTHING, None, 0)


def test_missing_events_are_awaited_as_long_as_allowed() -> None:
    """The relay log ends before it: nothing is decided."""
    assert resumed(published(member(LOGGED), 3), 4, BinlogBuilder()) is None


def test_statement_before_rows_is_compared_by_its_text() -> None:
    """CREATE TABLE … SELECT: the statement is the first unit of its source transaction."""
    create = "CREATE TABLE `t` (`id` int) START TRANSACTION"
    part = published(member(LOGGED, statement=create), 2)
    assert peek_kind(part.values[0]) is RecordKind.DDL
    assert resumed(part, 2, member(LOGGED, statement=create)) is not None
    with pytest.raises(Retryable, match="row 1 of"):
        resumed(part, 2, member(LOGGED, statement=create.replace("int", "bigint")))
