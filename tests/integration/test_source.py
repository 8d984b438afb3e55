"""Member selection on real sets: each refusal has its code, and its fix works."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from millrace.deploy.servers import DatabaseServer, DatabaseSet, sql
from millrace.drivers.mysql.connection import Endpoint, connect
from millrace.drivers.mysql.members import ask_identity
from millrace.errors import Fatal, MillraceError, Retryable
from millrace.producer.source.choose.choice import choose
from millrace.producer.source.choose.chooser import ask_flavour, ask_members
from millrace.producer.source.connection import Login, connect_member
from millrace.schemas.documents import Member, Tls, TlsMode
from millrace.schemas.gtid import Flavour, parse_gtid_set
from tests.kit.relay.relay import PLAIN, login_of, member_of, members_of, position_of, receiving
from tests.kit.waiting import eventually

pytestmark = pytest.mark.both_flavours


def connect_error(server: DatabaseServer, login: Login) -> MillraceError:
    """The error that connecting raises."""
    with pytest.raises(MillraceError) as caught:
        connect_member(member_of(server), login).close()
    return caught.value


def test_caught_up_replica_is_chosen_with_reasons(source_set: DatabaseSet) -> None:
    """All three are admissible; the primary is the last choice."""
    source_set.wait_for_replicas()
    login = login_of(source_set.primary)
    assert ask_flavour(members_of(source_set), login) is source_set.flavour
    choice = choose(ask_members(members_of(source_set), login, wanted=None), wanted=None)
    assert choice.member in {member_of(replica) for replica in source_set.replicas}
    reasons = choice.reasons()
    assert len(reasons) == 3
    assert sum("admissible" in text for text in reasons.values()) == 3
    assert "(primary" in reasons[str(member_of(source_set.primary))]


def test_lagging_replica_yields_to_a_caught_up_one(source_set: DatabaseSet) -> None:
    """Lag is measured by missing transactions, even if the replica reports zero seconds."""
    source_set.wait_for_replicas()  # so that it misses no more than these two
    lagging = source_set.replicas[0]
    stop, start = (
        ("STOP SLAVE", "START SLAVE")
        if lagging.flavour is Flavour.MARIADB
        else ("STOP REPLICA", "START REPLICA")
    )
    lagging.execute(stop)
    try:
        source_set.execute("CREATE DATABASE lagging")
        source_set.execute("DROP DATABASE lagging")
        wanted = position_of(source_set.primary)
        eventually(lambda: position_of(source_set.replicas[1]).includes(wanted))
        facts = ask_members(members_of(source_set), login_of(source_set.primary), wanted=None)
        choice = choose(facts, wanted=None)
        assert choice.member == member_of(source_set.replicas[1])
        assert "2 transactions behind" in choice.reasons()[str(member_of(lagging))]
    finally:
        lagging.execute(start)


@pytest.mark.guarantee("secret")
def test_wrong_password_is_fatal_and_never_printed(source_set: DatabaseSet) -> None:
    """MR-1002; the text names the account and never the password."""
    login = Login(
        user=source_set.user, password="wr0ng-secret", tls=Tls(TlsMode.REQUIRE_UNVERIFIED)
    )
    error = connect_error(source_set.primary, login)
    assert isinstance(error, Fatal)
    assert error.code == "MR-1002"
    assert source_set.user in error.message
    assert "wr0ng-secret" not in f"{error} {error.context} {login}"


def test_unreachable_server_is_retryable(source_set: DatabaseSet) -> None:
    """MR-1001; the remaining members are candidates."""
    login = login_of(source_set.primary)
    unreachable = Member("127.0.0.1", 1)
    with pytest.raises(Retryable) as caught:
        connect_member(unreachable, login)
    assert caught.value.code == "MR-1001"
    facts = ask_members([unreachable, *members_of(source_set)], login, wanted=None)
    choice = choose(facts, wanted=None)
    assert choice.member != unreachable
    assert "MR-1001" in choice.reasons()[str(unreachable)]


def test_unverified_certificate_is_refused_before_the_password_is_sent(
    source_set: DatabaseSet, tmp_path: Path
) -> None:
    """The system does not trust the servers' certificates; the document must say `require-unverified`."""
    server = source_set.primary
    login = login_of(server, tls=Tls(TlsMode.VERIFY_IDENTITY))
    assert connect_error(server, login).code in {"MR-1003", "MR-1004"}
    missing = Tls(TlsMode.VERIFY_CA, str(tmp_path / "none.pem"))
    assert connect_error(server, replace(login, tls=missing)).code == "MR-1003"


def test_verified_certificate_is_accepted(source_set: DatabaseSet) -> None:
    """With the CA that signed it, chain and name are verified and the session is encrypted."""
    server = source_set.primary
    if server.tls is None:  # the server made its own certificate: nothing to verify it with
        assert server.flavour is Flavour.MYSQL
        return
    for mode in (TlsMode.VERIFY_CA, TlsMode.VERIFY_IDENTITY):
        login = login_of(server, tls=Tls(mode, str(server.tls.authority)))
        with connect_member(member_of(server), login) as connection:
            (row,) = connection.named("SHOW STATUS LIKE 'Ssl_cipher'")
            assert row["Value"]


