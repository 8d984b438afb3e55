"""Whatever a target server does to apply: locks, limits, modes, restarts, refusals. Real ones, on both flavours.

Each is told with its code; nothing is lost, nothing is there twice, and it goes on when the cause is mended.
"""

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import cast

import pymysql
import pytest

from consumer import apply, ddl, executor
from consumer.batch import AFTER_MARK
from consumer.spark import SparkDriver
from consumer.target import connection as connections
from consumer.target.connection import Endpoint, TargetConnection, TlsChoice, connect
from consumer.writer import RowWriter
from deploy.servers import Account, DatabaseServer, ServerOptions, sql
from millrace import faults
from millrace.errors import Fatal, MillraceError, Retryable
from schemas.gtid import Flavour
from schemas.record.control import DdlRecord
from schemas.sql.statement import Statement
from schemas.table.structure import Column, ColumnType, TypeCode
from tests.fixtures.servers import FLAVOURS, SERVICE, TARGET_PRIVILEGES
from tests.kit.apply.faults import Supervised
from tests.kit.apply.local import (
    KnownTopic,
    LocalRecords,
    apply_task,
    endpoint_of,
    run_once,
    started,
)
from tests.kit.apply.reader import ThreadQuery
from tests.kit.apply.tables import integer, table, text
from tests.kit.apply.topic import RecordStream
from tests.kit.faults.campaign import POINTS
from tests.kit.waiting import eventually, until_locked_out

PLAIN = Account("plain", "plain-secret")  # no SUPER, nor what MariaDB has instead of it
PLAIN_PRIVILEGES = "SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, REFERENCES, PROCESS"
ROWS = 20
CANARY = "canary-7h3k"

APPLY_POINTS = [point for point in POINTS if point.startswith("apply.")]

Mortal = Callable[[Flavour], DatabaseServer]
_names = count(1)


@pytest.fixture
def name(target_server: DatabaseServer) -> Iterator[str]:
    """A database and a task of this name, the database gone behind the test."""
    made = f"fault{next(_names)}_{target_server.flavour}"
    _create_tables(target_server, made)
    yield made
    target_server.execute(f"DROP DATABASE {made}")


def _create_tables(server: DatabaseServer, name: str) -> None:
    server.execute(f"CREATE DATABASE {name}")
    server.execute("CREATE TABLE a (id INT PRIMARY KEY, n INT, note VARCHAR(20))", db=name)
    server.execute("CREATE TABLE b (id INT PRIMARY KEY, n INT, note VARCHAR(20))", db=name)
    server.execute("CREATE TABLE bag (n INT)", db=name)


def _stream(name: str) -> RecordStream:
    """Rows of two tables in turn, updated once, and a table without a key: a repetition would show."""
    stream = RecordStream()
    bag = table(name, "bag", integer("n"), key=())
    for which in "ab":
        made = table(name, which, integer("id"), integer("n"), text("note"))
        for number in range(ROWS):
            row = {"id": number, "n": 0, "note": CANARY}
            stream.insert(made, row)
            stream.update(made, row, row | {"n": 1})
            stream.insert(bag, {"n": number})
    stream.commit()
    return stream


def _check(server: DatabaseServer, name: str) -> None:
    for which in "ab":
        assert server.execute(f"SELECT COUNT(*), SUM(n) FROM {name}.{which}") == [(ROWS, ROWS)]
    found = server.execute(f"SELECT COUNT(*), SUM(n) FROM {name}.bag")
    assert found == [(2 * ROWS, ROWS * (ROWS - 1))]


def _supervised(
    endpoint: Endpoint, name: str, *, is_large: bool = True, lanes: int = 3
) -> Supervised:
    return Supervised(
        endpoint,
        apply_task(name, lanes=lanes),
        _stream(name),
        is_large=lambda _: is_large,
    )


def _plain(server: DatabaseServer) -> Endpoint:
    """A login that the server's modes and limits hold for."""
    server.execute(f"CREATE USER IF NOT EXISTS {PLAIN.user} IDENTIFIED BY '{PLAIN.password}'")
    server.execute(f"GRANT {PLAIN_PRIVILEGES} ON *.* TO {PLAIN.user}")
    tls = TlsChoice("require-unverified")
    return Endpoint(server.host, server.port, PLAIN.user, PLAIN.password, tls)


def _refused(task: Supervised, branch: type[MillraceError], code: str) -> MillraceError:
    """A run ends like this; what it says has a fix and no row's contents."""
    with pytest.raises(branch) as caught:
        task.run_once()
    assert caught.value.code == code, caught.value
    assert caught.value.fix
    assert CANARY not in str(caught.value)
    return caught.value


