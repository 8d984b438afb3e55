"""Errors that real servers provoke and that no other test provokes; see ``tests.kit.provocations``."""

import socket
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count

import pymysql
import pytest

from millrace.cli import control
from millrace.consumer.target.intents import decide_intent
from millrace.consumer.target.progress import move_mark
from millrace.deploy.servers import DatabaseServer
from millrace.deploy.servers.sql import execute_unlogged
from millrace.drivers.mysql.catalog import read_inventory
from millrace.drivers.mysql.connection import Endpoint, MySqlSession, connect
from millrace.drivers.mysql.primary import primary_member
from millrace.errors import Fatal, MillraceError, Retryable
from millrace.producer.source.connection import Login, connect_member
from millrace.schemas.documents import (
    Account,
    Member,
    SecretPlace,
    SecretReference,
    SetDocument,
    Tls,
    TlsMode,
)
from millrace.schemas.gtid import Flavour
from millrace.zk.lease.lease import acquire
from tests.fixtures.dump import NAME, Dump, end_of, rotate_to
from tests.fixtures.shell import CAPTURE, SHOP, Shell
from tests.kit.apply.local import LocalRecords, apply_task, endpoint_of, ignore, run_once, started
from tests.kit.apply.tables import integer, table, text
from tests.kit.apply.topic import RecordStream
from tests.kit.binlog.plain_files import BinlogFile, packet
from tests.kit.binlog.session import logged
from tests.kit.relay.relay import login_of, member_of

_names = count(1)


@pytest.fixture
def name(target_server: DatabaseServer) -> Iterator[str]:
    """Name of a database and task; the database has ``t (id INT PRIMARY KEY, v VARCHAR(20))``."""
    made = f"provoked{next(_names)}"
    target_server.execute(f"CREATE DATABASE {made} DEFAULT CHARSET utf8mb4")
    target_server.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))", db=made)
    yield made
    target_server.execute(f"DROP DATABASE IF EXISTS {made}")


def code_of(do: Callable[[], object]) -> str:
    """The code of the error that it raises."""
    with pytest.raises(MillraceError) as caught:
        do()
    assert caught.value.fix
    return caught.value.code


# ---- source ----------------------------------------------------------------------------------------


def test_query_unknown_to_the_server_is_reported(mariadb_server: DatabaseServer) -> None:
    """MR-1007 names the member, the error number and the server's message."""
    with (
        connect_member(member_of(mariadb_server), login_of(mariadb_server)) as connection,
        pytest.raises(Fatal) as caught,
    ):
        connection.query("SELECT no_such_function_of_ours()")
    assert caught.value.code == "MR-1007"
    assert caught.value.context["member"] == str(member_of(mariadb_server))
    assert "no_such_function_of_ours" in caught.value.message


def test_password_that_needs_tls_is_reported(mysql_server: DatabaseServer) -> None:
    """MR-1008: caching_sha2_password without TLS needs RSA, which the driver has only with an extra package."""
    mysql_server.execute("CREATE USER IF NOT EXISTS 'plain'@'%' IDENTIFIED BY 'plain-secret'")
    login = Login(user="plain", password="plain-secret", tls=Tls(TlsMode.DISABLED))
    with pytest.raises(Fatal) as caught:
        connect_member(member_of(mysql_server), login).close()
    assert caught.value.code == "MR-1008"
    assert "plain-secret" not in str(caught.value)


@contextmanager
def _without_tls() -> Iterator[tuple[int, list[bytes]]]:
    """A server with MySQL's greeting and without TLS; yields its port and what clients sent it."""
    capabilities = 512 | 1 << 15 | 1 << 19  # protocol 4.1 and plug-in authentication; not 2048, TLS
    greeting = b"\x0a9.9.9\0" + struct.pack("<I", 7) + b"12345678\0"
    greeting += struct.pack("<HBHHB", capabilities & 0xFFFF, 45, 2, capabilities >> 16, 21)
    greeting += bytes(10) + b"123456789012\0mysql_native_password\0"
    heard: list[bytes] = []

    def greet() -> None:
        try:
            connection, _ = listening.accept()
        except OSError:  # no client connected
            return
        with connection:
            connection.sendall(packet(greeting, 0))
            heard.append(connection.recv(100))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=greet)
        thread.start()
        try:
            yield listening.getsockname()[1], heard
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(60)


