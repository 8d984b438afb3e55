"""A source in memory whose changes are a topic, and a load that copies its rows to a real target.

The load reads each row at another moment between its begin and its end, as chunks do, and a table without a key at one.
"""

import random
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import ClassVar

from millrace.consumer.backfill import join
from millrace.consumer.backfill.backfill import LaterLoads, Parts
from millrace.consumer.backfill.new_tables import loading_missing, note_filter
from millrace.consumer.target.load_range import side_of
from millrace.consumer.target.loads import (
    COPIED,
    COPIES,
    WAITS,
    LoadStream,
    LoadTable,
    read_stream,
    set_waiting,
    stream_tables,
    task_of,
)
from millrace.consumer.target.progress import Owner, check_fence, create_tables
from millrace.consumer.turn.resident import forget
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.catalog import TableKey
from millrace.drivers.mysql.connection import MySqlSession, connect
from millrace.errors import MillraceError
from millrace.schemas.documents import ApplyTask
from millrace.schemas.stages import Loaded
from millrace.schemas.table.structure import TableSchema
from millrace.schemas.view.view import TableRule, View
from tests.kit.apply.local import LocalRecords, apply_task, backwards, endpoint_of, ignore, started
from tests.kit.apply.tables import integer, table
from tests.kit.apply.topic import RecordStream
from tests.kit.forked import killed_at

KEYS = 31
WIDE = 7
IDLE_S = 0.05  # until main looks for records again, unless a later load takes a step


@dataclass
class Source:
    """Tables of two columns; ``bag`` has no key. ``states[n]``: their rows after n source transactions.

    ``house``: the target's database under a view with the rows whose n is no multiple of 3, as ``value``; "" without.
    """

    database: str
    stream: RecordStream
    chance: random.Random = field(default_factory=lambda: random.Random(5))
    rows: dict[str, dict[int, int]] = field(default_factory=dict)
    states: list[dict[str, dict[int, int]]] = field(default_factory=lambda: [{}])
    wide: set[str] = field(default_factory=set)  # tables with the column x
    keyless: ClassVar[set[str]] = {"bag"}
    lock: threading.RLock = field(default_factory=threading.RLock)
    house: str = ""

    @property
    def place(self) -> str:
        """The database on the target."""
        return self.house or self.database

    @property
    def view(self) -> View:
        """The view with ``house``."""
        rule = TableRule(
            f"{self.database}.*",
            f"{self.house}.{{table}}",
            where="n % 3 <> 0",
            rename=(("n", "value"),),
            add=(("part", -3),),
        )
        return View((rule,))

    def admits(self, value: int) -> bool:
        """Whether the target has a row of this n."""
        return not self.house or value % 3 != 0

    def create(self, server: DatabaseServer, *names: str) -> None:
        """Empty tables, here and on the target."""
        for name in names:
            server.execute(self.create_sql(name))
            self.rows[name] = {}

    def create_sql(self, name: str) -> str:
        """CREATE TABLE as it is now."""
        key = "" if name in self.keyless else " PRIMARY KEY"
        more = f", x INT DEFAULT {WIDE}" if name in self.wide else ""
        if self.house:
            return f"CREATE TABLE {self.house}.{name} (part INT NOT NULL, value INT, id INT{key})"
        return f"CREATE TABLE {self.database}.{name} (id INT{key}, n INT{more})"

    def table(self, name: str) -> TableSchema:
        """Its structure."""
        key = () if name in self.keyless else (0,)
        columns = [integer("id"), integer("n", nullable=True)]
        if name in self.wide:
            columns.append(integer("x", nullable=True))
        return table(self.database, name, *columns, key=key)

    def transactions(self, count: int, *, changes: int = 6) -> None:
        """Random changes of all tables."""
        for _ in range(count):
            with self.lock:
                for _ in range(self.chance.randint(1, changes)):
                    self._change(self.chance.choice(sorted(self.rows)))
                self.stream.commit()
                self._keep()

    def ddl(self, sql: str) -> None:
        """A statement."""
        with self.lock:
            self.stream.ddl(sql, database=self.database)
            self._keep()

    def gtid_set(self, number: int) -> str:
        """The GTID set after so many source transactions."""
        return replace(self.stream, last_number=number).gtid_set

    def _change(self, name: str) -> None:
        rows, made, key = self.rows[name], self.table(name), self.chance.randint(0, KEYS - 1)
        before, value = rows.get(key), self.chance.randint(0, 999)
        if before is None:
            self.stream.insert(made, self._row(name, key, value))
        elif self.chance.random() < 0.3:
            self.stream.delete(made, self._row(name, key, before))
            del rows[key]
            return
        else:
            self.stream.update(made, self._row(name, key, before), self._row(name, key, value))
        rows[key] = value

    def _row(self, name: str, key: int, value: int) -> dict[str, object]:
        row: dict[str, object] = {"id": key, "n": value}
        return row | {"x": WIDE} if name in self.wide else row

    def _keep(self) -> None:
        self.states.append({name: dict(rows) for name, rows in self.rows.items()})

    def widen(self, name: str) -> None:
        """A column is added to a table; all rows have the same value in it."""
        with self.lock:
            self.wide.add(name)
            self.ddl(f"ALTER TABLE {name} ADD COLUMN x INT DEFAULT {WIDE}")

    def rename(self, name: str, new: str) -> None:
        """A table gets another name."""
        with self.lock:
            self.rows[new] = self.rows.pop(name)
            if name in self.wide:
                self.wide = {*self.wide - {name}, new}
            self.ddl(f"RENAME TABLE {name} TO {new}")

    def drop(self, name: str) -> None:
        """A table is dropped."""
        with self.lock:
            del self.rows[name]
            self.ddl(f"DROP TABLE {name}")

    def truncate(self, name: str) -> None:
        """A table is emptied by a statement."""
        with self.lock:
            self.rows[name] = {}
            self.ddl(f"TRUNCATE TABLE {name}")

    def add(self, name: str) -> None:
        """A table is created by a statement."""
        with self.lock:
            self.rows[name] = {}
            self.ddl(self.create_sql(name))

    def take(self, name: str) -> None:
        """Capture takes a table that has existed with some rows: the topic has no statement about it."""
        with self.lock:
            self.rows[name] = {key: key for key in range(0, KEYS, 2)}
            self.states[-1] = {**self.states[-1], name: dict(self.rows[name])}


