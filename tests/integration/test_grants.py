"""`millrace grants print`: the printed grants suffice, and each privilege is needed, on both flavours."""

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pymysql
import pytest

from millrace.consumer.compare import Ends, compare_sets
from millrace.consumer.task.start import take_over
from millrace.deploy.servers import Account, DatabaseServer
from millrace.drivers.mysql.catalog import read_triggers
from millrace.drivers.mysql.connection import Endpoint, connect
from millrace.drivers.mysql.grants import META_DATABASE, Grant, Role, held_grants, needed_grants
from millrace.errors import Fatal, MillraceError
from millrace.producer.snapshot.chunk_read import MemberSession, ReadChunk
from millrace.producer.source.choose.choice import choose
from millrace.producer.source.choose.chooser import ask_members
from millrace.producer.source.choose.judge import Look
from millrace.producer.source.choose.probe import Pulse
from millrace.producer.source.connection import Login
from millrace.producer.source.heartbeat import Heartbeat
from millrace.schemas.documents import Account as SetAccount
from millrace.schemas.documents import (
    HeartbeatRules,
    SecretPlace,
    SecretReference,
    SetDocument,
    TableFilter,
)
from millrace.schemas.gtid import Flavour
from millrace.schemas.record.control import Origin
from millrace.schemas.snapshot import Name
from tests.fixtures.shell import Shell
from tests.kit.apply.faults import Supervised
from tests.kit.apply.granted import privileged_stream
from tests.kit.apply.local import apply_task, endpoint_of
from tests.kit.capture.snapshot_rows import request_for
from tests.kit.relay.relay import UNVERIFIED, member_of, position_of, receiving
from tests.kit.waiting import eventually

USER, PASSWORD = "least", "least-secret"
DATABASE, BEATS = "least_shop", "least_ops"
TASK = "least-task"


def grant(
    server: DatabaseServer, grants: tuple[Grant, ...], *, but: str = "", on: str = ""
) -> None:
    """Create the account with these grants, without the privilege ``but`` of the scope ``on``."""
    server.execute(f"DROP USER IF EXISTS {USER}")
    server.execute(f"CREATE USER {USER} IDENTIFIED BY '{PASSWORD}'")
    for one in grants:
        kept = tuple(name for name in one.privileges if (name, one.scope) != (but, on))
        if kept:
            server.execute(replace(one, privileges=kept).sql(USER).rstrip(";"))


@pytest.fixture(params=["target_server"])
def server(target_server: DatabaseServer) -> Iterator[DatabaseServer]:
    """Drops the account, its databases and its procedure after the test."""
    yield target_server
    forget(target_server)
    with suppress(pymysql.MySQLError):  # if no test has created the database
        target_server.execute("DROP PROCEDURE IF EXISTS millrace.wait_for_gtid")
    target_server.execute(f"DROP DATABASE IF EXISTS {BEATS}")
    target_server.execute(f"DROP USER IF EXISTS {USER}")


def forget(server: DatabaseServer) -> None:
    """Drop the database that the topic creates."""
    server.execute(f"DROP DATABASE IF EXISTS {DATABASE}")


def refused(code: str, run: Callable[[], object]) -> None:
    """The server refuses the statement, and the error has the code."""
    with pytest.raises(Fatal) as caught:
        run()
    assert caught.value.code == code, caught.value


