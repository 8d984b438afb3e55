"""An unusable CA file is reported with its name by source and target, before any connection."""

import errno
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from millrace.drivers.mysql.connection import Endpoint, connect
from millrace.errors import Fatal, Retryable
from millrace.process.privacy import reader
from millrace.producer.source.connection import Login, connect_member
from millrace.schemas.documents import Member, Tls, TlsMode

Connect = Callable[[str], object]


def _source(ca_path: str) -> object:
    login = Login(user="someone", password="secret", tls=Tls(TlsMode.VERIFY_CA, ca_path))
    return connect_member(Member("127.0.0.1", 1), login)


def _target(ca_path: str) -> object:
    return connect(Endpoint("127.0.0.1", 1, "someone", "", Tls(TlsMode.VERIFY_CA, ca_path)))


SIDES = pytest.mark.parametrize(
    ("side", "code", "away"),
    [(_source, "MR-1003", "MR-1001"), (_target, "MR-5009", "MR-5001")],
    ids=["source", "target"],
)


def _missing(path: Path) -> None:
    """Return a path that does not exist on this machine."""


def _empty(path: Path) -> None:
    path.touch()


def _key_alone(path: Path) -> None:
    path.write_text("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")


def _cut(path: Path) -> None:
    path.write_text("-----BEGIN CERTIFICATE-----\nMIIB")


def _folder(path: Path) -> None:
    path.mkdir()


@SIDES
@pytest.mark.parametrize("make", [_missing, _empty, _key_alone, _cut, _folder])
def test_ca_file_without_a_certificate_stops_the_task(
    side: Connect, code: str, away: str, make: Callable[[Path], None], tmp_path: Path
) -> None:
    """It was once retried forever, like an unreachable server."""
    path = tmp_path / "authority.pem"
    make(path)
    with pytest.raises(Fatal) as caught:
        side(str(path))
    assert caught.value.code == code
    assert str(path) in caught.value.message
    assert str(path) in caught.value.fix
    assert reader() in caught.value.message


def test_ca_file_that_a_hardened_service_cannot_see_is_named() -> None:
    """An operator finds it at its path, and the service does not."""
    for folder, word in (("/tmp", "PrivateTmp"), ("/home/me", "ProtectHome")):
        with pytest.raises(Fatal, match=word):
            _target(f"{folder}/no-such-authority.pem")


@SIDES
@pytest.mark.parametrize(
    ("number", "stops"), [(errno.EACCES, True), (errno.EMFILE, False), (errno.EIO, False)]
)
def test_only_a_permanently_unreadable_ca_file_stops_the_task(
    side: Connect,
    code: str,
    away: str,
    number: int,
    stops: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Permissions stay as they are; a machine without free descriptors, or with a failing disk, may recover."""

    def refuse(**_: object) -> None:
        raise OSError(number, "text")

    monkeypatch.setattr(ssl, "create_default_context", refuse)
    with pytest.raises(Fatal if stops else Retryable) as caught:
        side("/ca.pem")
    assert caught.value.code == (code if stops else away)
