"""The local servers: each kind starts, serves, survives a kill, and leaves nothing."""

import os
import socket
import subprocess
from pathlib import Path

import pymysql
import pytest

from millrace.deploy.servers import (
    DatabaseServer,
    DatabaseSet,
    KafkaServer,
    ServerOptions,
    ZooKeeperServer,
    sql,
)
from millrace.deploy.servers.client import client_command
from millrace.deploy.servers.kafka_users import KafkaUsers
from millrace.deploy.servers.process import session_members
from millrace.drivers.kafka.acls import apply_acls
from millrace.errors import Fatal
from millrace.home_folder import ENVIRONMENT as HOME_VARIABLE
from millrace.home_folder import home
from millrace.schemas.documents import Brokers
from millrace.schemas.gtid import Flavour
from tests.fixtures.servers import NewServer
from tests.kit.waiting import eventually


@pytest.mark.chaos
def test_set_replicates_what_its_primary_commits(source_set: DatabaseSet) -> None:
    """A row committed on the primary is on every replica, under the same GTID position."""
    source_set.execute("CREATE DATABASE house_smoke")
    source_set.execute("CREATE TABLE house_smoke.t (a INT PRIMARY KEY)")
    source_set.execute("INSERT INTO house_smoke.t VALUES (%s)", (7,))
    source_set.wait_for_replicas()
    assert [member.execute("SELECT a FROM house_smoke.t") for member in source_set.members] == [
        [(7,)]
    ] * 3
    assert len({member.gtid_position() for member in source_set.members}) == 1
    source_set.execute("DROP DATABASE house_smoke")


@pytest.mark.chaos
def test_every_member_logs_full_rows_it_replicates(source_set: DatabaseSet) -> None:
    """Primary and replicas meet capture's requirements."""
    wanted = {"binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_row_metadata": "FULL"}
    logs_changes = (
        "log_slave_updates" if source_set.flavour == Flavour.MARIADB else "log_replica_updates"
    )
    for member in source_set.members:
        found = {name: member.execute(f"SELECT @@global.{name}")[0][0] for name in wanted}
        assert found == wanted
        assert member.execute(f"SELECT @@global.{logs_changes}") == [(1,)]


@pytest.mark.chaos
def test_service_account_reads_over_tcp_but_cannot_write(source_set: DatabaseSet) -> None:
    """The account of a source set has least privileges: it replicates and reads."""
    primary = source_set.primary
    login = {
        "host": primary.host,
        "port": primary.port,
        "user": primary.user,
        "password": primary.password,
    }
    connection = pymysql.connect(**login)  # type: ignore[call-overload]
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        with pytest.raises(pymysql.err.OperationalError):
            cursor.execute("CREATE DATABASE not_allowed")


@pytest.mark.chaos
def test_starting_server_keeps_temporary_tables_of_other_servers(
    new_server: NewServer, source_set: DatabaseSet
) -> None:
    """At its start MariaDB removes the files in its folder for temporary tables."""
    with (
        sql.root_connection(source_set.primary.socket) as connection,
        connection.cursor() as cursor,
    ):
        engine = "Aria" if source_set.flavour == Flavour.MARIADB else "InnoDB"
        cursor.execute(f"CREATE TEMPORARY TABLE mysql.kept (a INT) ENGINE={engine}")
        cursor.execute("INSERT INTO mysql.kept VALUES (1)")
        new_server(source_set.flavour)
        cursor.execute("SELECT a FROM mysql.kept")
        assert cursor.fetchall() == ((1,),)
        cursor.execute("DROP TEMPORARY TABLE mysql.kept")


@pytest.mark.chaos
def test_killed_database_server_restarts_with_its_data(
    new_server: NewServer, source_set: DatabaseSet
) -> None:
    """After SIGKILL the same data is served on the same port."""
    server: DatabaseServer = new_server(source_set.flavour)
    server.execute("CREATE DATABASE d")
    server.execute("CREATE TABLE d.t (a INT PRIMARY KEY)")
    server.execute("INSERT INTO d.t VALUES (1)")
    port = server.port
    server.kill()
    assert not server.is_alive()
    server.start()
    assert server.execute("SELECT a FROM d.t") == [(1,)]
    assert server.port == port


