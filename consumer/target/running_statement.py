"""The statement that a task executes on its target: its lock, and the look from outside while it runs.

    lock                    the session that executes statements of a task holds GET_LOCK of the task
    StatementWatch.look     a second session finds the lock's holder in the process list, with text and progress
    await_statement         the next owner waits until an earlier run's statement has ended

A statement may take days, so no time limits it. As long as the server answers and lists it, it is waited for, also by
the next owner: a closed client does not end it, and its session keeps the lock until the statement has ended. A server
that does not answer for ``LOST_S`` is lost. Only an operator ends a statement (``end_statement``).

A session that holds the lock and executes nothing belongs to a run that the fence has ended: ``await_statement`` ends
it with KILL.

Needs PROCESS, to see the process list. Not done here: executing (``consumer.write.ddl``).
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from hashlib import blake2b

from millrace.consumer.target.table_state import check_server, server_of
from millrace.drivers.mysql.connection import Endpoint, MySqlSession, Row, connect, stored_text
from millrace.errors import Fatal, MillraceError, Retryable
from millrace.log import get_logger
from millrace.schemas.gtid import Flavour

LOCK_S = 30
LOOK_S = 3.0  # between two looks: a load of one short query
ANSWER_S = 10.0  # for one look
LOST_S = 60.0
TEXT_LOOKS, TEXT_PAUSE_S = (
    5,
    0.05,
)  # at a session without a text: MariaDB keeps it busy for some microseconds
MISSING_MAX = 2  # looks that do not find a statement whose answer has not come
SHOWN_CHARS = 120  # of the text, in a status

_log = get_logger("apply.ddl")


@dataclass(frozen=True, slots=True)
class RunningStatement:
    """A statement in the server's process list. ``progress``: as the server reports it, "" if it does not.

    ``running_s``: None if the server does not report it.
    """

    server: str
    session: int
    text: str
    state: str
    running_s: int | None
    progress: str = ""

    def shown(self) -> str:
        """For the status."""
        more = " …" if len(self.text) > SHOWN_CHARS else ""
        since = "" if self.running_s is None else f"for {self.running_s} s"
        parts = [since, self.state, self.progress]
        about = ", ".join(part for part in parts if part)
        text = self.text[:SHOWN_CHARS] or "a statement"
        return f"session {self.session} on {self.server} executes {text}{more} ({about})"


def lock_name(task: str) -> str:
    """A lock name of at most 64 characters. Servers ignore its case."""
    return f"millrace.ddl.{blake2b(task.encode(), digest_size=16).hexdigest()}"


def lock(session: MySqlSession, task: str) -> None:
    """Take the lock; Retryable MR-5005 if another session keeps it."""
    if session.query("SELECT GET_LOCK(%s, %s)", (lock_name(task), LOCK_S)) != [(1,)]:
        raise Retryable("MR-5005", f"another session is executing a statement of {task}", task=task)


def find_statement(session: MySqlSession, task: str) -> RunningStatement | None:
    """The statement that the holder of the task's lock executes now; None if it executes none."""
    ((holder,),) = session.query("SELECT IS_USED_LOCK(%s)", (lock_name(task),))
    session.rollback()
    if holder is None:
        return None
    for _ in range(TEXT_LOOKS):
        found = _listed(session, int(str(holder)))
        if found is None or found.text:
            break
        time.sleep(TEXT_PAUSE_S)
    return found


def _listed(session: MySqlSession, holder: int) -> RunningStatement | None:
    is_mariadb = session.flavour is Flavour.MARIADB
    if is_mariadb:
        rows = session.query(MARIADB_LIST_SQL, (holder,))
    else:
        listed = session.query(LIST_SQL)
        rows = [row[_COMMAND:] for row in listed if row[0] == holder]
    session.rollback()
    if not rows:
        return None
    command, seconds, state, text, *progress = rows[0]
    if str(command) == "Sleep":
        return None
    return RunningStatement(
        session.endpoint.name,
        holder,
        # while another thread uses the session, it has no text
        stored_text(" ".join(str(text or "").split())),
        str(state or ""),
        int(str(seconds or 0)) if is_mariadb else _seconds_of_instruments(session, holder),
        progress_of_stages(*progress) if is_mariadb else _progress_of_instruments(session, holder),
    )


