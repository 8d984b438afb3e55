"""One slot of a publish task in an executor: reads the set topic from the slot's position on, publishes, commits.

    take      records that have come, up to the limits of a Kafka transaction
    window    checked as for apply (``consumer.window.window``), cut at definitions, changed schemas and DDL
    convert   rows of tables in the view become records (``conversion``)
    commit    when the topic has no more records, or the Kafka transaction is full

Another thread writes and commits (``writer``), while this one takes and converts the records that follow.
Each slot reads all records and sends those of its own partitions; the positions differ.
A statement that changes what the view would make of delivered rows stops the task, after what precedes it.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from millrace.consumer.format.transactions import NONE_COUNTED, CountedTransaction
from millrace.consumer.kernel import walk
from millrace.consumer.kernel.compiled import Bytes
from millrace.consumer.publish.conversion import convert
from millrace.consumer.publish.heartbeats import Heartbeats
from millrace.consumer.publish.mark import Position
from millrace.consumer.publish.order import PublishOrder
from millrace.consumer.publish.outgoing import Outgoing
from millrace.consumer.publish.plans import PublishPlans
from millrace.consumer.publish.schema_changes import SchemaChanges
from millrace.consumer.publish.snapshot_rows import without_rows_of_others
from millrace.consumer.records.numbers import NO_SEQS
from millrace.consumer.records.pieces import Size, Source, Taken
from millrace.consumer.target.progress import Mark
from millrace.consumer.view.ddl import check_statement
from millrace.consumer.window.window import (
    Barrier,
    LookUp,
    Window,
    advanced,
    check_follows,
    read_window,
)
from millrace.errors import Retryable
from millrace.schemas.record.control import DdlRecord, SchemaRecord
from millrace.schemas.record.record import decode_control

PIECE = Size(32_768, 8 << 20)  # read at once
TRANSACTION = Size(131_072, 32 << 20)  # records of the set topic, in one Kafka transaction
WAIT_S = 0.5  # for records; then the topic is quiet
SILENCE_S = 60.0  # without a record, where the topic has some


class Output(Protocol):
    """The slot's partitions and its position. Implemented by ``writer.SlotWriter``."""

    def write(self, outgoing: Outgoing) -> None:
        """Write the records that the slot's partitions do not have."""

    def owns(self, topic: str, partition: int) -> bool:
        """Whether the slot writes a partition."""

    def commit(self, position: Position, *, is_full: bool) -> None:
        """Commit what was written, or with ``is_full`` false leave it to the next commit; to the position all is."""


@dataclass(frozen=True, slots=True)
class Tools:
    """``source``: the set topic. ``is_over``: no process waits for the turn.

    ``is_read``: the order's end is reached.
    """

    source: Source
    output: Output
    look_up: LookUp
    is_over: Callable[[], bool] = lambda: False
    is_read: Callable[[], bool] = lambda: True