@pytest.mark.parametrize("side", ["source", "target"])
def test_no_account_name_is_sent_without_required_tls(side: str) -> None:
    """MR-1004 and MR-5009: when the document requires TLS, not even the user name is sent in plain text."""
    login = Login(user="someone", password="secret", tls=Tls(TlsMode.REQUIRE_UNVERIFIED))
    with _without_tls() as (port, heard):
        if side == "source":
            member = Member("127.0.0.1", port)
            assert code_of(lambda: connect_member(member, login)) == "MR-1004"
        else:
            tls = Tls(TlsMode.REQUIRE_UNVERIFIED)
            endpoint = Endpoint("127.0.0.1", port, "someone", "secret", tls)
            assert code_of(lambda: connect(endpoint)) == "MR-5009"
    assert heard == [b""]


def _wrong_checksum(event: bytes) -> bytes:
    return event[:-1] + bytes([event[-1] ^ 1])


def _wrong_position(event: bytes) -> bytes:
    head = event[:13] + struct.pack("<I", 77) + event[17:-4]
    return head + struct.pack("<I", zlib.crc32(head))


@pytest.mark.parametrize(
    ("spoil", "kind", "code"),
    [(_wrong_checksum, Retryable, "MR-2006"), (_wrong_position, Fatal, "MR-2007")],
)
def test_damaged_dump_event_is_reported_with_file_and_position(
    dump: Dump, spoil: Callable[[bytes], bytes], kind: type[MillraceError], code: str
) -> None:
    """After a wrong checksum or a wrong position nothing of the event is kept."""
    file = BinlogFile().transaction()
    thread = dump.start()
    dump.send(rotate_to(NAME), *file.events[:-1], spoil(file.events[-1]))
    error = end_of(dump, thread)
    assert (type(error), error.code) == (kind, code)
    assert error.context["file"] == NAME
    assert int(error.context["pos"]) > 4
    end = dump.relay.end()
    assert end is not None
    assert end.pos < len(file.data)


def test_two_phase_alter_is_refused(mariadb_server: DatabaseServer) -> None:
    """MR-6513, from the flags of its GTID event: both phases hold the statement, which would be applied twice."""
    with logged(mariadb_server, "two_phases") as source:
        source.run(
            "CREATE TABLE t (id INT PRIMARY KEY)",
            "SET SESSION binlog_alter_two_phase=ON",
            "ALTER TABLE t ADD v INT",
            "SET SESSION binlog_alter_two_phase=OFF",
        )
        with pytest.raises(Fatal) as caught:
            source.conversion().records()
    assert caught.value.code == "MR-6513"
    assert source.file in caught.value.context["coordinates"]


def test_table_named_like_an_alter_phase_is_captured(mariadb_server: DatabaseServer) -> None:
    """Only the event's flags count, not the statement's text."""
    with logged(mariadb_server, "one_phase") as source:
        source.run("CREATE TABLE `START ALTER` (id INT PRIMARY KEY)")
        assert len(source.conversion().records()) == 2


# ---- target ----------------------------------------------------------------------------------------


@contextmanager
def _session(server: DatabaseServer, endpoint: Endpoint | None = None) -> Iterator[MySqlSession]:
    session = connect(endpoint or endpoint_of(server))
    yield session
    session.close()


def _account(server: DatabaseServer, name: str, *grants: str) -> Endpoint:
    server.execute(f"DROP USER IF EXISTS '{name}'@'%'")
    server.execute(f"CREATE USER '{name}'@'%' IDENTIFIED BY 'poor-secret'")
    for grant in grants:
        server.execute(f"{grant} '{name}'@'%'")
    return replace(endpoint_of(server), user=name, password="poor-secret")


def test_refusal_by_the_target_is_reported_with_its_reason(
    name: str, target_server: DatabaseServer
) -> None:
    """The server itself refuses the account, a privilege or a connection."""
    wrong = replace(endpoint_of(target_server), password="wrong-secret")
    assert code_of(lambda: connect(wrong)) == "MR-5002"
    poor = _account(target_server, "poor")
    with _session(target_server, poor) as session:
        assert code_of(lambda: session.query(f"SELECT * FROM {name}.t")) == "MR-5007"
        with pytest.raises(Fatal, match="MR-5007") as closed:  # error 1044: the login succeeded
            session.query("CREATE DATABASE closed_to_poor")
        target_server.execute(closed.value.fix.partition(" (In all")[0])
        session.query("CREATE DATABASE closed_to_poor")
        session.query("DROP DATABASE closed_to_poor")
    narrow = _account(target_server, "narrow", "GRANT USAGE ON *.* TO")
    target_server.execute("ALTER USER 'narrow'@'%' WITH MAX_USER_CONNECTIONS 1")
    with _session(target_server, narrow):
        assert code_of(lambda: connect(narrow)) == "MR-5004"
    for choice in (Tls(TlsMode.VERIFY_IDENTITY), Tls(TlsMode.VERIFY_CA, "/no/such/file.pem")):
        unverified = replace(endpoint_of(target_server), tls=choice)
        assert code_of(lambda unverified=unverified: connect(unverified)) == "MR-5009"  # type: ignore[misc]
    unreachable = replace(endpoint_of(target_server), port=1)
    assert code_of(lambda: connect(unreachable)) == "MR-5001"


