"""A session to ZooKeeper in our own words: the only module that knows kazoo.

Guarantees
- Every call ends within the session timeout; while the ensemble is away it ends at once (Retryable MR-4001).
- A write whose answer did not come is told apart (Retryable MR-4002): it may have happened. Read, then decide.
- kazoo's thread, which an error that it does not expect ends for good, is started again by whoever asks next.
- ``incarnation`` grows whenever the session is found to be over. What was made ephemeral under an older
  incarnation is gone, even when ``state`` is CONNECTED again.

    CONNECTED ──connection lost──► SUSPENDED ──back in time──► CONNECTED
        ▲                              │
        └── new session ◄── LOST ◄─────┘ back too late, or the ensemble was rebuilt: it says so (once it can be asked)

A watch is called once, from kazoo's thread, after the node changed *or* the connection broke; it must only set a
flag. Not done here: retries, caching, recipes.
"""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any

from kazoo import exceptions as zke
from kazoo.client import KazooClient, KazooState
from kazoo.handlers.threading import KazooTimeoutError

from millrace.errors import Fatal, MillraceError, Retryable

SESSION_TIMEOUT_S = 10.0  # a dead worker's tasks move after this; a pause of a live one shorter than this moves none
CONNECT_TIMEOUT_S = 15.0

# Endless, and never far apart: kazoo's own pauses grow to a minute, longer than a session lives after a restart.
_RECONNECT = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 0.5}

Watch = Callable[[], None]


