"""A session to ZooKeeper with our types and errors. Only this module and ``driver.py`` import kazoo.

Guarantees
- Every call ends within the session timeout. While the ensemble is away it fails at once (Retryable MR-4001).
- A write without an answer has a separate error (Retryable MR-4002): it may have happened. Read, then decide.
- An unexpected error can end kazoo's thread. The next call starts it again.
- Every node gets the ACL of the access policy, also ephemeral ones, those of a commit, and missing parents.
- A refused login or connection has a code of its own within the connect timeout, and never hangs.
- ``incarnation`` grows each time the session turns out to be over. The ephemeral nodes of an older incarnation are
  gone, even when ``state`` is CONNECTED again.

    CONNECTED ──connection lost──► SUSPENDED ──reconnected in time──► CONNECTED
        ▲                              │
        └── new session ◄── LOST ◄─────┘ reconnected too late, or to a rebuilt ensemble

Only a server can end SUSPENDED: the client learns that its session is over when it reaches one.
kazoo's thread calls a watch once, after the node changed *or* the connection broke. A watch must only set a flag.
Not done here: retries, caching, recipes.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any

from kazoo import exceptions as zke
from kazoo.client import KazooClient, KazooState
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KeeperState

from millrace.errors import Fatal, MillraceError, Retryable
from millrace.zk.client import wire
from millrace.zk.client.access import OPEN, Access, Acl
from millrace.zk.client.driver import LOGIN_REFUSED, KazooThreads, grant_of, kazoo_acl, translated
from millrace.zk.client.sasl import SaslLogin

# a dead worker's tasks move after this; a shorter pause of a live worker moves none
SESSION_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 15.0
FIRST_LOOK_S = 1.0  # without a connection: look for a refusal, which no waiting helps
# ZooKeeper's limit is 1,048,575 bytes; it ends the session that sends more
REQUEST_BYTES_MAX = 1_000_000
_CHANGE_BYTES = 100  # of a change in a request, without path and content
IN_FLIGHT_MAX = 500  # requests sent before the first answer is read: with paths of 100 bytes, 50 kB

# Reconnect forever, with pauses of at most 0.5 s: kazoo's own grow to a minute, so a session would expire first.
_RECONNECT = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 0.5}

Watch = Callable[[], None]


class SessionState(Enum):
    """The session's state, as far as this process knows."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"  # the ensemble is away; our ephemeral nodes may still exist
    LOST = "lost"  # the session is over; our ephemeral nodes are gone


@dataclass(frozen=True, slots=True)
class Node:
    """One node as read. ``czxid`` numbers the change that created it, ``mzxid`` the last one that wrote it."""

    content: bytes
    version: int
    czxid: int
    mzxid: int
    modified_ms: int  # the ensemble's clock, the same for all nodes
    ephemeral_owner: int  # the session's ID; 0 for a persistent node


@dataclass(frozen=True, slots=True)
class Create:
    """Create a persistent node."""

    path: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Put:
    """Write a node if it has this version."""

    path: str
    content: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a node if it has this version."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Check:
    """Refuse the whole commit unless the node has this version."""

    path: str
    version: int


Change = Create | Put | Delete | Check


