"""Executes an order of a publish task in a Python worker of Spark: opens the slot, unless this process has it open.

``residents`` is the state of this process: each slot with its producer and the reader of the set topic. A slot that
another process has opened since is fenced, and its first request here fails, so nothing depends on what is kept.
"""

import gc
import os
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

from millrace.consumer.format.avro_format import Register
from millrace.consumer.format.formats import without_registry
from millrace.consumer.publish.heartbeats import Heartbeats
from millrace.consumer.publish.order import PublishOrder
from millrace.consumer.publish.plans import PublishPlans
from millrace.consumer.publish.schema_changes import SchemaChanges
from millrace.consumer.publish.slot import Slot, SlotOrder
from millrace.consumer.publish.turn import PublishTurn, Tools, schema_texts
from millrace.consumer.publish.writer import SlotWriter
from millrace.consumer.records.pieces import BoundedSource
from millrace.consumer.records.row_schemas import RowSchemas
from millrace.consumer.records.stream import TopicStream
from millrace.consumer.target.progress import Mark
from millrace.consumer.turn.executor import GC_OBJECTS, look_up_at
from millrace.consumer.turn.order import Answer, guarded
from millrace.drivers.kafka.partitions import Place
from millrace.drivers.kafka.reader import TopicReader
from millrace.errors import MillraceError, Retryable
from millrace.process.memory import keep_freed_memory
from millrace.registry.client import RegistryClient
from millrace.schemas.documents import Registry


@dataclass(slots=True)
class _Resident:
    """``plans``: None before the first turn."""

    order: PublishOrder
    slot: Slot
    stream: TopicStream
    turn: PublishTurn | None = None

    def close(self) -> None:
        self.stream.close()
        self.slot.close()


_residents: dict[tuple[str, int], _Resident] = {}  # by task and slot


def execute_publish(order: PublishOrder) -> Answer[Mark]:
    """Run one turn. An error of Millrace is returned as a value."""
    return guarded(order.task.task, lambda: _run(order))


def close_slots(task: str) -> None:
    """Close the slots that this process keeps of a task."""
    for place in [place for place in _residents if place[0] == task]:
        _residents.pop(place).close()


def _run(order: PublishOrder) -> Mark:
    gc.set_threshold(GC_OBJECTS)
    keep_freed_memory()
    place = (order.task.task, order.slot)
    resident = _residents.pop(place, None)
    if resident is not None and not order.continues(resident.order):
        resident.close()
        resident = None
    resident = resident or _opened(order)
    try:
        with SlotWriter(resident.slot) as writer:
            resident.turn = turn = _turn(order, resident, writer)
            mark = turn.run()
    except BaseException:
        resident.close()
        raise
    _residents[place] = resident
    return mark


def _opened(order: PublishOrder) -> _Resident:
    source = order.definitions.last.source
    slot = Slot.open(SlotOrder(order.task, order.slot))
    try:
        # more records gather while this slot commits
        stream = TopicStream(source.brokers, source.topic, gather_s=0.0)
    except BaseException as exc:
        slot.close()
        if isinstance(exc, MillraceError) and exc.code == "MR-3501":
            raise Retryable("MR-5052", f"{source}: {exc.message}") from exc
        raise
    return _Resident(order, slot, stream)


def _turn(order: PublishOrder, resident: _Resident, writer: SlotWriter) -> PublishTurn:
    """The turn that continues the last one of this process, or begins at the slot's position."""
    parent = os.getppid()
    source = order.definitions.last.source
    stream = resident.stream
    tools = Tools(
        stream if order.end_offset < 0 else BoundedSource(stream, order.end_offset),
        writer,
        look_up_at(source.registry),
        is_over=lambda: os.getppid() != parent,
        is_read=lambda: stream.reached >= order.end_offset,
    )
    if (last := resident.turn) is not None:
        return replace(last, order=order, tools=tools)
    position = resident.slot.position
    schemas = dict(position.schemas)
    with closing(TopicReader(source.brokers, source.topic)) as reader:
        texts = schema_texts(partial(_value_at, reader), schemas) if schemas else {}
    plans = PublishPlans(
        order.definitions.at(position.seq + 1), RowSchemas(texts), _register_at(source.registry)
    )
    return PublishTurn(
        order,
        tools,
        plans,
        position.reached(source.topic),
        position.snapshot,
        schemas,
        position.transaction,
        Heartbeats(_last_heartbeats(order, resident.slot)),
        SchemaChanges(dict(position.announced)),
    )


def _last_heartbeats(order: PublishOrder, slot: Slot) -> dict[Place, tuple[int, int]]:
    """The seq and part of the last one in each partition of the slot."""
    topics = {task.heartbeat_topic for task in order.definitions.tasks} - {""}
    return {
        place: (tail.seq, tail.part)
        for place, tail in slot.mark.tails.items()
        if place[0] in topics
    }


def _register_at(registry: Registry) -> Register:
    """Registers the schemas of the records; known pairs of subject and schema are asked for once."""
    return RegistryClient(registry).register if registry.url else without_registry


def _value_at(reader: TopicReader, offset: int) -> bytes | None:
    """The value of the record at an offset; None if retention has removed it."""
    records = reader.read(offset, offset + 1)
    return records[0].value if records and records[0].offset == offset else None
