"""Random statements about generated tables, and a thread that executes them.

A statement that the server refuses (a key that exists, a value out of range, a deadlock) is counted and has no effect.
"""

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pymysql

from millrace.deploy.servers import DatabaseServer
from tests.kit.ordeal.columns import Column
from tests.kit.ordeal.tables import Table

GONE = (2003, 2006, 2013)  # the server itself
MODE = "NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES"
ROWS_MAX = 6
Cursor = pymysql.cursors.Cursor


@contextmanager
def root(server: DatabaseServer, database: str) -> Iterator[Cursor]:
    """A session that accepts most values, in UTC, with autocommit."""
    connection = pymysql.connect(
        unix_socket=str(server.socket),
        user="root",
        database=database,
        charset="utf8mb4",
        autocommit=True,
        ssl_disabled=True,
    )
    with connection, connection.cursor() as cursor:
        cursor.execute(f"SET sql_mode='{MODE}', time_zone='+00:00'")
        yield cursor


def rows(chance: random.Random, table: Table, count: int) -> str:
    """Column names and values of new rows."""
    columns = table.written
    names = ", ".join(column.sql for column in columns)
    values = (
        "(" + ", ".join(column.draw(chance) for column in columns) + ")" for _ in range(count)
    )
    return f"({names}) VALUES {', '.join(values)}"


def statement(chance: random.Random, table: Table) -> str:
    """One change of rows."""
    name, where = table.sql, _where(chance, table)
    drawn = chance.random()
    count = chance.randint(1, ROWS_MAX)
    if drawn < 0.32:
        return f"INSERT IGNORE INTO {name} {rows(chance, table, count)}"
    if drawn < 0.37:
        return f"REPLACE INTO {name} {rows(chance, table, count)}"
    if drawn < 0.42:
        column = chance.choice(table.changed)
        return (
            f"INSERT IGNORE INTO {name} {rows(chance, table, count)}"
            f" ON DUPLICATE KEY UPDATE {_set(chance, column)}"
        )
    if drawn < 0.60:
        return f"DELETE FROM {name} WHERE {where} LIMIT {count}"
    if drawn < 0.75:  # of keys, too
        column = chance.choice(table.changed if table.is_followed else table.keys)
        return f"UPDATE IGNORE {name} SET {_set(chance, column)} WHERE {where} LIMIT {count}"
    if drawn < 0.76:
        return f"UPDATE IGNORE {name} SET {_set(chance, chance.choice(table.changed))} LIMIT 60"
    columns = chance.sample(table.changed, min(len(table.changed), chance.randint(1, 2)))
    changes = ", ".join(_set(chance, column) for column in columns)
    return f"UPDATE IGNORE {name} SET {changes} WHERE {where} LIMIT 8"


def _set(chance: random.Random, column: Column) -> str:
    return f"{column.sql} = {column.draw(chance)}"


def _where(chance: random.Random, table: Table) -> str:
    column = chance.choice(table.keys)
    name = column.sql
    return f"{name} {chance.choice(('<=>', '<=>', '<=>', '>'))} {column.draw(chance)}"


class Writer:
    """Changes rows of random tables in source transactions of random size, until it is closed."""

    def __init__(
        self, server: DatabaseServer, database: str, tables: Callable[[], list[Table]], *, seed: int
    ) -> None:
        self._server, self._database, self._tables = server, database, tables
        self._chance = random.Random(seed)
        self._stop = threading.Event()
        self.done: Counter[str] = Counter()
        self.refused: Counter[int] = Counter()
        self.failure: BaseException | None = None
        self.pause_s = 0.05
        self._thread = threading.Thread(target=self._run, name=f"writer {seed}")
        self._thread.start()

    def _run(self) -> None:
        try:
            with root(self._server, self._database) as cursor:
                while not self._stop.wait(self.pause_s):
                    self._transaction(cursor)
        except BaseException as failure:  # noqa: BLE001 - raised by close
            self.failure = failure

    def _transaction(self, cursor: Cursor) -> None:
        chance = self._chance
        tables = self._tables()
        count = chance.choice((1, 1, 1, 2, 3, 8))
        cursor.execute("BEGIN")
        for table in chance.sample(tables, min(len(tables), chance.randint(1, 2))) * count:
            self._execute(cursor, table)
        cursor.execute("ROLLBACK" if chance.random() < 0.05 else "COMMIT")

    def _execute(self, cursor: Cursor, table: Table) -> None:
        sql = statement(self._chance, table)
        try:
            cursor.execute(sql)
        except pymysql.Error as error:
            if error.args[0] in GONE:
                raise
            self.refused[error.args[0]] += 1
        else:
            self.done[sql.split(" ", 1)[0]] += cursor.rowcount > 0

    def close(self) -> None:
        """Stop; raises the error that ended it."""
        self._stop.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure
