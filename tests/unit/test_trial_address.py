"""The URL of a server for ``millrace try``."""

import pytest

from millrace.cli.trial.address import ServerAddress
from millrace.errors import Fatal
from millrace.schemas.documents import Member, Tls, TlsMode


@pytest.mark.parametrize(
    ("url", "members", "user", "password", "tables"),
    [
        ("mysql://me@db", (Member("db", 3306),), "me", None, "*.*"),
        ("mariadb://me:p%40%23@db:1/", (Member("db", 1),), "me", "p@#", "*.*"),
        ("mysql://me:@localhost/shop", (Member("127.0.0.1", 3306),), "me", "", "shop.*"),
        ("mysql://a%3Ab@[::1]:7/shop.or*", (Member("::1", 7),), "a:b", None, "shop.or*"),
        ("mysql://me@[::1],b:2/%61.b", (Member("::1", 3306), Member("b", 2)), "me", None, "a.b"),
    ],
)
def test_url_names_members_account_and_tables(
    url: str, members: tuple[Member, ...], user: str, password: str | None, tables: str
) -> None:
    """Characters that mean something in a URL are percent-encoded."""
    address = ServerAddress.parse(url)
    assert (address.members, address.user, address.password) == (members, user, password)
    assert (address.tables, address.tls) == (tables, None)


def test_url_decides_about_tls() -> None:
    """By the modes of a set document."""
    address = ServerAddress.parse("mysql://me@db?tls=verify-ca&ca=/etc/ca.pem")
    assert address.tls == Tls(TlsMode.VERIFY_CA, "/etc/ca.pem")
    assert ServerAddress.parse("mysql://me@db?ca=/a").tls == Tls(TlsMode.VERIFY_IDENTITY, "/a")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "db",
        "postgres://me:secret@db",
        "mysql://db",
        "mysql://:secret@db",
        "mysql://me:secret@",
        "mysql://me:secret@db:port",
        "mysql://me:secret@db:0",
        "mysql://me:se#cret@db",
        "mysql://me:secret@db/shop/orders",
        "mysql://me:secret@db?tls=perhaps",
        "mysql://me:secret@db?ssl=1",
        "mysql://me:secret@a,,b",
        "mysql://me:secret@[::1",
    ],
)
def test_malformed_url_is_refused_without_its_password(url: str) -> None:
    """The message can be shown to anybody."""
    with pytest.raises(Fatal) as caught:
        ServerAddress.parse(url)
    assert caught.value.code == "MR-4149"
    assert "secret" not in f"{caught.value} {caught.value.fix}"
