"""Whatever a target server does to apply: locks, limits, modes, restarts, refusals. Real ones, on both flavours.

Each is told with its code; nothing is lost, nothing is there twice, and it goes on when the cause is mended.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count

import pymysql
import pytest

from consumer import executor
from consumer.target import connection as connections
from consumer.target.connection import Endpoint, TargetConnection, TlsChoice, connect
from consumer.writer import RowWriter
from deploy.servers import Account, DatabaseServer, ServerOptions, sql
from millrace.errors import Fatal, MillraceError, Retryable
from schemas.gtid import Flavour
from schemas.table import Column, ColumnType, TypeCode
from tests.apply_faults import Supervised
from tests.apply_local import apply_task, endpoint_of
from tests.apply_tables import integer, table, text
from tests.apply_topic import RecordStream
from tests.fix_servers import FLAVOURS, NewServer
from tests.waiting import eventually

PLAIN = Account("plain", "plain-secret")  # no SUPER, nor what MariaDB has instead of it
PLAIN_PRIVILEGES = "SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, REFERENCES, PROCESS"
ROWS = 20
CANARY = "canary-7h3k"

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
        thread.join(60)
        if failures:
            raise failures[0]


INNODB_LOOK_S = 0.15  # what INNODB_TRX says stays the same while it is read within 0.1 s again


def _is_waiting(server: DatabaseServer) -> bool:
    waiting = "SELECT 1 FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT'"
    return bool(server.execute(waiting))


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


def test_a_deadlock_is_tried_again_at_once(
    name: str, target_server: DatabaseServer, settled: list[RowWriter]
) -> None:
    """Somebody else waits for our row while we wait for his: we are the victim, and lose nothing."""
    task = _supervised(endpoint_of(target_server), name, is_large=False)
    with _session(target_server, name) as other:
        heavy = ", ".join(f"({number})" for number in range(-500, 0))
        other.query(f"INSERT INTO bag VALUES {heavy}")  # the victim is who has written less
        other.query("INSERT INTO b VALUES (5, 0, '')")
        with _in_thread(task.run_once):
            eventually(
                lambda: _is_waiting(target_server),
                every_s=INNODB_LOOK_S,
                what="apply waits for a row of b",
            )
            other.query("INSERT INTO a VALUES (5, 0, '')")
            eventually(lambda: len(settled) == 1, what="apply is the victim")
            other.rollback()
    assert task.codes == []
    _check(target_server, name)


def test_a_lock_that_is_held_too_long_is_told_and_waited_for(
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


@pytest.mark.parametrize(
    "lock", ["LOCK TABLES b READ", "FLUSH TABLES WITH READ LOCK"], ids=["table", "backup"]
)
def test_a_locked_table_or_server_is_told_and_waited_for(
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


def test_a_read_only_target_is_waited_for(name: str, target_server: DatabaseServer) -> None:
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


def test_a_target_without_a_connection_left_is_waited_for(
    name: str, target_server: DatabaseServer
) -> None:
    """Others have them all, at the start; or the account has all it may, in the middle."""
    task = _supervised(_plain(target_server), name)
    ((before,),) = target_server.execute("SELECT @@max_connections")
    others: list[TargetConnection] = []
    with sql.root_connection(target_server.socket) as root, root.cursor() as cursor:
        cursor.execute("SET GLOBAL max_connections = 10")
        try:
            with suppress(Retryable):
                while True:
                    others.append(connect(task.endpoint))
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


def _connects(endpoint: Endpoint, others: list[TargetConnection]) -> bool:
    try:
        others.append(connect(endpoint))
    except Retryable:
        return False
    return True


# ---- the server goes away -------------------------------------------------------------------------


@pytest.mark.parametrize("flavour", FLAVOURS, ids=str)
def test_a_target_that_is_restarted_or_full_is_waited_for(
    new_server: NewServer, flavour: Flavour
) -> None:
    """In a lane, at its commit: a clean restart, a kill, no room for the rows, a server that only reads."""
    room = ServerOptions(extra=("--innodb-data-file-path=ibdata1:12M:autoextend:max:24M",))
    server = new_server(flavour, options=room)
    for number, point in enumerate((executor.BEFORE_LANE_COMMIT, executor.AFTER_LANE_COMMIT)):
        name = f"away{number}"
        _create_tables(server, name)
        task = _supervised(endpoint_of(server), name)
        end = server.kill if number else server.stop
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(executor, "fault_point", _Once(end, point))
            _refused(task, Retryable, "MR-5001")
        _refused(task, Retryable, "MR-5001")
        server.start()
        task.run()
        _check(server, name)
    if flavour is Flavour.MYSQL:  # MariaDB 11.4 ends itself when this file of its own is full
        _is_full(server)


def _is_full(server: DatabaseServer) -> None:
    """The tables are in a file that may not grow, and somebody else has filled it."""
    name = "full"
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
def test_a_value_that_the_target_refuses_blocks_names_the_row_and_is_not_told(
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
