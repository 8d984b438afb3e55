"""A target that stops answering, or disconnects within an answer."""

import gc
import socket
import sys
from time import monotonic

import pytest

from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql import connection as connections
from millrace.drivers.mysql.connection import Endpoint, connect
from millrace.errors import Retryable
from tests.kit.apply.local import endpoint_of
from tests.kit.sockets import connections_to, duplicate
from tests.kit.waiting import answered


def test_vanished_target_is_noticed_after_a_minute(target_server: DatabaseServer) -> None:
    """The system default probes an idle connection after two hours and drops a dead one after a quarter of an hour."""
    before = connections_to(target_server.port)
    session = connect(endpoint_of(target_server))
    (descriptor,) = connections_to(target_server.port) - before
    with duplicate(descriptor) as wire:
        options = {
            name: wire.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
            for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
        }
        assert wire.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    session.close()
    idle_s, dead_ms = options["TCP_KEEPIDLE"], options["TCP_USER_TIMEOUT"]
    assert idle_s + options["TCP_KEEPINTVL"] * options["TCP_KEEPCNT"] == 60
    assert dead_ms == 60_000


def test_statement_may_take_longer_than_a_login(
    target_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time limit of the login does not apply to later statements."""
    monkeypatch.setattr(connections, "LOGIN_S", 1.0)
    session = answered(lambda: connect(endpoint_of(target_server)), Retryable)
    assert session.query("SELECT SLEEP(1.5)") == [(0,)]
    session.close()


def test_silent_target_times_out_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped process behaves like this; the search for the primary continues with the next member."""
    monkeypatch.setattr(connections, "LOGIN_S", 0.2)
    monkeypatch.setattr(connections, "READ_S", 120.0)
    began_s = monotonic()
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(Retryable) as caught:
        connect(Endpoint("127.0.0.1", silent.getsockname()[1], "nobody", ""))
    assert caught.value.code == "MR-5001"
    assert monotonic() - began_s < 120


LONG = (  # 200 MB: no buffer on the way holds it
    "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 200)"
    " SELECT REPEAT('x', 1000000) FROM n"
)


@pytest.mark.parametrize("reads_on", [True, False])
def test_closing_a_stream_of_a_broken_connection_stays_silent(
    reads_on: bool, target_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller gets the original error; the driver would otherwise read on from a closed socket."""
    unheard: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unheard.append)
    session = connect(endpoint_of(target_server))
    stream = session.stream(LONG)
    assert len(stream.take(1)) == 1
    session.cut()
    if reads_on:
        with pytest.raises(Retryable) as caught:
            stream.take(200)
        assert caught.value.code == "MR-5001"
        del caught
    assert session.is_open != reads_on
    stream.close()
    stream.close()
    del stream
    session.close()
    del session
    gc.collect()
    assert unheard == []