def test_server_identity_names_the_relay_directory(source_set: DatabaseSet) -> None:
    """MySQL's UUID; MariaDB's domain and server ID."""
    server = source_set.replicas[0]
    with connect_member(member_of(server), login_of(server)) as connection:
        identity = ask_identity(connection)
    assert identity.flavour is server.flavour
    query = (
        "SELECT CONCAT(@@gtid_domain_id, '-', @@server_id)"
        if server.flavour is Flavour.MARIADB
        else "SELECT @@server_uuid"
    )
    assert identity.server == server.execute(query)[0][0]


@contextmanager
def errant_transactions(replica: DatabaseServer, primary: DatabaseServer) -> Iterator[None]:
    """Two transactions on a MySQL replica that its primary gets, as empty ones, at the end."""
    before = replica.gtid_position()
    replica.execute("SET GLOBAL read_only = OFF")
    replica.execute("CREATE DATABASE errant")
    replica.execute("DROP DATABASE errant")
    replica.execute("SET GLOBAL read_only = ON")
    assert replica.gtid_position() != before
    yield
    errant = str(replica.execute("SELECT @@server_uuid")[0][0])
    with sql.root_connection(primary.socket) as connection, connection.cursor() as cursor:
        for number in (1, 2):
            cursor.execute("SET gtid_next = %s", (f"{errant}:{number}",))
            cursor.execute("BEGIN")
            cursor.execute("COMMIT")


def test_errant_transaction_excludes_its_member(source_set: DatabaseSet) -> None:
    """A replica that committed its own transaction is not read: its primary does not have it."""
    replica = source_set.replicas[1]
    with ExitStack() as errant:
        if replica.flavour is Flavour.MYSQL:
            errant.enter_context(errant_transactions(replica, source_set.primary))
        *others, fact = ask_members(members_of(source_set), login_of(replica), wanted=None)
    if replica.flavour is Flavour.MARIADB:
        assert fact.binlog is not None
        position = parse_gtid_set(Flavour.MARIADB, "9-9-9")
        fact = replace(fact, binlog=replace(fact.binlog, position=position))
    choice = choose([*others, fact], wanted=None)
    assert choice.member != fact.member
    assert "MR-1032" in choice.reasons()[str(fact.member)]


def test_missing_privileges_are_reported(
    mysql_server: DatabaseServer, mariadb_server: DatabaseServer
) -> None:
    """MR-1005, for queries and for the dump."""
    for server in (mysql_server, mariadb_server):
        server.execute("CREATE USER IF NOT EXISTS 'poor'@'%' IDENTIFIED BY 'poor-secret'")
        login = Login(user="poor", password="poor-secret", tls=Tls(TlsMode.REQUIRE_UNVERIFIED))
        with pytest.raises(Fatal) as caught:
            choose(ask_members([member_of(server)], login, wanted=None), wanted=None)
        assert caught.value.code == "MR-1005"
        assert "REPLICATION SLAVE" in caught.value.fix


def test_reported_grants_are_the_missing_ones(
    mysql_server: DatabaseServer, mariadb_server: DatabaseServer
) -> None:
    """Grants are executed as printed, one after the other, until the member is chosen."""
    for server in (mysql_server, mariadb_server):
        server.execute("DROP USER IF EXISTS 'bare'@'%'")
        server.execute("CREATE USER 'bare'@'%' IDENTIFIED BY 'bare-secret'")
        login = Login(user="bare", password="bare-secret", tls=Tls(TlsMode.REQUIRE_UNVERIFIED))
        grants: list[str] = []
        while (facts := ask_members([member_of(server)], login, wanted=None))[0].error is not None:
            assert facts[0].error.code == "MR-1005"
            statement = facts[0].error.fix.partition(" (In all")[0]
            assert statement not in grants
            grants.append(statement)
            server.execute(statement)
        assert all(" ON *.* TO `bare`@`%`;" in statement for statement in grants)
        if server.flavour is Flavour.MARIADB:
            assert "GRANT SLAVE MONITOR ON *.* TO `bare`@`%`;" in grants


def test_tls_disabled_streams_in_plain_text(source_set: DatabaseSet, tmp_path: Path) -> None:
    """`tls: disabled` streams in the clear."""
    server = source_set.primary
    connect_member(member_of(server), login_of(server)).close()
    with receiving(server, tmp_path / "relay", tls=PLAIN) as reception:
        reception.wait_for(server)


def test_password_with_any_characters_logs_in(
    mysql_server: DatabaseServer, mariadb_server: DatabaseServer
) -> None:
    """Passwords are sent in UTF-8, as by the servers' own clients, with letters inside and outside latin-1."""
    for server in (mysql_server, mariadb_server):
        for number, password in enumerate(("pässwört", "three…dots", "密码🐘")):
            user = f"foreign{number}"
            server.execute(f"CREATE USER IF NOT EXISTS '{user}'@'%' IDENTIFIED BY '{password}'")
            login = Login(user=user, password=password, tls=Tls(TlsMode.REQUIRE_UNVERIFIED))
            tls = Tls(TlsMode.REQUIRE_UNVERIFIED)
            with closing(connect_member(member_of(server), login)) as source:
                (named,) = source.named("SELECT USER() AS name")
                assert str(named["name"]).startswith(f"{user}@")
            endpoint = Endpoint(server.host, server.port, user, password, tls)
            with closing(connect(endpoint)) as target:
                ((name,),) = target.query("SELECT USER()")
                assert str(name).startswith(f"{user}@")
