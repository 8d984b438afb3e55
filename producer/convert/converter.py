"""Converts the relay log into records, batch by batch: the loop around the kernel.

    converter = Converter(source=…, reader=relay_reader, register=registry.register, progress=published, at=coordinates)
    while True:
        batch = converter.next_batch(rows_max=32_768, bytes_max=16 << 20, timeout_s=1.0)
        if batch is not None:
            publish(batch)

Guarantees: source transactions in ``progress`` are skipped. In an open source transaction the published rows are
skipped by count (``producer.task.resume`` has shown that they are the same rows). Every other row comes exactly once,
in binlog order, and ``seq`` has no gap. A batch ends between source transactions wherever possible. The same relay log
gives the same row records, except for schema IDs. Used by one thread.

Not done here: publishing, and deciding when. A converter cannot be used after an exception; the next one starts at the
published progress.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from millrace.errors import Fatal
from millrace.producer.binlog.events import HEADER_BYTES
from millrace.producer.binlog.transactions import OUTSIDE
from millrace.producer.convert.arrays import SCRATCH_BYTES_MAX, Bytes, KernelArrays, grown
from millrace.producer.convert.batch import RecordBatch
from millrace.producer.convert.errors import kernel_error
from millrace.producer.convert.event_sources import EventSource, Reader, RelayEvents
from millrace.producer.convert.interleave import Inserts, Interleaver
from millrace.producer.convert.kernel import state as s
from millrace.producer.convert.kernel.walk import walk
from millrace.producer.convert.output import Output
from millrace.producer.convert.position import (
    flavour_number,
    forget_order,
    load_position,
    make_room,
    read_position,
)
from millrace.producer.convert.rows_head import read_present
from millrace.producer.convert.savepoints import Mark
from millrace.producer.convert.statements import EventHandler, Look
from millrace.producer.convert.table_filter import FoldedFilter, NameFilter
from millrace.producer.convert.tables import (
    Describe,
    Destination,
    KnownTables,
    Prepare,
    describe_by_map,
)
from millrace.producer.convert.xa import Release
from millrace.schemas.documents import TableFilter
from millrace.schemas.gtid import Flavour, parse_gtid
from millrace.schemas.place import FIRST_POS, Coordinates
from millrace.schemas.progress import OpenTransaction, Progress
from millrace.schemas.record.control import (
    CONTROL_SCHEMAS,
    ControlRecord,
    Origin,
    RecordKind,
    SchemaRecord,
    kind_of,
)
from millrace.schemas.record.record import decode_control, encode_control

# A schema record is repeated at the schema's first use after this time, or after this many bytes of records. Kafka's
# retention is usually days or gigabytes, and never less than a segment. A schema record takes 2 KB per table: with
# 1,000 tables under load, 1% of the bytes.
SCHEMA_REPEAT_S = 600.0
SCHEMA_REPEAT_BYTES = 256 << 20
# while records may have to be inserted, the end of the relay log is left so often
INSERT_POLL_S = 0.005
NEAR_S = 1.0  # the stream is near the source's end if it was there so lately
_ALL_ROWS = 1 << 62  # ROWS_TO_SKIP of a source transaction that ends with ROLLBACK


@dataclass(frozen=True, slots=True)
class ConverterSource:
    """A conversion's input: the set and its flavour, the names in the records, the table filter and its case rule.

    ``look``: for ``millrace try``. A change in statement format becomes a record with its SQL, and does not end it. A
    line reports an XA transaction that was prepared before the beginning.
    """

    set_name: str
    task_name: str
    flavour: Flavour
    topic: str
    filter: TableFilter = field(default_factory=TableFilter)
    # a statement may use capital letters where its rows use small letters
    folds_names: bool = False
    look: Look | None = None


class Converter:
    """`at` is the start of a file, or of a source transaction in it."""

    def __init__(
        self,
        *,
        source: ConverterSource,
        reader: Reader,
        register: Callable[[str, str], int],
        progress: Progress,
        at: Coordinates,
        prepare: Prepare = lambda _: None,
        describe: Describe = describe_by_map,
        inserts: Inserts | None = None,
    ) -> None:
        origin = Origin(source.flavour, source.task_name, source.set_name)
        wanted: NameFilter = FoldedFilter.of(source.filter) if source.folds_names else source.filter
        self._reader = reader
        self._arrays = KernelArrays()
        self._tables = KnownTables(
            self._arrays,
            origin=origin,
            destination=Destination(source.topic, register, wanted, prepare, describe),
        )
        self._output = Output(self._arrays.state)
        self._control = {
            kind: self._tables.register_schema(schema) for kind, schema in CONTROL_SCHEMAS.items()
        }
        self._relay = RelayEvents(reader, at)
        self._sources: list[EventSource] = [self._relay]
        self._progress = progress
        self._is_caught_up = False
        self._is_new_topic = progress.seq == 0
        self._schemas_repeated_at_s = time.monotonic()
        self._bytes_since_schemas = 0
        self._near_until_s = 0.0
        self._interleaver: Interleaver | None = None
        if inserts is not None:
            self._interleaver = Interleaver(
                inserts, self._arrays, self._output, self._tables, self._append_control
            )
        self._handler = EventHandler(
            self._arrays, origin=origin, filter_=wanted, reader=reader, look=source.look
        )
        self._start(progress)

    def next_batch(
        self,
        *,
        rows_max: int,
        bytes_max: int,
        timeout_s: float,
        wanted: threading.Event | None = None,
    ) -> RecordBatch | None:
        """The next records, as many as have arrived, up to the soft bounds; None if there are none in time.

        With ``wanted``, a batch that is not full is cut only once that event is set. Until then records are added to
        it, also by later calls.

        After `timeout_s` the converter reads no further window, even if the relay log has more and the filter excludes
        most of it. It then returns the complete source transactions, with the progress over those that were skipped. It
        always reads at least one window.

        Every Fatal has the coordinates of its event. It also has the GTID of the source transaction, except in a
        skipped one, whose GTID text is not written.
        """
        try:
            self._output.prepare(rows_max=rows_max, bytes_max=bytes_max)
            return self._next_batch(rows_max, timeout_s, wanted)
        except Fatal as error:
            where: dict[str, object] = dict(error.context)
            if self._arrays.state[s.GROUP] != OUTSIDE and not self._arrays.state[s.IS_COVERED]:
                where.setdefault("gtid", self._handler.gtid())
            if "coordinates" not in where:
                where["coordinates"] = self._event_at(self._sources[-1])
            raise Fatal(error.code, error.message, fix=error.fix, **where) from error

    def _next_batch(
        self, rows_max: int, timeout_s: float, wanted: threading.Event | None
    ) -> RecordBatch | None:
        self._arrays.drop_scratch()
        self._repeat_schemas_if_due()
        deadline = time.monotonic() + timeout_s
        windows = 0
        while True:
            status = self._walk()
            if (batch := self._interleave(rows_max)) is not None:
                return batch
            if status == s.BATCH_FULL:
                if not self._is_full(rows_max):
                    continue  # a boundary at which nothing was inserted
                return self._cut()
            if status == s.OUT_FULL:
                if batch := self._cut_full():
                    return batch
            elif status == s.NEED_EVENTS:
                has_more, left_s = self._next_window(), deadline - time.monotonic()
                self._is_caught_up = not has_more
                windows += has_more
                is_cut = self._has_boundary() and (wanted is None or wanted.is_set())
                is_taken = is_cut and wanted is not None and windows > 1
                if has_more and not is_taken and (windows == 1 or left_s > 0):
                    continue
                if is_cut:
                    return self._cut()
                if left_s <= 0:
                    return None
                wait_s = min(left_s, INSERT_POLL_S) if self._inserts else left_s
                if self._has_boundary():
                    assert wanted is not None
                    wanted.wait(wait_s)
                    windows = 0  # read what has arrived meanwhile
                elif not self._reader.wait(self._relay.here, wait_s) and wait_s == left_s:
                    return None
            else:
                self._handle_status(status)
                # a statement may end what is inserted: before any later record
                if (batch := self._interleave(rows_max)) is not None:
                    return batch

    @property
    def is_caught_up(self) -> bool:
        """Whether the relay log had nothing more to read. Any thread may read it."""
        return self._is_caught_up

    @property
    def restart(self) -> Coordinates | None:
        """Where another converter can begin with the progress of the last batch; None in a source transaction.

        It is the start of the file with the oldest prepared XA transaction, if there is one.
        """
        if self._arrays.state[s.GROUP] != OUTSIDE:
            return None
        here = self._relay.here
        needed = self._handler.needed_from(here)
        return here if needed == here else needed.at(FIRST_POS)

    @property
    def filter_warning(self) -> str:
        """A note for the operator while a new topic has no row because the filter excludes every table; "" otherwise.

        It considers tables with rows in the binlog, because the account has no privilege to list all tables. Any thread
        may read it.
        """
        excluded = self._tables.only_excluded
        if not excluded or not self._is_new_topic:
            return ""
        return f"`include` and `exclude` leave out every table that has changed so far, such as {excluded}"

    # ---- inserted records ----------------------------------------------------------------------------

    @property
    def _inserts(self) -> bool:
        """Whether records may have to be inserted."""
        return self._interleaver is not None and self._interleaver.inserts.is_active

    def _interleave(self, rows_max: int) -> RecordBatch | None:
        """Insert what belongs at the place that the kernel has reached: the batch that ends with it."""
        interleaver = self._interleaver
        if interleaver is None or not interleaver.inserts.is_active:
            return None
        interleaver.scan()
        st, now_s = self._arrays.state, time.monotonic()
        if self._is_caught_up:
            self._near_until_s = now_s + NEAR_S
        is_near = now_s < self._near_until_s
        gtid_set = read_position(self._arrays, self._progress.gtid_set)
        self._progress = replace(self._progress, gtid_set=gtid_set)
        is_wanted = interleaver.inserts.wants_boundary(gtid_set, is_near=is_near)
        is_open = self._progress.open is not None and not st[s.TRANSACTIONS_DONE]
        if not is_wanted or is_open or st[s.GROUP] != OUTSIDE:
            # 0: the kernel stops at the next boundary
            st[s.RECORDS_MAX] = 0 if is_wanted else rows_max
            return None
        st[s.RECORDS_MAX] = rows_max
        progress = interleaver.insert(replace(self._progress, open=None), is_near=is_near)
        if progress is None:
            return None
        self._progress = replace(self._progress, snapshot=progress.snapshot)
        return self._cut()

    def _is_full(self, rows_max: int) -> bool:
        st = self._arrays.state
        return bool(st[s.RECORDS] >= rows_max or st[s.OUT_AT] >= st[s.BYTES_MAX])

    # ---- the kernel ----------------------------------------------------------------------------------

    def _start(self, progress: Progress) -> None:
        st = self._arrays.state
        st[s.FLAVOUR] = flavour_number(progress.gtid_set.flavour)
        st[s.SEQ] = progress.seq
        st[s.LAST_UNIT] = -1
        load_position(self._arrays, progress.gtid_set)
        if progress.open is not None:
            opened = parse_gtid(progress.gtid_set.flavour, progress.open.gtid)
            text = str(opened).encode("ascii")  # shorter than ``expected``
            self._arrays.expected[: len(text)] = memoryview(text)
            st[s.EXPECTED_SIZE], st[s.EXPECTED_ROWS] = len(text), progress.open.rows
        for registered in self._control.values():
            self._append_schema(SchemaRecord(registered, None, "", "", progress.seq))
        self._handler.set_file(self._relay.at.file)
        if self._relay.at.pos > FIRST_POS:
            first = self._relay.read_first_event()
            self._handler.handle(first.data, events=self._relay, at=self._relay.at.at(FIRST_POS))

    def _walk(self) -> int:
        """Run the kernel once on the innermost source of events."""
        arrays, events, output = self._arrays, self._sources[-1], self._output
        st = arrays.state
        st[s.POS], st[s.FILE_POS] = events.offset, events.file_pos
        st[s.FIXED_POS], st[s.CHECKSUM_BYTES] = events.fixed_pos, events.checksum_bytes
        status = walk(
            events.window,
            events.window.size,
            st,
            output.out,
            output.bounds,
            arrays.tables,
            arrays.columns,
            arrays.blob,
            arrays.labels,
            self._tables.codes,
            arrays.ids,
            arrays.intervals,
            arrays.sids,
            arrays.heads,
            arrays.expected,
            arrays.scratch,
            arrays.inflated,
            arrays.numbers,
            arrays.key_spans,
        )
        events.offset = int(st[s.POS])
        return status

    def _handle_status(self, status: int) -> None:
        """Do what the kernel cannot do itself."""
        arrays, events = self._arrays, self._sources[-1]
        if status == s.TABLE_MAP_UNSEEN:
            self._tables.learn(
                self._body(events),
                seq=int(arrays.state[s.SEQ]),
                following=events.following_maps(),
            )
            self._append_due()
        elif status == s.IMAGES_UNSEEN:
            self._tables.learn_images(
                int(arrays.state[s.ERROR_DETAIL]),
                *read_present(int(arrays.state[s.EVENT_TYPE]), self._body_bytes(events)),
                seq=int(arrays.state[s.SEQ]),
            )
            self._append_due()
        elif status == s.EVENT_FOR_PYTHON:
            self._handle_event(events)
        elif status == s.POSITION_FULL:
            gtid_set = read_position(arrays, self._progress.gtid_set)
            self._progress = replace(self._progress, gtid_set=gtid_set)
            make_room(arrays)
        elif status == s.SCRATCH_FULL:
            if arrays.scratch.size >= SCRATCH_BYTES_MAX:
                raise Fatal(
                    "MR-6512", "a compressed value is too large", coordinates=self._event_at(events)
                )
            need = max(2 * arrays.scratch.size, int(arrays.state[s.NEED_BYTES]))
            arrays.scratch = grown(arrays.scratch, min(need, SCRATCH_BYTES_MAX))
            arrays.inflated = grown(arrays.inflated, min(need, SCRATCH_BYTES_MAX))
        else:
            raise kernel_error(arrays.state, self._event_at(events))

    def _body(self, events: EventSource) -> bytes:
        return self._body_bytes(events).tobytes()

    def _body_bytes(self, events: EventSource) -> Bytes:
        st = self._arrays.state
        end = events.offset + int(st[s.EVENT_SIZE]) - events.checksum_bytes
        return events.window[events.offset + HEADER_BYTES : end]

    def _event_at(self, events: EventSource) -> Coordinates:
        pos = events.fixed_pos if events.fixed_pos >= 0 else events.file_pos + events.offset
        return self._relay.at.at(pos)

    def _handle_event(self, events: EventSource) -> None:
        st = self._arrays.state
        event = events.window[events.offset : events.offset + int(st[s.EVENT_SIZE])].data
        at = self._event_at(events)
        outcome = self._handler.handle(event, events=events, at=at)
        if outcome.drops_to is not None:
            self._drop_since(outcome.drops_to, at, is_whole=outcome.ends_group)
        events.offset += int(st[s.EVENT_SIZE])
        if outcome.statement is not None or outcome.counts:
            st[s.STATEMENTS] += 1
        if outcome.statement is not None:
            value = encode_control(outcome.statement, schema_id=self._control[RecordKind.DDL].id)
            self._output.append(value, is_unit=True)
            if self._inserts:
                assert self._interleaver is not None
                self._interleaver.inserts.statement(outcome.statement)
        elif outcome.counts:
            st[s.ROWS] += 1
        if outcome.events is not None:
            self._sources.append(outcome.events)
        if outcome.ends_group:
            self._handler.end_group(self._output.out, self._output.bounds)

    # ---- rolled-back rows ----------------------------------------------------------------------------

    @property
    def _is_partly_published(self) -> bool:
        """Whether a part of the open source transaction has left."""
        return self._progress.open is not None and not self._arrays.state[s.TRANSACTIONS_DONE]

    def _drop_since(self, mark: Mark, at: Coordinates, *, is_whole: bool) -> None:
        """Drop the rows of the open source transaction since ``mark``. Fatal MR-6507 if that may be wrong.

        The rows still count in ROWS, like those that the filter excludes: a resumption counts them too. Schema records
        among them stay, because later rows may have these schemas.
        """
        st = self._arrays.state
        count = max(int(st[s.SEQ]) - mark.seq, 0)
        has_left = is_whole or (count > 0 and mark.seq <= self._progress.seq)
        if has_left and self._is_partly_published:
            # a row that has left, or whose predecessor left without the mark of the last row
            raise Fatal("MR-6507", "a rollback of rows that are published", coordinates=at)
        if st[s.STATEMENTS] != mark.statements:
            raise Fatal("MR-6507", "a rollback of rows and statements", coordinates=at)
        if not count:
            return
        others = self._output.drop(count)
        st[s.ROWS_WRITTEN] -= count  # below 0 if an earlier batch counted them
        st[s.LAST_UNIT_ROWS] = mark.last_unit_rows
        if mark.seq <= st[s.OPEN_SEQ]:
            st[s.LAST_UNIT] = -1
        for value in others:
            record = decode_control(value)
            assert isinstance(record, SchemaRecord)
            self._append_control(replace(record, seq=mark.seq))

    def _drop_if_rolled_back(self) -> bool:
        """Drop the open source transaction, of which no part has left, if it ends with ROLLBACK.

        Its end is looked up before a part of it leaves: the relay log is read to there, which takes a twentieth of the
        time of converting it. Only MariaDB's can end so, and no flag of their GTIDs tells (tried with 11.4).
        """
        st, events = self._arrays.state, self._sources[-1]
        is_unsure = st[s.FLAVOUR] == s.MARIADB and events is self._relay
        if not is_unsure or self._is_partly_published or not self._relay.ends_with_rollback():
            return False
        self._drop_since(Mark.start(st), self._event_at(events), is_whole=True)
        st[s.ROWS_TO_SKIP] = _ALL_ROWS
        return True

    def _next_window(self) -> bool:
        """Load the next events, or resume the outer source at the end of an inner one; False if the relay log has
        none."""
        events = self._sources[-1]
        before = self._relay.at
        if events.load_next():
            if events is self._relay and (before.subdir, before.file) != (
                events.at.subdir,
                events.at.file,
            ):
                self._handler.set_file(self._relay.at.file)
                if before.subdir != self._relay.at.subdir:
                    forget_order(self._arrays)
                    self._arrays.forget_ids()
            return True
        if events is self._relay:
            return False
        self._sources.pop()
        self._handler.end_source(events, self._output.out, self._output.bounds)
        return True

    # ---- batches -------------------------------------------------------------------------------------

    def _repeat_schemas_if_due(self) -> None:
        """Repeat schema records, so that retention never removes the last one of a schema in use."""
        is_late = time.monotonic() - self._schemas_repeated_at_s >= SCHEMA_REPEAT_S
        if is_late or self._bytes_since_schemas >= SCHEMA_REPEAT_BYTES:
            self._tables.repeat_schemas(seq=int(self._arrays.state[s.SEQ]))
            self._append_due()
            self._schemas_repeated_at_s, self._bytes_since_schemas = time.monotonic(), 0

    def _append_due(self) -> None:
        while self._tables.due:
            self._append_schema(self._tables.due.pop(0))

    def _append_schema(self, record: SchemaRecord) -> None:
        self._append_control(record)

    def _append_control(self, record: ControlRecord) -> None:
        value = encode_control(record, schema_id=self._control[kind_of(record)].id)
        self._output.append(value, is_unit=False)

    def _has_boundary(self) -> bool:
        """Whether there is a complete source transaction to deliver."""
        st = self._arrays.state
        return bool(st[s.OPEN_RECORDS] > 0 or st[s.TRANSACTIONS_DONE] > 0)

    def _cut_full(self) -> RecordBatch | None:
        """Make room inside a source transaction: cut before it, else inside it, else enlarge the buffer."""
        st = self._arrays.state
        if st[s.OPEN_RECORDS] > 0:
            return self._cut()
        if st[s.LAST_UNIT] > 0:
            return None if self._drop_if_rolled_back() else self._cut_inside()
        self._output.make_room()
        return None

    def _cut(self) -> RecordBatch:
        st = self._arrays.state
        seq = int(st[s.SEQ] if st[s.GROUP] == OUTSIDE else st[s.OPEN_SEQ])
        # after a start inside a source transaction, that transaction stays open until it is done; it is the first one
        opened = None if st[s.TRANSACTIONS_DONE] else self._progress.open
        return self._batch(int(st[s.OPEN_RECORDS]), opened, seq)

    def _cut_inside(self) -> RecordBatch:
        st, arrays = self._arrays.state, self._arrays
        end = s.HEAD_TRANSACTION + int(st[s.TRANSACTION_HEAD_SIZE])
        start = end - int(st[s.GTID_SIZE]) + (1 if st[s.GTID_SIZE] <= 64 else 2)
        gtid = arrays.heads[start:end].tobytes().decode("ascii")
        rows = int(st[s.LAST_UNIT_ROWS])  # 0: only schema records precede the first row
        opened = OpenTransaction(gtid, rows) if rows else None
        return self._batch(int(st[s.LAST_UNIT]), opened, int(st[s.SEQ]) - 1)

    def _batch(self, records: int, opened: OpenTransaction | None, seq: int) -> RecordBatch:
        st = self._arrays.state
        gtid_set = read_position(self._arrays, self._progress.gtid_set)
        self._progress = replace(self._progress, gtid_set=gtid_set, open=opened, seq=seq)
        if self._interleaver is not None:
            if self._inserts:
                self._interleaver.scan(records)
            self._interleaver.note_cut(records)
        buffer, bounds = self._output.cut(records)
        self._bytes_since_schemas += int(bounds[-1, 3] - bounds[0, 2]) if len(bounds) else 0
        st[s.OPEN_SEQ] = seq
        rows = int(st[s.ROWS_WRITTEN])
        st[s.ROWS_WRITTEN], st[s.TRANSACTIONS_DONE] = min(rows, 0), 0
        needed = self._handler.needed_from(self._relay.here)
        release = _BatchRelease(self._output, buffer, self._handler.take_releases())
        return RecordBatch(buffer, bounds, self._progress, max(rows, 0), needed, release)


class _BatchRelease:
    """A batch's buffer, and the files that its rows were read from."""

    def __init__(self, output: Output, buffer: Bytes, holds: list[Release]) -> None:
        self._output = output
        self._buffer: Bytes | None = buffer
        self._holds = holds

    def recycle(self) -> None:
        """Free the buffer, which may be filled again at once."""
        buffer, self._buffer = self._buffer, None
        if buffer is not None:
            self._output.recycle(buffer)

    def __call__(self) -> None:
        """Free the files too."""
        self.recycle()
        while self._holds:
            self._holds.pop()()