# ---- locks ----------------------------------------------------------------------------------------


@contextmanager
def _session(server: DatabaseServer, database: str) -> Iterator[TargetConnection]:
    """Somebody else."""
    session = connect(endpoint_of(server), database=database)
    try:
        yield session
    finally:
        session.close()


@contextmanager
def _in_thread(work: Callable[[], object]) -> Iterator[None]:
    """``work`` beside the block; what it raises comes out at the end."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as failure:  # noqa: BLE001 - raised again below
            failures.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join(240)
        assert not thread.is_alive()
        if failures:
            raise failures[0]


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> list[RowWriter]:
    """Grows each time that a target transaction is begun again on its session."""
    seen: list[RowWriter] = []
    settle = RowWriter.settle

    def settle_seen(writer: RowWriter) -> None:
        settle(writer)
        seen.append(writer)

    monkeypatch.setattr(RowWriter, "settle", settle_seen)
    return seen


def test_deadlock_is_retried_at_once(
    name: str,
    target_server: DatabaseServer,
    settled: list[RowWriter],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Somebody else waits for our row while we wait for his: we are the victim, and lose nothing."""
    monkeypatch.setattr(connections, "LOCK_WAIT_S", 600)  # nobody's wait ends otherwise
    task = _supervised(endpoint_of(target_server), name, is_large=False)
    with _session(target_server, name) as other:
        heavy = ", ".join(f"({number})" for number in range(-500, 0))
        other.query(f"INSERT INTO bag VALUES {heavy}")  # the victim is who has written less
        other.query("INSERT INTO b VALUES (5, 0, '')")
        with _in_thread(task.run_once):
            until_locked_out(target_server, what="apply waits for a row of b")
            other.query("INSERT INTO a VALUES (5, 0, '')")
            eventually(lambda: len(settled) == 1, what="apply is the victim")
            other.rollback()
    assert task.codes == []
    _check(target_server, name)


