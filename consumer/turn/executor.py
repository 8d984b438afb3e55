"""Executes an order in a Python worker of Spark, with threads as lanes and Kafka as the source.

An order is a turn or one share of a turn.

The reader of the topic is kept between turns, with the records that it has read ahead.
"""

import gc
import os
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from consumer.records.stream import TopicStream
from consumer.target.load_range import side_of
from consumer.target.sessions import close_sessions
from consumer.turn.context import Tools
from consumer.turn.order import Answer, Outcome, Share, ShareEnd, TurnOrder, guarded
from consumer.turn.spread_applier import run_share
from consumer.turn.turn import residents, run_turn
from consumer.write.lanes import ThreadLanes
from millrace.errors import Fatal, MillraceError, Retryable
from registry.client import RegistryClient
from schemas.documents import Registry, TopicAddress

T = TypeVar("T")

# A chunk of records is 4,096 objects, which their references free. By default every 700 objects start a collection.
GC_OBJECTS = 50_000

_streams: dict[str, tuple[TopicAddress, TopicStream]] = {}  # by task


def execute(order: TurnOrder) -> Answer[Outcome]:
    """Run one turn. An error of Millrace is returned as a value."""
    return guarded(order.owner.task, lambda: _turn(order))


def _turn(order: TurnOrder) -> Outcome:
    if not order.is_partial:
        _forget_side(order.owner.task)
    outcome = _execute(order, lambda tools: run_turn(order, tools))
    return replace(outcome, read_to=_stream(order).reached)


def _forget_side(task: str) -> None:
    """Release what this process keeps of a side stream that has joined."""
    side = side_of(task)
    if (kept := _streams.pop(side, None)) is not None:
        kept[1].close()
        close_sessions(side)
        residents.pop(side, None)


def execute_share(share: Share) -> Answer[ShareEnd]:
    """Run one share of a spread turn. An error of Millrace is returned as a value."""
    order = share.order
    return guarded(order.owner.task, lambda: _execute(order, lambda tools: run_share(share, tools)))


def _execute(order: TurnOrder, run: Callable[[Tools], T]) -> T:
    gc.set_threshold(GC_OBJECTS)
    parent = os.getppid()
    stream = _stream(order)
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
        _streams.pop(order.owner.task, None)
        stream.close()
        raise


def _stream(order: TurnOrder) -> TopicStream:
    task, source = order.owner.task, order.assignment.source
    kept = _streams.get(task)
    if kept is not None and kept[0] == source:
        return kept[1]
    if kept is not None:
        kept[1].close()
    try:
        made = TopicStream(source.brokers, source.topic)
    except MillraceError as exc:
        if exc.code != "MR-3501":  # a secret that can't be read, for example
            raise
        raise Retryable("MR-5052", f"{source}: {exc.message}") from exc
    _streams[task] = (source, made)
    return made


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
