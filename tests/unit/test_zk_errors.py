"""Every error of the driver becomes a product error, by class, for any request."""

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
from kazoo import exceptions as zke
from kazoo import retry
from kazoo.client import KazooState

from millrace.errors import Fatal, MillraceError, Retryable
from millrace.zk.client import session as zk_session
from millrace.zk.client.driver import translated
from millrace.zk.client.session import Check, Create, Delete, Put, Session

AWAY = {
    "ConnectionLoss",
    "ConnectionClosedError",
    "ConnectionDropped",
    "OperationTimeoutError",
    "RequestTimeoutError",
    "SessionExpiredError",
    "SessionMovedError",
}
TURNED_AWAY = {"ThrottledOpError"}
CONTESTED = {"BadVersionError", "NoNodeError", "NodeExistsError", "NotEmptyError"}
LOGIN_REFUSED = {"AuthFailedError", "SASLException", "SessionClosedRequireSaslError"}
NOT_PERMITTED = {"NoAuthError": "MR-7028", "InvalidACLError": "MR-7029"}
REFUSED = {
    # the request or its size
    "BadArgumentsError",
    "EphemeralOnLocalSessionError",
    "MarshallingError",
    "NoChildrenForEphemeralsError",
    "QuotaExceededError",
    "UnimplementedError",
    # of a commit's other changes: never its only error
    "RolledBackError",
    "RuntimeInconsistency",
    # of calls that Millrace does not make: read-only sessions, reconfiguration, removal of watches, recipes, the
    # driver's retry
    "CancelledError",
    "ConfigurationError",
    "InterruptedError",
    "InvalidCallbackError",
    "LockTimeout",
    "NewConfigNoQuorumError",
    "NoWatcherError",
    "NotReadOnlyCallError",
    "ReconfigDisabledError",
    "ReconfigInProcessError",
    "RetryFailedError",
    "WriterNotClosedException",
    # never sent to a client, or only the name of a range
    "APIError",
    "DataInconsistency",
    "KazooException",
    "SystemZookeeperError",
    "UnknownSessionError",
    "ZookeeperError",
    "ZookeeperStoppedError",
}


def _kinds() -> Iterator[type[zke.KazooException]]:
    """Return the driver's classes, and what it makes of a server's error numbers."""
    for known in (*vars(zke).values(), *vars(retry).values(), *zke.EXCEPTIONS.values()):
        if isinstance(known, type) and issubclass(known, zke.KazooException):
            yield known


ALL = sorted(set(_kinds()), key=lambda kind: kind.__name__)
CALLS: dict[str, Callable[[Session], object]] = {
    "get": lambda session: session.get("/x"),
    "get and watch": lambda session: session.get("/x", watch=lambda: None),
    "children": lambda session: session.children("/x"),
    "children and watch": lambda session: session.children("/x", watch=lambda: None),
    "create": lambda session: session.create("/x", b""),
    "put": lambda session: session.put("/x", b"", version=0),
    "delete": lambda session: session.delete("/x", version=0),
    "commit": lambda session: session.commit(
        Create("/x", b""), Put("/x", b"", 0), Delete("/x", 0), Check("/x", 0)
    ),
}


@pytest.mark.parametrize("error", ALL, ids=lambda e: e.__name__)
def test_every_zookeeper_error_has_a_branch(error: type[zke.KazooException]) -> None:
    """A lost connection is retryable; a write's outcome is then unknown, unless it was rejected.

    Contention is retryable, and so is a login that was accepted before. All other errors need an operator.
    """
    read = translated(error(), "reading /x", is_write=False)
    write = translated(error(), "writing /x", is_write=True)
    expected: tuple[type[MillraceError], str, str]
    if error.__name__ in AWAY:
        expected = (Retryable, "MR-4001", "MR-4002")
    elif error.__name__ in TURNED_AWAY:
        expected = (Retryable, "MR-4001", "MR-4001")
    elif error.__name__ in CONTESTED:
        expected = (Retryable, "MR-4007", "MR-4007")
    elif error.__name__ in LOGIN_REFUSED:
        expected = (Retryable, "MR-7020", "MR-7020")
    elif code := NOT_PERMITTED.get(error.__name__):
        expected = (Fatal, code, code)
    else:
        expected = (Fatal, "MR-4012", "MR-4012")
    assert type(read) is type(write) is expected[0]
    assert (read.code, write.code) == expected[1:]


def test_every_zookeeper_error_is_in_one_list() -> None:
    """A new or renamed class would silently take another branch."""
    listed = [*AWAY, *TURNED_AWAY, *CONTESTED, *LOGIN_REFUSED, *NOT_PERMITTED, *REFUSED]
    assert sorted(listed) == [error.__name__ for error in ALL]


@pytest.mark.parametrize("error", ALL, ids=lambda e: e.__name__)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_no_call_leaks_an_error_of_kazoo(
    call: Callable[[Session], object],
    error: type[zke.KazooException],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A task that meets a driver error is blocked by it (MR-9001), regardless of its meaning."""
    failing = Failing(error())
    monkeypatch.setattr(zk_session, "KazooClient", lambda **_: failing)
    session = Session("127.0.0.1:1")
    failing.report(KazooState.CONNECTED)
    result = ended(lambda: call(session))
    if isinstance(result, MillraceError):
        assert result.context["error"] == error.__name__
    else:  # the node is missing, was deleted, or already exists
        assert error.__name__ in ("NoNodeError", "NodeExistsError")
        assert not result


@pytest.mark.parametrize("error", ALL, ids=lambda e: e.__name__)
def test_session_open_failures_are_mapped_like_other_calls(
    error: type[zke.KazooException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session is open when the ensemble has answered; the connection may break before that."""
    failing = Failing(error())
    monkeypatch.setattr(zk_session, "KazooClient", lambda **_: failing)
    with pytest.raises(MillraceError) as caught:
        Session.open("127.0.0.1:1/folder")
    assert caught.value.context["error"] == error.__name__
    assert failing.is_closed


def ended(call: Callable[[], object]) -> object:
    """Return the answer, or the product error."""
    try:
        return call()
    except MillraceError as ours:
        return ours


class Failing:
    """A client whose every request ends with this error."""

    def __init__(self, error: zke.KazooException) -> None:
        self._error = error
        self.is_closed = False

    def start_async(self) -> threading.Event:
        live = threading.Event()
        live.set()
        return live

    def stop(self) -> None:
        """Act as the driver's."""

    def close(self) -> None:
        self.is_closed = True

    def add_listener(self, listener: Callable[[str], None]) -> None:
        self.report = listener

    def transaction(self) -> "Failing":
        return self

    def __getattr__(self, _name: str) -> Callable[..., SimpleNamespace]:
        return lambda *_, **__: SimpleNamespace(get=self._answer)

    def _answer(self, timeout: float) -> object:
        raise self._error