def test_long_row_lock_is_reported_and_retried(
    name: str,
    target_server: DatabaseServer,
    settled: list[RowWriter],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tried again a few times on the same session, then MR-5005; when the lock is gone it goes on."""
    monkeypatch.setattr(connections, "LOCK_WAIT_S", 1)
    monkeypatch.setattr(executor, "LOCK_TRIES_MAX", 2)
    task = _supervised(endpoint_of(target_server), name)
    with _session(target_server, name) as other:
        other.query("INSERT INTO b VALUES (5, 0, '')")
        _refused(task, Retryable, "MR-5005")
        assert len(settled) == 2
        other.rollback()
    task.run()
    _check(target_server, name)


@dataclass
class _Driver:
    """Spark's, as far as a run asks it: one micro-batch."""

    records: LocalRecords

    def query(
        self, *_: object, process: Callable[[LocalRecords], None], **__: object
    ) -> ThreadQuery:
        def apply_once() -> None:
            with suppress(Retryable):
                process(self.records)

        return ThreadQuery(apply_once)


def test_stop_does_not_wait_for_a_locked_row(
    name: str, target_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a statement the driver applies rows itself: no Spark job is there to be cancelled. Nothing is lost."""
    monkeypatch.setattr(connections, "LOCK_WAIT_S", 300)
    monkeypatch.setattr(apply, "CUT_AFTER_S", 0.1)
    stream = RecordStream()
    made = table(name, "b", integer("id"), integer("n"), text("note"))
    stream.insert(made, {"id": 4, "n": 0, "note": ""})
    stream.ddl("CREATE TABLE late (id INT PRIMARY KEY)", database=name)
    for number in (5, 6):
        stream.insert(made, {"id": number, "n": 0, "note": ""})
    stream.commit()
    task, stop = apply_task(name), threading.Event()
    driver = cast(SparkDriver, _Driver(LocalRecords(stream.values, is_large=False)))
    with _session(target_server, name) as other:
        other.query("INSERT INTO b VALUES (6, 0, '')")
        applier = started(target_server, task)
        run = apply._Run(driver, task, applier, lambda _: None, KnownTopic())
        until_locked_out(target_server, what="the row behind the statement is waited for")
        stop.set()
        run.until(stop)
        ending = threading.Thread(target=run.end)
        ending.start()
        ending.join(120)
        is_over = not ending.is_alive()
        other.rollback()
        ending.join()
    assert is_over, "the stop waits for the row"
    assert target_server.execute("SELECT id FROM b", db=name) == [(4,)]
    run_once(target_server, task, stream, is_large=False).close()
    assert target_server.execute("SELECT id FROM b ORDER BY id", db=name) == [(4,), (5,), (6,)]


@pytest.mark.parametrize(
    "lock", ["LOCK TABLES b READ", "FLUSH TABLES WITH READ LOCK"], ids=["table", "backup"]
)
def test_locked_table_or_server_is_reported_and_retried(
    name: str, target_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch, lock: str
) -> None:
    """The server would wait for a day, or a year: it is told to give up as for a row."""
    monkeypatch.setattr(connections, "LOCK_WAIT_S", 1)
    monkeypatch.setattr(executor, "LOCK_TRIES_MAX", 2)
    task = _supervised(endpoint_of(target_server), name)
    Supervised(task.endpoint, task.task, RecordStream()).run()  # our tables are there
    with _session(target_server, name) as other:
        other.query(lock)
        _refused(task, Retryable, "MR-5005")
    task.run()
    _check(target_server, name)


# ---- modes and limits -----------------------------------------------------------------------------


def test_read_only_target_is_retried(name: str, target_server: DatabaseServer) -> None:
    """Before a start, and between the parts of a batch; closed for everybody but root, or (MySQL) for all."""
    task = _supervised(_plain(target_server), name)
    modes = (
        ["read_only", "super_read_only"]
        if target_server.flavour is Flavour.MYSQL
        else ["read_only"]
    )
    for mode in modes:
        target_server.execute(f"SET GLOBAL {mode} = ON")
        try:
            _refused(task, Retryable, "MR-5003")
        finally:
            target_server.execute("SET GLOBAL read_only = OFF")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            executor,
            "fault_point",
            _Once(lambda: target_server.execute("SET GLOBAL read_only = ON")),
        )
        try:
            _refused(task, Retryable, "MR-5003")
        finally:
            target_server.execute("SET GLOBAL read_only = OFF")
    task.run()
    _check(target_server, name)


class _Once:
    """Does something the first time that a lane is at its commit."""

    def __init__(self, act: Callable[[], object], point: str = executor.AFTER_LANE_COMMIT) -> None:
        self._act, self._point, self.done = act, point, False

    def __call__(self, point: str) -> None:
        if point == self._point and not self.done:
            self.done = True
            self._act()


def test_target_without_free_connections_is_retried(
    name: str, target_server: DatabaseServer
) -> None:
    """Others have them all, at the start; or the account has all it may, in the middle."""
    task = _supervised(_plain(target_server), name)
    ((before,),) = target_server.execute("SELECT @@max_connections")
    others: list[TargetConnection] = []
    with sql.root_connection(target_server.socket) as root, root.cursor() as cursor:
        _end_other_connections(cursor)
        cursor.execute("SET GLOBAL max_connections = 10")
        try:
            eventually(lambda: _has_them_all(cursor, task.endpoint, others), what="none is left")
            _refused(task, Retryable, "MR-5004")
        finally:  # by a connection that stands already: a closed one may count for a while
            cursor.execute(f"SET GLOBAL max_connections = {before}")
            for other in others:
                other.close()

    def is_large(_: int) -> bool:
        """Asked behind the start, before a lane: another takes the connection that the start gave back."""
        eventually(lambda: _connects(task.endpoint, others), what="another takes the connection")
        return True

    others.clear()
    target_server.execute(f"ALTER USER {PLAIN.user} WITH MAX_USER_CONNECTIONS 1")
    try:
        _refused(replace(task, is_large=is_large), Retryable, "MR-5004")
    finally:
        target_server.execute(f"ALTER USER {PLAIN.user} WITH MAX_USER_CONNECTIONS 0")
        others.pop().close()
    task.run()
    _check(target_server, name)


def _end_other_connections(cursor: pymysql.cursors.Cursor) -> None:
    """Processes of other tests, such as Spark's Python workers, keep idle connections to a shared server."""
    cursor.execute(
        "SELECT ID FROM information_schema.PROCESSLIST"
        " WHERE ID <> CONNECTION_ID() AND USER NOT IN ('system user', 'event_scheduler')"
    )
    for (number,) in cursor.fetchall():
        with suppress(pymysql.Error):  # it has just closed
            cursor.execute(f"KILL {number}")


def _has_them_all(
    cursor: pymysql.cursors.Cursor, endpoint: Endpoint, others: list[TargetConnection]
) -> bool:
    """We, and root who asks: a closed connection of somebody before may count for a while, and then be free."""
    while _connects(endpoint, others):
        pass
    cursor.execute("SHOW GLOBAL STATUS LIKE 'Threads_connected'")
    ((_, connected),) = cursor.fetchall()
    return int(str(connected)) == len(others) + 1


def _connects(endpoint: Endpoint, others: list[TargetConnection]) -> bool:
    try:
        others.append(connect(endpoint))
    except Retryable:
        return False
    return True


# ---- the server goes away -------------------------------------------------------------------------


ENDS = ("kill", "stop")  # -9, and a clean one
EVERY = tuple(itertools.product(APPLY_POINTS, ENDS, FLAVOURS))
SOON = tuple(  # -9 at each point once, flavours in turn; the others are chaos
    (point, "kill", FLAVOURS[place % len(FLAVOURS)]) for place, point in enumerate(APPLY_POINTS)
)


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mortal]:
    """A server of each flavour that tests may end, running at their beginning; its own file may not grow for ever."""
    made: dict[Flavour, DatabaseServer] = {}
    room = ServerOptions(extra=("--innodb-data-file-path=ibdata1:12M:autoextend:max:24M",))

    def running(flavour: Flavour) -> DatabaseServer:
        if flavour not in made:
            folder = tmp_path_factory.mktemp("mortal") / flavour
            made[flavour] = DatabaseServer.of(flavour, folder, room)
            made[flavour].start()
            made[flavour].create_account(SERVICE, TARGET_PRIVILEGES)
        if not made[flavour].is_alive():  # a test that failed left it
            made[flavour].start()
        return made[flavour]

    yield running
    for server in made.values():
        server.discard()


@dataclass
class _Passages:
    """Counts what is passed; ``act`` happens at passage ``number`` of ``point``. Statements that came to their end."""

    point: str = ""
    number: int = 0
    act: Callable[[], object] = bool
    passed: Counter[str] = field(default_factory=Counter)
    executed: Counter[str] = field(default_factory=Counter)

    def __call__(self, point: str) -> None:
        self.passed[point] += 1
        if (point, self.passed[point]) == (self.point, self.number):
            self.act()

    @contextmanager
    def seen(self) -> Iterator[None]:
        """Inside the block: whatever module a point is passed in."""
        execute = ddl._execute

        def executing(session: TargetConnection, record: DdlRecord, statement: Statement) -> None:
            execute(session, record, statement)
            self.executed[record.statement.sql] += 1

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ddl, "_execute", executing)
            patch.setattr(faults, "_armed", {})
            patch.setattr(faults, "_pass_armed", self)
            yield