class SessionState(Enum):
    """What we know about the session."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"  # the ensemble is away; our ephemeral nodes may still stand
    LOST = "lost"  # the session is over; our ephemeral nodes are gone


@dataclass(frozen=True, slots=True)
class Node:
    """One node as read. ``czxid`` and ``mzxid`` number the changes that made and last wrote it."""

    content: bytes
    version: int
    czxid: int
    mzxid: int
    modified_ms: int  # the ensemble's clock; for people only
    ephemeral_owner: int  # the session that it ends with, 0 for a lasting node


@dataclass(frozen=True, slots=True)
class Create:
    """Make a lasting node."""

    path: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Put:
    """Write a node that has this version."""

    path: str
    content: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a node that has this version."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Check:
    """Refuse the whole commit unless the node has this version."""

    path: str
    version: int


Change = Create | Put | Delete | Check


class Session:
    """One session after another, as long as the process lives. Safe to use from many threads."""

    def __init__(self, hosts: str, *, timeout_s: float = SESSION_TIMEOUT_S) -> None:
        quiet = logging.getLogger("millrace.kazoo")
        quiet.setLevel(
            logging.CRITICAL
        )  # it tells every attempt to connect; we tell changes of state
        self._client: Any = KazooClient(
            hosts=hosts, timeout=timeout_s, logger=quiet, connection_retry=_RECONNECT
        )
        self._hosts = hosts
        self._timeout_s = timeout_s
        self._listeners: list[Callable[[SessionState], None]] = []
        self._incarnation = 0
        self._state = SessionState.LOST
        self._suspended_at_s = 0.0
        self._starting = threading.Lock()
        self._client.add_listener(self._heard)

    @classmethod
    def open(
        cls,
        hosts: str,
        *,
        timeout_s: float = SESSION_TIMEOUT_S,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> "Session":
        """Connected, or an error of ours, mostly Retryable MR-4001 (nothing is left running then)."""
        session = cls(hosts, timeout_s=timeout_s)
        try:
            session._client.start(timeout=connect_timeout_s)
        except KazooTimeoutError as exc:
            session.close()
            raise Retryable(
                "MR-4001", f"no answer from {hosts} in {connect_timeout_s:g} s", hosts=hosts
            ) from exc
        except zke.KazooException as exc:  # kazoo has looked for the folder that hosts may name
            session.close()
            raise translated(exc, f"opening a session to {hosts}", is_write=False) from exc
        return session

    def close(self) -> None:
        """End the session: our ephemeral nodes go at once, if the ensemble can be reached."""
        self._client.stop()
        self._client.close()

    @property
    def state(self) -> SessionState:
        """As last heard from the ensemble or the connection."""
        return self._state

    @property
    def incarnation(self) -> int:
        """Grows each time a session is over."""
        return self._incarnation

    @property
    def id(self) -> int:
        """The session's own number, as ``Node.ephemeral_owner`` tells it; 0 without a session."""
        client_id = self._client.client_id
        return int(client_id[0]) if client_id and client_id[0] else 0

    @property
    def timeout_s(self) -> float:
        """What was asked of the ensemble (it may grant another within its own bounds)."""
        return self._timeout_s

    def on_state(self, listener: Callable[[SessionState], None]) -> None:
        """Call ``listener`` at every change, from kazoo's thread: it must not wait."""
        self._listeners.append(listener)

    def get(self, path: str, *, watch: Watch | None = None) -> Node | None:
        """The node, or ``None``; ``watch`` is set in both cases."""
        while True:
            try:
                content, stat = self._asked(self._client.get_async, path, _watching(watch))
            except zke.NoNodeError:
                if watch is None or self._exists(path, watch) is None:
                    return None
                continue  # it was made in between, and now the watch stands on it
            except zke.KazooException as exc:
                raise translated(exc, f"reading {path}", is_write=False) from exc
            return _node(content, stat)

    def children(self, path: str, *, watch: Watch | None = None) -> tuple[str, ...]:
        """The names below ``path``, sorted; none when it does not exist."""
        try:
            return tuple(
                sorted(self._asked(self._client.get_children_async, path, _watching(watch)))
            )
        except zke.NoNodeError:
            if watch is not None:
                self._exists(path, watch)
            return ()
        except zke.KazooException as exc:
            raise translated(exc, f"listing {path}", is_write=False) from exc

    def create(self, path: str, content: bytes, *, ephemeral: bool = False) -> Node | None:
        """The new node (parents are made), or ``None`` when there is one already."""
        try:
            _, stat = self._asked(
                self._client.create_async,
                path,
                content,
                ephemeral=ephemeral,
                makepath=True,
                include_data=True,
            )
        except zke.NodeExistsError:
            return None
        except zke.KazooException as exc:
            raise translated(exc, f"creating {path}", is_write=True) from exc
        return _node(content, stat)

    def put(self, path: str, content: bytes, *, version: int) -> int:
        """Write a node that has this version; its new version. Retryable MR-4007 when it has not."""
        try:
            return int(self._asked(self._client.set_async, path, content, version).version)
        except zke.KazooException as exc:
            raise translated(exc, f"writing {path}", is_write=True) from exc

    def delete(self, path: str, *, version: int) -> None:
        """Remove a node that has this version; one that is gone is fine."""
        try:
            self._asked(self._client.delete_async, path, version)
        except zke.NoNodeError:
            return
        except zke.KazooException as exc:
            raise translated(exc, f"deleting {path}", is_write=True) from exc

    def commit(self, *changes: Change) -> None:
        """All changes or none. Retryable MR-4007 when a version or a presence disagrees."""
        transaction = self._client.transaction()
        for change in changes:
            match change:
                case Create(path, content):
                    transaction.create(path, content)
                case Put(path, content, version):
                    transaction.set_data(path, content, version)
                case Delete(path, version):
                    transaction.delete(path, version)
                case Check(path, version):
                    transaction.check(path, version)
        what = ", ".join(change.path for change in changes)
        try:
            results = self._asked(transaction.commit_async)
        except zke.KazooException as exc:
            raise translated(exc, f"changing {what}", is_write=True) from exc
        for result in results:
            # the one that failed has its own error; those beside it say "rolled back" or "inconsistent"
            if isinstance(result, zke.KazooException) and not isinstance(
                result, zke.RolledBackError | zke.RuntimeInconsistency
            ):
                raise translated(result, f"changing {what}", is_write=True) from result

    def _exists(self, path: str, watch: Watch) -> object:
        try:
            return self._asked(self._client.exists_async, path, _watching(watch))
        except zke.KazooException as exc:
            raise translated(exc, f"watching {path}", is_write=False) from exc

    def _asked(self, call: Callable[..., Any], *args: object, **named: object) -> Any:
        """The answer, or kazoo's error; waits no longer than the session timeout."""
        if self._state is not SessionState.CONNECTED:
            self._admit_a_rebuilt_ensemble()
            self._start_what_died()
            # nothing was sent: the same answer for reads and writes
            raise Retryable(
                "MR-4001", f"ZooKeeper is away (session {self._state.value})", hosts=self._hosts
            )
        try:
            return call(*args, **named).get(timeout=self._timeout_s)
        except KazooTimeoutError as exc:
            raise zke.OperationTimeoutError(f"no answer in {self._timeout_s:g} s") from exc

    def _admit_a_rebuilt_ensemble(self) -> None:
        """A server that is behind what we have seen refuses us: it might only lag. When none took us for a session
        timeout they are all behind, rebuilt or restored: we say that we have seen nothing, and are told that our
        session is over. Called by whoever asks, for kazoo tells of no attempt to connect.
        """
        is_suspended = self._state is SessionState.SUSPENDED
        if is_suspended and time.monotonic() - self._suspended_at_s > self._timeout_s:
            self._client.last_zxid = 0

    def _start_what_died(self) -> None:
        """Like a look-up of names without a descriptor left: the session is over, and kazoo makes no other."""
        if not self._starting.acquire(blocking=False):
            return
        try:
            thread = self._client._connection._connection_routine
            if self._client._stopped.is_set() or (thread is not None and thread.is_alive()):
                return
            # it, too, may find no thread or descriptor: whoever asks next tries again
            with suppress(OSError, RuntimeError):
                self._client.start_async()
        finally:
            self._starting.release()

    def _heard(self, state: str) -> None:
        known = {
            KazooState.CONNECTED: SessionState.CONNECTED,
            KazooState.SUSPENDED: SessionState.SUSPENDED,
            KazooState.LOST: SessionState.LOST,
        }
        self._state = known[state]
        if self._state is SessionState.LOST:
            self._incarnation += 1
        elif self._state is SessionState.SUSPENDED:
            self._suspended_at_s = time.monotonic()
        for listener in tuple(self._listeners):
            listener(self._state)


