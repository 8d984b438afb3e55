"""Logins at a served relay log: TLS, the account, limits. Clients are real programs, replicas and PyMySQL."""

import re
import socket
import struct
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from ssl import SSLContext
from typing import Any

import pymysql
import pytest
from pymysql.constants import ER

from millrace import cli
from millrace.deploy.servers import DatabaseServer, ServerOptions
from millrace.deploy.servers.tls import tls_files
from millrace.errors import Fatal
from millrace.producer.serve import clients, session
from millrace.producer.serve.login import ServedAccount
from millrace.schemas.gtid import Flavour
from tests.fixtures.servers import FLAVOURS, SMALL, NewServer
from tests.kit.relay.relay import receiving
from tests.kit.relay.serving import (
    PASSWORD,
    SET_NAME,
    USER,
    checksums,
    follow,
    options_in,
    run_binlog,
    served,
    wait_caught_up,
)
from tests.kit.relay.stream import DUMP, Address, connected, dump_packets, dump_request
from tests.kit.waiting import PATIENCE_S

COM_QUIT = 1
INSECURE = "Connections using insecure transport are prohibited.*errno=3159"


@pytest.mark.parametrize("flavour", FLAVOURS, ids=str)
@pytest.mark.guarantee("secret")
def test_replica_and_program_read_over_tls(
    flavour: Flavour, new_server: NewServer, tmp_path: Path
) -> None:
    """With a certificate, clients must use TLS; programs verify it."""
    files = tls_files()
    assert files is not None
    source = new_server(flavour, options=ServerOptions(server_id=1, extra=SMALL[flavour]))
    replica = new_server(flavour, options=ServerOptions(server_id=7, extra=SMALL[flavour]))
    with receiving(source, tmp_path / SET_NAME, from_first=True) as reception:
        source.execute("CREATE DATABASE d")
        source.execute("CREATE TABLE d.t (id INT PRIMARY KEY, v LONGTEXT)")
        source.execute(
            "INSERT INTO d.t VALUES (1, REPEAT('a', 9000000)), (2, REPEAT('b', 9000000))"
        )
        reception.wait_for(source)
        options = options_in(tmp_path, certificate=files.certificate, key=files.key)
        with served(tmp_path / SET_NAME, options) as address:
            follow(replica, address, ca=files.authority)
            wait_caught_up(replica, source)
            assert checksums(replica, "d.t") == checksums(source, "d.t")
            (tmp_path / "raw").mkdir()
            words = ("--raw", f"--result-file={tmp_path}/raw/", "mysql-bin-000001.000001")
            done = run_binlog(flavour, address, *words, ca=files.authority)
            assert done.returncode == 0, done.stderr.decode()
            with pytest.raises(Fatal, match=INSECURE):
                dump_packets(address, DUMP, dump_request(file=""))


@pytest.fixture
def relay_root(mariadb_server: DatabaseServer, tmp_path: Path) -> Path:
    """A small relay log of MariaDB."""
    with receiving(mariadb_server, tmp_path / SET_NAME) as reception:
        mariadb_server.execute("CREATE DATABASE IF NOT EXISTS served_login")
        reception.wait_for(mariadb_server)
    return tmp_path / SET_NAME


@pytest.mark.guarantee("secret")
def test_only_the_account_logs_in(relay_root: Path, tmp_path: Path) -> None:
    """Wrong names and passwords get the same error, also an empty password; a rotated password counts at once."""
    with served(relay_root, options_in(tmp_path)) as address:
        for user, password in (("root", PASSWORD), (USER, "wrong"), (USER, ""), ("", "")):
            with (
                pytest.raises(pymysql.Error) as refused,
                connected(Address(address.port, user, password)),
            ):
                pass
            assert refused.value.args[0] == ER.ACCESS_DENIED_ERROR
            assert PASSWORD not in str(refused.value)
        (tmp_path / "served-password").write_text("rotated")
        with connected(Address(address.port, USER, "rotated")):
            pass
    with served(relay_root, options_in(tmp_path, account=ServedAccount(USER, None))) as address:
        for password in ("", "any"):
            with connected(Address(address.port, USER, password)):
                pass


def test_connections_are_limited(relay_root: Path, tmp_path: Path) -> None:
    """One more than allowed gets error 1040; a place that is left is free again."""
    with served(relay_root, options_in(tmp_path, connections_max=2)) as address:
        with ExitStack() as stack:
            for _ in range(2):
                stack.enter_context(connected(address))
            with pytest.raises(pymysql.Error) as refused, connected(address):
                pass
            assert refused.value.args[0] == ER.CON_COUNT_ERROR
        dump_packets(address, DUMP, dump_request(file=""))