def _long_task(server: DatabaseServer) -> Supervised:
    """The rows of ``_stream``, in four micro-batches for two lanes; two of them end with a statement."""
    name = f"mortal{next(_names)}"
    _create_tables(server, name)
    stream, cuts = RecordStream(), []
    tables = [table(name, which, integer("id"), integer("n"), text("note")) for which in "ab"]
    bag = table(name, "bag", integer("n"), key=())
    for made in (*tables, bag):
        stream.introduce(made)
    stream.commit()
    for part in range(4):
        cuts.append(len(stream.values))
        for number in range(part, ROWS, 4):
            row = {"id": number, "n": 0, "note": CANARY}
            for made in tables:
                stream.insert(made, row)
                stream.update(made, row, row | {"n": 1})
                stream.insert(bag, {"n": number})
        stream.commit()
        if part in (1, 2):
            stream.ddl(STATEMENTS[part - 1], database=name)
    endpoint = endpoint_of(server)
    return Supervised(endpoint, apply_task(name, lanes=2), stream, cuts)


STATEMENTS = ("ALTER TABLE bag ADD INDEX (n)", "ALTER TABLE b ADD INDEX (n), COMMENT 'twice'")


def _dies(server: DatabaseServer, point: str, end: str, number: int) -> None:
    """The server dies at passage ``number`` of ``point``, and is away for a while."""
    task = _long_task(server)
    death = _Passages(point, number, getattr(server, end))
    with death.seen():
        try:
            applier = task.run_once()
        except Retryable as failure:
            task.failures.append(failure)
        else:  # behind the last mark there is nothing left to do
            assert (point, applier.mark.seq) == (AFTER_MARK, task.stream.seq)
        assert not server.is_alive(), f"{point} is not passed {number} times"
        assert set(task.codes) <= {"MR-5001"}, task.failures
        _refused(task, Retryable, "MR-5001")
        server.start()
        task.run()
    name = task.task.name
    assert len(task.failures) <= 1, task.failures
    _check(server, name)
    assert death.executed == dict.fromkeys(STATEMENTS, 1)
    for which in ("bag", "b"):  # a second time would have made a second one
        found = server.execute(f"SHOW INDEX FROM {which} WHERE Column_name = 'n'", db=name)
        assert len(found) == 1
    left = "(SELECT task FROM millrace.ddl_intent) UNION ALL (SELECT task FROM millrace.applied)"
    assert server.execute(left) == []
    server.execute(f"DROP DATABASE {name}")


