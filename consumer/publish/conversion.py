"""Rows of a batch as records of output topics: view, format, topic and partition of each."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from millrace.consumer.format.cloud_events import (
    TEXTS,
    TRANSACTION,
    Attributes,
    attributes,
    constant_headers,
    event_source,
)
from millrace.consumer.format.encoded import (
    KEY_END,
    KEY_START,
    OTHER,
    OTHER_END,
    OTHER_START,
    PART,
    RECORD,
    SEQ,
    VALUE_END,
    VALUE_START,
    Encoded,
)
from millrace.consumer.format.table_format import ALL_PARTITIONS, EventFormat
from millrace.consumer.format.transactions import (
    NONE_COUNTED,
    CountedTransaction,
    TableChanges,
    number_events,
)
from millrace.consumer.kernel.compiled import Bytes
from millrace.consumer.kernel.partitions import partitions_of, partitions_of_columns
from millrace.consumer.publish import outgoing
from millrace.consumer.publish.outgoing import Outgoing
from millrace.consumer.publish.plans import PublishPlans, TablePlan
from millrace.consumer.records.numbers import Ints, RecordNumbers
from millrace.consumer.records.rows import Rows
from millrace.consumer.view.changes import AFTER, BEFORE, Changes, make_changes
from millrace.consumer.view.changes import RECORD as CHANGED


def convert(
    plans: PublishPlans,
    rows: Rows,
    numbers: RecordNumbers,
    transaction: CountedTransaction = NONE_COUNTED,
    owned: Callable[[str], Bytes] = lambda _: ALL_PARTITIONS,
) -> tuple[Outgoing, CountedTransaction]:
    """The records of these rows, whose tables are in the view; those of one topic in the order of their seq.

    ``transaction`` is open before the first of ``rows``; the second result is open after the last. ``owned``: for each
    partition of a topic, 1 if its records are wanted; others are not made where that saves work.
    """
    tables = _changes(plans, rows, numbers)
    pieces: list[_Piece] = []
    orders: tuple[Ints | None, ...] = (None,) * len(tables)
    options = plans.task.format
    if not options.transaction_topic:
        transaction = NONE_COUNTED
    else:
        named = [
            TableChanges(".".join(plan.program.view.name), _events_of(plan), changes)
            for plan, changes in tables
        ]
        numbered = number_events(rows, named, transaction, plans.transactions)
        orders, transaction = numbered.orders, numbered.after
        if len(numbered.records):
            first = np.zeros(len(numbered.records), np.int64)  # one partition has their order
            topic = options.transaction_topic
            events = _attributes(plans, topic, numbered.records, rows, of=TRANSACTION)
            pieces.append(_Piece(topic, numbered.records, first, events))
    for (plan, every), order in zip(tables, orders, strict=True):
        count, wanted = plans.task.topics.partitions, owned(plan.topic)
        is_spread = bool(plan.by) or plan.is_keyed
        if len(wanted) and not (wanted.any() if is_spread else wanted[plan.partition]):
            continue
        by_key = wanted if plan.is_keyed and count > 1 else ALL_PARTITIONS
        changes, own_order = every, order
        if plan.by and len(wanted) and count > 1:
            is_wanted = _changes_of(plan, every, wanted)
            changes = replace(every, lines=every.lines[is_wanted])
            own_order = order[is_wanted] if order is not None else None
        encoded = plan.format.encode(rows, changes, orders=own_order, owned=by_key)
        if len(encoded.lines):
            partitions = _partitions(plan, changes, encoded, count)
            name = ".".join(plan.program.view.name)
            events = _attributes(plans, plan.topic, encoded, rows, of=(name, changes))
            pieces.append(_Piece(plan.topic, encoded, partitions, events))
    joined = _joined(pieces)
    if options.cloudevents:
        joined = replace(joined, headers=constant_headers(options.name), texts=TEXTS)
    return joined, transaction


class _Piece(NamedTuple):
    """Records of one topic. ``events``: their attributes, if the records are CloudEvents."""

    topic: str
    encoded: Encoded
    partitions: Ints
    events: Attributes | None


def _attributes(
    plans: PublishPlans, topic: str, encoded: Encoded, rows: Rows, *, of: tuple[str, Changes] | str
) -> Attributes | None:
    if not plans.task.format.cloudevents:
        return None
    # a rebuild has the attributes of the original topic
    named = topic.removesuffix(plans.task.topics.suffix)
    return attributes(encoded, rows, event_source(plans.task.source.topic, named), of=of)


def _events_of(plan: TablePlan) -> EventFormat:
    assert isinstance(plan.format, EventFormat), "only Debezium's formats have a transaction topic"
    return plan.format


def _changes(
    plans: PublishPlans, rows: Rows, numbers: RecordNumbers
) -> list[tuple[TablePlan, Changes]]:
    """The changes of each table's structure that has any."""
    if not len(numbers):
        return []
    slots = rows.slots(numbers)
    tables = []
    for slot in np.flatnonzero(np.bincount(slots)).tolist():
        own = RecordNumbers(numbers[slots == slot])
        plan = plans.table(slot, rows.gtid(int(own[0])))
        changes = make_changes(plan.program, rows, own)
        if len(changes):
            tables.append((plan, changes))
    return tables


