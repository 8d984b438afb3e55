"""Inserts records between source transactions of the stream: the rows of snapshots.

``Inserts`` decides what comes where (``producer.snapshot``). It sees each record of the tables that it watches, each
statement, and each boundary that it wants. It writes through ``Sink``, with the numbers that come next.

Guarantees: every record is scanned exactly once, in the order of the stream, before anything is inserted after it.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from millrace.producer.binlog.transactions import OUTSIDE
from millrace.producer.convert.arrays import Bytes, KernelArrays, Numbers
from millrace.producer.convert.kernel import state as s
from millrace.producer.convert.output import Output
from millrace.producer.convert.tables import KnownTables
from millrace.schemas.gtid import GtidPosition
from millrace.schemas.progress import Progress
from millrace.schemas.record.avro_schema import AvroSchema
from millrace.schemas.record.control import (
    ControlRecord,
    DdlRecord,
    RegisteredSchema,
)


class Sink(Protocol):
    """Where inserted records go."""

    @property
    def seq(self) -> int: ...

    def register(self, schema: AvroSchema) -> RegisteredSchema: ...

    def control(self, record: ControlRecord) -> None:
        """Append a control record, which repeats the last number."""

    def rows(self, buffer: Bytes, bounds: Numbers) -> None:
        """Append rows with the next numbers."""


class Inserts(Protocol):
    """Decides what is inserted. Used by the converter's thread."""

    @property
    def is_active(self) -> bool:
        """Whether there may be anything to insert. While it is not, nothing else is called."""

    @property
    def watched(self) -> Collection[tuple[str, str]]: ...

    def records(self, buffer: Bytes, bounds: Numbers, tables: KnownTables) -> None:
        """These records follow in the stream."""

    def statement(self, record: DdlRecord) -> None:
        """This statement follows in the stream."""

    def wants_boundary(self, position: GtidPosition, *, is_near: bool) -> bool:
        """Whether the next boundary is wanted. ``is_near``: the stream is near the source's end."""

    def insert(self, progress: Progress, sink: Sink, *, is_near: bool) -> Progress | None:
        """At a boundary: write what belongs there. Returns the progress with the new state; None for nothing."""


@dataclass(slots=True)
class Interleaver:
    """Calls ``inserts`` at the right moments of a converter's work on its output."""

    inserts: Inserts
    arrays: KernelArrays
    output: Output
    tables: KnownTables
    append: Callable[[ControlRecord], None]
    scanned: int = 0  # records of the output that were scanned

    def scan(self, leaving: int = 0) -> None:
        """Scan the records of source transactions that have ended since, and the first ``leaving`` ones.

        Others wait: if the source rolled them back, they change no key.
        """
        st = self.arrays.state
        end = max(leaving, int(st[s.RECORDS] if st[s.GROUP] == OUTSIDE else st[s.OPEN_RECORDS]))
        if end > self.scanned:
            if self.inserts.watched:
                bounds = self.output.bounds[self.scanned : end]
                self.inserts.records(self.output.out, bounds, self.tables)
            self.scanned = end

    def note_cut(self, record: int) -> None:
        """The records before ``record`` are cut off the output."""
        self.scanned = max(self.scanned - record, 0)

    def insert(self, progress: Progress, *, is_near: bool) -> Progress | None:
        """Insert at this boundary; None if nothing was."""
        self.scan()
        found = self.inserts.insert(progress, self, is_near=is_near)
        self.scanned = int(self.arrays.state[s.RECORDS])
        return found

    # ---- Sink ------------------------------------------------------------------------------------------

    @property
    def seq(self) -> int:
        return int(self.arrays.state[s.SEQ])

    def register(self, schema: AvroSchema) -> RegisteredSchema:
        return self.tables.register_schema(schema)

    def control(self, record: ControlRecord) -> None:
        self.append(record)

    def rows(self, buffer: Bytes, bounds: Numbers) -> None:
        assert self.arrays.state[s.GROUP] == OUTSIDE
        self.output.append_rows(buffer, bounds)
