"""A server that refuses the account of a set: the fix names the reference of the password and its reader."""

import os
import pwd
from dataclasses import replace

import pytest

from millrace.drivers.mysql import primary
from millrace.errors import Fatal
from millrace.producer.source import connection
from millrace.producer.source.connection import Login, connect_member
from millrace.schemas.documents import Account, SecretPlace, SecretReference
from tests.kit.control.control import a_set

PASSWORD = SecretReference(SecretPlace.ENVIRONMENT, "SHOP_PASSWORD")
SHOP = replace(a_set(), account=Account("repl", PASSWORD))


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "canary")


def _refused(code: str) -> Fatal:
    return Fatal(code, "db:1: Access denied for user 'repl'")


def test_refused_source_login_names_where_its_password_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The set document, which the catalogue names, only refers to it."""

    def refuse(*_: object, **__: object) -> None:
        raise _refused("MR-1002")

    monkeypatch.setattr(connection, "connect", refuse)
    login = Login(user="repl", password=PASSWORD, tls=SHOP.tls)
    with pytest.raises(Fatal) as caught:
        connect_member(SHOP.members[0], login)
    _check(caught.value)
    with pytest.raises(Fatal) as caught:
        connect_member(SHOP.members[0], replace(login, password="canary"))  # of `millrace try`
    assert not caught.value.own_fix


def test_refused_target_login_names_where_its_password_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for the source."""
    monkeypatch.setattr(primary, "ask_each", lambda asked, _: [_refused("MR-5002") for _ in asked])
    with pytest.raises(Fatal) as caught:
        primary.primary_member(SHOP)
    _check(caught.value)


def _check(error: Fatal) -> None:
    user, host = pwd.getpwuid(os.geteuid()).pw_name, os.uname().nodename
    assert f"password of repl in env:SHOP_PASSWORD, as user {user} on host {host}" in error.fix
    assert "millrace task resume TASK" in error.fix
    assert "canary" not in f"{error} {error.fix}"
