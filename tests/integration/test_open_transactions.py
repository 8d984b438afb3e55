"""A broker is queried for open Kafka transactions with the settings of all other connections."""

import socket
import threading

import pytest

from millrace.drivers.kafka.access import GivenAccess
from millrace.drivers.kafka.open_transactions import find_open_writer

TLS_HANDSHAKE = 0x16  # first byte of a TLS connection; a plain request starts with its length, whose first byte is 0
ACCEPT_S = 30.0


class _Listener:
    """Records the first byte of a connection, then closes it."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.settimeout(ACCEPT_S)
        self.first: list[int] = []
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._socket.getsockname()[1]}"

    def _accept(self) -> None:
        with self._socket.accept()[0] as connection:
            self.first += connection.recv(1)

    def finish(self) -> list[int]:
        """Return the first byte."""
        self._thread.join()
        self._socket.close()
        return self.first


@pytest.mark.parametrize(("protocol", "first"), [("plaintext", 0), ("ssl", TLS_HANDSHAKE)])
def test_broker_is_queried_with_the_configured_protocol(protocol: str, first: int) -> None:
    """A TLS listener does not answer plain bytes, and the writer stays unknown."""
    listener = _Listener()
    brokers = GivenAccess(listener.address, {"security.protocol": protocol})
    assert find_open_writer(brokers, "shop", offset=7) == ""
    assert listener.finish() == [first]


def test_broker_that_requires_login_is_not_queried() -> None:
    """Millrace opens no connection to it."""
    brokers = GivenAccess("127.0.0.1:1", {"security.protocol": "SASL_SSL"})
    assert find_open_writer(brokers, "shop", offset=7) == ""