def test_suggested_grant_is_accepted_by_the_server(
    name: str, target_server: DatabaseServer
) -> None:
    """The suggested statement works as printed, also for another host, for SHOW and for a missing table."""
    run, account = target_server.execute, "'mrt'@'127.%'"
    run(f"DROP USER IF EXISTS {account}")
    run(f"CREATE USER {account} IDENTIFIED BY 'mrt-secret'")
    mrt = replace(endpoint_of(target_server), user="mrt", password="mrt-secret")
    grants = []
    statements = ["CREATE DATABASE of_mrt", "SHOW BINARY LOGS"]
    if target_server.flavour is Flavour.MARIADB:  # MySQL does not name the table's database
        statements += [f"SHOW CREATE TABLE {name}.t", f"DROP TABLE IF EXISTS {name}.nowhere"]
    try:
        for statement in statements:
            with _session(target_server, mrt) as session, pytest.raises(Fatal) as refused:
                session.query(statement)
            assert refused.value.code == "MR-5007", statement
            grants.append(refused.value.fix.partition(" (In all")[0])
            run(grants[-1])
            with _session(target_server, mrt) as session:
                session.query(statement)
    finally:
        run("DROP DATABASE IF EXISTS of_mrt")
        run(f"DROP USER {account}")
    assert all(grant.endswith(" TO `mrt`@`127.%`;") for grant in grants)


def _set_of(server: DatabaseServer) -> SetDocument:
    password = SecretReference(SecretPlace.ENVIRONMENT, "MILLRACE_TEST_PASSWORD")
    return SetDocument(
        name="target",
        members=(Member(server.host, server.port),),
        account=Account(server.user, password),
        tls=Tls(TlsMode.REQUIRE_UNVERIFIED),
    )


