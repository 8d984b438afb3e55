"""How a broker is asked whose Kafka transaction is open: by the settings of every other connection."""

import socket
import threading

import pytest

from producer.publish.open_transactions import open_writer

TLS_HANDSHAKE = (
    0x16  # the first byte of a TLS connection; a plain request begins with its length, 0
)
ACCEPT_S = 30.0


class _Listener:
    """Notes the first byte of a connection, then ends it."""

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
        """What came first."""
        self._thread.join()
        self._socket.close()
        return self.first


@pytest.mark.parametrize(("protocol", "first"), [("plaintext", 0), ("ssl", TLS_HANDSHAKE)])
def test_broker_is_queried_with_the_configured_protocol(protocol: str, first: int) -> None:
    """Plain bytes to a TLS listener are answered by nothing, and the writer stays unknown."""
    listener = _Listener()
    settings = {"bootstrap.servers": listener.address, "security.protocol": protocol}
    assert open_writer(settings, "shop", offset=7) == ""
    assert listener.finish() == [first]


def test_broker_that_requires_login_is_not_queried() -> None:
    """Nothing is sent to it: not even a connection is made."""
    settings = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SASL_SSL"}
    assert open_writer(settings, "shop", offset=7) == ""
