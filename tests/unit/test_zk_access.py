"""The access to ZooKeeper as the environment describes it, and the ACLs that follow from it."""

import socket
import ssl
import threading
from pathlib import Path

import pytest

from millrace.errors import Fatal, Retryable
from millrace.schemas.documents import SecretPlace, SecretReference
from millrace.zk.client import wire
from millrace.zk.client.access import (
    EVERYTHING,
    OPEN,
    READING,
    WORLD,
    Access,
    Grant,
    Identity,
    Login,
    Policy,
    TlsAccess,
)
from millrace.zk.client.driver import KazooThreads, grant_of, kazoo_acl
from millrace.zk.tree.acls import NodeAcl, differing
from tests.kit.certificates import Authority

PASSWORD = {"USER": "millrace", "PASSWORD": "env:WORD"}
FILES = {"TLS_CA": "/ca", "TLS_CERT": "/c", "TLS_KEY": "/k"}
WRITER, READER = Identity("sasl", "millrace"), Identity("sasl", "observer")


def _access(**given: str) -> Access:
    return Access.from_environment(
        {f"MILLRACE_ZOOKEEPER_{name}": value for name, value in given.items()}
    )


def test_environment_without_access_leaves_nodes_open() -> None:
    """As before; a service warns of it."""
    access = Access.from_environment({"MILLRACE_ZOOKEEPER": "h:1", "MILLRACE_ZOOKEEPER_USER": " "})
    assert access == Access()
    assert len(access.weaknesses()) == 1
    assert _access(**PASSWORD, TLS="verify-ca").weaknesses() == []
    assert len(_access(**PASSWORD).weaknesses()) == 1
    assert len(_access(WRITERS="world:anyone").weaknesses()) == 1


def test_login_and_tls_are_read_from_the_environment() -> None:
    """The user of the login may write unless writers are named."""
    access = _access(**PASSWORD, TLS="verify-identity", **FILES)
    files = TlsAccess(ca_path="/ca", certificate_path="/c", key_path="/k", checks_name=True)
    login = Login("millrace", SecretReference(SecretPlace.ENVIRONMENT, "WORD"))
    assert access == Access(tls=files, login=login, policy=Policy((WRITER,)))
    named = _access(**PASSWORD, WRITERS="x509:O=My Org,CN=a:b; sasl:x;", READERS="world:anyone")
    assert named.policy == Policy(
        (Identity("x509", "O=My Org,CN=a:b"), Identity("sasl", "x")), (WORLD,)
    )


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"TLS": "require-unverified"}, "TLS"),
        ({"TLS_CA": "/ca"}, "TLS_CA"),
        ({"TLS": "verify-ca", "TLS_CERT": "/c"}, "TLS_CERT"),
        ({"TLS": "verify-ca", "TLS_KEY": "/k"}, "TLS_KEY"),
        ({"USER": "u"}, "USER"),
        ({"PASSWORD": "env:X"}, "PASSWORD"),
        ({"USER": "u", "PASSWORD": "hunter2"}, "PASSWORD"),
        ({"TLS": "verify-ca", "TLS_CERT": "/c", "TLS_KEY": "/k"}, "WRITERS"),
        ({"READERS": "sasl:x"}, "READERS"),
        ({**PASSWORD, "WRITERS": "millrace"}, "WRITERS"),
        ({**PASSWORD, "READERS": "sasl:"}, "READERS"),
    ],
)
def test_contradicting_variables_are_refused(given: dict[str, str], name: str) -> None:
    """The error names the variable, and never repeats what may be a password."""
    with pytest.raises(Fatal) as caught:
        _access(**given)
    assert caught.value.code == "MR-7027"
    assert f"MILLRACE_ZOOKEEPER_{name} " in caught.value.message
    assert "hunter2" not in caught.value.message


def test_policy_gives_readers_only_reading() -> None:
    """A reader that is also a writer may write."""
    policy = Policy((WRITER,), (READER, WRITER))
    assert policy.acl == {Grant(WRITER, EVERYTHING), Grant(READER, READING)}


def test_acl_survives_the_way_to_the_driver() -> None:
    """Every subset of the permissions, in one spelling."""
    letters = ["", *EVERYTHING, "cr", "dw", "crw", EVERYTHING]
    acl = frozenset(Grant(Identity("sasl", f"u{n}"), some) for n, some in enumerate(letters))
    assert frozenset(map(grant_of, kazoo_acl(acl))) == acl


def test_only_a_world_writable_common_root_differs() -> None:
    """It may belong to clusters with other logins; below it, every other ACL differs."""
    policy = Policy((WRITER,), (READER,))
    foreign = frozenset({Grant(Identity("sasl", "other"), EVERYTHING)})
    readable = foreign | {Grant(WORLD, READING)}
    nodes = [
        NodeAcl(path, acl, 0)
        for path in ("/millrace", "/millrace/c")
        for acl in (OPEN, foreign, readable, policy.acl)
    ]
    found = [(node.path, node.acl) for node in differing(nodes, policy)]
    assert found == [
        ("/millrace", OPEN),
        ("/millrace/c", OPEN),
        ("/millrace/c", foreign),
        ("/millrace/c", readable),
    ]


def test_unusable_certificate_files_are_named(tmp_path: Path) -> None:
    """Before any connection: a missing CA, a key of another certificate, an encrypted key."""
    files = Authority(tmp_path / "one").issue("w1")
    other = Authority(tmp_path / "two").issue("w2")
    missing = TlsAccess(ca_path=str(tmp_path / "none.pem"))
    swapped = TlsAccess(
        ca_path=str(files.authority),
        certificate_path=str(files.certificate),
        key_path=str(other.key),
    )
    for tls, named in ((missing, "none.pem"), (swapped, str(other.key))):
        with pytest.raises(Fatal, match="MR-7027") as caught:
            wire.check_files(tls)
        assert named in caught.value.message


def test_shortage_while_reading_certificates_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without free descriptors recovers."""

    def refuse(**_: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(ssl, "create_default_context", refuse)
    with pytest.raises(Retryable, match="MR-4014"):
        wire.check_files(TlsAccess())


def test_answers_in_one_tls_record_are_read_at_once(tmp_path: Path) -> None:
    """The rest of a record is in OpenSSL's buffer, where the descriptor shows nothing."""
    files = Authority(tmp_path / "tls").issue("server")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(files.certificate, files.key)
    client = wire.context_of(TlsAccess(ca_path=str(files.authority)))
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with server.wrap_socket(theirs, server_side=True) as connection:
            connection.sendall(b"two answers")
            connection.recv(1)

    thread = threading.Thread(target=serve)
    thread.start()
    with client.wrap_socket(ours, server_hostname="localhost") as connection:
        threads = KazooThreads(None)
        assert threads.select([connection], [], [], 60.0)[0] == [connection]
        assert connection.recv(3) == b"two"
        assert threads.select([connection], [], [], 0.0)[0] == [connection]
        connection.sendall(b".")
    thread.join()
