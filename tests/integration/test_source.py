"""Member selection on real sets: each refusal has its code, and its fix works."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from consumer.target.connection import Endpoint, TlsChoice, connect
from deploy.servers import DatabaseServer, DatabaseSet, ServerOptions, sql
from millrace.errors import Fatal, MillraceError, Retryable
from producer.binlog.gtid_runs import new_runs
from producer.relay.reader import RelayReader
from producer.relay.writer import RelayLog
from producer.upstream.choice import choose
from producer.upstream.connection import Login, SourceConnection
from producer.upstream.files import find_start_file, previous_gtids
from producer.upstream.identity import ask_identity
from producer.upstream.members import Replication, ask_flavour, ask_members
from producer.upstream.preflight import Finding, check_settings
from schemas.documents.model import Member, Tls, TlsMode
from schemas.gtid import Flavour, GtidPosition, parse_gtid_set, unite
from tests.fixtures.servers import FLAVOURS, NewServer, NewSet
from tests.kit.relay.relay import PLAIN, login_of, member_of, position_of, receiving
from tests.kit.waiting import eventually

pytestmark = pytest.mark.both_flavours

FOREIGN = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def members_of(source_set: DatabaseSet) -> tuple[Member, ...]:
    """The members, as the set document lists them."""
    return tuple(member_of(server) for server in source_set.members)


def connect_error(server: DatabaseServer, login: Login) -> MillraceError:
    """The error that connecting raises."""
    with pytest.raises(MillraceError) as caught:
        SourceConnection.connect(member_of(server), login).close()
    return caught.value


def findings_of(server: DatabaseServer) -> dict[str, Finding]:
    """The pre-flight findings by code."""
    (facts,) = ask_members([member_of(server)], login_of(server), wanted=None)
    assert facts.error is None, facts.error
    return {finding.code: finding for finding in check_settings(facts)}


def refused(server: DatabaseServer, code: str) -> Finding:
    """The only finding; a set with only this member is refused with the finding's code."""
    (finding,) = findings_of(server).values()
    assert finding.code == code
    with pytest.raises(Fatal) as caught:
        choose(ask_members([member_of(server)], login_of(server), wanted=None), wanted=None)
    assert caught.value.code == code
    assert caught.value.fix.startswith(finding.fix.partition(" (")[0].rstrip("; "))
    return finding


def run_fix(server: DatabaseServer, finding: Finding) -> None:
    """Run the fix as printed; the check then finds nothing."""
    for statement in finding.fix.partition(" (")[0].split(";")[:-1]:
        server.execute(statement)
    assert findings_of(server) == {}


@contextmanager
def setting(server: DatabaseServer, name: str, value: str) -> Iterator[None]:
    """Change a global variable during the block."""
    before = server.execute(f"SELECT @@GLOBAL.{name}")[0][0]
    if name == "binlog_format" and server.flavour is Flavour.MYSQL:
        server.execute("STOP REPLICA SQL_THREAD")
    server.execute(f"SET GLOBAL {name} = {value}")
    try:
        yield
    finally:
        if server.execute(f"SELECT @@GLOBAL.{name}")[0][0] != before:
            server.execute(f"SET GLOBAL {name} = %s", (before,))


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
        SourceConnection.connect(unreachable, login)
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
        with SourceConnection.connect(member_of(server), login) as connection:
            (row,) = connection.query("SHOW STATUS LIKE 'Ssl_cipher'")
            assert row["Value"]


def test_server_identity_names_the_relay_directory(source_set: DatabaseSet) -> None:
    """MySQL's UUID; MariaDB's domain and server ID."""
    server = source_set.replicas[0]
    with SourceConnection.connect(member_of(server), login_of(server)) as connection:
        identity = ask_identity(connection)
    assert identity.flavour is server.flavour
    query = (
        "SELECT CONCAT(@@gtid_domain_id, '-', @@server_id)"
        if server.flavour is Flavour.MARIADB
        else "SELECT @@server_uuid"
    )
    assert identity.server == server.execute(query)[0][0]


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("binlog_row_metadata", "'MINIMAL'", "MR-1014"),
        ("binlog_row_image", "'MINIMAL'", "MR-1013"),
        ("binlog_format", "'STATEMENT'", "MR-1012"),
        ("binlog_checksum", "'NONE'", "MR-1019"),
    ],
)
def test_bad_setting_is_found_and_its_fix_works(
    source_set: DatabaseSet, name: str, value: str, code: str
) -> None:
    """The SQL in the fix runs as printed."""
    server = source_set.replicas[1]
    assert findings_of(server) == {}
    with setting(server, name, value):
        run_fix(server, refused(server, code))


