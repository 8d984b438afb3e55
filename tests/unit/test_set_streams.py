"""A worker holds one stream per set, none that failed before its first task, and no set waits for another's."""

import threading
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from millrace.errors import Retryable
from millrace.producer.relay.writer import RelayLog
from millrace.producer.source import feed, set_stream, set_streams
from millrace.producer.source.choose.chooser import Chooser
from millrace.producer.source.set_stream import Site, Upstream
from millrace.producer.source.set_streams import Upstreams
from millrace.schemas.documents import (
    Account,
    Member,
    SecretPlace,
    SecretReference,
    SetDocument,
    Tls,
    TlsMode,
)
from millrace.schemas.gtid import Flavour
from tests.kit.faults.starved import no_thread_left

DEADLINE_S = 120.0


class _ModelStream:
    """A stream without a server: the one of ``black-hole`` blocks in open and close until it is released."""

    waiting: threading.Semaphore
    through: threading.Semaphore
    failures: list[Retryable | None]
    closed: list[str]

    def __init__(self, document: SetDocument, *_: object, **__: object) -> None:
        self.name = document.name
        self.choice = SimpleNamespace(member=document.members[0])
        self.wanted = None
        self.has_other_rows = False
        self._failure = self.failures.pop(0) if self.failures else None
        self._wait()

    def _wait(self) -> None:
        if self.name == "black-hole":
            self.waiting.release()
            assert self.through.acquire(timeout=DEADLINE_S), "it was never released"

    def reaches(self, wanted: object) -> bool:
        return True

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        self._wait()
        self.closed.append(self.name)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> type[_ModelStream]:
    """Replace ``Upstream``."""
    _ModelStream.failures, _ModelStream.closed = [], []
    _ModelStream.waiting, _ModelStream.through = threading.Semaphore(0), threading.Semaphore(0)
    monkeypatch.setattr(set_streams, "Upstream", _ModelStream)
    return _ModelStream


def _document(name: str) -> SetDocument:
    secret = SecretReference(SecretPlace.FILE, "password")
    return SetDocument(
        name=name,
        members=(Member("db", 1),),
        account=Account("millrace", secret),
        tls=Tls(TlsMode.DISABLED),
    )


def test_stream_that_fails_before_its_first_task_is_discarded(
    model: type[_ModelStream], tmp_path: Path
) -> None:
    """The next attach opens a new one instead of repeating the old error until the worker restarts."""
    model.failures = [Retryable("MR-1006", "lost at once")]
    streams, document = Upstreams(Site(root=tmp_path)), _document("shop")
    with pytest.raises(Retryable, match="lost at once"), streams.attach("a", document, wanted=None):
        pytest.fail("attached to a failed stream")
    assert model.closed == ["shop"]
    with streams.attach("a", document, wanted=None) as stream:
        stream.check()


def test_stream_that_fails_to_start_releases_the_relay_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise every later try of this process would report that another process holds the directory."""
    choice = SimpleNamespace(member=Member("db", 1), flavour=Flavour.MYSQL, folds_names=False)
    monkeypatch.setattr(set_stream, "resolve_login", lambda _: None)
    monkeypatch.setattr(Chooser, "first", lambda *_, **__: choice)
    with ExitStack() as starved:

        def receiver(*_: object, **__: object) -> None:
            starved.enter_context(no_thread_left())

        monkeypatch.setattr(feed, "Receiver", receiver)
        with pytest.raises(RuntimeError, match="new thread"):
            Upstream(_document("shop"), Site(root=tmp_path), wanted=None)
    RelayLog.open(tmp_path / "shop", flavour=Flavour.MYSQL).close()


def test_set_with_unresponsive_members_delays_no_other(
    model: type[_ModelStream], tmp_path: Path
) -> None:
    """Another set's tasks come and go while this one is attached and while it is released."""
    assert (
        _waiting_for_another(model, Upstreams(Site(root=tmp_path)), within_s=DEADLINE_S / 4) == []
    )


def _waiting_for_another(
    model: type[_ModelStream], streams: Upstreams, *, within_s: float
) -> list[str]:
    """Return the phases of a black-holed set in which another set's task does not come and go in time."""

    def come_and_go(task: str, document: SetDocument, gone: threading.Event) -> None:
        with streams.attach(task, document, wanted=None):
            pass
        gone.set()

    waiting, slow_gone = [], threading.Event()
    slow = threading.Thread(target=come_and_go, args=("slow", _document("black-hole"), slow_gone))
    threads = [slow]
    slow.start()
    try:
        for phase in ("attach", "detach"):
            assert model.waiting.acquire(timeout=DEADLINE_S), phase
            gone = threading.Event()
            threads.append(
                threading.Thread(target=come_and_go, args=(phase, _document("shop"), gone))
            )
            threads[-1].start()
            if not gone.wait(within_s):
                waiting.append(phase)
            assert not slow_gone.is_set()
            model.through.release()
    finally:
        model.through.release(2)
        for thread in threads:
            thread.join(DEADLINE_S)
    assert slow_gone.is_set()
    return waiting
