"""A target that says nothing any more: how long a session waits for it."""

import socket
from time import monotonic

import pytest

from consumer.target import connection as connections
from consumer.target.connection import Endpoint, connect
from deploy.servers import DatabaseServer
from millrace.errors import Retryable
from tests.apply_local import endpoint_of


def test_a_vanished_target_is_noticed_after_a_minute(target_server: DatabaseServer) -> None:
    """The system would ask an idle connection after two hours, and give one up after a quarter of an hour."""
    session = connect(endpoint_of(target_server))
    wire = session._connection._sock  # type: ignore[attr-defined]
    asked = {
        name: wire.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
        for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
    }
    assert wire.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert session.query("SELECT 1") == [(1,)]
    assert wire.gettimeout() == connections.READ_S  # a statement may take longer than a login
    session.close()
    idle_s, dead_ms = asked["TCP_KEEPIDLE"], asked["TCP_USER_TIMEOUT"]
    assert idle_s + asked["TCP_KEEPINTVL"] * asked["TCP_KEEPCNT"] == 60
    assert dead_ms == 60_000


def test_a_target_that_takes_connections_and_says_nothing_is_given_up_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that is stopped answers like this: to look for the primary goes on with the next member."""
    monkeypatch.setattr(connections, "LOGIN_S", 0.2)
    monkeypatch.setattr(connections, "READ_S", 120.0)
    began_s = monotonic()
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(Retryable) as caught:
        connect(Endpoint("127.0.0.1", silent.getsockname()[1], "nobody", ""))
    assert caught.value.code == "MR-5001"
    assert monotonic() - began_s < 120