def test_lax_gtid_mode_and_partial_json_are_found(source_set: DatabaseSet) -> None:
    """Settings that only one flavor has."""
    server = source_set.replicas[1]
    if server.flavour is Flavour.MARIADB:
        with setting(server, "gtid_strict_mode", "OFF"):
            run_fix(server, refused(server, "MR-1017"))
    else:
        with setting(server, "binlog_row_value_options", "'PARTIAL_JSON'"):
            run_fix(server, refused(server, "MR-1015"))
        with setting(server, "gtid_mode", "'ON_PERMISSIVE'"):
            run_fix(server, refused(server, "MR-1016"))


def test_filtered_replica_is_refused(source_set: DatabaseSet) -> None:
    """A filter set at runtime; filtered rows would be missing in the topic."""
    server = source_set.replicas[1]
    if server.flavour is Flavour.MARIADB:
        stop, start = "STOP SLAVE", "START SLAVE"
        filtered, whole = (f"SET GLOBAL replicate_do_db = '{name}'" for name in ("shop", ""))
    else:
        stop, start = "STOP REPLICA SQL_THREAD", "START REPLICA SQL_THREAD"
        filtered, whole = (
            f"CHANGE REPLICATION FILTER REPLICATE_DO_DB = ({name})" for name in ("shop", "")
        )
    try:
        for statement in (stop, filtered, start):
            server.execute(statement)
        assert "Replicate_Do_DB=shop" in refused(server, "MR-1018").message
    finally:
        for statement in (stop, whole, start):
            server.execute(statement)
    assert findings_of(server) == {}
    source_set.wait_for_replicas()


def test_server_that_encrypts_its_binlog_is_reported(new_server: NewServer) -> None:
    """Also a server that logs nothing: without a key plug-in MariaDB logs nothing encrypted."""
    options = ServerOptions(extra=("--encrypt-binlog=ON", "--skip-log-bin"))
    server = new_server(Flavour.MARIADB, options=options)
    assert list(findings_of(server)) == ["MR-1010", "MR-1021"]
    with pytest.raises(Fatal) as caught:
        choose(ask_members([member_of(server)], login_of(server), wanted=None), wanted=None)
    assert caught.value.code == "MR-1010"
    assert "MR-1021" in caught.value.message
    assert "encrypt_binlog=OFF" in caught.value.fix


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
    """A replica that committed a transaction of its own is not read: its primary does not have it."""
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


@pytest.mark.parametrize("flavour", FLAVOURS, ids=str)
def test_replica_that_does_not_log_changes_is_refused(new_set: NewSet, flavour: Flavour) -> None:
    """Its binlog has no rows from the primary, so the primary is read instead."""
    option = (
        "--skip-log-slave-updates" if flavour is Flavour.MARIADB else "--skip-log-replica-updates"
    )
    made = new_set(flavour, options=ServerOptions(extra=(option,)))
    choice = choose(ask_members(members_of(made), login_of(made.primary), wanted=None), wanted=None)
    assert choice.member == member_of(made.primary)
    assert "MR-1011" in choice.reasons()[str(member_of(made.replicas[0]))]
    refused(made.replicas[0], "MR-1011")


def purge_to(server: DatabaseServer, file: str) -> bool:
    """Request a purge; MariaDB keeps a file until its next checkpoint."""
    server.execute(f"PURGE BINARY LOGS TO '{file}'")
    return str(server.execute("SHOW BINARY LOGS")[0][0]) == file


