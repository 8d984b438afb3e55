"""Where reading starts on real servers: purged files, restored members, GTID domains and reused GTIDs."""

from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from millrace.deploy.servers import DatabaseServer, sql
from millrace.drivers.mysql.members import Replication
from millrace.drivers.mysql.start_file import find_start_file, previous_gtids
from millrace.errors import Fatal, Retryable
from millrace.producer.binlog.gtid_runs import new_runs
from millrace.producer.relay.reader import RelayReader
from millrace.producer.relay.writer import RelayLog
from millrace.producer.source.choose.choice import choose
from millrace.producer.source.choose.chooser import ask_members
from millrace.producer.source.connection import connect_member
from millrace.schemas.documents.model import Member
from millrace.schemas.gtid import Flavour, GtidPosition, parse_gtid_set, unite
from tests.fixtures.servers import FLAVOURS, NewServer
from tests.kit.relay.relay import login_of, member_of, position_of, purge_to, receiving
from tests.kit.waiting import eventually

FOREIGN = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


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
    purge_to(server, last)
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
            connect_member(member_of(server), login_of(server)) as connection,
            pytest.raises(Retryable) as caught,
        ):
            previous_gtids(connection, "purged.000001")
        assert caught.value.code == "MR-1040"


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
    with connect_member(member_of(server), login) as connection:
        for statement in statements:
            connection.query(statement)


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
    replica = replace(fact, replications=(Replication(0.0),))
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
    with connect_member(member_of(server), login_of(server)) as connection:
        for page in (2, 3, 1000):
            found = find_start_file(connection, wanted=None, page_events=page)
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


def test_reused_gtid_number_is_detected_from_the_file_head(mariadb_server: DatabaseServer) -> None:
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
