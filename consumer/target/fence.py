"""Raising the fence: from then on no target transaction of an earlier run of the task can commit.

    the row is locked exclusively      waits for every lane transaction that holds it shared
    after HUNG_S the holders are ended (KILL) and the lock is awaited on: a lane whose process was stopped, or whose
    connection hangs half open, would hold it until the server notices
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
    connection.query(f"INSERT IGNORE INTO {DATABASE}.fence VALUES (%s, 0, 0)", (task,))
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
        end_holders(connection.endpoint, waiting=connection.id)
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


def end_holders(endpoint: Endpoint, *, waiting: int) -> None:
    """KILL every session that keeps session ``waiting`` from its lock."""
    observer = connect(endpoint)
    try:
        sql = _HOLDERS_MARIADB if observer.flavour == "mariadb" else _HOLDERS_MYSQL
        for (holder,) in observer.query(sql, (waiting,)):
            _log.warning("ending a session that holds the fence", session=holder)
            try:
                observer.query(f"KILL {holder}")
            except Fatal as exc:  # it ended by itself meanwhile
                _log.info("the session was gone", session=holder, error=str(exc))
    finally:
        observer.close()


_HOLDERS_MYSQL = """
SELECT DISTINCT holder.PROCESSLIST_ID FROM performance_schema.data_lock_waits w
  JOIN performance_schema.threads waiter ON waiter.THREAD_ID = w.REQUESTING_THREAD_ID
  JOIN performance_schema.threads holder ON holder.THREAD_ID = w.BLOCKING_THREAD_ID
WHERE waiter.PROCESSLIST_ID = %s AND holder.PROCESSLIST_ID IS NOT NULL
"""
_HOLDERS_MARIADB = """
SELECT DISTINCT holder.trx_mysql_thread_id FROM information_schema.INNODB_LOCK_WAITS w
  JOIN information_schema.INNODB_TRX waiter ON waiter.trx_id = w.requesting_trx_id
  JOIN information_schema.INNODB_TRX holder ON holder.trx_id = w.blocking_trx_id
WHERE waiter.trx_mysql_thread_id = %s
"""
