"""Executes an order in a Python worker of Spark, with threads as lanes and Kafka as the source.

An order is a turn or one share of a turn.
What is kept between turns is in ``resident``.
"""

import gc
import os
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from millrace.consumer.records.stream import TopicStream
from millrace.consumer.target.load_range import side_of
from millrace.consumer.turn.context import Tools
from millrace.consumer.turn.order import Answer, Outcome, Share, ShareEnd, TurnOrder, guarded
from millrace.consumer.turn.resident import Resident, forget, resident_of
from millrace.consumer.turn.spread_applier import run_share
from millrace.consumer.turn.turn import run_turn
from millrace.consumer.write.lanes import ThreadLanes
from millrace.errors import Fatal, MillraceError, Retryable
from millrace.registry.client import RegistryClient
from millrace.schemas.documents import Registry

T = TypeVar("T")

# A chunk of records is 4,096 objects, which their references free. By default every 700 objects start a collection.
GC_OBJECTS = 50_000


def execute(order: TurnOrder) -> Answer[Outcome]:
    """Run one turn. An error of Millrace is returned as a value."""
    resident = resident_of(order)
    return guarded(order.owner.task, lambda: _turn(order, resident), resident.incidents)


def _turn(order: TurnOrder, resident: Resident) -> Outcome:
    if not order.is_partial:
        forget(side_of(order.owner.task))  # of a side stream that has joined
    outcome = _execute(order, resident, lambda tools: run_turn(order, tools, resident))
    return replace(outcome, read_to=_stream(order, resident).reached)


def execute_share(share: Share) -> Answer[ShareEnd]:
    """Run one share of a spread turn. An error of Millrace is returned as a value."""
    order, resident = share.order, resident_of(share.order)
    return guarded(
        order.owner.task,
        lambda: _execute(order, resident, lambda tools: run_share(share, tools, resident)),
        resident.incidents,
    )


def _execute(order: TurnOrder, resident: Resident, run: Callable[[Tools], T]) -> T:
    gc.set_threshold(GC_OBJECTS)
    parent = os.getppid()
    stream = _stream(order, resident)
    tools = Tools(
        stream,
        ThreadLanes(),
        look_up_at(order.assignment.source.registry),
        is_over=lambda: os.getppid() != parent,  # no process waits for the outcome
        is_read=lambda: stream.reached >= order.offsets.end,
    )
    taken = stream.taken
    try:
        outcome = run(tools)
        if stream.taken == taken and not tools.is_read():
            raise Retryable(
                "MR-5052",
                f"{order.assignment.source}: no record came for {tools.limits.turn_s:g} s",
            )
        return outcome
    except BaseException:
        resident.close_stream()
        raise


def _stream(order: TurnOrder, resident: Resident) -> TopicStream:
    source = order.assignment.source
    if resident.stream is not None and resident.stream[0] == source:
        return resident.stream[1]
    resident.close_stream()
    try:
        stream = TopicStream(source.brokers, source.topic)
    except MillraceError as exc:
        if exc.code != "MR-3501":  # a secret that can't be read, for example
            raise
        raise Retryable("MR-5052", f"{source}: {exc.message}") from exc
    resident.stream = (source, stream)
    return stream


_REFUSED = frozenset({"MR-4106", "MR-7007", "MR-7014", "MR-7015"})  # clearer than MR-5033


def look_up_at(registry: Registry) -> Callable[[int], str]:
    """A look-up in a registry. MR-5033: Fatal without a registry, Retryable if it does not answer. MR-70xx: refused."""

    def look_up(schema_id: int) -> str:
        if not registry.url:
            raise Fatal(
                "MR-5033",
                f"unknown schema id {schema_id}, and the task has no registry",
                schema_id=schema_id,
            )
        try:
            return RegistryClient(registry).schema_by_id(schema_id)
        except Retryable as away:
            if away.code in _REFUSED:
                raise
            raise Retryable("MR-5033", away.message, schema_id=schema_id) from away
        except Fatal as refused:
            if refused.code in _REFUSED:
                raise
            raise Fatal("MR-5033", refused.message, schema_id=schema_id) from refused

    return look_up