class Session:
    """Opens a new session when the last one is over, until ``close``. Thread-safe."""

    def __init__(
        self, hosts: str, *, timeout_s: float = SESSION_TIMEOUT_S, access: Access | None = None
    ) -> None:
        self._log = _KazooLog("millrace.kazoo")
        self._access = access or Access()
        self._sasl = SaslLogin(self._access.login) if self._access.login else None
        self._threads = KazooThreads(self._access.tls)
        self._client: Any = KazooClient(
            hosts=hosts,
            timeout=timeout_s,
            logger=self._log,
            connection_retry=_RECONNECT,
            handler=self._threads,
            use_ssl=self._access.tls is not None,
            sasl_options=self._sasl.options() if self._sasl else None,
            default_acl=kazoo_acl(self._access.policy.acl if self._access.policy else OPEN),
        )
        self._hosts = hosts
        self.timeout_s = timeout_s  # as requested; the ensemble may grant another
        self._listeners: list[Callable[[SessionState], None]] = []
        self._incarnation = 0
        self._state = SessionState.LOST
        self._is_refused = False
        self._suspended_at_s = 0.0
        self._starting = threading.Lock()
        self._client.add_listener(self._on_kazoo_state)

    @classmethod
    def open(
        cls,
        hosts: str,
        *,
        timeout_s: float = SESSION_TIMEOUT_S,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        access: Access | None = None,
    ) -> "Session":
        """A connected session, logged in. If it raises, nothing is left running.

        Retryable MR-4001 when no server answers. Fatal MR-7020 to MR-7027 when the ensemble refuses us, or we refuse
        the ensemble.
        """
        if access is not None and access.tls is not None:
            wire.check_files(access.tls)
        session = cls(hosts, timeout_s=timeout_s, access=access)
        try:
            session._connect(connect_timeout_s)
        except BaseException:
            session.close()
            raise
        return session

    def _connect(self, timeout_s: float) -> None:
        until_s = time.monotonic() + timeout_s
        is_live = self._client.start_async()
        if not is_live.wait(min(timeout_s, FIRST_LOOK_S)):
            self._check_login()  # it may have been live for a moment, before anybody waited
            rest_s = max(0.0, until_s - time.monotonic())
            if refusal := wire.refusal(self._client.hosts, self._access.tls, within_s=rest_s):
                raise refusal
            if not is_live.wait(max(0.0, until_s - time.monotonic())):
                self._check_login()
                message = f"no answer from {self._hosts} in {timeout_s:g} s"
                raise Retryable("MR-4001", message, hosts=self._hosts)
        # kazoo is connected before it logs in: only an answer shows that the login succeeded
        rest_s = max(FIRST_LOOK_S, until_s - time.monotonic())
        try:
            self._client.exists_async("/").get(timeout=rest_s)
        except KazooTimeoutError as exc:
            message = f"{self._hosts} accepted a connection, but did not answer in {rest_s:g} s"
            raise Retryable("MR-4001", message, hosts=self._hosts) from exc
        except zke.KazooException as exc:
            if (
                isinstance(exc, LOGIN_REFUSED)
                or self._is_refused
                or self._threads.failure is not None
            ):
                raise self._refused_login(type(exc).__name__) from exc
            raise translated(exc, f"opening a session to {self._hosts}", is_write=False) from exc

    def _check_login(self) -> None:
        if self._is_refused:
            raise self._refused_login(KeeperState.AUTH_FAILED)

    def close(self) -> None:
        """End the session. Its ephemeral nodes are deleted at once if the ensemble can be reached."""
        self._client.stop()
        self._client.close()

    @property
    def state(self) -> SessionState:
        """The state that kazoo reported last."""
        return self._state

    @property
    def incarnation(self) -> int:
        """The number of sessions that are over."""
        return self._incarnation

    @property
    def id(self) -> int:
        """The session's ID, as in ``Node.ephemeral_owner``; 0 without a session."""
        client_id = self._client.client_id
        return int(client_id[0]) if client_id and client_id[0] else 0

    @property
    def granted_timeout_s(self) -> float:
        """The session timeout that the ensemble granted last; 0 if it is unknown."""
        return self._log.granted_ms / 1000

    def on_state(self, listener: Callable[[SessionState], None]) -> None:
        """Call ``listener`` at every change of state, from kazoo's thread. It must not block."""
        self._listeners.append(listener)

    def get(self, path: str, *, watch: Watch | None = None) -> Node | None:
        """The node, or ``None`` if there is none; ``watch`` is set in both cases."""
        while True:
            try:
                content, stat = self._call(self._client.get_async, path, _kazoo_watch(watch))
            except zke.NoNodeError:
                if watch is None or self._exists(path, watch) is None:
                    return None
                continue  # created in between: read it and watch it
            except zke.KazooException as exc:
                raise translated(exc, f"reading {path}", is_write=False) from exc
            return _node(content, stat)

    def get_each(
        self, paths: Sequence[str], *, watches: Sequence[Watch] | None = None
    ) -> list[Node | None]:
        """As many ``get``, with ``IN_FLIGHT_MAX`` requests on the way at once. ``watches``: one for each path."""
        found: list[Node | None] = []
        of_paths: Sequence[Watch | None] = watches or [None] * len(paths)
        for at in range(0, len(paths), IN_FLIGHT_MAX):
            part = list(zip(paths[at:][:IN_FLIGHT_MAX], of_paths[at:], strict=False))
            asked = [self._send(self._client.get_async, p, _kazoo_watch(w)) for p, w in part]
            for (path, watch), answer in zip(part, asked, strict=True):
                try:
                    content, stat = self._answer(answer)
                except zke.NoNodeError:
                    found.append(self.get(path, watch=watch) if watch is not None else None)
                except zke.KazooException as exc:
                    raise translated(exc, f"reading {path}", is_write=False) from exc
                else:
                    found.append(_node(content, stat))
        return found

    def folder(self, path: str) -> dict[str, Node]:
        """The children of a path, by name, sorted. They may be from slightly different moments."""
        names = self.children(path)
        nodes = self.get_each([f"{path}/{name}" for name in names])
        return {name: node for name, node in zip(names, nodes, strict=True) if node is not None}

    def children(self, path: str, *, watch: Watch | None = None) -> tuple[str, ...]:
        """The names below ``path``, sorted; none when it does not exist."""
        try:
            return tuple(
                sorted(self._call(self._client.get_children_async, path, _kazoo_watch(watch)))
            )
        except zke.NoNodeError:
            if watch is not None:
                self._exists(path, watch)
            return ()
        except zke.KazooException as exc:
            raise translated(exc, f"listing {path}", is_write=False) from exc

    def create(self, path: str, content: bytes, *, ephemeral: bool = False) -> Node | None:
        """The new node, or ``None`` when it exists already. Creates missing parents. Fatal MR-4145."""
        check_size(Create(path, content))
        try:
            _, stat = self._call(
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

    def put(self, path: str, content: bytes, *, version: int) -> Node:
        """Write a node and return it as written.

        Retryable MR-4007 when its version is not ``version``; Fatal MR-4145.
        """
        check_size(Put(path, content, version))
        try:
            return _node(content, self._call(self._client.set_async, path, content, version))
        except zke.KazooException as exc:
            raise translated(exc, f"writing {path}", is_write=True) from exc

    def delete(self, path: str, *, version: int) -> None:
        """Delete a node, if it exists. Retryable MR-4007 when its version is not ``version``."""
        try:
            self._call(self._client.delete_async, path, version)
        except zke.NoNodeError:
            return
        except zke.KazooException as exc:
            raise translated(exc, f"deleting {path}", is_write=True) from exc

    def commit(self, *changes: Change) -> None:
        """Make all changes or none.

        Retryable MR-4007 when a version differs, a node is missing, or one exists; Fatal MR-4145.
        """
        check_size(*changes)
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
            results = self._call(transaction.commit_async)
        except zke.KazooException as exc:
            raise translated(exc, f"changing {what}", is_write=True) from exc
        for result in results:
            # only the change that failed carries its error; the others carry one of these two
            if isinstance(result, zke.KazooException) and not isinstance(
                result, zke.RolledBackError | zke.RuntimeInconsistency
            ):
                raise translated(result, f"changing {what}", is_write=True) from result

    def acl(self, path: str) -> tuple[Acl, int] | None:
        """A node's ACL and the ACL's version, or ``None`` if there is no such node."""
        try:
            entries, stat = self._call(self._client.get_acls_async, path)
        except zke.NoNodeError:
            return None
        except zke.KazooException as exc:
            raise translated(exc, f"reading the ACL of {path}", is_write=False) from exc
        return frozenset(map(grant_of, entries)), int(stat.aversion)

    def set_acl(self, path: str, acl: Acl, *, version: int) -> None:
        """Replace a node's ACL. Retryable MR-4007 when the node is gone or its ACL's version is not ``version``."""
        try:
            self._call(self._client.set_acls_async, path, kazoo_acl(acl), version)
        except zke.KazooException as exc:
            raise translated(exc, f"setting the ACL of {path}", is_write=True) from exc

    def _exists(self, path: str, watch: Watch) -> object:
        try:
            return self._call(self._client.exists_async, path, _kazoo_watch(watch))
        except zke.KazooException as exc:
            raise translated(exc, f"watching {path}", is_write=False) from exc

    def _call(self, call: Callable[..., Any], *args: object, **named: object) -> Any:
        """The answer, or kazoo's error. Waits for the session timeout at most."""
        return self._answer(self._send(call, *args, **named))

    def _send(self, call: Callable[..., Any], *args: object, **named: object) -> Any:
        """Send a request; ``_answer`` waits for its answer."""
        if self._state is not SessionState.CONNECTED:
            self._accept_rebuilt_ensemble()
            self._restart_kazoo_thread()
            # nothing was sent, so a write has not happened either
            refused = (
                self._refused_login("AuthFailedError")
                if self._is_refused
                else self._threads.refusal
            )
            if refused is not None:
                raise Retryable(refused.code, refused.message, fix=refused.fix, **refused.context)
            raise Retryable(
                "MR-4001",
                f"ZooKeeper can't be reached (session {self._state.value})",
                hosts=self._hosts,
            )
        return call(*args, **named)

    def _answer(self, asked: Any) -> Any:
        try:
            return asked.get(timeout=self.timeout_s)
        except KazooTimeoutError as exc:
            raise zke.OperationTimeoutError(f"no answer in {self.timeout_s:g} s") from exc

    def _refused_login(self, error: str) -> MillraceError:
        """Why there is no login: our own problem, such as an unreadable password, or the ensemble's refusal."""
        if self._sasl is not None and self._sasl.problem is not None:
            return self._sasl.problem
        login = self._access.login
        user = f"user {login.user}" if login else "a client without a login"
        return Fatal("MR-7020", f"{self._hosts} refuses {user}", error=error)

    def _accept_rebuilt_ensemble(self) -> None:
        """Lets kazoo connect to an ensemble that was rebuilt or restored from a backup.

        A server refuses a client that has seen a newer change than itself: the server may only lag. If every server
        refuses for a whole session timeout, the ensemble is an older one. We then claim to have seen nothing, and
        learn that our session is over. Every call checks this, because kazoo reports no connection attempts.
        """
        is_suspended = self._state is SessionState.SUSPENDED
        if is_suspended and time.monotonic() - self._suspended_at_s > self.timeout_s:
            self._client.last_zxid = 0

    def _restart_kazoo_thread(self) -> None:
        """Starts kazoo's thread again after an error ended it, such as no free file descriptor for a DNS lookup."""
        if not self._starting.acquire(blocking=False):
            return
        try:
            thread = self._client._connection._connection_routine
            if self._client._stopped.is_set() or (thread is not None and thread.is_alive()):
                return
            # the restart may fail for the same reason; the next call tries again
            with suppress(OSError, RuntimeError):
                self._client.start_async()
        finally:
            self._starting.release()

    def _on_kazoo_state(self, state: str) -> None:
        known = {
            KazooState.CONNECTED: SessionState.CONNECTED,
            KazooState.SUSPENDED: SessionState.SUSPENDED,
            KazooState.LOST: SessionState.LOST,
        }
        self._state = known[state]
        # the thread ends at once with another state, so this is the only time to see it
        self._is_refused = self._client.client_state == KeeperState.AUTH_FAILED
        if self._state is SessionState.LOST:
            self._incarnation += 1
        elif self._state is SessionState.SUSPENDED:
            self._suspended_at_s = time.monotonic()
        for listener in tuple(self._listeners):
            listener(self._state)


class _KazooLog(logging.Logger):
    """Drops the lines of kazoo, which logs every connection attempt.

    It takes the granted timeout from the line about a new session: kazoo keeps it nowhere else.
    """

    granted_ms = 0

    def __init__(self, name: str) -> None:
        super().__init__(name, logging.CRITICAL)

    def log(self, level: int, msg: object, *args: object, **named: Any) -> None:  # noqa: ARG002 - kazoo's call
        """Drop the line."""
        if "negotiated session timeout" in str(msg) and len(args) > 2 and isinstance(args[2], int):
            self.granted_ms = args[2]


@dataclass(frozen=True, slots=True)
class _KazooWatch:
    """Adapts our watch to kazoo, which passes an event.

    Equal watches give equal adapters: kazoo keeps a node's watches in a set, so one is kept.
    """

    watch: Watch

    def __call__(self, _event: object) -> None:
        self.watch()


def _kazoo_watch(watch: Watch | None) -> _KazooWatch | None:
    return None if watch is None else _KazooWatch(watch)


def check_size(*changes: Change) -> None:
    """Fatal MR-4145 if ZooKeeper would end the session instead of answering."""
    size = sum(
        len(change.path.encode())
        + _CHANGE_BYTES
        + (len(change.content) if isinstance(change, Create | Put) else 0)
        for change in changes
    )
    if size > REQUEST_BYTES_MAX:
        largest = max(changes, key=lambda one: len(getattr(one, "content", b"")))
        what = f"{largest.path} takes {size} bytes, more than {REQUEST_BYTES_MAX}"
        raise Fatal("MR-4145", what if len(changes) == 1 else f"a change of {what}")


def _node(content: bytes, stat: Any) -> Node:
    return Node(
        content=content,
        version=stat.version,
        czxid=stat.czxid,
        mzxid=stat.mzxid,
        modified_ms=stat.mtime,
        ephemeral_owner=stat.ephemeralOwner,
    )
