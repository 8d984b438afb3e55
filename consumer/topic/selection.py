"""Selects the records of a topic that a reader wants, by table and op, without decoding the others.

The table of a row is that of its schema, and its op is read from its end.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from millrace.drivers.kafka.reader import TopicReader, TopicRecord
from millrace.schemas.documents import TableFilter
from millrace.schemas.record.control import DdlRecord, RecordKind
from millrace.schemas.record.framing import peek_kind, unframe
from millrace.schemas.record.record import KnownSchemas, Record, decode_record
from millrace.schemas.record.row_end import read_row_end

_WINDOW_OFFSETS_MIN = 64
_COUNTED = (RecordKind.ROW, RecordKind.DDL)


@dataclass(frozen=True, slots=True)
class Wanted:
    """``tables``: patterns; a statement is wanted if it names such a table. ``ops``: of rows; with some, no statement.

    () is all, of both.
    """

    tables: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()

    @property
    def is_all(self) -> bool:
        """Whether nothing is passed over."""
        return not self.tables and not self.ops


@dataclass(slots=True)
class Selected:
    """``passed`` counts the rows and statements that were passed over. Control records are always selected."""

    wanted: Wanted
    known: KnownSchemas
    passed: int = 0

    def decoded(self, record: TopicRecord) -> tuple[Record, bool] | None:
        """The record, and whether it is a row or statement; None if it is passed over."""
        kind = peek_kind(record.value)
        if kind is RecordKind.ROW and not self._admits_row(record.value):
            self.passed += 1
            return None
        found = decode_record(record.key, record.value, self.known)
        if isinstance(found, DdlRecord) and not self._admits_statement(found):
            self.passed += 1
            return None
        return found, kind in _COUNTED

    def offsets(self, records: Iterator[TopicRecord]) -> Iterator[int]:
        """The offsets of the rows and statements that are selected."""
        for record in records:
            kind = peek_kind(record.value)
            if kind is RecordKind.ROW:
                if self._admits_row(record.value):
                    yield record.offset
            elif (found := self.decoded(record)) is not None and found[1]:
                yield record.offset

    def _admits_row(self, value: bytes) -> bool:
        wanted = self.wanted
        if wanted.ops and read_row_end(value).op not in wanted.ops:
            return False
        if not wanted.tables:
            return True
        table = self.known.layout(unframe(value)[0]).table
        return TableFilter(wanted.tables).admits(table.database, table.table)

    def _admits_statement(self, record: DdlRecord) -> bool:
        wanted = self.wanted
        if wanted.ops or not wanted.tables:
            return not wanted.ops
        filter_ = TableFilter(wanted.tables)
        return any(filter_.admits(*name) for name in record.statement.tables)


def offset_of_last(reader: TopicReader, count: int, *, selected: Callable[[int], Selected]) -> int:
    """The offset of the first of the last ``count`` selected rows and statements; the first kept one if too few.

    ``selected``: for records from an offset on.
    """
    ends = reader.ends()
    if count == 0:
        return ends.stable
    window = _WINDOW_OFFSETS_MIN
    while True:
        start = max(ends.low, ends.stable - window)
        records = (record for chunk in reader.chunks(start, ends.stable) for record in chunk)
        offsets = list(selected(start).offsets(records))
        if len(offsets) >= count:
            return offsets[-count]
        if start == ends.low:
            return start
        window *= 4