@dataclass
class LiveLoader:
    """See ``consumer.backfill.threads``. ``between`` is called before each table, ``errors`` are raised first.

    ``back``: how many source transactions before the last one a load begins.
    """

    server: DatabaseServer
    source: Source
    between: Callable[[], object] = list
    errors: list[MillraceError] = field(default_factory=list)
    back: int = 0
    loads: int = 0
    shown: Loaded | None = None

    def tables(self) -> frozenset[TableKey]:
        """See ``consumer.backfill.threads``."""
        return frozenset((self.source.database, name) for name in self.source.rows)

    def together(self, tables: Collection[TableKey]) -> frozenset[TableKey]:
        """No foreign keys."""
        return frozenset(tables)

    def load(self, owner: Owner, batch: int, stop: threading.Event) -> LoadStream | None:
        """Copy from memory."""
        self.loads += 1
        if self.errors:
            raise self.errors.pop()
        session = connect(endpoint_of(self.server))
        try:
            return self._load(session, owner, batch)
        finally:
            session.close()

    def _load(self, session: MySqlSession, owner: Owner, batch: int) -> LoadStream:
        source = self.source
        flavour, begin = source.stream.flavour, len(source.states) - 1 - self.back
        stored = read_stream(session, owner.task)
        if stored is None:
            check_fence(session, owner)
            stored = LoadStream(source.gtid_set(begin), "", flavour)
            sql = "INSERT INTO millrace.load_stream VALUES (%s, %s, '', %s)"
            session.query(sql, (owner.task, stored.begin, flavour))
        session.commit()
        wanted = [t for t in stream_tables(session, task_of(owner.task)) if t.state == COPIES]
        session.rollback()
        for loaded in wanted:
            assert loaded.batch == batch
            self.between()
            self._copy(session, owner, loaded.key, begin)
        return replace(stored, end=source.gtid_set(len(source.states) - 1))

    def _copy(self, session: MySqlSession, owner: Owner, name: TableKey, begin: int) -> None:
        source, which = self.source, name[1]
        end = len(source.states) - 1
        session.query(f"DROP TABLE IF EXISTS {source.place}.{which}")
        is_there, exact = which in source.states[end], ""
        if is_there:
            session.query(source.create_sql(which))
        moments = [source.chance.randint(begin, end) for _ in range(KEYS)]
        if which in source.keyless:
            moments, exact = [end] * KEYS, source.gtid_set(end)
        check_fence(session, owner)
        for key, moment in enumerate(moments if is_there else ()):
            rows = source.states[moment].get(which, {})
            if key in rows and source.admits(rows[key]):
                self._insert(session, which, key, rows[key])
        session.query(
            "UPDATE millrace.load_table SET state = %s, begin_gtid = %s, exact_gtid = %s, chunk_key = %s"
            " WHERE task = %s AND table_name = %s AND state = %s",
            (
                *(COPIED, source.gtid_set(begin), exact, "" if exact else "PRIMARY"),
                *(task_of(owner.task), which, COPIES),
            ),
        )
        session.commit()

    def _insert(self, session: MySqlSession, which: str, key: int, value: int) -> None:
        names = (
            "(id, value, part) VALUES (%s, %s, -3)"
            if self.source.house
            else "(id, n) VALUES (%s, %s)"
        )
        session.query(f"INSERT INTO {self.source.place}.{which} {names}", (key, value))