def _changes_of(plan: TablePlan, changes: Changes, wanted: Bytes) -> npt.NDArray[np.bool_]:
    """The changes that make a record of a wanted partition, before or after a change of the columns that decide."""
    images = changes.lines[:, [BEFORE, AFTER]]
    each, columns = np.arange(len(images)), np.array(plan.by, np.int64)
    is_wanted = np.zeros(len(images), np.bool_)
    for cells in (images, images[:, ::-1]):
        one = np.full_like(images, -1)
        one[:, 0] = np.where(cells[:, 0] >= 0, cells[:, 0], cells[:, 1])
        partitions = partitions_of_columns(
            changes.payload, changes.cells, one, each, columns, len(wanted)
        )
        is_wanted |= wanted[partitions] > 0
    return is_wanted


def _partitions(plan: TablePlan, changes: Changes, encoded: Encoded, count: int) -> Ints:
    lines = encoded.lines
    if plan.by and count > 1:
        own = changes.lines
        change_of = np.searchsorted(own[:, CHANGED], lines[:, RECORD])
        images = np.ascontiguousarray(own[:, [BEFORE, AFTER]])
        columns = np.array(plan.by, np.int64)
        return partitions_of_columns(
            changes.payload, changes.cells, images, change_of, columns, count
        )
    if not plan.is_keyed or count == 1:
        return np.full(len(lines), plan.partition, np.int64)
    return partitions_of(encoded.payload, lines[:, KEY_START], lines[:, KEY_END], count)


def _joined(pieces: list[_Piece]) -> Outgoing:
    topics = tuple(dict.fromkeys(piece.topic for piece in pieces))
    payloads: list[Bytes] = []
    parts: list[Ints] = []
    base = 0
    for topic, encoded, partitions, events in pieces:
        width = outgoing.WIDTH + (events.places.shape[1] if events else 0)
        lines: Ints = np.empty((len(encoded.lines), width), np.int64)
        lines[:, outgoing.TOPIC] = topics.index(topic)
        lines[:, outgoing.PARTITION] = partitions
        for column, place in _PLACES:
            lines[:, column] = encoded.lines[:, place]
            lines[:, column][encoded.lines[:, place] >= 0] += base
        lines[:, outgoing.SEQ] = encoded.lines[:, SEQ]
        lines[:, outgoing.PART] = encoded.lines[:, PART]
        lines[:, outgoing.OTHER] = encoded.lines[:, OTHER]
        payloads.append(encoded.payload)
        base += len(encoded.payload)
        if events is not None:
            lines[:, outgoing.WIDTH :] = events.places
            lines[:, outgoing.WIDTH :][events.places >= 0] += base
            payloads.append(events.payload)
            base += len(events.payload)
        parts.append(lines)
    if not parts:
        return Outgoing((), np.empty(0, np.uint8), np.empty((0, outgoing.WIDTH), np.int64))
    every = parts[0] if len(parts) == 1 else np.concatenate(parts)
    if len(topics) < len(parts):  # several tables, or structures of one, are in a topic
        every = every[np.lexsort((every[:, outgoing.PART], every[:, outgoing.SEQ]))]
    payload = payloads[0] if len(payloads) == 1 else np.concatenate(payloads)
    return Outgoing(topics, payload, every)


_PLACES = (
    (outgoing.KEY_START, KEY_START),
    (outgoing.KEY_END, KEY_END),
    (outgoing.VALUE_START, VALUE_START),
    (outgoing.VALUE_END, VALUE_END),
    (outgoing.OTHER_START, OTHER_START),
    (outgoing.OTHER_END, OTHER_END),
)