def test_each_source_privilege_is_needed_and_together_they_suffice(
    server: DatabaseServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without one, the choice or the dump fails with MR-1005; with all, the binlog is received."""
    needed = needed_grants(Role.SOURCE, server.flavour)
    monkeypatch.setattr(server, "account", Account(USER, PASSWORD))
    for number, privilege in enumerate(needed[0].privileges):
        grant(server, needed, but=privilege, on=needed[0].scope)
        refused("MR-1005", partial(receive, server, tmp_path / f"relay-{number}"))
    grant(server, needed)
    receive(server, tmp_path / "relay")


def receive(server: DatabaseServer, folder: Path) -> None:
    """Choose the member as a start does, and receive a transaction. Raises the error of either."""
    login = Login(user=USER, password=PASSWORD, tls=UNVERIFIED)
    choose(ask_members([member_of(server)], login, wanted=None), wanted=None)
    with receiving(server, folder, wanted=position_of(server)) as reception:
        server.execute(f"CREATE DATABASE IF NOT EXISTS {BEATS}")
        wanted = position_of(server)
        eventually(
            lambda: reception.error is not None or reception.relay.position().includes(wanted)
        )
        if reception.error is not None:
            raise reception.error


def test_each_heartbeat_privilege_is_needed_and_together_they_suffice(
    server: DatabaseServer,
) -> None:
    """Without one the row is not written (MR-1047); with all it is. CREATE is needed for the first row only."""
    source = needed_grants(Role.SOURCE, server.flavour)
    beats = needed_grants(Role.HEARTBEAT, server.flavour, (BEATS,))
    for privilege in (*beats[0].privileges, ""):
        server.execute(f"DROP DATABASE IF EXISTS {BEATS}")
        server.execute(f"CREATE DATABASE {BEATS}")
        grant(server, (*source, *beats), but=privilege, on=BEATS)
        assert privilege in beat(server, until_written=not privilege)


def beat(server: DatabaseServer, *, until_written: bool) -> str:
    """Write heartbeats until there are two, or until the warning that is returned."""
    heartbeat = heartbeat_of(server)

    def is_written() -> bool:
        if not server.execute(f"SHOW TABLES FROM {BEATS}"):
            return False
        return server.execute(f"SELECT MAX(sequence) > 1 FROM {BEATS}.heartbeat") == [(1,)]

    heartbeat.start()
    try:
        eventually(is_written if until_written else lambda: "MR-1005" in heartbeat.warning)
        return heartbeat.warning
    finally:
        heartbeat.stop()


def heartbeat_of(server: DatabaseServer) -> Heartbeat:
    """A heartbeat of a set with this one member."""
    document = SetDocument(
        name="least",
        members=(member_of(server),),
        account=SetAccount(USER, SecretReference(SecretPlace.FILE, "unused")),
        tls=UNVERIFIED,
        heartbeat=HeartbeatRules(database=BEATS, interval_s=0.1),
    )
    login = Login(user=USER, password=PASSWORD, tls=UNVERIFIED)
    look = Look(Pulse(member=member_of(server), is_primary=True), 0.0, 0)
    return Heartbeat(document, login, lambda: [look])


def test_snapshot_needs_exactly_select(server: DatabaseServer) -> None:
    """With the grants of the source alone a read is refused with the statement that fixes it."""
    server.execute(f"CREATE DATABASE {DATABASE}")
    server.execute("CREATE TABLE t (id INT PRIMARY KEY)", db=DATABASE)
    server.execute("INSERT INTO t VALUES (1)", db=DATABASE)
    login = Login(user=USER, password=PASSWORD, tls=UNVERIFIED)
    origin = Origin(server.flavour, "t", "s")

    def read() -> list[Name]:
        session = MemberSession.open(member_of(server), login, origin, lambda: True)
        try:
            names = session.names(TableFilter((f"{DATABASE}.*",)), (f"{DATABASE}.*",))
            assert isinstance(session.read(request_for(server, (DATABASE, "t"))), ReadChunk)
        finally:
            session.connection.close()
        return list(names)

    source = needed_grants(Role.SOURCE, server.flavour)
    grant(server, source)
    refused("MR-1005", read)
    grant(server, (*source, *needed_grants(Role.SNAPSHOT, server.flavour, (DATABASE,))))
    assert read() == [(DATABASE, "t")]


def test_compare_needs_exactly_select(server: DatabaseServer) -> None:
    """Without it, `millrace compare` stops with MR-5007 instead of reporting missing tables."""
    server.execute(f"CREATE DATABASE {DATABASE}")
    server.execute("CREATE TABLE t (id INT PRIMARY KEY)", db=DATABASE)
    reader = replace(endpoint_of(server), user=USER, password=PASSWORD)

    def compare() -> bool:
        return compare_sets(
            Ends(endpoint_of(server), reader), lambda name, _: name == DATABASE
        ).has_equal_rows

    grant(server, ())
    refused("MR-5007", compare)
    grant(server, needed_grants(Role.COMPARE, server.flavour, (DATABASE,)))
    assert compare()


def test_each_target_privilege_is_needed_and_together_they_suffice(server: DatabaseServer) -> None:
    """All statements and rows of a topic are applied; without one privilege the statement that needs it fails."""
    needed = needed_grants(Role.TARGET, server.flavour, (DATABASE,))
    endpoint = replace(endpoint_of(server), user=USER, password=PASSWORD)
    seen: dict[tuple[str, str], str] = {}
    for one in needed:
        for privilege in one.privileges:
            seen[one.scope, privilege] = without(server, endpoint, needed, (privilege, one.scope))
    assert {place: code for place, code in seen.items() if not code} == {}
    grant(server, needed)
    forget(server)
    task = Supervised(
        endpoint, apply_task(TASK, lanes=3), privileged_stream(server.flavour, DATABASE), cuts=(9,)
    )
    assert task.run().mark.seq == task.stream.seq


def without(
    server: DatabaseServer, endpoint: Endpoint, needed: tuple[Grant, ...], lost: tuple[str, str]
) -> str:
    """The code, or what fails, without one privilege; empty if nothing does."""
    privilege, scope = lost
    grant(server, needed, but=privilege, on=scope)
    forget(server)
    if scope == META_DATABASE:
        return without_meta(server, endpoint, privilege)
    if privilege == "TRIGGER":
        return unseen_triggers(server, endpoint)
    stream = privileged_stream(server.flavour, DATABASE)
    name = f"{TASK}-{privilege.lower()}"  # what an earlier run has applied is not applied again
    task = Supervised(endpoint, apply_task(name, lanes=3), stream, cuts=(9,))
    try:
        task.run()
        replicas = connect(endpoint)
        try:
            replicas.query(replicas.version.replica_status)
        finally:
            replicas.close()
    except Fatal as error:
        return error.code if error.code in ("MR-5007", "MR-5041") else ""
    return ""


def without_meta(server: DatabaseServer, endpoint: Endpoint, privilege: str) -> str:
    """The start of a task in an empty database `millrace`, or in one of an earlier version."""
    if privilege == "EXECUTE":
        return unused_procedure(server, endpoint)
    server.execute(f"DROP DATABASE IF EXISTS {META_DATABASE}")
    if privilege == "ALTER":
        root = connect(endpoint_of(server))
        take_over(root, endpoint_of(server), apply_task(TASK), epoch=1)
        root.close()
        server.execute(f"ALTER TABLE {META_DATABASE}.progress DROP COLUMN lag_ms")
        server.execute(f"DROP PROCEDURE {META_DATABASE}.wait_for_gtid")
    session = None
    try:
        session = connect(endpoint)
        take_over(session, endpoint, apply_task(TASK), epoch=1)
    except Fatal as error:
        return error.code
    finally:
        if session is not None:
            session.close()
    routines = "SELECT 1 FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA = %s"
    return "" if server.execute(routines, (META_DATABASE,)) else "MR-5026"


def unused_procedure(server: DatabaseServer, endpoint: Endpoint) -> str:
    """A server that grants nothing automatically: the procedure's definer needs EXECUTE, too."""
    server.execute(f"DROP DATABASE IF EXISTS {META_DATABASE}")
    server.execute("SET GLOBAL automatic_sp_privileges = OFF")
    try:
        session = connect(endpoint)
        take_over(session, endpoint, apply_task(TASK), epoch=1)
        session.close()
        reader = connect(endpoint_of(server))
        try:
            wanted = (
                "0-1-1"
                if server.flavour is Flavour.MARIADB
                else f"{'0' * 8}-0000-0000-0000-{'0' * 12}:1"
            )
            reader.query(f"CALL {META_DATABASE}.wait_for_gtid(%s, %s, 0)", (TASK, wanted))
        except MillraceError as error:
            return error.code
        finally:
            reader.close()
    finally:
        server.execute("SET GLOBAL automatic_sp_privileges = ON")
    return ""


def unseen_triggers(server: DatabaseServer, endpoint: Endpoint) -> str:
    """A trigger that the account can't see would change applied rows again, without MR-5018."""
    server.execute(f"CREATE DATABASE {DATABASE}")
    server.execute("CREATE TABLE t (id INT PRIMARY KEY)", db=DATABASE)
    server.execute(
        "CREATE TRIGGER after_t BEFORE INSERT ON t FOR EACH ROW SET NEW.id = 1", db=DATABASE
    )
    session, root = connect(endpoint), connect(endpoint_of(server))
    try:
        assert (DATABASE, "t") in read_triggers(root)
        return "" if (DATABASE, "t") in read_triggers(session) else "MR-5018 is not reported"
    finally:
        session.close()
        root.close()


ROLE, PLAIN = "least_role", "leastshop"  # without an underscore, which GRANT takes for any letter
RIGHTS = (
    (f"GRANT SELECT ON `{PLAIN}%`.* TO {USER}", f"GRANT INSERT ON `{PLAIN}`.* TO {USER}"),
    (f"GRANT SELECT ON `least%`.* TO {USER}", f"GRANT INSERT ON `leasts%`.* TO {USER}"),
    (f"GRANT SELECT ON `least_hop`.* TO {USER}", f"GRANT INSERT ON `lea%`.* TO {USER}"),
    (f"GRANT SELECT ON *.* TO {USER}", f"GRANT INSERT ON `least%`.* TO {USER}"),
    (f"GRANT SELECT ON {PLAIN}.* TO {ROLE}", f"GRANT {ROLE} TO {USER}"),
    (
        *(f"GRANT SELECT ON {PLAIN}.* TO {ROLE}", f"GRANT {ROLE} TO {USER}"),
        *(f"GRANT INSERT ON `least%`.* TO {USER}", f"SET DEFAULT ROLE {ROLE} {{to}} {USER}"),
    ),
)
PARTIAL = (
    f"GRANT SELECT, INSERT ON *.* TO {USER}",
    f"REVOKE INSERT ON {PLAIN}.* FROM {USER}",
)


@pytest.mark.both_flavours
def test_held_rights_are_those_that_the_server_grants(server: DatabaseServer) -> None:
    """The servers choose among patterns, and count active roles and partial revokes."""
    server.execute(f"CREATE DATABASE {PLAIN}")
    server.execute("CREATE TABLE t (id INT)", db=PLAIN)
    to = "TO" if server.flavour is Flavour.MYSQL else "FOR"
    for statements in RIGHTS:
        server.execute(f"CREATE ROLE {ROLE}")
        grant(server, ())
        for statement in statements:
            server.execute(statement.format(to=to))
        check_held(server)
        server.execute(f"DROP ROLE {ROLE}")
    if server.flavour is Flavour.MYSQL:
        server.execute("SET GLOBAL partial_revokes = ON")
        grant(server, ())
        for statement in PARTIAL:
            server.execute(statement)
        check_held(server)
        server.execute(f"DROP USER {USER}")
        server.execute("SET GLOBAL partial_revokes = OFF")
    server.execute(f"DROP DATABASE {PLAIN}")


def check_held(server: DatabaseServer) -> None:
    """Whether the account may read and write a table is in its rights; the fix gives what is missing, and no less."""
    statements = {
        "SELECT": f"SELECT * FROM {PLAIN}.t",
        "INSERT": f"INSERT INTO {PLAIN}.t VALUES (1)",
    }
    account = replace(endpoint_of(server), user=USER, password=PASSWORD)
    needed = Grant(tuple(statements), PLAIN, "")
    with closing(connect(account)) as session:
        missing = held_grants(session).missing([needed])
        unheld = {name for grant in missing.grants for name in grant.privileges}
        for privilege, statement in statements.items():
            if privilege in unheld:
                refused("MR-5007", partial(session.query, statement))
            else:
                session.query(statement)
    for fix in filter(None, missing.fix.split(";")):
        server.execute(fix)
    with closing(connect(account)) as session:
        assert not held_grants(session).missing([needed])
        for statement in statements.values():
            session.query(statement)


@pytest.mark.both_flavours
def test_printed_statements_make_the_account(shell: Shell, server: DatabaseServer) -> None:
    """They run as printed, once the placeholder is a password; the flavor comes from the server or the option."""
    document = shell.file(
        f"set: least\nmembers: [{{host: 127.0.0.1, port: {server.port}}}]\nuser: {USER}\n"
        "password: env:MILLRACE_TEST_PASSWORD\ntls: require-unverified\n"
    )
    flavour = str(server.flavour)
    assert "Add --flavour" in shell("grants", "print", "-f", document, exit_code=4)
    printed = shell("grants", "print", "-f", document, "--flavour", flavour)
    for line in printed.splitlines():
        if not line.startswith("--"):
            server.execute(line.rstrip(";").replace("…", "canary"))
    assert shell("grants", "print", "-f", document) == printed
    target = shell("grants", "print", "-f", document, "--role", "target", "--database", "a_b")
    assert "ON `a_b`.*" in target
    assert "repeat it for each database" in shell(
        "grants", "print", "-f", document, "--role", "target"
    )