def test_server_that_cannot_start_reports_why(
    new_server: NewServer, source_set: DatabaseSet
) -> None:
    """A wrong option is Fatal MR-8004 with the server's own last words."""
    with pytest.raises(Fatal) as caught:
        new_server(source_set.flavour, options=ServerOptions(extra=("--no-such-option=1",)))
    assert caught.value.code == "MR-8004"
    assert "no-such-option" in caught.value.message


@pytest.mark.chaos
def test_root_cannot_log_in_over_tcp(target_server: DatabaseServer) -> None:
    """Root logs in only over the socket."""
    hosts = target_server.execute("SELECT DISTINCT host FROM mysql.user WHERE user IN ('root', '')")
    assert hosts == [("localhost",)]
    for host in ("127.0.0.1", "::1", "localhost"):
        with pytest.raises(pymysql.OperationalError):
            pymysql.connect(host=host, port=target_server.port, user="root")


@pytest.mark.chaos
def test_target_account_has_all_privileges(target_server: DatabaseServer) -> None:
    """The account of a target creates, writes and drops."""
    connection = pymysql.connect(
        host=target_server.host,
        port=target_server.port,
        user=target_server.user,
        password=target_server.password,
    )
    with connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE house_target")
        cursor.execute("DROP DATABASE house_target")
        cursor.execute("SELECT CURRENT_USER()")
        assert cursor.fetchone() == ("millrace@%",)


@pytest.mark.chaos
def test_killed_broker_serves_again_on_the_same_port(new_kafka: KafkaServer) -> None:
    """Kafka comes back after SIGKILL, within seconds."""
    new_kafka.kill()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", new_kafka.port), timeout=1)
    new_kafka.start()
    socket.create_connection(("127.0.0.1", new_kafka.port), timeout=5).close()
    assert new_kafka.is_alive()


@pytest.mark.chaos
def test_stopped_server_leaves_no_process(new_zookeeper: ZooKeeperServer) -> None:
    """Stopping a server ends all processes of its session."""
    identity = new_zookeeper.process.identity
    assert session_members(identity)
    new_zookeeper.stop()
    eventually(lambda: not session_members(identity))
    assert not new_zookeeper.is_alive()


@pytest.mark.chaos
def test_java_servers_start_in_a_folder_with_any_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The home folder may have a name in any script. Nothing is written to a misread name."""
    monkeypatch.setenv("LC_ALL", "C.UTF-8")  # Java names files as the user's locale does
    folder = tmp_path / "zo\u00eb \u0159\\u0041"
    folder.mkdir()
    (folder / "jars").symlink_to(home() / "jars")
    # without templates, so Kafka's storage is formatted here
    monkeypatch.setenv(HOME_VARIABLE, str(folder))
    for server in (ZooKeeperServer(folder / "zookeeper"), KafkaServer(folder / "kafka")):
        server.start()
        server.kill()
    assert list(tmp_path.iterdir()) == [folder]
    assert list((folder / "templates").glob("kafka-*/meta.properties"))
    assert any((folder / "zookeeper" / "data").glob("version-*"))
    assert any((folder / "kafka" / "data").glob("__cluster_metadata-*"))


@pytest.mark.chaos
def test_bundled_client_speaks_utf8mb4(target_server: DatabaseServer) -> None:
    """An emoji in a statement is stored and printed as it is, whatever the client's own default is."""
    program = Path(target_server.dialect.command()[0])
    command = client_command(
        program, target_server.host, target_server.port, user=target_server.user
    )
    statement = "SELECT @@character_set_client, HEX('🎉') AS bytes, '🎉' AS emoji"
    done = subprocess.run(
        [*command, "--skip-column-names", "-e", statement],
        env=os.environ | {"MYSQL_PWD": target_server.password},
        capture_output=True,
        check=True,
    )
    assert done.stdout.decode().split() == ["utf8mb4", "F09F8E89", "🎉"]


def test_rights_that_a_broker_refuses_are_named(kafka: KafkaServer) -> None:
    """A broker without an authorizer stores no ACL. The start of a stack ends with the user and Kafka's reason."""
    with pytest.raises(Fatal, match=r"the rights of user reader: .*SECURITY_DISABLED") as caught:
        KafkaUsers(Brokers(kafka.bootstrap)).allow("reader", apply_acls("topic"))
    assert caught.value.code == "MR-8007"