_AWAY: tuple[type[zke.KazooException], ...] = (
    zke.ConnectionLoss,
    zke.ConnectionClosedError,
    zke.ConnectionDropped,
    zke.OperationTimeoutError,
    zke.RequestTimeoutError,
    zke.SessionExpiredError,
    zke.SessionMovedError,
)
_CONTESTED: tuple[type[zke.KazooException], ...] = (
    zke.BadVersionError,
    zke.NoNodeError,
    zke.NodeExistsError,
    zke.NotEmptyError,
)


def translated(error: zke.KazooException, doing: str, *, is_write: bool) -> MillraceError:
    """kazoo's error as one of ours: away, unknown outcome, turned away, contested (all retry), refused (fatal)."""
    kind = type(error).__name__
    if isinstance(error, _AWAY):
        if is_write:
            return Retryable(
                "MR-4002", f"no answer while {doing}: it may have happened", error=kind
            )
        return Retryable("MR-4001", f"no answer while {doing}", error=kind)
    if isinstance(error, zke.ThrottledOpError):
        # the same for a write: it says that nothing was executed
        return Retryable("MR-4001", f"ZooKeeper is too busy for {doing}", error=kind)
    if isinstance(error, _CONTESTED):
        return Retryable("MR-4007", f"somebody else was faster while {doing}", error=kind)
    return Fatal("MR-4012", f"refused while {doing}", error=kind)


def _watching(watch: Watch | None) -> Callable[[object], None] | None:
    """kazoo passes an event; a watch of ours only wants to know that it is time to look again."""
    if watch is None:
        return None
    return lambda _event: watch()


def _node(content: bytes, stat: Any) -> Node:
    return Node(
        content=content,
        version=stat.version,
        czxid=stat.czxid,
        mzxid=stat.mzxid,
        modified_ms=stat.mtime,
        ephemeral_owner=stat.ephemeralOwner,
    )
