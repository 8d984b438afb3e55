"""The later loads of a task, in a thread beside main: it looks for tables that wait, and takes step after step.

    BEGIN       between two turns of main, the waiting tables become a batch (``consumer.backfill.join``)
    COPY        the load copies them, then the side stream may start
    CATCH_UP    the side stream applies what main has passed, and joins (``consumer.backfill.side_stream``)

All state is on the target, so a run that begins, or a step that failed, continues where the last one ended. The first
step of a run raises the fence of the side stream: no turn or copy of an earlier run writes after this.

An error while copying is shown in the status, and the step is repeated after ``RETRY_S``; main continues. An error of
the side stream's rows blocks the task, as one of main's rows does; loading the table again is a way out.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from millrace.consumer.backfill.join import Owners, begin, follow
from millrace.consumer.backfill.side_stream import SideStream
from millrace.consumer.backfill.steps import Loads, Step, as_shown, next_step, text_of
from millrace.consumer.backfill.threads import Loader, Turns
from millrace.consumer.tables.related import RELATED
from millrace.consumer.target.conflicts import forget_blocking
from millrace.consumer.target.fence import raise_fence
from millrace.consumer.target.load_range import side_of
from millrace.consumer.target.loads import WAITS, LoadTable, set_waiting, stream_tables, task_of
from millrace.consumer.target.progress import Owner, read_mark
from millrace.consumer.target.running_statement import await_statement
from millrace.consumer.target.streams import is_partial
from millrace.consumer.turn.driver import BatchApplier
from millrace.drivers.mysql.catalog import TableKey
from millrace.drivers.mysql.connection import MySqlSession, connect
from millrace.errors import Fatal, Retryable
from millrace.log import get_logger

LOOK_S = 1.0
_AGAIN = "Or load the table again: `millrace task load TASK --tables DATABASE.TABLE`, then `millrace task resume TASK`."
_REPEATED = "Nothing has to be resumed: the load is repeated automatically."
RETRY_S = 10.0

_log = get_logger("apply.streams")


@dataclass(frozen=True, slots=True)
class Parts:
    """Main's applier, and the parts that execute copies and turns."""

    main: BatchApplier
    loader: Loader
    turns: Turns