def test_clients_without_a_login_keep_no_place(
    relay_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are more than all places together, and send a byte now and then. Each is cut when its time is over."""
    monkeypatch.setattr(clients, "LOGINS_MAX", 4)
    monkeypatch.setattr(clients, "SLOW_S", 0.0)
    monkeypatch.setattr(session, "LOGIN_S", 1.0)
    ends = threading.Event()

    def drip(strangers: list[socket.socket]) -> None:
        while not ends.wait(0.05):
            for stranger in strangers:
                with suppress(OSError):  # the server has cut it
                    stranger.sendall(b"\1")

    with (
        served(relay_root, options_in(tmp_path, connections_max=2)) as address,
        ExitStack() as all_,
    ):
        strangers = [
            all_.enter_context(socket.create_connection(("127.0.0.1", address.port)))
            for _ in range(9)
        ]
        dripping = threading.Thread(target=drip, args=(strangers,))
        dripping.start()
        try:
            for _ in range(2):
                all_.enter_context(connected(address))
            for stranger in strangers:
                stranger.settimeout(PATIENCE_S)
                with suppress(ConnectionResetError):
                    while stranger.recv(1 << 16):
                        pass
        finally:
            ends.set()
            dripping.join()


def test_client_in_its_tls_handshake_keeps_no_place(
    relay_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks for TLS and says no more: the next client takes its place and ends its connection."""
    monkeypatch.setattr(clients, "LOGINS_MAX", 1)
    monkeypatch.setattr(clients, "SLOW_S", 0.0)
    monkeypatch.setattr(session, "LOGIN_S", 4 * PATIENCE_S)
    begun, wrap = threading.Event(), SSLContext.wrap_socket

    def noted(*arguments: Any, **options: Any) -> Any:
        begun.set()
        return wrap(*arguments, **options)

    monkeypatch.setattr(SSLContext, "wrap_socket", noted)
    files = tls_files()
    assert files is not None
    options = options_in(tmp_path, certificate=files.certificate, key=files.key)
    with (
        served(relay_root, options) as address,
        socket.create_connection(("127.0.0.1", address.port), timeout=PATIENCE_S) as stranger,
    ):
        greeting = stranger.recv(1 << 16)
        asks_for_tls = struct.pack("<IIB23x", 0x8A00, 1 << 24, 45)
        stranger.sendall(struct.pack("<I", len(asks_for_tls) | 1 << 24) + asks_for_tls)
        assert greeting
        assert begun.wait(PATIENCE_S)
        with socket.create_connection(("127.0.0.1", address.port), timeout=PATIENCE_S) as following:
            assert following.recv(1 << 16)
            assert stranger.recv(1 << 16) == b""


def test_client_without_checksums_or_gtids_is_refused(relay_root: Path, tmp_path: Path) -> None:
    """With error 1236 and the reason, as a server does."""
    with served(relay_root, options_in(tmp_path)) as address:
        for settings, reason in (
            (["SET @mariadb_slave_capability=4"], b"checksum"),
            (["SET @master_binlog_checksum='CRC32'"], b"mariadb_slave_capability"),
        ):
            (packet,) = dump_packets(address, DUMP, dump_request(file=""), settings=settings)
            assert packet[:3] == b"\xff\xd4\x04"
            assert reason in packet


@pytest.mark.guarantee("robust")
def test_garbage_ends_its_own_connection_only(relay_root: Path, tmp_path: Path) -> None:
    """Random bytes instead of a login, and random bodies of every command after it."""
    random = Random(7)
    with served(relay_root, options_in(tmp_path)) as address:
        for size in (1, 4, 36, 300, 100_000):
            with socket.create_connection(("127.0.0.1", address.port)) as client:
                client.recv(1000)
                with suppress(OSError):
                    client.sendall(random.randbytes(size))
                    client.shutdown(socket.SHUT_WR)
                    while client.recv(1000):
                        pass
        for command in (number for number in range(256) if number != COM_QUIT):
            body = random.randbytes(random.randrange(60))
            (answer,) = dump_packets(address, command, body, packets_max=1)
            assert answer[:1] in (b"\xff", b"\0", b"\xfe", b"M"), (command, answer)
        dump_packets(address, DUMP, dump_request(file=""))


@pytest.mark.guarantee("secret")
def test_password_in_the_argument_list_is_refused(
    relay_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And is not repeated."""
    words = ["relay", "serve", SET_NAME, "--relay-dir", str(relay_root.parent)]
    assert cli.run([*words, "--password", "plain-secret"]) == 4
    shown = capsys.readouterr().err
    assert re.search("MR-2022.*reference", shown)
    assert "plain-secret" not in shown
    assert cli.run([*words, "--listen", "0.0.0.0:0"]) == 4
    assert "MR-2020" in capsys.readouterr().err
