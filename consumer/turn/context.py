"""The surroundings of a turn: where its records come from and its parts go, its limits, and where it begins."""

from collections.abc import Callable
from dataclasses import dataclass

from millrace.consumer.records.numbers import Seqs
from millrace.consumer.records.pieces import Size, Source
from millrace.consumer.target.progress import Mark
from millrace.consumer.window.window import LookUp
from millrace.consumer.write.lanes import Lanes

LINGER_S = 1.0
TURN_S = 30.0
WINDOW = Size(32_768, 8 << 20)


@dataclass(frozen=True, slots=True)
class Limits:
    """``serial_rows``: with at most this many rows, one target transaction. ``part_rows``: per target transaction."""

    window: Size = WINDOW
    serial_rows: int = 256
    part_rows: int = 10_000
    linger_s: float = LINGER_S
    turn_s: float = TURN_S


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class Tools:
    """The reader of the topic, the lanes, the look-up of schemas.

    ``is_over``: no process waits for the turn. ``is_read``: the topic was read as far as the order says that it goes.
    """

    source: Source
    lanes: Lanes
    look_up: LookUp
    limits: Limits = DEFAULT_LIMITS
    is_over: Callable[[], bool] = lambda: False
    is_read: Callable[[], bool] = lambda: True


@dataclass(frozen=True, slots=True)
class Position:
    """The mark on the target, and the seqs above it that earlier turns have applied, ascending."""

    mark: Mark
    applied: Seqs
