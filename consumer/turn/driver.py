"""Applies one micro-batch of the query after another, in turns of an executor.

Spark plans the ranges of offsets, and the executor that gets a turn reads and applies the records itself
(``turn.turn``). It continues past the range as long as records arrive, so a micro-batch that begins below the mark has
nothing left to do.

On a cluster, a backlog is applied by several executors (``spread_turn``).
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from consumer.target.progress import Mark, Owner
from consumer.target.sessions import SESSION_AGE_S
from consumer.turn.order import Counts, Order, Outcome
from consumer.turn.spread_turn import Cluster, Conductor, spread_turn
from consumer.turn.turn_gate import TurnGate
from drivers.mysql.connection import Endpoint
from millrace.errors import Retryable
from schemas.documents import ConflictPolicy, Consistency, TableFilter, TopicAddress
from schemas.gtid import Flavour, beyond, parse_gtid_set, shortened

TRIGGERS_NAMED = 3  # in a warning
# While tables are loaded: a load begins, and a side stream joins, between two turns.
PARTIAL_TURN_S = 5.0


class RecordsLike(Cluster, Protocol):
    """A micro-batch, in Spark or in a test."""

    @property
    def end(self) -> int:
        """The offset after it."""

    def apply(self, order: Order) -> Outcome:
        """One turn."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The constants of one run of an apply task. (Not the scheduler's assignment of tasks to workers.)"""

    endpoint: Endpoint
    policy: ConflictPolicy
    lane_count: int
    source: TopicAddress
    tables: TableFilter = field(default_factory=TableFilter)
    safe_until: str = ""
    consistency: Consistency = Consistency.CAUSAL


@dataclass(slots=True)
class Figures:
    """Counts for the status since the start of the run, of all turns that have ended. ``turns``: their number."""

    turns: int = 0
    counts: Counts = field(default_factory=Counts)
    triggers: tuple[str, ...] = ()
    in_order: tuple[tuple[str, str], ...] = ()
    only_left_out: str = ""  # see ``Outcome``
    shown: str = ""  # see ``Outcome``

    def add(self, outcome: Outcome) -> None:
        """Add a turn."""
        all_, one = self.counts, outcome.counts
        self.turns += 1
        self.triggers, self.in_order = outcome.triggers, outcome.in_order
        self.only_left_out, self.shown = outcome.only_left_out, outcome.shown
        all_.rows += one.rows
        all_.statements += one.statements
        all_.ddl += one.ddl
        all_.left_out += one.left_out
        all_.records += one.records
        all_.record_bytes += one.record_bytes

    @property
    def mean_record_bytes(self) -> float | None:
        """The mean size of the records that were read; None before the first."""
        counts = self.counts
        return counts.record_bytes / counts.records if counts.records else None


def _unchanged(endpoint: Endpoint) -> Endpoint:
    return endpoint


@dataclass(slots=True)
class BatchApplier:
    """Gives turns to executors, one after the other. ``owner``: who holds the fence now.

    ``begin``: the offset at which the run began, above the mark's if retention removed records.
    ``read_to``: the last turn found no record between the mark and this offset.
    ``renewed``: reads the password again, as often as sessions are replaced.
    ``is_partial``, ``until``: see ``Order``. ``gate``: held for each turn.
    """

    assignment: Assignment
    owner: Owner
    mark: Mark
    begin: int = -1
    read_to: int = -1
    figures: Figures = field(default_factory=Figures)
    conductor: Conductor = field(default_factory=Conductor)
    renewed: Callable[[Endpoint], Endpoint] = _unchanged
    _read_s: float = field(default_factory=time.monotonic)  # when the password was read
    is_partial: bool = False
    until: int = -1
    gate: TurnGate = field(default_factory=TurnGate)

    def process(self, records: RecordsLike, progressed: Callable[[Mark], None]) -> None:
        """Apply until no more records come. Errors end the run."""
        is_idle = max(self.mark.next_offset, self.read_to) >= records.end
        while not is_idle:
            with self.gate.turn():
                outcome, is_idle = self._turn(records)
                self.owner, self.mark, self.read_to = outcome.owner, outcome.mark, outcome.read_to
            self.figures.add(outcome)
            progressed(self.mark)

    def _turn(self, records: RecordsLike) -> tuple[Outcome, bool]:
        """One turn, and whether the micro-batch is done."""
        self._renew()
        given = self.assignment
        order = Order(
            self.owner,
            given.endpoint,
            given.policy,
            given.lane_count,
            given.source,
            self.mark.topic.id,
            given.tables,
            self.begin,
            records.end,
            given.safe_until,
            consistency=given.consistency,
            until=self.until,
            is_partial=self.is_partial,
            turn_s=PARTIAL_TURN_S if self.is_partial else math.inf,
        )
        count = self.conductor.share_count(records, order, self.mark)
        solo_s = self.conductor.solo_s() if count else 0.0
        if count and not solo_s:
            outcome = spread_turn(records, order, self.mark, count, self.conductor.note)
            return outcome, outcome.is_idle
        outcome = records.apply(replace(order, turn_s=solo_s) if solo_s else order)
        is_past = outcome.mark.next_offset >= records.end
        # on a cluster, what came meanwhile may be a backlog: Spark reports it in the next micro-batch
        return outcome, outcome.is_idle or (is_past and records.executor_count() > 1)

    def _renew(self) -> None:
        if time.monotonic() - self._read_s >= SESSION_AGE_S:
            endpoint = self.renewed(self.assignment.endpoint)
            self.assignment = replace(self.assignment, endpoint=endpoint)
            self._read_s = time.monotonic()

    def warning(self) -> Retryable | None:
        """MR-5038 while the topic has not reached the start; MR-5018 if it has rows of tables with triggers."""
        if not self.mark.past_start and self.mark.next_offset >= 0:
            return waiting_for_start(self.mark, self.figures.shown)
        fired = self.figures.triggers
        if not fired:
            return None
        more = f" and {len(fired) - TRIGGERS_NAMED} more" if len(fired) > TRIGGERS_NAMED else ""
        names = ", ".join(fired[:TRIGGERS_NAMED])
        return Retryable("MR-5018", f"triggers on the target: {names}{more}")


def waiting_for_start(mark: Mark, shown: str) -> Retryable:
    """MR-5038. ``shown``: the GTID set that the topic has shown, "" if that is not known."""
    flavour = Flavour(mark.flavour)
    start = parse_gtid_set(flavour, mark.gtid_set)
    what = f"skips rows until the topic reaches the start {shortened(mark.gtid_set)}"
    if shown:
        what += f"; it does not have {shortened(beyond(start, parse_gtid_set(flavour, shown)))} yet"
    return Retryable("MR-5038", what)