@dataclass(slots=True)
class PublishTurn:
    """A turn under way. ``mark``: everything before it was given to the output; ``transaction`` is open there.

    ``schemas``: offsets of schema records, by ID.
    """

    order: PublishOrder
    tools: Tools
    plans: PublishPlans
    mark: Mark
    snapshot: str
    schemas: dict[int, int]
    transaction: CountedTransaction = NONE_COUNTED
    heartbeats: Heartbeats = field(default_factory=Heartbeats)
    schema_changes: SchemaChanges = field(default_factory=SchemaChanges)
    _owned: dict[tuple[str, int], Bytes] = field(default_factory=dict, init=False)
    _records: int = field(default=0, init=False)
    _bytes: int = field(default=0, init=False)
    _position: Position | None = field(default=None, init=False)

    def run(self) -> Mark:
        """Until a quiet moment after ``turn_s``, or until no process waits. An order with an end is read to it.

        Retryable MR-5052 if no record comes before the end for ``SILENCE_S``.
        """
        source, began_s = self.tools.source, time.monotonic()
        fed_s = began_s
        source.seek(max(self.mark.next_offset, self.order.first_offset))
        while not self.tools.is_over():
            taken = source.take(PIECE, wait_s=WAIT_S)
            if taken is None:
                self._commit()
                now_s = time.monotonic()
                if self.tools.is_read():
                    if now_s - began_s >= self.order.turn_s:
                        break
                elif now_s - fed_s >= SILENCE_S:
                    topic = self.plans.task.source
                    raise Retryable("MR-5052", f"{topic}: no record came for {SILENCE_S:g} s")
                continue
            fed_s = time.monotonic()
            self._publish(taken)
            if taken.is_end or self._is_full():
                self._commit()
        return self.mark

    def _is_full(self) -> bool:
        return self._records >= TRANSACTION.rows or self._bytes >= TRANSACTION.bytes

    def _beat(self) -> None:
        """Write a heartbeat if the document of the next record has them, one is due, and there is something to say."""
        task = self.order.definitions.at(self.mark.seq + 1)
        is_known = self.mark.commit_ms > 0 and not self.mark.is_unproven
        if not task.heartbeat_topic or not is_known:
            return
        if self.heartbeats.is_due(task.format.heartbeat_ms):
            self.plans = self.plans.of(task)
            output, slots = self.tools.output, self.order.task.slots
            output.write(self.heartbeats.next(self.plans, self.mark, slots=slots, owns=output.owns))

    def _commit(self) -> None:
        self._beat()
        schemas = self.plans.in_order(self.schemas)
        position = Position.of(
            self.mark,
            schemas,
            snapshot=self.snapshot,
            transaction=self.transaction,
            announced=self.schema_changes.announced,
        )
        if (
            self._position is None
            or replace(position, at_ms=self._position.at_ms) != self._position
        ):
            self._position = position
        self.tools.output.commit(self._position, is_full=self._is_full())
        self._records = self._bytes = 0

    def _publish(self, taken: Taken) -> None:
        first, offsets, values = 0, taken.offsets, taken.values
        self._records += len(values)
        self._bytes += values.byte_count
        while first < len(offsets):
            self.plans = self.plans.of(self.order.definitions.at(self.mark.seq + 1))
            window = self._under_one_definition(
                read_window(
                    values.part(first, len(values)),
                    offsets[first:],
                    plans=self.plans,
                    seen=self.mark,
                    applied=NO_SEQS,
                    look_up=self.tools.look_up,
                )
            )
            self.plans = window.plans.after(window.rows.column(walk.SLOT))
            self.schemas.update(window.explained)
            end = len(window.rows)
            if end:
                self._convert(window)
                self.mark = window.mark_after(end, before=self.mark)
            first += end
            if window.barrier is not None:
                self._pass_barrier(window.barrier)
                first += 1

    def _under_one_definition(self, window: Window[PublishPlans]) -> Window[PublishPlans]:
        """The records before the first seq of the next definition."""
        begin = self.order.definitions.next_begin(self.mark.seq + 1)
        if begin is None:
            return window
        later = np.flatnonzero(window.rows.column(walk.SEQ) >= begin)
        return window.part(int(later[0])) if len(later) else window

    def _convert(self, window: Window[PublishPlans]) -> None:
        numbers = without_rows_of_others(window.rows, window.waiting, self.snapshot)
        if self._has_schema_changes:
            begin = self.order.definitions.begin_of(self.mark.seq + 1)
            new = self.schema_changes.of_rows(self.plans, window.rows, numbers, begin=begin)
            for outgoing in new:
                self.tools.output.write(outgoing)
        # rows outside the view may end a source transaction
        if len(numbers) or self.transaction.id:
            outgoing, self.transaction = convert(
                self.plans, window.rows, numbers, self.transaction, self._owned_of
            )
            if len(outgoing.lines):
                self.tools.output.write(outgoing)

    @property
    def _has_schema_changes(self) -> bool:
        """Whether this slot writes them."""
        topic = self.plans.task.format.schema_change_topic
        return bool(topic) and self.tools.output.owns(topic, 0)

    def _owned_of(self, topic: str) -> Bytes:
        """For each partition of a topic, whether it is the slot's."""
        count = self.plans.task.topics.partitions
        owned = self._owned.get((topic, count))
        if owned is None:
            output = self.tools.output
            octets = bytes(output.owns(topic, at) for at in range(count))
            owned = np.frombuffer(octets, np.uint8)  # read-only: kernels are compiled for one type
            self._owned[topic, count] = owned
        return owned

    def _pass_barrier(self, barrier: Barrier) -> None:
        record = decode_control(barrier.value)
        seq = self.mark.seq
        if isinstance(record, SchemaRecord):
            number = record.value.id
            self.plans = self.plans.learned({number: record.value.schema.text})
            self.schemas[number] = barrier.offset
            self.schema_changes.announced.pop(number, None)  # the ID is another structure's now
        else:
            assert isinstance(record, DdlRecord)
            check_follows(record.source.seq, seq, barrier.offset)
            if not self.mark.is_unproven:
                seq = record.source.seq
            self._commit()  # also if the statement stops the task
            check_statement(
                record,
                self.order.definitions.at(record.source.seq).view,
                tables=self.plans.tables,
                accepted=self.order.accepted,
            )
            self.plans = self.plans.of(self.order.definitions.at(record.source.seq))
            if self._has_schema_changes and self.mark.past_start and not self.mark.is_unproven:
                changed = self.schema_changes.of_statement(self.plans, record)
                if changed is not None:
                    self.tools.output.write(changed)
        self.mark = advanced(self.mark, None, seq=seq, next_offset=barrier.offset + 1)
        if isinstance(record, DdlRecord):
            self.mark = replace(self.mark, commit_ms=record.source.place.ts_ms)


def schema_texts(read: Callable[[int], bytes | None], schemas: Mapping[int, int]) -> dict[int, str]:
    """The texts of row schemas whose records are at these offsets; those that retention has removed are left out."""
    texts = {}
    for number, offset in schemas.items():
        value = read(offset)
        record = decode_control(value) if value else None
        if isinstance(record, SchemaRecord) and record.value.id == number:
            texts[number] = record.value.schema.text
    return texts
