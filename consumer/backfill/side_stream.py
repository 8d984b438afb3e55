"""A side stream in a driver: turns up to the mark of main, then the join.

    catch up    a turn applies what main has applied since, up to main's mark on the target. Main continues meanwhile
    ask         once the side stream is at that mark and past the range of its load, main waits after its turn. The
                side stream catches up with what that turn applied, with turns of its own
    join        between two turns, at the same mark (``consumer.backfill.join``)

Main waits for the side stream only from the end of its turn: for the turn that the side stream is in, and one more that
has the records of a second or so. If the join takes longer than ``PAUSE_S``, main continues, and the side stream asks
again later.
"""

import threading
import time
from dataclasses import dataclass, field

from millrace.consumer.backfill.join import Owners, can_join, following, join
from millrace.consumer.backfill.threads import Turns
from millrace.consumer.target.loads import LoadStream, LoadTable, read_stream
from millrace.consumer.target.progress import Mark, read_mark
from millrace.consumer.turn.driver import BatchApplier
from millrace.consumer.turn.turn_gate import TurnGate
from millrace.drivers.mysql.connection import MySqlSession
from millrace.log import get_logger

PAUSE_S = 2.0
IDLE_S = 0.2  # until main's mark is read again

_log = get_logger("apply.streams")


@dataclass(slots=True)
class SideStream:
    """``applier``: of the side stream. ``main``: that of main, which holds ``gate`` for each turn."""

    applier: BatchApplier
    main: BatchApplier
    gate: TurnGate
    turns: Turns
    session: MySqlSession
    _held_s: float = field(default=0.0)

    def until_joined(self, stop: threading.Event) -> tuple[LoadTable, ...]:
        """Run until the tables are main's: those tables; none if all wait again, or if ``stop`` was set first."""
        self.applier.begin = self.turns.first_offset(self.applier.mark.next_offset)
        try:
            while not stop.is_set() and self._has_tables():
                is_held = self.gate.is_held()
                bound = self.main.mark if is_held else self._mark_of_main()
                self._catch_up(bound)
                if is_held and (joined := self._joined()):
                    return joined
                self._ask_or_release(bound, is_held=is_held)
                if self.applier.mark.next_offset >= bound.next_offset:
                    self._wait(stop)
            return ()
        finally:
            self.gate.release()

    def _has_tables(self) -> bool:
        found = following(self.session, self.main.owner.task)
        self.session.rollback()
        return bool(found)

    def _catch_up(self, bound: Mark) -> None:
        if self.applier.mark.next_offset < bound.next_offset:
            self.applier.until = bound.next_offset
            self.applier.process(self.turns.records(bound.next_offset), lambda _: None)

    def _joined(self) -> tuple[LoadTable, ...]:
        joined = join(self.session, Owners(self.main.owner, self.applier.owner))
        if joined:
            paused_s = round(time.monotonic() - self._held_s, 3)
            names = [".".join(table.key) for table in joined]
            _log.info("tables join", task=self.main.owner.task, tables=names, paused_s=paused_s)
        return joined

    def _ask_or_release(self, bound: Mark, *, is_held: bool) -> None:
        now_s = time.monotonic()
        if not is_held:
            self._held_s = now_s
            if can_join(bound, self.applier.mark, self._range()):
                self.gate.ask()
        elif now_s - self._held_s > PAUSE_S:
            self.gate.release()

    def _wait(self, stop: threading.Event) -> None:
        """A moment; less if main's turn, which was asked for, ends."""
        if not self.gate.is_held(IDLE_S):
            stop.wait(IDLE_S)

    def _mark_of_main(self) -> Mark:
        found = read_mark(self.session, self.main.owner.task)
        self.session.rollback()
        return self.main.mark if found is None else found[0]

    def _range(self) -> LoadStream | None:
        found = read_stream(self.session, self.applier.owner.task)
        self.session.rollback()
        return found
