"""The registry's client handles answers that a registry would not send."""

import contextlib
import socket
import threading
from collections.abc import Callable

import pytest
import urllib3

from millrace.consumer.turn.executor import look_up_at
from millrace.errors import Fatal, Retryable
from millrace.registry import client
from millrace.schemas.documents import Registry
from millrace.schemas.record.control import DDL_SCHEMA

ADDRESS = "http://registry:8081"
SHORT = b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n"
PAGE = b"HTTP/1.1 200 OK\r\nContent-Length: 29\r\n\r\n<html>back in a\nminute</html>"
PASSING = {
    "nothing of the body": SHORT,
    "half of the body": SHORT + b'{"schema": "half of',
    "half a body that is JSON by chance": SHORT + b"5",
    "half of a refusal": b"HTTP/1.1 404 Not Found\r\nContent-Length: 50\r\n\r\n"
    + b'{"error_code": 40403',
    "half a chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n20\r\nhalf",
    "a proxy's page": PAGE,
    "an empty page": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "no end of brackets": b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000,
}


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Answer every request with these bytes, then close the connection."""

    def answer(raw: bytes) -> None:
        def connect(*_: object, **__: object) -> socket.socket:
            ours, theirs = socket.socketpair()
            threading.Thread(target=_answer_once, args=(theirs, raw)).start()
            return ours

        monkeypatch.setattr(urllib3.util.connection, "create_connection", connect)

    return answer


def _answer_once(connection: socket.socket, raw: bytes) -> None:
    with connection, contextlib.suppress(OSError):  # a client that has read enough hangs up
        connection.recv(1 << 16)
        connection.sendall(raw)


@pytest.mark.parametrize("raw", PASSING.values(), ids=PASSING.keys())
def test_truncated_answer_or_proxy_page_is_retried(
    raw: bytes, answered: Callable[[bytes], None]
) -> None:
    """A registry that restarts behind a proxy blocks neither a capture task nor an apply task, which looks ids up."""
    answered(raw)
    for ask in (
        lambda: client.RegistryClient(Registry(ADDRESS)).register("s", DDL_SCHEMA.text),
        lambda: client.RegistryClient(Registry(ADDRESS)).schema_by_id(7),
    ):
        with pytest.raises(Retryable) as caught:
            ask()
        assert caught.value.code == "MR-6020"
        assert ADDRESS in caught.value.message
    with pytest.raises(Retryable) as caught:
        look_up_at(Registry(ADDRESS))(7)
    assert caught.value.code == "MR-5033"


def test_page_in_place_of_an_answer_is_shown(answered: Callable[[bytes], None]) -> None:
    """The page shows which server answered."""
    answered(PAGE)
    with pytest.raises(Retryable, match=r"200.*back in a minute") as caught:
        client.RegistryClient(Registry(ADDRESS)).schema_by_id(7)
    assert "\n" not in caught.value.message  # a status has one line for it


@pytest.mark.parametrize(
    "content",
    [b'{"version": 5}', b"[]", b"null", b'"text"', b"<html>hello</html>"],
    ids=lambda content: content.decode(),
)
def test_answer_of_another_kind_of_server_is_retried(
    content: bytes, answered: Callable[[bytes], None]
) -> None:
    """The registry may be started at the address. The fix names the other program, not the compatibility."""
    for status in (b"200 OK", b"404 Not Found", b"405 Method Not Allowed"):
        answered(b"HTTP/1.1 " + status + b"\r\n\r\n" + content)
        asked = client.RegistryClient(Registry(ADDRESS))
        with pytest.raises(Retryable) as caught:
            asked.schema_by_id(7)
        assert caught.value.code == "MR-6020"
        assert "Another program" in caught.value.fix
        with pytest.raises(Retryable, match="MR-6020"):
            asked.setting("config", "compatibilityLevel")


def test_refusal_of_a_registry_is_fatal(answered: Callable[[bytes], None]) -> None:
    """It has Confluent's number."""
    body = b'{"error_code": 42201, "message": "invalid schema"}'
    answered(b"HTTP/1.1 422 Unprocessable Entity\r\n\r\n" + body)
    with pytest.raises(Fatal, match="MR-6021"):
        client.RegistryClient(Registry(ADDRESS)).register("s", DDL_SCHEMA.text)


