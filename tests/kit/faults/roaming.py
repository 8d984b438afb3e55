"""A connection to the primary that outlives a failover: what was lost looks rolled back by a deadlock.

DDL is executed under a lock, which a failover holds: MariaDB repairs an interrupted statement when it restarts, and
logs that repair, so the old primary would have a transaction that no other member has.

That is true after ``fail_over`` (tests/kit/capture/promote.py), which blocks every commit before it kills the primary.
After another death, a commit whose answer was lost may have happened.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pymysql
from pymysql.constants import CR, ER

from millrace.deploy.workload.shop import Connect, Connection
from tests.kit.waiting import answered

_LOST = (CR.CR_SERVER_GONE_ERROR, CR.CR_SERVER_LOST, ER.SERVER_SHUTDOWN)

_DDL = ("CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE")


class RoamingConnection:
    """``connect`` opens a connection to the server that is the primary at that moment, or raises the driver's error.

    ``ddl_lock`` is held while a statement of DDL is executed.
    """

    def __init__(self, connect: Connect, ddl_lock: threading.Lock) -> None:
        self._connect = connect
        self.ddl_lock = ddl_lock
        self._settings: list[str] = []  # of the session, repeated after a loss
        self.current: Connection = connect()

    def cursor(self) -> "RoamingCursor":
        """A cursor that outlives a failover, too."""
        return RoamingCursor(self)

    def commit(self) -> None:
        """Commit."""
        with self.held():
            self.current.commit()

    def rollback(self) -> None:
        """Roll back. A lost connection has nothing to roll back."""
        try:
            self.current.rollback()
        except pymysql.Error as error:
            if not _is_lost(error):
                raise
            self._reconnect()

    def close(self) -> None:
        """Close."""
        self.current.close()

    def note(self, statement: str) -> None:
        """Repeat a setting of the session after a loss."""
        if statement.startswith("SET SESSION"):
            self._settings.append(statement)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Connect again if the connection is lost in the block, and raise a deadlock's error."""
        try:
            yield
        except pymysql.Error as error:
            if not _is_lost(error):
                raise
            self._reconnect()
            raise pymysql.OperationalError(ER.LOCK_DEADLOCK, f"lost: {error}") from error

    def _reconnect(self) -> None:
        self.current.close()
        self.current = answered(self._connect, pymysql.Error, OSError)
        for statement in self._settings:
            self.current.cursor().execute(statement)


class RoamingCursor:
    """The part of a cursor that the workloads use."""

    def __init__(self, owner: RoamingConnection) -> None:
        self._owner = owner
        self._connection: Connection | None = None
        self._cursor: Any = None

    def execute(self, statement: str, arguments: object = None) -> int:
        """Execute a statement and return the count of rows."""
        is_ddl = statement.startswith(_DDL)
        with self._owner.ddl_lock if is_ddl else nullcontext(), self._owner.held():
            found = int(self._real().execute(statement, arguments))
        self._owner.note(statement)
        return found

    def executemany(self, statement: str, arguments: object) -> object:
        """Execute a statement for each row."""
        with self._owner.held():
            return self._real().executemany(statement, arguments)

    def fetchall(self) -> Any:
        """The rows of the last statement."""
        return self._cursor.fetchall()

    def _real(self) -> Any:
        if self._connection is not self._owner.current:
            self._connection = self._owner.current
            self._cursor = self._connection.cursor()
        return self._cursor


def _is_lost(error: pymysql.Error) -> bool:
    return isinstance(error, pymysql.InterfaceError) or error.args[0] in _LOST
