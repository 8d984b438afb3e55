"""One target transaction: the fence, a claim of progress, rows, commit.

    the mark moves      a part that is applied in order, with nothing before it in flight
    a bitmap            a part of a lane: its seqs, above the mark
    only the mark       all parts up to it are applied; their bitmaps are deleted

If the process is killed:

    before the commit       the target has neither rows nor claim
    after the commit        the target has both
    outcome unknown         the next turn reads mark and bitmaps

Every part reads the fence in its transaction. A turn takes the fence before it reads the progress, so a part of an
earlier turn, even of a Spark task that was started twice, writes nothing (MR-5020).
"""

from dataclasses import dataclass, field
from typing import Protocol

from millrace.consumer.records.numbers import RecordNumbers, Seqs
from millrace.consumer.records.rows import Rows
from millrace.consumer.tables.table_plans import TablePlans
from millrace.consumer.target.bitmap import to_bitmap
from millrace.consumer.target.progress import (
    DATABASE,
    Mark,
    Owner,
    check_fence,
    delete_applied,
    delete_earlier,
    move_mark,
    save_schemas,
)
from millrace.consumer.target.sessions import Sessions
from millrace.consumer.window.safe_mode import check_triggers
from millrace.consumer.write.aside import NOTHING_ASIDE, AsideRule, PartAside
from millrace.consumer.write.conflict import store_blocking
from millrace.consumer.write.incidents import Tally
from millrace.consumer.write.merging import store_sources
from millrace.consumer.write.row_writer import ConflictRule, RowWriter
from millrace.drivers.mysql.connection import MySqlSession
from millrace.errors import Fatal, MillraceError, Retryable
from millrace.faults import fault_point, register
from millrace.schemas.documents import ConflictPolicy
from millrace.schemas.stages import NO_NUMBER

LOCK_TRIES_MAX = 8

BEFORE_LANE_COMMIT = register("apply.before_lane_commit")
AFTER_LANE_COMMIT = register("apply.after_lane_commit")
BEFORE_MARK = register("apply.before_mark")
AFTER_MARK = register("apply.after_mark")


@dataclass(frozen=True, slots=True)
class Writing:
    """The sessions of the writer, the conflict policy, and what it counts."""

    sessions: Sessions
    policy: ConflictPolicy
    incidents: Tally = field(default_factory=Tally)
    aside: AsideRule = NOTHING_ASIDE

    @property
    def owner(self) -> Owner:
        """The holder of the fence."""
        return self.sessions.owner


class Claim(Protocol):
    """The record of a part's progress, written in its own transaction."""

    def make(self, connection: MySqlSession, owner: Owner) -> None:
        """Write it; an error rolls the part back."""


@dataclass(frozen=True, slots=True)
class MarkClaim:
    """The mark moves from exactly ``before`` to ``after``.

    ``passes_earlier``: it passes every bitmap that earlier turns left, so they are deleted.
    """

    before: Mark
    after: Mark
    learned: dict[int, str]
    passes_earlier: bool = False

    @classmethod
    def over(
        cls, applied: Seqs, *, before: Mark, after: Mark, learned: dict[int, str]
    ) -> "MarkClaim":
        """``applied``: the seqs in bitmaps of earlier turns."""
        passes = len(applied) > 0 and int(applied[-1]) <= after.seq
        return cls(before, after, learned, passes)

    def make(self, connection: MySqlSession, owner: Owner) -> None:
        """Retryable MR-5021 if the mark is elsewhere."""
        move_mark(connection, owner.task, before=self.before, after=self.after)
        save_schemas(connection, owner.task, self.learned)
        if self.passes_earlier:
            delete_earlier(connection, owner)


@dataclass(frozen=True, slots=True)
class BitmapClaim:
    """The seqs of a part. ``flight``, ``lane``, ``part``: its place in the turn."""

    flight: int
    lane: int
    part: int
    seqs: Seqs

    def make(self, connection: MySqlSession, owner: Owner) -> None:
        """Insert the bitmap."""
        first_seq, bitmap = to_bitmap(self.seqs)
        place = (owner.task, owner.run, self.flight, self.lane, self.part)
        connection.query(
            f"INSERT INTO {DATABASE}.applied VALUES (%s, %s, %s, %s, %s, %s, _binary %s)",
            (*place, first_seq, bitmap),
        )


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of a window, by their numbers, and the claim of their progress."""

    plans: TablePlans
    rows: Rows
    numbers: RecordNumbers
    claim: Claim


def apply_part(writing: Writing, lane: int, part: Part) -> int:
    """Run one target transaction on the lane's session. Returns the number of statements."""
    plans, numbers = part.plans, part.numbers
    owner, incidents = writing.owner, writing.incidents
    session = writing.sessions.for_lane(lane)
    writer = RowWriter(session, plans, ConflictRule(owner.task, writing.policy))
    careful = False
    for _ in range(LOCK_TRIES_MAX):
        try:
            check_fence(session, owner)
            part.claim.make(session, owner)
            if len(numbers):
                _write(writer, writing, session, part, careful=careful)
            fault_point(BEFORE_LANE_COMMIT)
            session.commit()
            fault_point(AFTER_LANE_COMMIT)
            incidents.conflicted(owner.task, writer.conflicts)
            return writer.statement_count
        except MillraceError as exc:
            session.rollback()
            if exc.code != "MR-5005" and (careful or not isinstance(exc, Fatal)):
                if writer.blocking is not None and session.is_open:
                    incidents.conflicted(owner.task, writer.conflicts[-1:])
                    packet = plans.inventory.packet_bytes_max
                    store_blocking(session, owner, writer.blocking, bytes_max=packet)
                session.close()
                raise
            if exc.code == "MR-5005":
                incidents.retried(owner.task, str(exc.errno) if exc.errno else NO_NUMBER)
            careful = careful or isinstance(exc, Fatal)
            writer.settle()
    session.close()
    raise Retryable("MR-5005", "the rows stay locked")


def _write(
    writer: RowWriter, writing: Writing, session: MySqlSession, part: Part, *, careful: bool
) -> None:
    plans, rows, numbers = part.plans, part.rows, part.numbers
    aside: PartAside | None = None
    if writing.aside.follows:
        aside = PartAside(session, writing.owner.task, plans, rows, numbers, writing.aside)
        numbers = aside.left
        if not len(numbers):
            return
    store_sources(session, writing.owner, plans, rows, numbers)
    check_triggers(session, plans, rows, numbers)
    if careful:
        writer.write_carefully(rows, numbers, aside)
    else:
        writer.write(rows, numbers)


def move_over(session: MySqlSession, owner: Owner, claim: Claim, *, through: int) -> None:
    """Move the mark over flights whose parts are all applied; delete bitmaps of flights up to ``through``."""
    fault_point(BEFORE_MARK)
    check_fence(session, owner)
    claim.make(session, owner)
    delete_applied(session, owner, through=through)
    session.commit()
    fault_point(AFTER_MARK)