@pytest.mark.parametrize("flavour", FLAVOURS, ids=str)
def test_purged_transactions_are_named(new_server: NewServer, flavour: Flavour) -> None:
    """MR-1031 names the missing interval; later positions are found."""
    server = new_server(flavour)
    server.execute("CREATE DATABASE a")
    early = position_of(server)
    server.execute("CREATE DATABASE b")
    server.execute("FLUSH BINARY LOGS")
    late = position_of(server)
    server.execute("CREATE DATABASE c")
    last = str(server.execute("SHOW BINARY LOGS")[-1][0])
    if flavour is Flavour.MARIADB:  # by default it keeps what no replica has fetched
        server.execute("SET GLOBAL slave_connections_needed_for_purge = 0")
    eventually(lambda: purge_to(server, last))
    login = login_of(server)
    with pytest.raises(Fatal) as caught:
        choose(ask_members([member_of(server)], login, wanted=early), wanted=early)
    assert caught.value.code == "MR-1031"
    assert str(late).rpartition(":")[2].rpartition("-")[2] in caught.value.message
    chosen = choose(ask_members([member_of(server)], login, wanted=late), wanted=late)
    assert chosen.member == member_of(server)


def test_file_purged_after_listing_is_looked_up_again(
    mysql_server: DatabaseServer, mariadb_server: DatabaseServer
) -> None:
    """MR-1040 with the server's message; the next try lists the files again."""
    for server in (mysql_server, mariadb_server):
        with (
            SourceConnection.connect(member_of(server), login_of(server)) as connection,
            pytest.raises(Retryable) as caught,
        ):
            previous_gtids(connection, flavour=server.flavour, file="purged.000001")
        assert caught.value.code == "MR-1040"


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
    SourceConnection.connect(member_of(server), login_of(server)).close()
    with receiving(server, tmp_path / "relay", tls=PLAIN) as reception:
        reception.wait_for(server)


def test_tagged_gtids_are_followed(mysql_server: DatabaseServer, tmp_path: Path) -> None:
    """MySQL's GTIDs with tags: the relay log's position equals the server's, to the interval."""
    run = mysql_server.execute
    run("CREATE DATABASE IF NOT EXISTS tagged")
    run("CREATE TABLE IF NOT EXISTS tagged.t (id INT PRIMARY KEY AUTO_INCREMENT)")
    run("DROP PROCEDURE IF EXISTS tagged.p")
    for tag in ("followed", "a_very_long_tag_of_32_characters", "followed"):
        run_in_session(
            mysql_server, [f"SET gtid_next = 'AUTOMATIC:{tag}'", "INSERT INTO tagged.t VALUES ()"]
        )
    assert "followed:1-2" in mysql_server.gtid_position()
    with receiving(mysql_server, tmp_path / "relay") as reception:
        reception.wait_for(mysql_server)
        assert reception.relay.position() == position_of(mysql_server)


def run_in_session(server: DatabaseServer, statements: list[str]) -> None:
    """Run several statements on one connection."""
    login = login_of(server)
    with SourceConnection.connect(member_of(server), login) as connection:
        for statement in statements:
            connection.query(statement)


def test_password_with_any_characters_logs_in(
    mysql_server: DatabaseServer, mariadb_server: DatabaseServer
) -> None:
    """Passwords are sent in UTF-8, as by the servers' own clients, with letters inside and outside latin-1."""
    for server in (mysql_server, mariadb_server):
        for number, password in enumerate(("pässwört", "three…dots", "密码🐘")):
            user = f"foreign{number}"
            server.execute(f"CREATE USER IF NOT EXISTS '{user}'@'%' IDENTIFIED BY '{password}'")
            login = Login(user=user, password=password, tls=Tls(TlsMode.REQUIRE_UNVERIFIED))
            SourceConnection.connect(member_of(server), login).close()
            connect(
                Endpoint(server.host, server.port, user, password, TlsChoice("require-unverified"))
            ).close()


# what a backup restores without a binlog, positions before its end, positions from there on, the next GTID
REBUILT = {
    Flavour.MYSQL: (
        f"SET GLOBAL gtid_purged = '{FOREIGN}:1-1000'",
        (f"{FOREIGN}:1-500", f"{FOREIGN}:1-999"),
        (f"{FOREIGN}:1-1000", f"{FOREIGN}:1-1001"),
        [f"SET gtid_next = '{FOREIGN}:1001'"],
    ),
    Flavour.MARIADB: (
        "SET GLOBAL gtid_slave_pos = '0-1-1000,7-1-50'",
        ("0-1-500,7-1-50", "0-1-999,7-1-50", "0-1-1000,7-1-40", "0-1-1000"),
        ("0-1-1000,7-1-50", "0-1-1001,7-1-50", "0-3-1000,7-1-50"),
        ["SET gtid_domain_id = 0", "SET server_id = 1", "SET gtid_seq_no = 1001"],
    ),
}


