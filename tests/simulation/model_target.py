"""A target server with PyMySQL's interface. It supports only the statements that apply writes.

    isolation     READ COMMITTED: a session sees committed rows and its own writes
    row locks     a row that another open transaction wrote is refused immediately (error 1205); a server would wait
    fence row     ``FOR SHARE`` (``LOCK IN SHARE MODE``) and ``FOR UPDATE`` are real locks; FOR UPDATE waits until they
                  are free
    unique keys   error 1062, also inside one statement
    DDL           commits the open transaction; a table's id increases when it is truncated
    commit        may take effect and lose its answer, or be lost before it takes effect

An unknown statement fails the test, not with an error of a server. ``on_commit`` is called after every commit, before
the rows change again.
"""

import copy
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pymysql
from pymysql.converters import escape_item

from millrace.consumer.target.progress import DATABASE as OURS
from tests.simulation.binlog import DATABASE
from tests.simulation.gate import Process, current
from tests.simulation.source import Table, make_tables

Values = tuple[Any, ...]
Place = tuple[str, Values]  # table, identity


Found = re.Match[str]


class UnknownStatementError(Exception):
    """The model does not support a statement."""


@dataclass
class CatalogTable:
    """``id`` is InnoDB's; ``key`` empty: rows are numbered."""

    columns: list[str]
    key: tuple[str, ...]
    unique: tuple[tuple[str, ...], ...] = ()
    id: int = 0

    def identity(self, row: Values) -> Values:
        """Its primary key."""
        return tuple(row[self.columns.index(name)] for name in self.key)


_OUR_TABLES = {
    "fence": (("task", "epoch", "run"), 1),
    "progress": (
        (
            *("task", "seq", "next_offset", "gtid_set", "flavour"),
            *("topic", "topic_id", "topic_epoch", "past_start", "commit_ms", "whole_seq", "lag_ms"),
        ),
        1,
    ),
    "applied": (["task", "run", "batch", "lane", "part", "first_seq", "bitmap"], 5),
    "record_schema": (["task", "id", "schema_text"], 2),
    "ddl_intent": (
        ["task", "seq", "sql_text", "state_text", "server", "decision", "own_sql", "reason"],
        2,
    ),
    "conflict": (["task", "seq", "decision"], 2),
    "session": (["task", "id", "run", "server"], 2),
    "left_out": (["task", "seq", "kind", "sql_text"], 2),
    "view": (["task", "begin_seq", "content"], 2),
    "load_stream": (["task", "begin_gtid", "end_gtid", "flavour"], 1),
}


def error(number: int, text: str) -> pymysql.err.MySQLError:
    """The driver's error for a server's error number."""
    kinds: dict[int, type[pymysql.err.MySQLError]] = {1062: pymysql.err.IntegrityError}
    return kinds.get(number, pymysql.err.OperationalError)(number, text)


def _lost() -> Exception:
    return error(2013, "Lost connection to the model server")


@dataclass(frozen=True)
class Contents:
    """A backup."""

    tables: dict[str, CatalogTable]
    rows: dict[Place, Values]


