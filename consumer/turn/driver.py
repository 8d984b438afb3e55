"""Applies one micro-batch of the query after another, in turns of an executor.

Spark plans the ranges of offsets, and the executor that gets a turn reads and applies the records itself
(``turn.turn``). It continues past the range as long as records arrive, so a micro-batch that begins below the mark has
nothing left to do.

On a cluster, a backlog is applied by several executors (``spread_turn``).
"""

import math
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Protocol

from millrace.consumer.tables.table_plans import Notes
from millrace.consumer.target.progress import Mark, Owner
from millrace.consumer.target.sessions import SESSION_AGE_S, Sessions
from millrace.consumer.turn.order import Assignment, Counts, Offsets, Outcome, TurnOrder
from millrace.consumer.turn.spread_turn import Cluster, Conductor, spread_turn
from millrace.consumer.turn.turn_gate import TurnGate
from millrace.drivers.mysql.connection import Endpoint
from millrace.errors import Retryable
from millrace.schemas.gtid import Flavour, beyond, parse_gtid_set, shortened

TRIGGERS_NAMED = 3  # in a warning
# While tables are loaded: a load begins, and a side stream joins, between two turns.
PARTIAL_TURN_S = 5.0


class RecordsLike(Cluster, Protocol):
    """A micro-batch, in Spark or in a test."""

    @property
    def end(self) -> int:
        """The offset after it."""

    def apply(self, order: TurnOrder) -> Outcome:
        """One turn."""


@dataclass(slots=True)
class Figures:
    """Counts for the status since the start of the run, of all turns that have ended. ``turns``: their number."""

    turns: int = 0
    counts: Counts = field(default_factory=Counts)
    notes: Notes = field(default_factory=Notes)

    def add(self, outcome: Outcome) -> None:
        """Add a turn."""
        self.turns += 1
        self.counts += outcome.counts
        self.notes = outcome.notes

    @property
    def mean_record_bytes(self) -> float | None:
        """The mean size of the records that were read; None before the first."""
        counts = self.counts
        return counts.record_bytes / counts.records if counts.records else None


@dataclass(slots=True)
class BatchApplier:
    """Gives turns to executors, one after the other. ``owner``: who holds the fence now.

    ``begin``: the offset at which the run began, above the mark's if retention removed records.
    ``read_to``: the last turn found no record between the mark and this offset.
    ``renewed``: reads the password again, as often as sessions are replaced.
    ``is_partial``, ``until``: see ``TurnOrder``. ``gate``: held for each turn.
    """

    assignment: Assignment
    owner: Owner
    mark: Mark
    _: KW_ONLY
    renewed: Callable[[Endpoint], Endpoint] = field(default=lambda endpoint: endpoint)
    is_partial: bool = False
    begin: int = field(init=False, default=-1)
    until: int = field(init=False, default=-1)
    read_to: int = field(init=False, default=-1)
    figures: Figures = field(init=False, default_factory=Figures)
    conductor: Conductor = field(init=False, default_factory=Conductor)
    gate: TurnGate = field(init=False, default_factory=TurnGate)
    _read_s: float = field(init=False, default_factory=time.monotonic)  # when the password was read

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
        order = TurnOrder(
            owner=self.owner,
            assignment=self.assignment,
            topic_id=self.mark.topic.id,
            offsets=Offsets(begin=self.begin, end=records.end, until=self.until),
            turn_s=PARTIAL_TURN_S if self.is_partial else math.inf,
            is_partial=self.is_partial,
            keeps_rows=self.figures.notes.kept > 0,
        )
        count = self.conductor.share_count(records, order, self.mark)
        solo_s = self.conductor.solo_s() if count else 0.0
        if count and not solo_s:
            with closing(Sessions(self.assignment.endpoint, self.owner)) as sessions:
                outcome = spread_turn(
                    records,
                    order,
                    mark=self.mark,
                    count=count,
                    sessions=sessions,
                    note=self.conductor.note,
                )
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
            return waiting_for_start(self.mark, self.figures.notes.shown)
        fired = self.figures.notes.triggers
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
