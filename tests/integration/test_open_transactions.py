"""A broker is queried for open Kafka transactions with the settings of all other connections."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from millrace.drivers.kafka import open_transactions
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


def test_writer_is_found_if_another_broker_coordinates_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """One broker leads the partition, the other knows the transactional ID: the usual case in a cluster."""

    def connect(_: object, host: str, port: int) -> socket.socket:
        return socket.create_connection((host, port), ACCEPT_S)  # these brokers know no login

    monkeypatch.setattr(open_transactions, "connect", connect)
    leader = {61: _producers(17, 7), 66: _transactions("")}
    coordinator = {61: _producers(0, -1), 66: _transactions("millrace/shop/0")}
    for brokers in ((leader, coordinator), (coordinator, leader)):
        with ExitStack() as stack:
            hosts = [stack.enter_context(_broker(answers)) for answers in brokers]
            access = GivenAccess(",".join(hosts), {})
            assert find_open_writer(access, "shop", offset=7) == "millrace/shop/0"
            assert find_open_writer(access, "shop", offset=8) == ""


@contextmanager
def _broker(answers: dict[int, bytes]) -> Iterator[str]:
    """The address of a broker that answers each request by its number."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=_serve, args=(listening, answers.__getitem__))
        thread.start()
        address = listening.getsockname()
        try:
            yield f"127.0.0.1:{address[1]}"
        finally:
            socket.create_connection(address).close()  # ends it
            thread.join()


def _serve(listening: socket.socket, answer: Callable[[int], bytes]) -> None:
    while True:
        connection, _ = listening.accept()
        with connection:
            request = connection.recv(4096)
            if not request:
                return
            body = bytes(5) + answer(struct.unpack_from(">h", request, 4)[0])
            connection.sendall(struct.pack(">i", len(body)) + body)


def _producers(producer_id: int, start: int) -> bytes:
    producer = struct.pack(">qiiqiq", producer_id, 0, 0, 0, 0, start) + b"\0"
    partition = struct.pack(">ih", 0, 0) + b"\0\2" + producer + b"\0"
    return bytes(4) + b"\2\5shop\2" + partition + b"\0\0"


def _transactions(name: str) -> bytes:
    count = b"\2" if name else b"\1"
    return bytes(4 + 2) + b"\1" + count + bytes([len(name) + 1]) + name.encode() + bytes(10)