@dataclass(eq=False)
class LaterLoads(threading.Thread):
    """The thread of one run. ``progressed`` is called after each step."""

    parts: Parts
    progressed: Callable[[], None] = lambda: None
    failure: BaseException | None = None  # it ends the run
    _trouble: Retryable | None = None
    _tables: list[LoadTable] = field(default_factory=list)
    _ending: threading.Event = field(default_factory=threading.Event)
    _session: MySqlSession | None = None
    _owner: Owner | None = None  # of the side stream's fence

    def __post_init__(self) -> None:
        super().__init__(name="later-loads", daemon=True)

    @property
    def shown(self) -> Loads:
        """For the status."""
        loaded = self.parts.loader.shown
        return Loads(text_of(as_shown(self._tables, loaded)), self._trouble, loaded)

    def run(self) -> None:
        """Take steps until the end of the run, or an error that ends it."""
        pause_s = 0.0
        while not self._ending.wait(pause_s):
            try:
                pause_s = 0.0 if self._step() else LOOK_S
                self._trouble = None
            except Retryable as exc:
                self._note(exc)
                pause_s = RETRY_S
            except BaseException as exc:  # noqa: BLE001 - raised in the thread that the supervisor watches
                self.failure = exc
                return
            self.progressed()

    def end(self) -> None:
        """End the step under way, and the thread."""
        self._ending.set()
        self.parts.main.gate.close()
        self.parts.turns.stop()
        if self.is_alive():
            self.join()
        if self._session is not None:
            self._session.close()

    def _note(self, exc: Retryable) -> None:
        if self._ending.is_set():
            return
        _log.warning("a later load is repeated", error=str(exc), code=exc.code)
        self._trouble = exc
        if self._session is not None:
            self._session.close()
        self._session = self._owner = None  # the fence, again: a part of the step may still run

    def _step(self) -> bool:
        """Whether another step may follow at once."""
        session = self._connected()
        self._tables = tables = self._read(session)
        step = next_step(tables)
        self.parts.main.is_partial |= bool(tables)
        if step is Step.NOTHING:
            self._forget_partial(session, tables)
            return False
        self.progressed()
        if self._owner is None:
            self._owner = self._raised(session)
            return True  # with what is there now
        match step:
            case Step.BEGIN:
                return self._begin(session, self._owner, tables)
            case Step.COPY:
                return self._copy(session, self._owner, tables)
            case _:
                self._catch_up(session, self._owner)
                return True

    def _begin(self, session: MySqlSession, side: Owner, tables: list[LoadTable]) -> bool:
        waiting = frozenset(table.key for table in tables if table.state == WAITS)
        related = self.parts.loader.together(waiting) - waiting
        main = self.parts.main
        if not self._is_held():
            return False
        try:
            if related:
                self._add(session, related)
            if main.mark.is_unproven:
                return False
            batch = begin(session, Owners(main.owner, side), main.mark)
            main.is_partial = True
            self._await(session, side.task)  # the lock of the last load's statements
        finally:
            main.gate.release()
        _log.info("a later load begins", task=main.owner.task, batch=batch, seq=main.mark.seq)
        return True

    def _add(self, session: MySqlSession, related: frozenset[TableKey]) -> None:
        set_waiting(session, self.parts.main.owner.task, related, detail=RELATED)

    def _copy(self, session: MySqlSession, side: Owner, tables: list[LoadTable]) -> bool:
        batch = max(table.batch for table in tables)
        try:
            load = self.parts.loader.load(side, batch, self._ending)
        except Fatal as exc:
            fix = f"{exc.fix} {_REPEATED}"
            raise Retryable(
                "MR-5111", f"{exc.code} {exc.message}", fix=fix, **dict(exc.context)
            ) from exc
        if load is None:
            return False
        follow(session, side, load)
        return True

    def _catch_up(self, session: MySqlSession, side: Owner) -> None:
        found = read_mark(session, side.task)
        session.commit()
        if found is None:
            raise Fatal("MR-5022", f"the progress of {side.task} is gone", task=side.task)
        main = self.parts.main
        mark = replace(found[0], topic=replace(found[0].topic, id=main.mark.topic.id))
        applier = BatchApplier(main.assignment, side, mark, is_partial=True, renewed=main.renewed)
        stream = SideStream(applier, main, main.gate, self.parts.turns, session)
        try:
            stream.until_joined(self._ending)
        except Fatal as exc:
            raise _blocking(exc, side.task) from exc
        self._owner = applier.owner

    def _is_held(self) -> bool:
        """Wait until main is between two turns, and keep it there; False at the end of the run."""
        gate = self.parts.main.gate
        gate.ask()
        while not self._ending.is_set():
            if gate.is_held(LOOK_S):
                return True
        gate.release()
        return False

    def _forget_partial(self, session: MySqlSession, tables: list[LoadTable]) -> None:
        """Let main apply everything again, once no table and no range is left."""
        main = self.parts.main
        if tables or not main.is_partial or not self._is_held():
            return
        try:
            main.is_partial = is_partial(session, main.owner.task)
            session.rollback()
        finally:
            main.gate.release()

    def _raised(self, session: MySqlSession) -> Owner:
        main = self.parts.main.owner
        name = side_of(main.task)
        owner = raise_fence(session, task=name, epoch=main.epoch)
        self._await(session, name)
        forget_blocking(session, name)
        session.commit()
        return owner

    def _await(self, session: MySqlSession, stream: str) -> None:
        """Wait for a statement of an earlier run. Retryable MR-5050 at the end of this one."""
        if not await_statement(session, stream, lambda _: not self._ending.wait(LOOK_S)):
            raise Retryable("MR-5050", "the run is ending")

    def _read(self, session: MySqlSession) -> list[LoadTable]:
        tables = stream_tables(session, self.parts.main.owner.task)
        session.rollback()
        return tables

    def _connected(self) -> MySqlSession:
        if self._session is None or not self._session.is_open:
            self._session = connect(self.parts.main.assignment.endpoint)
            self._owner = None
        return self._session


def _blocking(exc: Fatal, stream: str) -> Fatal:
    """The error of a row or statement of the side stream, with the way out. Its commands take the task's name."""
    task = task_of(stream)
    again = "" if "`millrace task load " in exc.fix else f" {_AGAIN}"
    fix = f"{exc.fix}{again}".replace(stream, task)
    what = f"in a table that joins: {exc.message}".replace(stream, task)
    return Fatal(exc.code, what, fix=fix, **{**exc.context, "task": task})
