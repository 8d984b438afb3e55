"""The start of a publish task, once for each lease: fences every slot of former owners and writes the fence.

    step                                       a crash after it leaves
    1 progress topic created                   an empty topic
    2 init of all transactional IDs, also      former owners fenced, their open transactions aborted
      those of a former number of slots
    3 stable end = high end, marks read        —   (a greater epoch in one: Fenced)
    4 fence, definitions and, if the number    the fence in some partitions; the next start does the same again, and
      of slots changed, positions and tails,   finds the earliest position in any of them
      in each progress partition

Each slot then opens by itself (``slot``), with a newer instance of its ID. ``definitions`` are the same in all.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

from millrace.consumer.publish.mark import Definition, Description, Mark, Position, Tail
from millrace.consumer.publish.outputs import Outputs, TaskOrder, slot_of
from millrace.consumer.publish.producers import PROGRESS_CONFIG, SlotProducer, read_mark
from millrace.drivers.kafka.partitions import Place
from millrace.faults import fault_point, register

NO_EPOCH = -1  # the fence is always written

AFTER_FENCING = register("slot.after_fencing")
BEFORE_FENCE = register("slot.before_fence")
AFTER_FENCE = register("slot.after_fence")


@dataclass(frozen=True, slots=True)
class Started:
    """Where each slot continues in the set topic, and the definitions, the oldest first."""

    positions: tuple[Position, ...]
    definitions: tuple[Definition, ...]


def start_task(
    order: TaskOrder,
    *,
    start: Callable[[], Position],
    describe: Callable[[Description], Description],
) -> Started:
    """Fence former owners. ``start`` gives that of a task that never ran.

    ``describe`` describes later records. It gets the last stored description, an empty one if there is none.
    """
    with ExitStack() as ends:
        outputs = ends.enter_context(closing(Outputs(order)))
        count = _ensure_progress(order, outputs)
        producers = []
        for slot in range(count):
            producers.append(SlotProducer(order, slot))
            ends.callback(producers[-1].kafka.discard)
        fault_point(AFTER_FENCING)
        places = {producer.place: producer for producer in producers}
        stable = outputs.wait_stable(places, abort=lambda still: _abort(places, still))
        stored = [read_mark(order, outputs, place, stable[place]) for place in places]
        marks = stored
        has_begun = any(mark.position is not None for mark in marks)
        first = None if has_begun else start()
        marks = _divided(marks, order.slots, first)
        definitions = _definitions(marks, describe, lambda: _reached(outputs, marks, producers[0]))
        for producer, mark, before in zip(producers, marks, stored, strict=True):
            fault_point(BEFORE_FENCE)
            written = replace(mark, epoch=order.epoch, definitions=definitions)
            changed = written.records(replace(before, epoch=NO_EPOCH))
            producer.commit_mark(changed, outputs)
            fault_point(AFTER_FENCE)
        positions = tuple(mark.position for mark in marks[: order.slots] if mark.position)
    return Started(positions, definitions)


def _ensure_progress(order: TaskOrder, outputs: Outputs) -> int:
    """The number of partitions of the progress topic, which has one for each slot."""
    topic = order.progress_topic
    shape = outputs.topics.shapes([topic]).get(topic)
    if shape is None:
        topics = {topic: order.slots}
        outputs.topics.create(topics, replicas=order.shape.replicas, config=PROGRESS_CONFIG)
    elif shape.partition_count < order.slots:
        outputs.topics.add_partitions(topic, order.slots)
    return outputs.wait_created({topic: order.slots})[topic].partition_count


def _abort(producers: Mapping[Place, SlotProducer], still: Collection[Place]) -> None:
    for place in still:
        producers[place].abort_in([place])


def _divided(marks: list[Mark], slots: int, start: Position | None) -> list[Mark]:
    """The marks of this number of slots: as they are, or, after another number, each from the earliest position.

    Only the owner of a partition has its tail. A former slot has no position.
    """
    is_same = all(mark.position is not None and mark.slots == slots for mark in marks[:slots])
    positions = [mark.position for mark in marks if mark.position is not None]
    first = min(positions, key=lambda position: position.next_offset, default=start)
    tails: dict[Place, Tail] = {}
    for slot, mark in enumerate(marks):
        for place, tail in mark.tails.items():
            if not is_same or slot_of(place, slots) == slot:
                tails[place] = max(tail, tails.get(place, tail), key=lambda one: one.end)
    return [
        replace(
            mark,
            slots=slots,
            position=None if slot >= slots else mark.position if is_same else first,
            tails={place: tail for place, tail in tails.items() if slot_of(place, slots) == slot},
        )
        for slot, mark in enumerate(marks)
    ]


def _definitions(
    marks: list[Mark],
    describe: Callable[[Description], Description],
    reached: Callable[[], int],
) -> tuple[Definition, ...]:
    """The longest history, and a new definition if the description differs from the last."""
    history = max((mark.definitions for mark in marks), key=len)
    last = history[-1].description if history else Description()
    description = describe(last)
    if description == last:
        return history
    return (*history, Definition(reached(), description))


def _reached(outputs: Outputs, marks: list[Mark], producer: SlotProducer) -> int:
    """The greatest seq that any slot has reached."""
    marked = {place: tail for mark in marks for place, tail in mark.tails.items()}
    tails = outputs.tails(marked, abort=producer.abort_in)
    positions = [mark.position.seq for mark in marks if mark.position is not None]
    return max([*positions, *(tail.seq for tail in tails.values())], default=0)
