"""kazoo with our TLS, our values for ACLs, and our errors. Like ``session.py``, this module may import kazoo.

kazoo makes each connection through its handler of threads. This handler makes TLS connections in ``wire.py`` instead.
"""

import socket
import ssl
from collections.abc import Callable
from typing import Any

from kazoo import exceptions as zke
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.security import ACL, Id, Permissions

from millrace.errors import Fatal, MillraceError, Retryable
from millrace.zk.client import wire
from millrace.zk.client.access import Acl, Grant, Identity, TlsAccess

_PERMISSIONS = {  # the letters of `access.EVERYTHING`, in its order
    "c": Permissions.CREATE,
    "d": Permissions.DELETE,
    "r": Permissions.READ,
    "w": Permissions.WRITE,
    "a": Permissions.ADMIN,
}


_AWAY: tuple[type[zke.KazooException], ...] = (
    zke.ConnectionLoss,
    zke.ConnectionClosedError,
    zke.ConnectionDropped,
    zke.OperationTimeoutError,
    zke.RequestTimeoutError,
    zke.SessionExpiredError,
    zke.SessionMovedError,
)
LOGIN_REFUSED = (zke.AuthFailedError, zke.SASLException, zke.SessionClosedRequireSaslError)
_CONTESTED: tuple[type[zke.KazooException], ...] = (
    zke.BadVersionError,
    zke.NoNodeError,
    zke.NodeExistsError,
    zke.NotEmptyError,
)


class KazooThreads(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's threads and sockets, with our TLS.

    ``failure`` is the error of kazoo's that ended its thread, ``refusal`` the reason why the last connection failed if
    that is a matter of certificates.
    """

    def __init__(self, tls: TlsAccess | None) -> None:
        super().__init__()
        self._tls = tls
        self.failure: zke.KazooException | None = None
        self.refusal: Fatal | None = None

    def create_connection(self, *args: Any, **named: Any) -> socket.socket:
        """One connection, with TLS if the access wants it."""
        if self._tls is None:
            made: socket.socket = super().create_connection(*args, **named)
            return made
        address, name, timeout_s = named["address"], named["hostname"], named["timeout"]
        try:
            connection = wire.connect(address, name=name, timeout_s=timeout_s, tls=self._tls)
        except ssl.SSLCertVerificationError as error:
            self.refusal = wire.refusal_of(error, name)
            raise
        self.refusal = None
        return connection

    def select(self, *args: Any, **named: Any) -> Any:
        """Bytes that OpenSSL has decrypted already count as readable; the descriptor does not show them."""
        pending = [one for one in args[0] if isinstance(one, ssl.SSLSocket) and one.pending()]
        return (pending, [], []) if pending else super().select(*args, **named)

    def spawn(self, func: Callable[..., object], *args: Any, **named: Any) -> Any:
        """Run it in a thread. An error of kazoo's ends the thread and is kept as ``failure``."""

        def run() -> None:
            try:
                func(*args, **named)
            except zke.KazooException as error:  # Python would print it as an unexpected one
                self.failure = error

        self.failure = None
        return super().spawn(run)


def kazoo_acl(acl: Acl) -> list[Any]:
    """The ACL as kazoo takes it."""
    return [
        ACL(
            sum(_PERMISSIONS[letter] for letter in grant.permissions),
            Id(grant.identity.scheme, grant.identity.id),
        )
        for grant in sorted(acl)
    ]


def grant_of(entry: Any) -> Grant:
    """One entry of an ACL that kazoo has read."""
    letters = (letter for letter, bit in _PERMISSIONS.items() if entry.perms & bit)
    return Grant(Identity(entry.id.scheme, entry.id.id), "".join(letters))


def translated(error: zke.KazooException, doing: str, *, is_write: bool) -> MillraceError:
    """kazoo's error as ours: Retryable if away, overloaded, contested or of unknown outcome; else Fatal."""
    kind = type(error).__name__
    if isinstance(error, _AWAY):
        if is_write:
            return Retryable(
                "MR-4002", f"no answer while {doing}: it may have happened", error=kind
            )
        return Retryable("MR-4001", f"no answer while {doing}", error=kind)
    if isinstance(error, zke.ThrottledOpError):
        # a throttled write was not executed either
        return Retryable("MR-4001", f"ZooKeeper is too busy for {doing}", error=kind)
    if isinstance(error, _CONTESTED):
        return Retryable("MR-4007", f"another process changed it first while {doing}", error=kind)
    if isinstance(error, zke.NoAuthError):
        return Fatal("MR-7028", f"no permission for {doing}", error=kind)
    if isinstance(error, zke.InvalidACLError):
        return Fatal("MR-7029", f"refused an identity while {doing}", error=kind)
    if isinstance(error, LOGIN_REFUSED):
        # at a reconnection: the password may change at both ends, but never in the same moment
        return Retryable("MR-7020", f"refused the login while {doing}", error=kind)
    return Fatal("MR-4012", f"refused while {doing}", error=kind)
