"""Raises the fence: afterwards no target transaction of an earlier run of the task can commit.

1. Read the fence row without a lock. If 4 or 5 refuses this run already, no session is ended in 3.
2. Lock the row exclusively. This waits for every lane transaction that holds a shared lock on it.
3. If that takes longer than HUNG_S, end the registered sessions of the task with KILL. Without it, a lane or an earlier
   run whose process is stopped or whose connection is half open would hold the lock until the server notices.
4. If the row has a greater epoch, a newer owner exists: Fenced MR-5020.
5. A turn takes the fence from exactly the owner that the driver named. If the row has another run, this is a late or
   second execution of the turn: Fenced MR-5020.
6. Otherwise write the epoch and run + 1, and commit. Progress is read only afterwards.

Not done here: detecting a lost lease (``zk``).
"""

import threading

from millrace.consumer.target.progress import DATABASE, Owner, register_session
from millrace.consumer.target.running_statement import LIST_SQL, lock_name
from millrace.consumer.target.table_state import server_of
from millrace.drivers.mysql.connection import Endpoint, MySqlSession, connect
from millrace.drivers.mysql.errors import NOT_CONVERTED
from millrace.errors import Fatal, Fenced, MillraceError, Retryable
from millrace.log import get_logger

HUNG_S = 3.0
TRIES_MAX = 20  # × HUNG_S is a minute; if holders return for that long, another owner competes for the fence

_log = get_logger("apply.fence")


def raise_fence(connection: MySqlSession, *, task: str, epoch: int) -> Owner:
    """Take over the task for this epoch and a new run; see the module's docstring."""
    if not connection.query(f"SELECT task FROM {DATABASE}.fence WHERE task = %s", (task,)):
        connection.query(f"INSERT IGNORE INTO {DATABASE}.fence VALUES (%s, 0, 0)", (task,))
    return _raise(connection, Owner(task, epoch, -1))


def take_turn(connection: MySqlSession, after: Owner) -> Owner:
    """Take the fence from ``after`` for one turn; the owner that the turn writes as."""
    return _raise(connection, after)


def _raise(connection: MySqlSession, after: Owner) -> Owner:
    task, epoch = after.task, after.epoch
    _check(_read(connection, task), after, connection)
    register_session(connection, task, 0, server_of(connection))
    connection.commit()
    held_epoch, held_run = _lock(connection, task)
    _check((held_epoch, held_run), after, connection)
    connection.query(
        f"UPDATE {DATABASE}.fence SET epoch = %s, run = %s WHERE task = %s",
        (epoch, held_run + 1, task),
    )
    connection.query(f"DELETE FROM {DATABASE}.session WHERE task = %s", (task,))
    connection.commit()
    return Owner(task, epoch, held_run + 1)


def _check(held: tuple[int, int], after: Owner, connection: MySqlSession) -> None:
    """Fenced MR-5020 if the row has a greater epoch, or for a turn another owner than ``after``."""
    epoch, run = held
    is_turn = after.run >= 0
    if epoch <= after.epoch and (not is_turn or held == (after.epoch, after.run)):
        return
    connection.rollback()
    what = f"epoch {after.epoch}" + (f", run {after.run}" if is_turn else "")
    found = f"epoch {epoch}" + (f", run {run}" if is_turn else "")
    raise Fenced(
        "MR-5020", f"the fence of {after.task} has {found}, ours is {what}", task=after.task
    )


def _read(connection: MySqlSession, task: str, lock: str = "") -> tuple[int, int]:
    """The epoch and run in the fence row."""
    sql = f"SELECT epoch, run FROM {DATABASE}.fence WHERE task = %s{lock}"
    rows = connection.query(sql, (task,))
    epoch, run = rows[0] if rows else (0, 0)
    assert isinstance(epoch, int)
    assert isinstance(run, int)
    return epoch, run


def _lock(connection: MySqlSession, task: str) -> tuple[int, int]:
    """Lock the fence row and return its epoch and run; ends sessions that hold the lock too long."""
    waiter = _Waiter(connection, task)
    waiter.start()
    for _ in range(TRIES_MAX):
        waiter.join(HUNG_S)
        if not waiter.is_alive():
            return waiter.result()
        end_holders(connection.endpoint, task=task, except_session=connection.id)
    connection.close()
    waiter.join()
    raise Retryable("MR-5005", f"the fence of {task} stays locked by another session", task=task)


class _Waiter(threading.Thread):
    """One locking read in a separate thread. If the lock wait times out on the server, the result is an error."""

    def __init__(self, connection: MySqlSession, task: str) -> None:
        super().__init__(name="fence", daemon=True)
        self._connection = connection
        self._task = task
        self._found: tuple[int, int] | MillraceError | None = None

    def run(self) -> None:
        try:
            self._found = _read(self._connection, self._task, " FOR UPDATE")
        except MillraceError as exc:
            self._found = exc

    def result(self) -> tuple[int, int]:
        if isinstance(self._found, MillraceError):
            raise self._found
        assert self._found is not None
        return self._found


def end_holders(endpoint: Endpoint, *, task: str, except_session: int) -> None:
    """KILL the registered sessions of a task that have an open transaction, except ``except_session``."""
    with connect(endpoint) as observer:
        for holder in _holders(observer, task, except_session):
            _log.warning("ending a session that may hold the fence", task=task, session=holder)
            try:
                observer.query(f"KILL {holder}")
            except Fatal as exc:  # it ended in the meantime
                _log.info("the session had already ended", session=holder, error=str(exc))


def _holders(observer: MySqlSession, task: str, except_session: int) -> list[int]:
    """Sessions that may hold the fence; while MySQL can't list transactions, all of the task's runs."""
    arguments = (task, except_session, server_of(observer), lock_name(task))
    try:
        rows = observer.query(HOLDERS_SQL, arguments)
    except Fatal as exc:
        if exc.errno != NOT_CONVERTED:
            raise
        ((user,),) = observer.query("SELECT SUBSTRING_INDEX(USER(), '@', 1)")
        own = {session for session, login, *_ in observer.query(LIST_SQL) if login == user}
        rows = [row for row in observer.query(RUNS_SQL, arguments) if row[0] in own]
    return [int(str(session)) for (session,) in rows]


# Only performance_schema, if enabled, knows which session holds the lock. Ending another session of the task is
# harmless, except one that waits for the same lock here (run 0): such sessions would end each other. An id names a
# session of one server only. The server restarts its ids when it restarts, and each run registers its sessions again.
# An earlier version names no server: its ids may be of any.
# The session that executes statements never takes the fence, and an ALTER is not ended.
HOLDERS_SQL = f"""
SELECT s.id FROM {DATABASE}.session s
  JOIN information_schema.INNODB_TRX t ON t.trx_mysql_thread_id = s.id
  JOIN information_schema.PROCESSLIST p ON p.ID = s.id AND p.USER = SUBSTRING_INDEX(USER(), '@', 1)
WHERE s.task = %s AND s.id <> %s AND s.server IN ('', %s) AND s.id <> COALESCE(IS_USED_LOCK(%s), 0)
  AND (s.run > 0 OR t.trx_state = 'RUNNING')
"""
RUNS_SQL = f"""
SELECT s.id FROM {DATABASE}.session s
WHERE s.task = %s AND s.id <> %s AND s.server IN ('', %s) AND s.id <> COALESCE(IS_USED_LOCK(%s), 0) AND s.run > 0
"""