@pytest.mark.parametrize("flavour", FLAVOURS, ids=str)
def test_member_restored_from_backup_serves_only_its_own_binlog(
    new_server: NewServer, tmp_path: Path, flavour: Flavour
) -> None:
    """Its files do not hold the restored transactions; the member and the relay log refuse tasks that need them."""
    server = new_server(flavour)
    login, history = login_of(server), REBUILT[flavour]
    server.execute(history[0])
    run_in_session(server, [*history[3], "CREATE DATABASE rebuilt"])
    for text in history[1]:
        wanted = parse_gtid_set(flavour, text)
        with pytest.raises(Fatal) as caught:
            choose(ask_members([member_of(server)], login, wanted=wanted), wanted=wanted)
        assert caught.value.code == "MR-1031"
    for text in history[2]:
        wanted = parse_gtid_set(flavour, text)
        assert choose(ask_members([member_of(server)], login, wanted=wanted), wanted=wanted)

    (fact,) = ask_members([member_of(server)], login, wanted=None)
    assert fact.binlog is not None
    brought = parse_gtid_set(flavour, history[2][0])
    assert fact.binlog.oldest_before == brought
    full = replace(fact.binlog, oldest_before=parse_gtid_set(flavour, ""))
    primary = replace(fact, member=Member("primary", 1), binlog=full)
    replica = replace(fact, replication=Replication(0.0, ()))
    assert choose([primary, replica], wanted=None).member == primary.member

    with receiving(server, tmp_path / "relay", from_first=True) as reception:
        reception.wait_for(server)
        assert reception.relay.position() == unite(brought, position_of(server))
    for _ in range(2):  # a reopened relay log knows it too
        with receiving(server, tmp_path / "relay", wanted=brought) as reception:
            reader = RelayReader(reception.relay)
            begin = reader.first()
            assert begin is not None
            before = reception.relay.position_before(begin)
            assert before == brought, "the relay log has forgotten what the backup brought"
            file = reception.relay.path(begin)
            assert reader.seek(brought) == begin
            assert reader.seek(parse_gtid_set(flavour, history[1][0])) is None
            reader.close()

    stale = parse_gtid_set(flavour, history[1][0])  # another worker continued from there
    _leave_relay_log(tmp_path / "stale", file, before=stale)
    with receiving(server, tmp_path / "stale", wanted=brought) as reception:
        reception.wait_for(server)
        with RelayReader(reception.relay) as reader:
            assert reader.seek(stale) is None
            assert reader.seek(brought) is not None

    for statement in ("FLUSH BINARY LOGS", "CREATE DATABASE later", "FLUSH BINARY LOGS"):
        server.execute(statement)
    (newest, *_), *_ = reversed(server.execute("SHOW BINARY LOGS"))

    def is_purged() -> bool:  # not while an ended dump still reads there
        server.execute(f"PURGE BINARY LOGS TO '{newest}'")
        return len(server.execute("SHOW BINARY LOGS")) == 1

    eventually(is_purged, what="the older files are gone")
    before_all = parse_gtid_set(flavour, history[2][-1])
    (asked,) = ask_members([member_of(server)], login, wanted=before_all)
    assert asked.binlog is not None
    assert asked.binlog.wanted_error is not None
    assert asked.binlog.wanted_error.code == "MR-1031", "another member may have what is wanted"


def _leave_relay_log(directory: Path, file: Path, *, before: GtidPosition) -> None:
    """Create another member's relay log that ends at ``before``: one file with the head of ``file``, nothing else."""
    content, end = file.read_bytes(), 4
    for _ in range(2):  # format description, previous GTIDs
        end += int.from_bytes(content[end + 9 : end + 13], "little")
    relay = RelayLog.open(directory, flavour=before.flavour)
    relay.begin_subdir("another-server", before=before)
    relay.begin_file(file.name)
    head = bytearray(content[4:end])
    relay.append(np.frombuffer(head, np.uint8), end=end, last_group_at=0, runs=new_runs()[:0])
    relay.close()


