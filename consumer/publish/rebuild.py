"""Writes the topics of a publish task again, from the set topic alone, into topics of other names.

                                  topic                       progress topic
    the task                      public.shop.orders          shop-public.progress
    with the suffix ``.again``    public.shop.orders.again    shop-public.again.progress

A record follows from the set topic and from the definitions in the task's progress, so each topic gets the records of
the task for the part of the set topic that Kafka still has: equal keys, values, partitions, and headers ``task``,
``seq`` and ``part``. ``epoch`` is that of the task's last owner. ``n`` counts from 1 in each new partition, so it is
equal too if the set topic has all records since the task's start.

Guarantees: each record once, as by the task (``slot``). A rebuild that was interrupted continues, and one that is
repeated later adds what has come since. Two at a time fence each other. The task and its topics are not touched.
Statements that stopped the task are passed: its history has the answers.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from millrace.consumer.publish.definitions import Definitions
from millrace.consumer.publish.executor import close_slots, execute_publish
from millrace.consumer.publish.mark import Mark, Position, marks_in
from millrace.consumer.publish.opening import start_task
from millrace.consumer.publish.order import PublishOrder
from millrace.consumer.publish.outputs import Outputs, TaskOrder
from millrace.consumer.turn.order import result_of
from millrace.drivers.kafka.partitions import Place
from millrace.drivers.kafka.reader import READING, TopicIdentity, TopicReader
from millrace.errors import Fatal
from millrace.schemas.documents import PublishTask
from millrace.schemas.gtid import parse_any_gtid_set
from millrace.schemas.record.control import RecordKind
from millrace.schemas.record.framing import peek_kind
from millrace.schemas.record.record import seq_of
from millrace.schemas.view.view import View

EVERY_SEQ = range(2**63)
READ_S = 30.0


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """``records``: of each partition. ``seqs``: from the first one that the set topic has, to the last one read."""

    records: dict[Place, int]
    seqs: tuple[int, int]


def rebuild(task: PublishTask, order: TaskOrder, *, suffix: str) -> Rebuilt:
    """Write all topics up to the present end of the set topic. ``order``: that of the task, under any epoch.

    Fatal MR-3107 if the task has no progress. Blocks until the end is reached.
    """
    marks = _marks(order)
    history = max((mark.definitions for mark in marks), key=len, default=())
    if not history:
        raise Fatal("MR-3107", f"the task {task.name} has written nothing", task=task.name)
    source, snapshot = task.source, _snapshot(marks)
    own = replace(order, epoch=max(mark.epoch for mark in marks), slots=1, suffix=suffix)
    definitions = _renamed(
        Definitions.of(history),
        first_seq=history[0].from_seq + 1,
        suffix=suffix,
    )
    with closing(TopicIdentity(source.brokers, source.topic, errors=READING)) as topic:
        end = topic.end()
        first = replace(_first(task, topic.ask()), snapshot=snapshot)
    try:
        started = start_task(own, start=lambda: first, describe=lambda _: history[-1].description)
        mark = result_of(
            execute_publish(
                PublishOrder(
                    task=own,
                    definitions=definitions,
                    slot=0,
                    accepted=EVERY_SEQ,
                    first_offset=max(started.positions[0].next_offset, 0),
                    end_offset=end,
                )
            )
        )
    finally:
        close_slots(task.name)
    tails = {place: tail for one in _marks(own) for place, tail in one.tails.items()}
    return Rebuilt({place: tail.n for place, tail in sorted(tails.items())}, (first.seq, mark.seq))


def _marks(order: TaskOrder) -> list[Mark]:
    """The progress of each slot, also of former ones; [] without a progress topic."""
    with closing(Outputs(order)) as outputs:
        shape = outputs.topics.shapes([order.progress_topic]).get(order.progress_topic)
        places = [
            (order.progress_topic, slot) for slot in range(shape.partition_count if shape else 0)
        ]
        ends = outputs.topics.ends(places)
        ranges = {place: (ends[place].low, ends[place].stable) for place in places}
        return list(marks_in(outputs.reader, ranges, within_s=READ_S).values())


def _snapshot(marks: Sequence[Mark]) -> str:
    positions = (mark.position for mark in marks)
    return next((one.snapshot for one in positions if one is not None and one.snapshot), "")


def _renamed(definitions: Definitions, *, first_seq: int, suffix: str) -> Definitions:
    """With topics of other names, and none before the first record of the task."""
    tasks = tuple(_with_suffix(one, suffix) for one in definitions.tasks)
    if first_seq <= 1:
        return Definitions(definitions.begins, tasks)
    nothing = replace(tasks[0], view=View(()))
    return Definitions((0, first_seq, *definitions.begins[1:]), (nothing, *tasks))


def _with_suffix(task: PublishTask, suffix: str) -> PublishTask:
    options = task.format
    transactions, changes = options.transaction_topic, options.schema_change_topic
    return replace(
        task,
        topics=replace(task.topics, suffix=suffix),
        format=replace(
            options,
            transaction_topic=transactions and transactions + suffix,
            schema_change_topic=changes and changes + suffix,
            heartbeat_ms=0,  # when they were written is in no record
            heartbeat_topic="",
        ),
    )


def _first(task: PublishTask, topic_id: str) -> Position:
    """Before the first record that the set topic has, or at the task's start at a GTID."""
    if task.start.gtid_set:
        start = parse_any_gtid_set(task.start.gtid_set)
        return Position(-1, 0, str(start), topic_id, flavour=str(start.flavour), past_start=False)
    with closing(TopicReader(task.source.brokers, task.source.topic)) as reader:
        ends = reader.ends()
        record = reader.next_record(ends.low, timeout_s=READ_S) if ends.low < ends.stable else None
    if record is None:
        return Position(0, ends.low, "", topic_id)
    has_own_seq = peek_kind(record.value) in (RecordKind.ROW, RecordKind.DDL)
    return Position(seq_of(record.value) - has_own_seq, ends.low, "", topic_id)