def _passages(server: DatabaseServer, point: str) -> int:
    """How often a run without a fault passes it."""
    task, whole = _long_task(server), _Passages()
    with whole.seen():
        task.run()
    server.execute(f"DROP DATABASE {task.task.name}")
    assert whole.passed[point], f"{point} is registered and never passed here"
    return whole.passed[point]


@pytest.mark.parametrize(("point", "end", "flavour"), SOON)
def test_target_dying_at_a_fault_point_loses_no_row(
    mortal: Mortal, point: str, end: str, flavour: Flavour
) -> None:
    """Lanes, mark and DDL: the run says MR-5001, the next one finds out what the server kept; each row stands once."""
    server = mortal(flavour)
    # the last but one: of two lanes that wait for the mark, one has committed
    _dies(server, point, end, max(_passages(server, point) - 1, 1))


@pytest.mark.chaos
@pytest.mark.parametrize(("point", "end", "flavour"), EVERY)
def test_target_dying_at_any_fault_point_pass_loses_no_row(
    mortal: Mortal, point: str, end: str, flavour: Flavour
) -> None:
    """As above, at each passage of a run in turn."""
    server = mortal(flavour)
    for number in range(1, _passages(server, point) + 1):
        _dies(server, point, end, number)


@pytest.fixture
def mortal_mysql(mortal: Mortal) -> DatabaseServer:
    """MariaDB 11.4 ends itself when its own file is full."""
    return mortal(Flavour.MYSQL)


def test_full_target_tablespace_is_retried(mortal_mysql: DatabaseServer) -> None:
    """MR-5006 while the tables are in a file that may not grow, and somebody else has filled it."""
    name, server = "full", mortal_mysql
    server.execute("SET GLOBAL innodb_file_per_table = OFF")
    _create_tables(server, name)
    server.execute("CREATE TABLE wide (id INT PRIMARY KEY, v LONGBLOB)", db=name)
    server.execute("CREATE TABLE filler (v LONGBLOB)", db=name)
    with suppress(pymysql.Error):  # 1114: the table is full
        while True:
            server.execute("INSERT INTO filler (v) VALUES (REPEAT('x', 1048576))", db=name)
    task = _supervised(endpoint_of(server), name)
    stream = task.stream
    wide = table(name, "wide", integer("id"), Column("v", ColumnType(TypeCode.BLOB, 4), True))
    stream.insert(wide, {"id": 1, "v": b"x" * (3 << 20)})
    stream.commit()
    _refused(task, Retryable, "MR-5006")
    server.execute("DROP TABLE filler", db=name)
    task.run()
    _check(server, name)
    assert server.execute(f"SELECT LENGTH(v) FROM {name}.wide") == [(3 << 20,)]


# ---- what the target's tables refuse --------------------------------------------------------------


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        ("note VARCHAR(5)", "note VARCHAR(20)"),
        ("note INT", "note VARCHAR(20)"),
        ("note DATETIME", "note VARCHAR(20)"),
        ("note VARCHAR(20) CHECK (note <> 'canary-7h3k')", "note VARCHAR(20)"),
        ("note ENUM('x')", "note VARCHAR(20)"),
    ],
    ids=["too long", "no number", "no time", "checked", "no member"],
)
@pytest.mark.parametrize("is_large", [True, False], ids=["lanes", "one lane"])
def test_refused_value_blocks_and_the_error_hides_it(
    name: str, target_server: DatabaseServer, narrow: str, wide: str, *, is_large: bool
) -> None:
    """MR-5011 with table, key and seq, without the value; when the column is mended it goes on, nothing twice."""
    target_server.execute(f"ALTER TABLE b DROP COLUMN note, ADD COLUMN {narrow}", db=name)
    task = _supervised(endpoint_of(target_server), name, is_large=is_large)
    failure = _refused(task, Fatal, "MR-5011")
    assert failure.context["table"] == f"{name}.b"
    assert failure.context["key"] == "0"
    assert int(failure.context["seq"]) > 0
    target_server.execute(f"ALTER TABLE b DROP COLUMN note, ADD COLUMN {wide}", db=name)
    task.run()
    _check(target_server, name)