class ModelServer:
    """The server; ``endpoint.user`` is the name of the connecting process."""

    def __init__(
        self, statements: Sequence[tuple[re.Pattern[str], "Method"]], *, version: str
    ) -> None:
        self.statements = statements
        self.version = version
        self.tables: dict[str, CatalogTable] = {}
        self.rows: dict[Place, Values] = {}
        self.sessions: dict[int, ModelSession] = {}
        self.named_locks: dict[str, int] = {}
        self.on_commit: Callable[[], None] = lambda: None
        self.changed = threading.Condition()
        self.shared: dict[Place, set[int]] = {}  # sessions that hold a row FOR SHARE
        self.exclusive: dict[Place, int] = {}  # … FOR UPDATE
        self.statement_errors: list[int] = []  # errors for the next row statements
        self._numbers = 0
        for name, (columns, keys) in _OUR_TABLES.items():
            names = list(columns)
            self.tables[f"{OURS}.{name}"] = CatalogTable(names, tuple(names[:keys]))
        for table in make_tables().values():
            self.create(table)

    def create(self, table: Table) -> None:
        """Create a table with the source's structure."""
        made = CatalogTable(list(table.columns), table.key, table.unique, self.next_number())
        self.tables[f"{DATABASE}.{table.name}"] = made

    def next_number(self) -> int:
        """The next number for a session, a table, or a row without a key."""
        self._numbers += 1
        return self._numbers

    def of(self, table: str) -> list[Values]:
        """Committed rows."""
        return [row for (name, _), row in self.rows.items() if name == table]

    def plain(self) -> dict[str, list[Values]]:
        """All rows of the user's tables, sorted, to compare."""
        return {
            name.partition(".")[2]: sorted(self.of(name), key=repr)
            for name in self.tables
            if name.startswith(f"{DATABASE}.") and name != f"{DATABASE}.hidden"
        }

    def backup(self) -> Contents:
        """A backup of everything committed."""
        return Contents(copy.deepcopy(self.tables), dict(self.rows))

    def restore(self, contents: Contents) -> None:
        """Restore a backup."""
        self.tables, self.rows = copy.deepcopy(contents.tables), dict(contents.rows)

    def end_session(self, number: int) -> None:
        """KILL."""
        session = self.sessions.get(number)
        if session is None:
            raise error(1094, f"Unknown thread id: {number}")
        session.end()

    @contextmanager
    def dialled(self) -> Iterator[None]:
        """Every PyMySQL connection in the block goes to this server."""
        known = pymysql.connect
        pymysql.connect = self._connect  # type: ignore[assignment]
        try:
            yield
        finally:
            pymysql.connect = known

    def _connect(self, **_: object) -> "ModelSession":
        process = current_or_observer()
        with process.asks(_lost):
            session = ModelSession(self, process)
            self.sessions[session.number] = session
            return session


def current_or_observer() -> Process:
    """A thread of the product has no process: no fault occurs in it."""
    try:
        return current()
    except AttributeError:
        return Process("observer")