@dataclass
class LiveTurns:
    """See ``consumer.backfill.threads``: turns in this process."""

    source: Source
    bounds: list[int] = field(default_factory=list)
    begun: Callable[[], object] = list  # before the first one

    def records(self, end: int) -> LocalRecords:
        """Those of the source so far."""
        if not self.bounds:
            self.begun()
        self.bounds.append(end)
        return LocalRecords(self.source.stream.values[:end], window_rows=40, lane_order=backwards)

    def first_offset(self, offset: int) -> int:
        """Retention keeps everything."""
        return offset

    def stop(self) -> None:
        """A turn ends soon."""


def rows_on(server: DatabaseServer, source: Source) -> dict[str, list[tuple[object, ...]]]:
    """All rows of the database on the target, by table."""
    names = [str(name) for (name,) in server.execute(f"SHOW TABLES IN {source.place}")]
    read = "id, value, part" if source.house else "*"
    return {
        name: sorted(server.execute(f"SELECT {read} FROM {source.place}.{name}")) for name in names
    }


def rows_wanted(source: Source) -> dict[str, list[tuple[object, ...]]]:
    """The rows of the source."""
    more = {name: (WIDE,) if name in source.wide else () for name in source.rows}
    if source.house:
        more = dict.fromkeys(source.rows, (-3,))
    return {
        name: sorted(
            (key, value, *more[name]) for key, value in rows.items() if source.admits(value)
        )
        for name, rows in source.rows.items()
    }


@dataclass
class LiveTask:
    """A run of a task, and its later loads beside it."""

    server: DatabaseServer
    task: ApplyTask
    source: Source
    loader: LiveLoader
    turns: LiveTurns
    loads: LaterLoads = field(init=False)

    @classmethod
    def of(cls, server: DatabaseServer, source: Source) -> "LiveTask":
        """A task with the name of the source's database."""
        loader, task = LiveLoader(server, source), apply_task(source.database)
        if source.house:
            task = replace(task, view=source.view)
        return cls(server, task, source, loader, LiveTurns(source))

    def wait_for(self, *names: str) -> None:
        """Let tables wait for a load, as `millrace task load` does."""
        session = connect(endpoint_of(self.server))
        create_tables(session)
        database = self.source.database
        set_waiting(session, self.task.name, [(database, name) for name in names], detail="")
        session.commit()
        session.close()

    def run(
        self,
        act: Callable[[], object] = list,
        *,
        times: int = 0,
        hold: int = 0,
        loads_min: int = 0,
    ) -> None:
        """Apply until no table is left to load; after each micro-batch, ``act`` is called, at least so many times.

        ``hold``: main does not pass this offset before a load has begun. ``loads_min``: how many must have begun.
        """
        applier = started(self.server, self.task)
        session = connect(endpoint_of(self.server))
        note_filter(session, applier.owner, self.task, self.loader)
        applier.assignment = loading_missing(applier.assignment, self.task, self.loader)
        applier.is_partial = bool(self._tables(session))
        stepped = threading.Event()
        parts = Parts(applier, self.loader, self.turns)
        self.loads = loads = LaterLoads(parts, stepped.set)
        loads.start()
        try:
            while True:
                end = hold if hold and self._waits(session) else None
                applier.process(LocalRecords(self.source.stream.values[:end]), ignore)
                if loads.failure is not None:
                    raise loads.failure
                if times <= 0 and self.loader.loads >= loads_min and not self._tables(session):
                    applier.process(LocalRecords(self.source.stream.values), ignore)
                    return
                act()
                times -= 1
                if times < 0:
                    stepped.wait(IDLE_S)
                    stepped.clear()
        finally:
            loads.end()
            applier.close()
            session.close()
            forget(side_of(self.task.name))

    def _waits(self, session: MySqlSession) -> bool:
        """Whether the load of a table has not begun, in this run or in one that was killed."""
        return any(table.state == WAITS for table in self._tables(session))

    def _tables(self, session: MySqlSession) -> list[LoadTable]:
        tables = stream_tables(session, self.task.name)
        session.rollback()
        return tables


JOIN_STEPS = (
    join.BEFORE_BEGIN,
    join.AFTER_BEGIN,
    join.BEFORE_FOLLOW,
    join.AFTER_FOLLOW,
    join.BEFORE_JOIN,
    join.AFTER_JOIN,
)


def kill_a_later_load(live: LiveTask, point: str, *, changes: int = 6) -> None:
    """Load two tables of a source that is written; the driver dies at this point, and the next run ends the load."""
    source = live.source
    source.transactions(10, changes=changes)
    hold = len(source.stream.values)
    source.transactions(40, changes=changes)
    live.loader.back = 30
    live.wait_for("t", "bag")
    killed_at(f"{point}:kill", lambda: live.run(hold=hold))
    live.run(hold=hold)