# MySQL refuses a SELECT from information_schema.PROCESSLIST, and from INNODB_TRX, while any session executes a text
# with a character of four bytes (error 3854). id, user, host, database, command, seconds, state, 100 characters of text
# (the seconds begin at the session's variable timestamp, which is the source's for a statement)
LIST_SQL = "SHOW PROCESSLIST"
_COMMAND = 4
MARIADB_LIST_SQL = (
    "SELECT COMMAND, TIME, STATE, INFO, STAGE, MAX_STAGE, PROGRESS"
    " FROM information_schema.PROCESSLIST WHERE ID = %s"
)
# both need SELECT on performance_schema; the second one the consumer events_stages_current
SECONDS_SQL = (
    "SELECT e.TIMER_WAIT DIV 1000000000000 FROM performance_schema.events_statements_current e"
    " JOIN performance_schema.threads t USING (THREAD_ID)"
    " WHERE t.PROCESSLIST_ID = %s AND e.NESTING_EVENT_ID IS NULL"
)
STAGES_SQL = (
    "SELECT e.WORK_COMPLETED, e.WORK_ESTIMATED FROM performance_schema.events_stages_current e"
    " JOIN performance_schema.threads t USING (THREAD_ID)"
    " WHERE t.PROCESSLIST_ID = %s AND e.WORK_ESTIMATED > 0"
)


def progress_of_stages(stage: object, stages: object, percent: object) -> str:
    """MariaDB's progress as text; "" if it reports none."""
    if not int(str(stages or 0)):
        return ""
    return f"stage {stage} of {stages}, {float(str(percent)):.1f} %"


def _seconds_of_instruments(session: MySqlSession, holder: int) -> int | None:
    rows = _instruments(session, SECONDS_SQL, holder)
    return int(str(rows[0][0])) if rows and rows[0][0] is not None else None


def _progress_of_instruments(session: MySqlSession, holder: int) -> str:
    rows = _instruments(session, STAGES_SQL, holder)
    if not rows:
        return ""
    done, all_ = (int(str(number)) for number in rows[0])
    return f"{100 * done / all_:.1f} %"


def _instruments(session: MySqlSession, query: str, holder: int) -> list[Row]:
    try:
        return session.query(query, (holder,))
    except Fatal:  # the account may not read it
        return []
    finally:
        session.rollback()


@dataclass(frozen=True, slots=True)
class Look:
    """``statement``: None if it has ended. ``is_answered``: False if the server did not answer this look."""

    statement: RunningStatement | None
    is_answered: bool = True

    @property
    def has_ended(self) -> bool:
        """Whether the server answers that the statement is not there."""
        return self.is_answered and self.statement is None


