"""A target refuses apply: read-only mode, no free connection, a full disk, refused values. Real servers, both flavours.

Each error has its code. Apply continues after the cause is fixed, and no row is lost or applied twice.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import pymysql
import pytest

from millrace.consumer.write import target_transaction
from millrace.deploy.servers import Account, DatabaseServer, ServerOptions, sql
from millrace.drivers.mysql.connection import Endpoint, MySqlSession, connect
from millrace.errors import Fatal, Retryable
from millrace.schemas.documents import Tls, TlsMode
from millrace.schemas.gtid import Flavour
from millrace.schemas.table.structure import Column, ColumnType, TypeCode
from tests.fixtures.servers import NewServer
from tests.kit.apply.fault_tables import (
    assert_refused,
    check_rows,
    create_tables,
    supervised,
    tables_on,
)
from tests.kit.apply.local import endpoint_of
from tests.kit.apply.tables import integer, table
from tests.kit.waiting import eventually

PLAIN = Account("plain", "plain-secret")  # no SUPER, nor MariaDB's privileges in its place
PLAIN_PRIVILEGES = "SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, REFERENCES, PROCESS"


@pytest.fixture
def name(target_server: DatabaseServer) -> Iterator[str]:
    """A database with the tables, and a task of this name."""
    with tables_on(target_server) as made:
        yield made


def _plain(server: DatabaseServer) -> Endpoint:
    """A login to which the server's modes and limits apply."""
    server.execute(f"CREATE USER IF NOT EXISTS {PLAIN.user} IDENTIFIED BY '{PLAIN.password}'")
    server.execute(f"GRANT {PLAIN_PRIVILEGES} ON *.* TO {PLAIN.user}")
    tls = Tls(TlsMode.REQUIRE_UNVERIFIED)
    return Endpoint(server.host, server.port, PLAIN.user, PLAIN.password, tls)


def test_read_only_target_is_retried(name: str, target_server: DatabaseServer) -> None:
    """Before a start and in the middle of a batch; ``super_read_only`` (MySQL) includes root."""
    task = supervised(_plain(target_server), name)
    modes = (
        ["read_only", "super_read_only"]
        if target_server.flavour is Flavour.MYSQL
        else ["read_only"]
    )
    for mode in modes:
        target_server.execute(f"SET GLOBAL {mode} = ON")
        try:
            assert_refused(task, Retryable, "MR-5003")
        finally:
            target_server.execute("SET GLOBAL read_only = OFF")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            target_transaction,
            "fault_point",
            _Once(lambda: target_server.execute("SET GLOBAL read_only = ON")),
        )
        try:
            assert_refused(task, Retryable, "MR-5003")
        finally:
            target_server.execute("SET GLOBAL read_only = OFF")
    task.run()
    check_rows(target_server, name)


class _Once:
    """Calls ``act`` the first time that a lane has committed."""

    def __init__(
        self, act: Callable[[], object], point: str = target_transaction.AFTER_LANE_COMMIT
    ) -> None:
        self._act, self._point, self.done = act, point, False

    def __call__(self, point: str) -> None:
        if point == self._point and not self.done:
            self.done = True
            self._act()


def test_target_without_free_connections_is_retried(
    name: str, target_server: DatabaseServer
) -> None:
    """Others hold all connections at the start; later the account reaches its own limit in the middle."""
    task = supervised(_plain(target_server), name)
    ((before,),) = target_server.execute("SELECT @@max_connections")
    others: list[MySqlSession] = []
    with sql.root_connection(target_server.socket) as root, root.cursor() as cursor:
        _end_other_connections(cursor)
        cursor.execute("SET GLOBAL max_connections = 10")
        try:
            eventually(
                lambda: _are_all_connections_taken(cursor, task.endpoint, others),
                what="none is left",
            )
            assert_refused(task, Retryable, "MR-5004")
        finally:  # on an open connection: a closed one may count for a while
            cursor.execute(f"SET GLOBAL max_connections = {before}")
            for other in others:
                other.close()

    def is_large(_: int) -> bool:
        """Called after the start and before a lane: another client takes the connection that the start released."""
        eventually(lambda: _connects(task.endpoint, others), what="another takes the connection")
        return True

    others.clear()
    target_server.execute(f"ALTER USER {PLAIN.user} WITH MAX_USER_CONNECTIONS 1")
    try:
        assert_refused(replace(task, is_large=is_large), Retryable, "MR-5004")
    finally:
        target_server.execute(f"ALTER USER {PLAIN.user} WITH MAX_USER_CONNECTIONS 0")
        others.pop().close()
    task.run()
    check_rows(target_server, name)


