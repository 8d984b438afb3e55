"""Raising the fence: from then on no target transaction of an earlier run of the task can commit.

    the row is locked exclusively      waits for every lane transaction that holds it shared
    after HUNG_S registered sessions of the task are ended (KILL): a lane whose process was stopped, or a
    predecessor that was stopped in here, or whose connection hangs half open, would hold it until the server notices
    a greater epoch there              Fenced MR-5020: a newer owner exists
    else epoch and run + 1             committed, and only now progress is read

Not done here: noticing that the lease was lost (``zk``).
"""

import threading

from consumer.target.connection import Endpoint, TargetConnection, connect
from consumer.target.progress import DATABASE, Owner
from millrace.errors import Fatal, Fenced, MillraceError, Retryable
from millrace.log import get_logger

HUNG_S = 3.0
TRIES_MAX = 20  # × HUNG_S: a minute of holders that come back is somebody who fights

_log = get_logger("apply.fence")


def raise_fence(connection: TargetConnection, *, task: str, epoch: int) -> Owner:
    """Take the task for this epoch and a new run; see the module."""
    if not connection.query(f"SELECT task FROM {DATABASE}.fence WHERE task = %s", (task,)):
        connection.query(f"INSERT IGNORE INTO {DATABASE}.fence VALUES (%s, 0, 0)", (task,))
    connection.query(f"REPLACE INTO {DATABASE}.session VALUES (%s, %s, 0)", (task, connection.id))
    connection.commit()
    held_epoch, held_run = _lock(connection, task)
    if held_epoch > epoch:
        connection.rollback()
        raise Fenced(
            "MR-5020", f"the fence of {task} holds epoch {held_epoch}, ours is {epoch}", task=task
        )
    connection.query(
        f"UPDATE {DATABASE}.fence SET epoch = %s, run = %s WHERE task = %s",
        (epoch, held_run + 1, task),
    )
    connection.query(f"DELETE FROM {DATABASE}.session WHERE task = %s", (task,))
    connection.commit()
    return Owner(task, epoch, held_run + 1)


def _lock(connection: TargetConnection, task: str) -> tuple[int, int]:
    """Epoch and run, locked; ends those who hold the lock too long."""
    waiter = _Waiter(connection, task)
    waiter.start()
    for _ in range(TRIES_MAX):
        waiter.join(HUNG_S)
        if not waiter.is_alive():
            return waiter.result()
        end_holders(connection.endpoint, task=task, but=connection.id)
    connection.close()
    waiter.join()
    raise Retryable("MR-5005", f"the fence of {task} stays locked", task=task)


class _Waiter(threading.Thread):
    """One locking read; the server ends it at the lock wait timeout, then it asks again."""

    def __init__(self, connection: TargetConnection, task: str) -> None:
        super().__init__(name="fence", daemon=True)
        self._connection = connection
        self._task = task
        self._found: tuple[int, int] | MillraceError | None = None

    def run(self) -> None:
        try:
            rows = self._connection.query(
                f"SELECT epoch, run FROM {DATABASE}.fence WHERE task = %s FOR UPDATE",
                (self._task,),
            )
            epoch, run = rows[0]
            assert isinstance(epoch, int)
            assert isinstance(run, int)
            self._found = (epoch, run)
        except MillraceError as exc:
            self._found = exc

    def result(self) -> tuple[int, int]:
        if isinstance(self._found, MillraceError):
            raise self._found
        assert self._found is not None
        return self._found


def end_holders(endpoint: Endpoint, *, task: str, but: int) -> None:
    """KILL the registered sessions of a task that have a transaction open, except session ``but``."""
    observer = connect(endpoint)
    try:
        for (holder,) in observer.query(_HOLDERS, (task, but)):
            _log.warning("ending a session that may hold the fence", task=task, session=holder)
            try:
                observer.query(f"KILL {holder}")
            except Fatal as exc:  # it ended by itself meanwhile
                _log.info("the session was gone", session=holder, error=str(exc))
    finally:
        observer.close()


# Which of them holds the lock is known to performance_schema alone, where it is on; to end one more of our own does no
# harm, but for those who wait for the same lock here (run 0): they would end each other. The numbers begin again when
# the server starts: so does what is registered under them, run by run.
_HOLDERS = f"""
SELECT s.id FROM {DATABASE}.session s
  JOIN information_schema.INNODB_TRX t ON t.trx_mysql_thread_id = s.id
  JOIN information_schema.PROCESSLIST p ON p.ID = s.id AND p.USER = SUBSTRING_INDEX(USER(), '@', 1)
WHERE s.task = %s AND s.id <> %s AND (s.run > 0 OR t.trx_state = 'RUNNING')
"""