class StatementWatch:
    """Looks at the statement of a task from a second session. ``server``: it runs there (``server_of``)."""

    def __init__(self, endpoint: Endpoint, task: str, *, server: str) -> None:
        self._endpoint = endpoint
        self._task = task
        self._server = server
        self._session: MySqlSession | None = None
        self._answered_s = time.monotonic()
        self._last: RunningStatement | None = None

    def look(self) -> Look:
        """One look. Retryable MR-5001 if the server has not answered for ``LOST_S``."""
        try:
            self._last = find_statement(self._connected(), self._task)
        except Retryable as exc:
            self.close()
            if exc.code != "MR-5001":  # it answers, but refuses a session
                self._answered_s = time.monotonic()
            elif time.monotonic() - self._answered_s >= LOST_S:
                what = f"{self._endpoint.name} did not answer for {LOST_S:g} s during a statement"
                raise Retryable("MR-5001", what) from exc
            return Look(self._last, is_answered=False)
        self._answered_s = time.monotonic()
        return Look(self._last)

    def close(self) -> None:
        """Close the session."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _connected(self) -> MySqlSession:
        if self._session is None:
            session = connect(self._endpoint, answer_s=ANSWER_S)
            try:
                check_server(session, self._server)
            except MillraceError:
                session.close()
                raise
            self._session = session
        return self._session


# ---- the run that executes it ---------------------------------------------------------------------


@contextmanager
def watched(session: MySqlSession, task: str, *, is_over: Callable[[], bool]) -> Iterator[None]:
    """Execute a statement in the block, on the session that holds the lock, however long it takes.

    Retryable MR-5001 if the server is lost or its answer is; MR-5050 if ``is_over``. Then the statement may run on.
    """
    watcher = _Watcher(session, task, is_over)
    watcher.start()
    try:
        with session.without_limit():
            yield
    except Retryable as exc:
        if watcher.reason is not None:
            raise watcher.reason from exc
        raise
    finally:
        watcher.end()


class _Watcher(threading.Thread):
    """Looks at a statement while it runs, and cuts its session if no answer will come."""

    def __init__(self, session: MySqlSession, task: str, is_over: Callable[[], bool]) -> None:
        super().__init__(name="statement-watch", daemon=True)
        self.reason: Retryable | None = None
        self._session = session
        self._is_over = is_over
        self._watch = StatementWatch(session.endpoint, task, server=server_of(session))
        self._ended = threading.Event()
        self._cutting = threading.Lock()

    def run(self) -> None:
        missing = 0
        try:
            while not self._ended.wait(LOOK_S):
                if self._is_over():
                    raise Retryable("MR-5050", "the run is ending")
                missing = missing + 1 if self._has_ended() else 0
                if missing == MISSING_MAX:
                    raise Retryable("MR-5001", "the answer to a statement was lost")
        except Retryable as exc:
            with self._cutting:
                if not self._ended.is_set():
                    self.reason = exc
                    self._session.cut()
        finally:
            self._watch.close()

    def _has_ended(self) -> bool:
        try:
            return self._watch.look().has_ended
        except (
            Fatal
        ) as exc:  # such as a changed password; the statement's own session is not affected
            self._watch.close()
            _log.warning("a running statement can't be watched", error=str(exc), code=exc.code)
            return False

    def end(self) -> None:
        """The statement has ended: its session is not cut any more."""
        with self._cutting:
            self._ended.set()


# ---- the next owner, and the operator -------------------------------------------------------------

Waiting = Callable[[RunningStatement | None], bool]


def pause(_: RunningStatement | None) -> bool:
    """Wait until the next look."""
    time.sleep(LOOK_S)
    return True


def await_statement(session: MySqlSession, task: str, waiting: Waiting = pause) -> bool:
    """After raising the fence: wait for the end of an earlier run's statement, and of its session.

    ``waiting`` is called after each look that finds it, makes a pause, and returns False to end the wait. Then the
    result is False.
    """
    is_running = find_statement(session, task) is not None
    if is_running and not _has_ended(session, task, waiting):
        return False
    ((holder,),) = session.query("SELECT IS_USED_LOCK(%s)", (lock_name(task),))
    if holder is not None and holder != session.id:
        _log.info("ending an earlier DDL session", session=holder)
        _kill(session, int(str(holder)))
    lock(session, task)
    session.query("SELECT RELEASE_LOCK(%s)", (lock_name(task),))
    session.commit()
    return True


def _has_ended(session: MySqlSession, task: str, waiting: Waiting) -> bool:
    """Wait, with a session whose answers are due soon: a server that is frozen is lost."""
    with closing(StatementWatch(session.endpoint, task, server=server_of(session))) as watch:
        while not (look := watch.look()).has_ended:
            if not waiting(look.statement):
                return False
        return True


def end_statement(session: MySqlSession, statement: RunningStatement) -> None:
    """End it, as an operator decided. The server rolls it back, which may take as long as it has run."""
    _kill(session, statement.session)


def _kill(session: MySqlSession, holder: int) -> None:
    try:
        session.query(f"KILL {holder}")
    except Fatal as exc:  # it has ended meanwhile
        _log.info("the session has ended", error=str(exc))