def _end_other_connections(cursor: pymysql.cursors.Cursor) -> None:
    """Processes of other tests, such as Spark's Python workers, keep idle connections to a shared server."""
    cursor.execute(
        "SELECT ID FROM information_schema.PROCESSLIST"
        " WHERE ID <> CONNECTION_ID() AND USER NOT IN ('system user', 'event_scheduler')"
    )
    for (number,) in cursor.fetchall():
        with suppress(pymysql.Error):  # it has just closed
            cursor.execute(f"KILL {number}")


def _are_all_connections_taken(
    cursor: pymysql.cursors.Cursor, endpoint: Endpoint, others: list[MySqlSession]
) -> bool:
    """Whether only root and ``others`` are connected; a connection closed before may count for a while."""
    while _connects(endpoint, others):
        pass
    cursor.execute("SHOW GLOBAL STATUS LIKE 'Threads_connected'")
    ((_, connected),) = cursor.fetchall()
    return int(str(connected)) == len(others) + 1


def _connects(endpoint: Endpoint, others: list[MySqlSession]) -> bool:
    try:
        others.append(connect(endpoint))
    except Retryable:
        return False
    return True


@pytest.fixture
def small_mysql(new_server: NewServer) -> DatabaseServer:
    """A MySQL whose system tablespace has 24 MB; MariaDB 11.4 ends itself when that is full."""
    room = ServerOptions(extra=("--innodb-data-file-path=ibdata1:12M:autoextend:max:24M",))
    return new_server(Flavour.MYSQL, options=room)


def test_full_target_tablespace_is_retried(small_mysql: DatabaseServer) -> None:
    """MR-5006 while another table fills a tablespace that must not grow."""
    name, server = "full", small_mysql
    server.execute("SET GLOBAL innodb_file_per_table = OFF")
    create_tables(server, name)
    server.execute("CREATE TABLE wide (id INT PRIMARY KEY, v LONGBLOB)", db=name)
    server.execute("CREATE TABLE filler (v LONGBLOB)", db=name)
    with suppress(pymysql.Error):  # 1114: the table is full
        while True:
            server.execute("INSERT INTO filler (v) VALUES (REPEAT('x', 1048576))", db=name)
    task = supervised(endpoint_of(server), name)
    stream = task.stream
    wide = table(name, "wide", integer("id"), Column("v", ColumnType(TypeCode.BLOB, 4), True))
    stream.insert(wide, {"id": 1, "v": b"x" * (3 << 20)})
    stream.commit()
    assert_refused(task, Retryable, "MR-5006")
    server.execute("DROP TABLE filler", db=name)
    task.run()
    check_rows(server, name)
    assert server.execute(f"SELECT LENGTH(v) FROM {name}.wide") == [(3 << 20,)]


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
    """MR-5011 names table, key and seq, but not the value; apply continues after the column is fixed."""
    target_server.execute(f"ALTER TABLE b DROP COLUMN note, ADD COLUMN {narrow}", db=name)
    task = supervised(endpoint_of(target_server), name, is_large=is_large)
    failure = assert_refused(task, Fatal, "MR-5011")
    assert failure.context["table"] == f"{name}.b"
    assert failure.context["key"] == "0"
    assert int(failure.context["seq"]) > 0
    target_server.execute(f"ALTER TABLE b DROP COLUMN note, ADD COLUMN {wide}", db=name)
    task.run()
    check_rows(target_server, name)
