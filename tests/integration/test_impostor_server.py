"""A server that wants the account's password, or a file of the client. Both halves log in to it with real PyMySQL."""

import socket
import ssl
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from millrace.drivers.mysql import connection as target
from millrace.drivers.mysql.connection import Endpoint
from millrace.errors import Fatal, MillraceError
from millrace.producer.source.connection import Login, connect_member
from millrace.schemas.documents import Member, SecretPlace, SecretReference, Tls, TlsMode
from tests.kit import canaries
from tests.kit.certificates import Authority

PASSWORD = "canary-of-impostor"
SCRAMBLE = b"a" * 8, b"b" * 12
PUBLIC_KEY = (
    b"-----BEGIN PUBLIC KEY-----\nMFwwDQYJKoZIhvcNAQEBBQADSwAwSAJB\n-----END PUBLIC KEY-----\n"
)
_CAPABILITIES = 0x000A_8209 | 0x1_0000 | 0x2_0000
_SSL = 0x800
WAIT_S = 10

# what the impostor answers to each packet of the client
SCRIPTS: dict[str, list[bytes]] = {
    "clear": [b"\xfemysql_clear_password\0"],
    "dialog": [b"\xfedialog\0\x04Password: "],
    "old": [b"\xfemysql_old_password\0" + b"a" * 8 + b"\0"],
    "sha256": [b"\xfesha256_password\0" + b"a" * 20 + b"\0", b"\x01" + PUBLIC_KEY],
    "sha2 key": [
        b"\xfecaching_sha2_password\0" + b"a" * 20 + b"\0",
        b"\x01\x04",
        b"\x01" + PUBLIC_KEY,
    ],
}


class Impostor:
    """Serves one client and keeps the packets that it sent."""

    def __init__(self, script: list[bytes], context: ssl.SSLContext | None) -> None:
        self._script = script
        self._context = context
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(WAIT_S)
        self.port: int = self._listening.getsockname()[1]
        self.packets: list[bytes] = []

    def close(self) -> None:
        """Stop listening."""
        self._listening.close()

    def serve(self) -> None:
        """The body of its thread."""
        with suppress(OSError):
            connection, _ = self._listening.accept()
            connection.settimeout(WAIT_S)
            with connection:
                self._talk(connection)

    def _talk(self, connection: socket.socket) -> None:
        offered = _CAPABILITIES | (_SSL if self._context else 0)
        greeting = (
            b"\x0a8.0.40\0" + struct.pack("<I", 7) + SCRAMBLE[0] + b"\0"
            + struct.pack("<HBHHB", offered & 0xFFFF, 45, 2, offered >> 16, 21)
            + bytes(10) + SCRAMBLE[1] + b"\0mysql_native_password\0"
        )  # fmt: skip
        _send(connection, 0, greeting)
        sequence, payload = _receive(connection)
        if self._context is None:
            self._ask(connection, sequence, payload)
            return
        with self._context.wrap_socket(connection, server_side=True) as inside:
            self._ask(inside, *_receive(inside))

    def _ask(self, connection: socket.socket, sequence: int, payload: bytes) -> None:
        self.packets.append(payload)
        for answer in self._script:
            _send(connection, sequence + 1, answer)
            sequence, payload = _receive(connection)
            self.packets.append(payload)


def _send(connection: socket.socket, sequence: int, payload: bytes) -> None:
    connection.sendall(struct.pack("<I", len(payload))[:3] + bytes([sequence & 255]) + payload)


def _receive(connection: socket.socket) -> tuple[int, bytes]:
    head = _exactly(connection, 4)
    return head[3], _exactly(connection, int.from_bytes(head[:3], "little"))


def _exactly(connection: socket.socket, count: int) -> bytes:
    content = b""
    while len(content) < count:
        part = connection.recv(count - len(content))
        if not part:
            raise OSError("the client has left")
        content += part
    return content


@contextmanager
def impostor(script: list[bytes], context: ssl.SSLContext | None = None) -> Iterator[Impostor]:
    """An impostor that has ended after the block."""
    server = Impostor(script, context)
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        thread.join()
        server.close()


def log_in_as_capture(port: int, mode: TlsMode) -> None:
    """As capture does, and its first query."""
    login = Login(user="u", password=PASSWORD, tls=Tls(mode))
    with connect_member(Member("127.0.0.1", port), login, timeout_s=WAIT_S) as source:
        source.query("SELECT 1")


def log_in_as_apply(port: int, mode: TlsMode) -> None:
    """As apply does, and its first query."""
    target.connect(Endpoint("127.0.0.1", port, "u", PASSWORD, Tls(mode))).close()


HALVES = (log_in_as_capture, log_in_as_apply)