def test_read_only_target_is_not_a_primary(
    target_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MR-5003 is retryable: a failover takes a moment."""
    monkeypatch.setenv("MILLRACE_TEST_PASSWORD", target_server.password)
    assert primary_member(_set_of(target_server)).port == target_server.port
    target_server.execute("SET GLOBAL read_only = 1")
    try:
        assert code_of(lambda: primary_member(_set_of(target_server))) == "MR-5003"
    finally:
        target_server.execute("SET GLOBAL read_only = 0")


def test_full_or_locked_target_table_is_retried(name: str, target_server: DatabaseServer) -> None:
    """A full table, and a row that another session has locked."""
    with _session(target_server) as one, _session(target_server) as other:
        one.query("SET SESSION max_heap_table_size = 16384")
        one.query(f"CREATE TABLE {name}.full (v CHAR(250)) ENGINE=MEMORY")
        fill = f"INSERT INTO {name}.full VALUES " + ",".join(["('x')"] * 2000)
        assert code_of(lambda: one.query(fill)) == "MR-5006"
        one.query(f"INSERT INTO {name}.t VALUES (1, 'x')")
        other.query("SET SESSION innodb_lock_wait_timeout = 1")
        assert code_of(lambda: other.query(f"INSERT INTO {name}.t VALUES (1, 'y')")) == "MR-5005"
        one.rollback()


def test_row_that_does_not_fit_the_target_blocks_the_task(
    name: str, target_server: DatabaseServer
) -> None:
    """A narrower column and a missing column or table: none is skipped, each is named."""
    stream = RecordStream()
    wide = table(name, "t", integer("id"), text("v", 2000))
    stream.insert(wide, {"id": 1, "v": "x" * 30})
    stream.commit()
    with pytest.raises(Fatal) as caught:
        run_once(target_server, apply_task(name), stream)
    assert caught.value.code == "MR-5011"
    assert caught.value.context["table"] == f"{name}.t"
    assert caught.value.context["key"] == "1"
    assert caught.value.context["seq"] == "1"

    target_server.execute("ALTER TABLE t DROP COLUMN v", db=name)
    with pytest.raises(Fatal) as caught:
        run_once(target_server, apply_task(name), stream)
    assert caught.value.code == "MR-5013"
    assert caught.value.context["column"] == "v"

    target_server.execute("DROP TABLE t", db=name)
    with pytest.raises(Fatal) as caught:
        run_once(target_server, apply_task(name), stream)
    assert caught.value.code == "MR-5012"
    assert caught.value.context["table"] == f"{name}.t"


@pytest.mark.parametrize("is_large", [True, False], ids=["lanes", "one lane"])
def test_nontransactional_target_table_gets_no_row(
    name: str, target_server: DatabaseServer, *, is_large: bool
) -> None:
    """The second row does not fit: in MyISAM the first would remain, and each retry would add it again."""
    stream = RecordStream()
    stream.ddl("CREATE TABLE notes (n INT) ENGINE=MyISAM", database=name)
    stream.insert(table(name, "notes", integer("n", nullable=True), key=()), {"n": 1})
    stream.insert(table(name, "t", integer("id"), text("v", 2000)), {"id": 1, "v": "x" * 30})
    stream.commit()
    with pytest.raises(Fatal) as caught:
        run_once(target_server, apply_task(name), stream, is_large=is_large)
    left = target_server.execute(f"SELECT n FROM {name}.notes")
    assert left == [], "a row is left after the rollback"
    assert caught.value.code == "MR-5015"
    assert caught.value.context["table"] == f"{name}.notes"
    target_server.execute("ALTER TABLE t MODIFY v VARCHAR(2000)", db=name)
    target_server.execute(caught.value.fix.partition(" on the target")[0])
    run_once(target_server, apply_task(name), stream, is_large=is_large)
    assert target_server.execute(f"SELECT n FROM {name}.notes") == [(1,)]


def test_known_engine_properties_match_the_server(name: str, target_server: DatabaseServer) -> None:
    """Covers every engine whose tables need no special options; a partitioned table has its partitions' engine."""
    for engine in ("InnoDB", "MyISAM", "MEMORY", "CSV", "ARCHIVE", "BLACKHOLE", "Aria"):
        with suppress(pymysql.Error):  # not every server has all engines
            target_server.execute(
                f"CREATE TABLE {engine} (n INT NOT NULL) ENGINE={engine}", db=name
            )
    target_server.execute(
        "CREATE TABLE parts (id INT PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 2", db=name
    )
    with _session(target_server) as session:
        found = read_inventory(session).tables.values()
    tables = [made for made in found if made.database == name]
    assert {made.table for made in tables if made.rolls_back} == {"t", "InnoDB", "parts"}
    assert {"MyISAM", "MEMORY", "CSV"} <= {made.table for made in tables if not made.rolls_back}


def test_row_too_large_for_the_target_is_reported_with_size(
    name: str, target_server: DatabaseServer
) -> None:
    """MR-5014, before the row is sent."""
    target_server.execute("ALTER TABLE t MODIFY v LONGTEXT", db=name)
    ((before,),) = target_server.execute("SELECT @@GLOBAL.max_allowed_packet")
    target_server.execute("SET GLOBAL max_allowed_packet = 65536")
    stream = RecordStream()
    stream.insert(table(name, "t", integer("id"), text("v", 16_000)), {"id": 1, "v": "x" * 70_000})
    stream.commit()
    try:
        with pytest.raises(Fatal) as caught:
            run_once(target_server, apply_task(name), stream)
    finally:
        target_server.execute(f"SET GLOBAL max_allowed_packet = {before}")
    assert caught.value.code == "MR-5014"
    assert "max_allowed_packet is 65536" in caught.value.message
    assert caught.value.context["table"] == f"{name}.t"


def test_tampered_progress_stops_the_run(name: str, target_server: DatabaseServer) -> None:
    """The mark moves while a turn is under way, or belongs to another topic."""
    stream = RecordStream()
    stream.insert(table(name, "t", integer("id"), text("v")), {"id": 1, "v": "x"})
    stream.commit()
    task = apply_task(name)
    applier = started(target_server, task)
    tamper = "UPDATE millrace.progress SET seq = 9 WHERE task = %s"
    records = LocalRecords(
        stream.values, is_large=False, begun=lambda: target_server.execute(tamper, (name,))
    )
    assert code_of(lambda: applier.process(records, ignore)) == "MR-5021"
    applier.close()
    with _session(target_server) as session:
        mark = applier.mark
        assert code_of(lambda: move_mark(session, name, before=mark, after=mark)) == "MR-5021"
    target_server.execute("UPDATE millrace.progress SET topic = 'other' WHERE task = %s", (name,))
    assert code_of(lambda: started(target_server, task)) == "MR-5022"


def test_seq_gap_before_a_statement_blocks_the_task(
    name: str, target_server: DatabaseServer
) -> None:
    """A statement's seq must follow that of the row before it; otherwise records are missing."""
    made = table(name, "t", integer("id"), text("v"))
    stream = RecordStream()
    stream.insert(made, {"id": 1, "v": "x"})
    stream.seq += 3
    stream.ddl("ALTER TABLE t ADD w INT", database=name)
    with pytest.raises(Fatal) as caught:
        run_once(target_server, apply_task(name), stream)
    assert caught.value.code == "MR-5030"
    assert int(caught.value.context["offset"]) == len(stream.values) - 2


def test_foreign_record_in_the_topic_is_reported_with_offset(
    name: str, target_server: DatabaseServer
) -> None:
    """A foreign value, and an unknown schema ID."""
    made = table(name, "t", integer("id"), text("v"))
    stream = RecordStream()
    stream.insert(made, {"id": 1, "v": "x"})
    foreign = RecordStream(values=[*stream.values, b"hello world"])
    with pytest.raises(Fatal) as caught:
        run_once(target_server, apply_task(name), foreign)
    assert caught.value.code == "MR-5032"
    assert caught.value.context["offset"] == str(len(stream.values))
    unexplained = RecordStream(values=stream.values[1:])
    with pytest.raises(Fatal) as caught:
        run_once(target_server, apply_task(f"{name}-2"), unexplained)
    assert caught.value.code == "MR-5033"
    assert caught.value.context["schema_id"] == "100"
    assert caught.value.context["offset"] == "0"


def test_decision_on_a_statement_that_is_not_waiting_fails(
    name: str, target_server: DatabaseServer
) -> None:
    """MR-5043 with task and seq."""
    started(target_server, apply_task(name)).close()
    with _session(target_server) as session:
        assert code_of(lambda: decide_intent(session, name, seq=7, decision="done")) == "MR-5043"


def test_safe_mode_until_a_foreign_gtid_set_is_refused(
    name: str, target_server: DatabaseServer
) -> None:
    """MR-5008: the range has GTIDs of MariaDB, the topic those of MySQL."""
    stream = RecordStream()
    stream.commit()
    run_once(target_server, apply_task(name), stream)
    stream.commit()
    task = apply_task(name, safe_until="0-1-5")
    assert code_of(lambda: run_once(target_server, task, stream)) == "MR-5008"


# ---- commands, local servers -----------------------------------------------------------------------


def test_task_that_does_not_stop_is_reported(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """`pause` and `delete` wait for the owner to release the task, with a deadline."""
    monkeypatch.setattr(control, "STOP_TIMEOUT_S", 0.3)
    shell("set", "create", "-f", shell.file(SHOP))
    shell("task", "create", "-f", shell.file(CAPTURE))
    with shell.ensemble.session() as session:
        acquire(session, shell.ensemble.tree, task="shop-capture", worker="w1")
        for word in ("pause", "delete"):
            output = shell("task", word, "shop-capture", exit_code=3)
            assert output.startswith("MR-4013 ")


def test_commands_for_apply_tasks_refuse_a_capture_task(shell: Shell) -> None:
    """`compare` has no target to compare with, and `ddl` no waiting statement."""
    shell("set", "create", "-f", shell.file(SHOP))
    shell("task", "create", "-f", shell.file(CAPTURE))
    output = shell("compare", "shop-capture", "--now", exit_code=4)
    assert output.startswith("MR-5060 ")
    output = shell("ddl", "skip", "shop-capture", "1", exit_code=4)
    assert output.startswith("MR-5043 ")


def test_refused_setup_statement_is_named(mariadb_server: DatabaseServer) -> None:
    """MR-8007 with the statement's first words."""
    with pytest.raises(Fatal) as caught:
        execute_unlogged(mariadb_server.socket, ["CREATE NONSENSE here and there"])
    assert caught.value.code == "MR-8007"
    assert "CREATE NONSENSE here" in caught.value.message