def test_domain_that_begins_inside_a_file_is_complete(new_server: NewServer) -> None:
    """MariaDB: when no file head names a domain, Millrace scans the files for its first transaction."""
    server = new_server(Flavour.MARIADB)
    run_in_session(
        server,
        [
            *(f"CREATE DATABASE d{number}" for number in range(3)),
            "SET gtid_domain_id = 5",
            "SET gtid_seq_no = 1",
            "CREATE DATABASE deep",
            "SET gtid_domain_id = 6",
            "SET gtid_seq_no = 31",
            "CREATE DATABASE deeper",
            "FLUSH BINARY LOGS",
            "SET gtid_domain_id = 8",
            "SET gtid_seq_no = 81",
            "CREATE DATABASE late",
        ],
    )
    with SourceConnection.connect(member_of(server), login_of(server)) as connection:
        for page in (2, 3, 1000):
            found = find_start_file(
                connection, flavour=server.flavour, wanted=None, page_events=page
            )
            assert str(found.before) == "6-1-30,8-1-80"


DOMAINS = count(4711)


def test_non_utf8_statements_do_not_hide_the_start_position(target_server: DatabaseServer) -> None:
    """A latin1 client wrote: SHOW BINLOG EVENTS returns invalid UTF-8, which does not matter."""
    server = target_server
    server.execute("FLUSH BINARY LOGS")
    done = position_of(server)
    connection = sql.open_root(server.socket)
    if server.flavour is Flavour.MARIADB:
        connection.query(f"SET gtid_domain_id = {next(DOMAINS)}")
    connection.query("SET NAMES latin1")
    for text in (
        "CREATE DATABASE any_bytes /* ü */",
        "CREATE TABLE any_bytes.t (v VARCHAR(9))",
        "INSERT INTO any_bytes.t VALUES ('ü')",
        "DROP DATABASE any_bytes",
    ):
        connection.query(text.encode("latin-1"))
    connection.close()
    for wanted in (None, done):
        (fact,) = ask_members([member_of(server)], login_of(server), wanted=wanted)
        assert fact.error is None
        assert fact.binlog is not None
        assert fact.binlog.wanted_error is None


@pytest.mark.guarantee("failover")
def test_member_with_a_different_transaction_at_our_position_is_refused(
    mariadb_server: DatabaseServer,
) -> None:
    """It was promoted without the last transaction, reused its number under its own server ID, and continued."""
    server, login, domain = mariadb_server, login_of(mariadb_server), next(DOMAINS)
    before, own = str(position_of(server)), server.server_id
    lost, third = own + 1, own + 2
    for number, statement in ((lost, "CREATE"), (own, "DROP"), (own, "CREATE"), (own, "DROP")):
        session = [f"SET gtid_domain_id = {domain}", f"SET server_id = {number}"]
        run_in_session(server, [*session, f"{statement} DATABASE other_history"])

    def asked(last: str) -> Member:
        wanted = parse_gtid_set(Flavour.MARIADB, f"{before},{domain}-{last}")
        return choose(ask_members([member_of(server)], login, wanted=wanted), wanted=wanted).member

    for done in (f"{lost}-1", f"{own}-2", f"{own}-4"):
        assert asked(done) == member_of(server)
    for gone in (f"{lost}-2", f"{lost}-4", f"{third}-1", f"{own}-5"):
        with pytest.raises(Fatal) as caught:
            asked(gone)
        assert caught.value.code == "MR-1033"
        assert f"{domain}-{gone}" in caught.value.message


def test_reused_gtid_number_is_detected_from_the_file_head(
    mariadb_server: DatabaseServer,
) -> None:
    """The server came back and continued; the head of the start file names the server of the transaction before."""
    server, login, domain = mariadb_server, login_of(mariadb_server), next(DOMAINS)
    own, lost = server.server_id, server.server_id + 1
    run_in_session(server, [f"SET gtid_domain_id = {domain}", "CREATE DATABASE given_again"])
    server.execute("FLUSH BINARY LOGS")
    before = position_of(server)
    for number, statement in ((lost, "DROP"), (own, "CREATE"), (own, "DROP")):
        session = [f"SET gtid_domain_id = {domain}", f"SET server_id = {number}"]
        run_in_session(server, [*session, f"{statement} DATABASE given_again"])
    assert f"{domain}-{own}-1" in str(before)

    wanted = parse_gtid_set(
        Flavour.MARIADB, str(before).replace(f"{domain}-{own}-1", f"{domain}-{lost}-1")
    )
    with pytest.raises(Fatal, match="MR-1033"):
        choose(ask_members([member_of(server)], login, wanted=wanted), wanted=wanted)