@pytest.fixture(scope="module")
def unknown(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """TLS with a certificate that no one trusts."""
    files = Authority(tmp_path_factory.mktemp("impostor") / "ca").issue("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    return context


@pytest.mark.parametrize("has_rsa", [False, True])
@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("plugin", SCRIPTS)
def test_no_impostor_gets_the_password(
    plugin: str, half: object, has_rsa: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without TLS: neither as plain text nor for a key that the server sends, also if PyMySQL could use one."""

    def encrypt(password: bytes, _salt: bytes, key: bytes) -> bytes:
        if not key.startswith(b"-----BEGIN"):
            raise ValueError("not a key")  # as cryptography does
        return b"encrypted " + password

    if has_rsa:
        monkeypatch.setattr("pymysql._auth.sha2_rsa_encrypt", encrypt)
    assert callable(half)
    with impostor(SCRIPTS[plugin]) as server, pytest.raises(MillraceError) as caught:
        half(server.port, TlsMode.DISABLED)
    assert caught.value.code in ("MR-1008", "MR-5002")
    assert server.packets, "the client has come"
    assert not [packet for packet in server.packets[1:] if packet in (b"\x01", b"\x02")], "no key"
    assert not any(canaries.shown(packet, {"password": PASSWORD}) for packet in server.packets)
    assert len(server.packets) <= 2, "the last is a proof"


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("plugin", ["clear", "dialog", "old"])
def test_unverified_tls_hides_no_password_from_an_impostor(
    plugin: str, half: object, unknown: ssl.SSLContext
) -> None:
    """``require-unverified`` encrypts for any server that answers."""
    assert callable(half)
    with impostor(SCRIPTS[plugin], unknown) as server, pytest.raises(MillraceError) as caught:
        half(server.port, TlsMode.REQUIRE_UNVERIFIED)
    assert caught.value.code in ("MR-1008", "MR-5002")
    assert not any(canaries.shown(packet, {"password": PASSWORD}) for packet in server.packets)


def test_each_login_over_verified_tls_gets_a_new_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a login by IAM does: the password is the output of a program, sent as it is, of 1.8 kB."""
    authority = Authority(tmp_path / "ca")
    files = authority.issue("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    program = tmp_path / "token"
    program.write_text('#!/bin/sh\necho >> "$0.runs"\nprintf "%0*d\\n" 1800 $(wc -l < "$0.runs")\n')
    program.chmod(0o700)
    monkeypatch.setenv("MILLRACE_SECRETS_EXEC", "allow")
    secret = SecretReference(SecretPlace.PROGRAM, str(program))
    login = Login(user="u", password=secret, tls=Tls(TlsMode.VERIFY_IDENTITY, str(authority.path)))
    for number in (1, 2):
        with (
            impostor([*SCRIPTS["clear"], b"\0\0\0\2\0\0\0"], context) as server,
            pytest.raises(MillraceError),  # it answers nothing after the login
        ):
            connect_member(Member("localhost", server.port), login, timeout_s=WAIT_S)
        assert server.packets[1] == f"{number:01800d}".encode() + b"\0"


@pytest.mark.parametrize("half", HALVES)
def test_login_that_needs_a_package_names_it(half: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyMySQL signs for MariaDB's ed25519 with a package that Millrace does not need. TLS would not help."""
    monkeypatch.setitem(sys.modules, "nacl", None)
    assert callable(half)
    script = [b"\xfeclient_ed25519\0" + b"a" * 32]
    with impostor(script) as server, pytest.raises(Fatal) as caught:
        half(server.port, TlsMode.DISABLED)
    assert caught.value.code in ("MR-1008", "MR-5002")
    assert "pip install pynacl" in caught.value.fix
    assert "tls" not in caught.value.fix


@pytest.mark.parametrize("half", HALVES)
def test_server_without_tls_gets_no_login(half: object) -> None:
    """TLS is required, and the server offers none: an older PyMySQL logs in without."""
    assert callable(half)
    with impostor(SCRIPTS["clear"]) as server, pytest.raises(MillraceError):
        half(server.port, TlsMode.REQUIRE_UNVERIFIED)
    assert server.packets == []


@pytest.mark.parametrize("half", HALVES)
def test_server_gets_no_file_of_the_client(half: object, tmp_path: Path) -> None:
    """It answers a query with the request for a file, as for LOAD DATA LOCAL."""
    secret = tmp_path / "secret"
    secret.write_text("canary of a file")
    ok = b"\0\0\0\2\0\0\0"
    script = [ok, *[b"\xfb" + str(secret).encode()] * 3]
    assert callable(half)
    with impostor(script) as server, pytest.raises(MillraceError):
        half(server.port, TlsMode.DISABLED)
    assert not any(b"canary of a file" in packet for packet in server.packets)