def test_oversized_answer_is_not_mistaken_for_a_truncated_one(
    answered: Callable[[bytes], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry would read as much again; an answer that fills the limit is whole."""
    content = b'{"schema": "text"}'
    answered(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(content), content))
    monkeypatch.setattr(client, "ANSWER_BYTES_MAX", len(content))
    assert client.RegistryClient(Registry(ADDRESS)).schema_by_id(7) == "text"
    monkeypatch.setattr(client, "ANSWER_BYTES_MAX", len(content) - 1)
    with pytest.raises(Fatal) as caught:
        client.RegistryClient(Registry(ADDRESS)).schema_by_id(7)
    assert caught.value.code == "MR-6021"


def test_requests_share_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start with 5,000 tables makes 10,000 requests."""
    connects: list[threading.Thread] = []

    def connect(*_: object, **__: object) -> socket.socket:
        ours, theirs = socket.socketpair()
        connects.append(threading.Thread(target=_answer_ids, args=(theirs,)))
        connects[-1].start()
        return ours

    monkeypatch.setattr(urllib3.util.connection, "create_connection", connect)
    registry = client.RegistryClient(Registry(ADDRESS))
    assert [registry.register(f"s{n}", DDL_SCHEMA.text) for n in range(5)] == [7] * 5
    assert len(connects) == 1


def _answer_ids(connection: socket.socket) -> None:
    with connection:
        while b"\r\n\r\n" in (request := connection.recv(1 << 20)):
            if request.endswith(b"\r\n\r\n"):  # head and body arrive separately
                connection.recv(1 << 20)
            connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{"id":7}')


def test_list_that_knows_no_pages_ends(answered: Callable[[bytes], None]) -> None:
    """Each answer is the same full page, or has entries of another form."""
    entry = b'{"subject": "s", "schema": "\\"string\\"", "id": 5}'
    for page, wanted in ((b", ".join([entry] * 200), 5), (entry, 5), (b'{"id": 5}, 7', None)):
        content = b"[" + page + b"]"
        head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
        answered(head % len(content) + content)
        registry = client.RegistryClient(Registry(ADDRESS))
        registry.learn("s")
        if wanted is not None:
            assert registry.register("s", '"string"') == wanted


def test_known_id_needs_no_request_and_reveals_reuse(
    answered: Callable[[bytes], None],
) -> None:
    """A schema record gives the meaning of an id; a registry that gives it to another schema has lost data."""
    answered(b"HTTP/1.1 200 OK\r\n\r\n" + b'{"id": 7}')
    registry = client.RegistryClient(Registry(ADDRESS))
    registry.remember("a", DDL_SCHEMA.text, 7)
    assert registry.register("a", DDL_SCHEMA.text) == 7
    with pytest.raises(Retryable) as caught:
        registry.register("b", '"string"')
    assert caught.value.code == "MR-6024"


def test_settings_of_another_api_are_refused(answered: Callable[[bytes], None]) -> None:
    """`millrace check` shows that the address is no registry; of one that is, it shows mode and compatibility."""
    ok = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s"
    other, readonly = b'{"status": "UP"}', b'{"mode": "READONLY"}'
    answered(ok % (len(other), other))
    with pytest.raises(Retryable) as caught:
        client.RegistryClient(Registry(ADDRESS)).setting("config", "compatibilityLevel")
    assert caught.value.code == "MR-6020"
    answered(ok % (len(readonly), readonly))
    assert client.RegistryClient(Registry(ADDRESS)).setting("mode", "mode") == "READONLY"