class ModelSession:
    """``pymysql.connections.Connection``."""

    def __init__(self, server: ModelServer, process: Process) -> None:
        self.number = server.next_number()
        self.open = True
        self.server = server
        self._process = process
        self.written: dict[Place, Values | None] = {}
        self.is_in_transaction = False

    # ---- PyMySQL's interface -----------------------------------------------------------------------

    def thread_id(self) -> int:
        return self.number

    def cursor(self, kind: object = None) -> "ModelCursor":
        return ModelCursor(self)

    def query(self, sql: str | bytes) -> int:
        return self.execute(sql, None)[1]

    def commit(self) -> None:
        self.check_open()
        with self._process.asks(self._broken):
            self.check_open()
            self.commit_now()

    def rollback(self) -> None:
        self.check_open()
        self._forget()

    def close(self) -> None:
        self.end()

    # ---- the session -------------------------------------------------------------------------------

    def is_of(self, process: Process) -> bool:
        """Whether this process opened it."""
        return self._process is process

    def end(self) -> None:
        """End the session and roll its transaction back."""
        self._forget()
        self.open = False
        self.server.sessions.pop(self.number, None)
        for name in [n for n, holder in self.server.named_locks.items() if holder == self.number]:
            del self.server.named_locks[name]

    def execute(
        self, sql: str | bytes, arguments: Iterable[object] | None
    ) -> tuple[list[Values], int]:
        """(rows, matched rows)."""
        text = sql.decode() if isinstance(sql, bytes) else sql
        values = tuple(arguments) if arguments is not None else ()
        self.check_open()
        with self._process.asks(self._broken):
            self.check_open()
            for pattern, method in self.server.statements:
                if found := pattern.match(text):
                    return method(self, found, values)
        raise UnknownStatementError(text)

    def _broken(self) -> Exception:
        self.end()
        return _lost()

    def check_open(self) -> None:
        """Raise the driver's error for a connection that is gone."""
        if not self.open:
            raise _lost()

    def commit_now(self) -> None:
        """Commit, whether or not the answer arrives."""
        rows = self.server.rows
        for place, row in self.written.items():
            if row is None:
                rows.pop(place, None)
            else:
                rows[place] = row
        has_written = bool(self.written)
        self._forget()
        if has_written:
            self.server.on_commit()

    def _forget(self) -> None:
        self.written.clear()
        self.is_in_transaction = False
        server = self.server
        with server.changed:
            for holders in server.shared.values():
                holders.discard(self.number)
            for place in [p for p, holder in server.exclusive.items() if holder == self.number]:
                del server.exclusive[place]
            server.changed.notify_all()

    # ---- rows --------------------------------------------------------------------------------------

    def get(self, place: Place) -> Values | None:
        """A row as this session sees it."""
        return self.written[place] if place in self.written else self.server.rows.get(place)

    def all(self, table: str) -> dict[Place, Values]:
        """Rows of a table as this session sees them."""
        found = {p: row for p, row in self.server.rows.items() if p[0] == table}
        for place, row in self.written.items():
            if place[0] == table:
                found.pop(place, None)
                if row is not None:
                    found[place] = row
        return found

    def put(self, place: Place, row: Values | None) -> None:
        """Write a row; one that another has written or reads FOR SHARE is locked."""
        self.is_in_transaction = True
        if self.server.shared.get(place, set()) - {self.number}:
            raise error(1205, "Lock wait timeout exceeded")
        for other in self.server.sessions.values():
            if other is not self and place in other.written:
                raise error(1205, "Lock wait timeout exceeded")
        self.written[place] = row

    def insert(self, table: str, row: Values, *, replace: bool = False) -> None:
        """Insert one row; error 1062 for a duplicate key."""
        known = self.server.tables[table]
        identity = known.identity(row) if known.key else (self.server.next_number(),)
        place = (table, identity)
        if not replace:
            if self.get(place) is not None:
                raise error(1062, f"Duplicate entry {identity} for key '{table}.PRIMARY'")
            self._check_unique(table, row, but=place)
        self.put(place, row)

    def change(self, place: Place, after: Values) -> None:
        """Replace one row by another; error 1062 for a duplicate key."""
        table = place[0]
        known = self.server.tables[table]
        moved = (table, known.identity(after)) if known.key else place
        if moved != place and self.get(moved) is not None:
            raise error(1062, f"Duplicate entry {moved[1]} for key '{table}.PRIMARY'")
        self._check_unique(table, after, but=place)
        if moved != place:
            self.put(place, None)
        self.put(moved, after)

    def _check_unique(self, table: str, row: Values, *, but: Place) -> None:
        known = self.server.tables[table]
        for key in known.unique:
            at = [known.columns.index(name) for name in key]
            values = [row[index] for index in at]
            if None in values:
                continue
            for place, other in self.all(table).items():
                if place != but and [other[index] for index in at] == values:
                    raise error(1062, f"Duplicate entry {values} for key '{table}.{key}'")
            for session in self.server.sessions.values():
                for place, written in session.written.items() if session is not self else ():
                    if place[0] == table and written and [written[i] for i in at] == values:
                        raise error(1205, "Lock wait timeout exceeded")

    def meet_statement_error(self) -> None:
        if self.server.statement_errors:
            number = self.server.statement_errors.pop()
            if number == 1213:
                self._forget()
            raise error(number, "the model's error")


class ModelCursor:
    """``pymysql.cursors.Cursor``."""

    def __init__(self, session: ModelSession) -> None:
        self._session = session
        self._rows: list[Values] = []

    def __enter__(self) -> "ModelCursor":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def execute(self, sql: str | bytes, arguments: Iterable[object] | None = None) -> None:
        self._rows, _ = self._session.execute(sql, arguments)

    def fetchall(self) -> list[Values]:
        return self._rows

    def mogrify(self, sql: str, arguments: Iterable[object]) -> str:
        return sql % tuple(escape_item(value, "utf8mb4") for value in arguments)


Method = Callable[[ModelSession, Found, Values], tuple[list[Values], int]]
