"""Reads for a snapshot in another thread, on the member that is captured, one request after the other.

A request that fails is tried again after a pause, on a new session, until the course does not want its answer any more.
So a member that is away, or a missing privilege, delays the snapshot and nothing else; ``problem`` shows it. So does a
member that is late or busy; ``paused`` shows it.
The end of the ``with`` block interrupts the statement under way and joins the thread.
"""

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from millrace.drivers.mysql.connection import MySqlSession
from millrace.errors import Fatal, MillraceError
from millrace.faults import fault_point, register
from millrace.log import get_logger
from millrace.producer.convert.table_filter import NameFilter
from millrace.producer.snapshot.chunk_read import MemberSession, ReadRequest, Refused
from millrace.producer.snapshot.insertion_plan import Answer, NamesRequest
from millrace.producer.source.connection import Login
from millrace.schemas.documents import Member
from millrace.schemas.record.control import Origin
from millrace.schemas.throttle import MEASURE_S

PAUSE_S = 1.0  # between two tries
POLL_S = 0.2  # interval of the check for a stop
_VALUE_CODES = "MR-6"  # the table has a type or a value that can't be encoded

BEFORE_READ = register("snapshot.before_read")
AFTER_READ = register("snapshot.after_read")

log = get_logger("producer.snapshot")


@dataclass(frozen=True, slots=True)
class SnapshotSource:
    """Where a snapshot reads. ``member``: the one that is captured now. ``filter``: the task's, with the case rule.

    ``why_paused``: why no chunk is to be read now from a member; "" if there is no reason.
    """

    origin: Origin
    login: Login
    member: Callable[[], Member]
    filter: NameFilter
    why_paused: Callable[[MySqlSession], str]


@dataclass(slots=True)
class ChunkReader:
    """``producer.snapshot.insertion_plan.Reads`` inside the ``with`` block."""

    source: SnapshotSource
    problem: MillraceError | None = None  # of the last try
    paused: str = ""  # why the next chunk waits
    _asked: "queue.SimpleQueue[NamesRequest | ReadRequest]" = field(
        default_factory=queue.SimpleQueue
    )
    _answers: "queue.SimpleQueue[Answer]" = field(default_factory=queue.SimpleQueue)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _session: MemberSession | None = None
    _run: int = 0  # the newest that was asked for
    _measured_s: float = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        session = self._session
        if session is not None:
            session.connection.cut()
        if self._thread is not None:
            self._thread.join()

    def ask_names(self, request: NamesRequest) -> None:
        self._ask(request.run, request)

    def ask(self, request: ReadRequest) -> None:
        self._ask(request.run, request)

    def take(self) -> Answer | None:
        try:
            return self._answers.get_nowait()
        except queue.Empty:
            return None

    def _ask(self, run: int, request: NamesRequest | ReadRequest) -> None:
        self._run = run
        self._asked.put(request)
        if self._thread is None:  # a task without a snapshot has no thread
            self._thread = threading.Thread(target=self._work, name="snapshot")
            self._thread.start()

    def _work(self) -> None:
        try:
            while not self._stop.is_set():
                try:
                    request = self._asked.get(timeout=POLL_S)
                except queue.Empty:
                    continue
                self._answer(request)
        finally:
            self._close()

    def _answer(self, request: NamesRequest | ReadRequest) -> None:
        while not self._stop.is_set() and request.run == self._run:
            try:
                session = self._session_now()
                if isinstance(request, ReadRequest) and self._must_wait(session):
                    self._stop.wait(PAUSE_S)
                    continue
                self._answers.put(self._read(session, request))
            except MillraceError as error:
                self._close()
                if self._stop.is_set():
                    return
                if self.problem is None or self.problem.code != error.code:
                    log.warning("the snapshot can't read", error=str(error))
                self.problem = error
                self._stop.wait(PAUSE_S)
                continue
            self.problem = None
            return

    def _must_wait(self, session: MemberSession) -> bool:
        """Whether a limit is exceeded. It is measured at most once in ``MEASURE_S``."""
        now_s = time.monotonic()
        if self.paused or now_s - self._measured_s >= MEASURE_S:
            before, self._measured_s = self.paused, now_s
            self.paused = self.source.why_paused(session.connection)
            if self.paused and not before:
                log.warning("the snapshot pauses", why=self.paused)
        return bool(self.paused)

    def _read(self, session: MemberSession, request: NamesRequest | ReadRequest) -> Answer:
        if isinstance(request, NamesRequest):
            names = session.names(self.source.filter, request.patterns)
            return Answer(request.run, names=names)
        fault_point(BEFORE_READ)
        try:
            found = session.read(request)
        except Fatal as error:
            if not error.code.startswith(_VALUE_CODES):
                raise
            found = Refused(f"{error.code} {error.message}", request.covered)
        fault_point(AFTER_READ)
        if session.is_spent:
            self._close()
        return Answer(request.run, chunk=found)

    def _session_now(self) -> MemberSession:
        """The session, on the member that is captured now."""
        member = self.source.member()
        if self._session is not None and self._session.connection.member != member:
            self._close()
        if self._session is None:
            source = self.source
            self._session = MemberSession.open(
                member, source.login, source.origin, lambda: not self._stop.is_set()
            )
        return self._session

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.connection.close()
