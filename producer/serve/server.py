"""Accepts clients and serves each in a thread, until ``stop``.

Guarantees: without TLS or without a password, only loopback is listened on (MR-2020). No client delays another one,
nor the worker, which does not know of this process.
"""

import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from millrace.errors import Fatal, MillraceError
from millrace.log import get_logger
from millrace.producer.serve.catalogue import Catalogue
from millrace.producer.serve.clients import Clients
from millrace.producer.serve.login import Door, ServedAccount
from millrace.producer.serve.session import Session
from millrace.producer.serve.variables import source_version
from millrace.producer.serve.wire import Wire
from millrace.schemas.documents.secret import AskedSecret
from millrace.tls import is_loopback

CONNECTIONS_MAX = 100  # each dump has two buffers of 9 MiB together
BACKLOG = 64
GRACE_S = 2.0
POLL_S = 0.2
HUNG_S = 30.0

log = get_logger("producer.serve")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Where to listen, and who may log in. ``certificate`` and ``key``: PEM files, or neither."""

    host: str
    port: int
    account: ServedAccount
    certificate: Path | None = None
    key: Path | None = None
    connections_max: int = CONNECTIONS_MAX


@dataclass(slots=True)
class RelayServer:
    """A server of the relay log in ``root``. Fatal MR-2013, MR-2020, MR-2021, MR-8009."""

    root: Path
    options: ServeOptions
    _catalogue: Catalogue = field(init=False)
    _tls: ssl.SSLContext | None = field(init=False)
    _secret: AskedSecret | None = field(init=False)
    _listening: socket.socket = field(init=False)
    _round_at_s: float = field(init=False, default_factory=time.monotonic)

    def __post_init__(self) -> None:
        options = self.options
        check_exposure(options)
        self._tls = tls_context(options.certificate, options.key)
        password = options.account.password
        self._secret = AskedSecret(password) if password is not None else None
        self._catalogue = Catalogue(self.root)
        self._listening = _listen(options.host, options.port)

    @property
    def address(self) -> str:
        host, port = self._listening.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def hung(self) -> str:
        """Why it accepts no clients; "" if it does. For monitoring."""
        age_s = time.monotonic() - self._round_at_s
        return f"no client could connect for {age_s:.0f} s" if age_s > HUNG_S else ""

    def run(self, stop: threading.Event, *, ready: Callable[[], None] = lambda: None) -> None:
        """Serve until ``stop``; ``ready`` is called once clients are accepted."""
        clients = Clients(self.options.connections_max)
        open_sockets: dict[threading.Thread, socket.socket] = {}
        follower = threading.Thread(target=self._catalogue.follow, args=(stop,), name="catalogue")
        follower.start()
        try:
            self._listening.settimeout(POLL_S)
            ready()
            while not stop.is_set():
                self._round_at_s = time.monotonic()
                open_sockets = {k: v for k, v in open_sockets.items() if k.is_alive()}
                try:
                    connection, address = self._listening.accept()
                except TimeoutError:
                    continue
                except OSError as error:
                    log.warning("client not accepted", error=error)
                    time.sleep(POLL_S)  # not stop.wait(), see millrace.process.signals
                    continue
                thread = threading.Thread(
                    target=self._serve, args=(connection, address[0], clients, stop), daemon=True
                )
                open_sockets[thread] = connection
                thread.start()
        finally:
            stop.set()
            self._listening.close()
            _end(open_sockets)
            follower.join()

    def _serve(
        self, connection: socket.socket, peer: str, clients: Clients, stop: threading.Event
    ) -> None:
        options = self.options
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            wire = Wire(connection)
            try:
                version = source_version(self._catalogue)
                user = options.account.user
                door = Door(self._catalogue.flavour, version, user, self._secret, self._tls)
                Session(wire, self._catalogue, door, clients, peer=peer).run(stop)
            except (OSError, MillraceError) as error:
                log.warning("client not served", peer=peer, error=error)
            finally:
                wire.socket.close()  # another object than ``connection`` with TLS


def check_exposure(options: ServeOptions) -> None:
    """Fatal MR-2020 if strangers could read the relay log."""
    lacks = []
    if options.certificate is None:
        lacks.append("TLS (--tls-cert and --tls-key)")
    if options.account.password is None:
        lacks.append("password (--password)")
    if lacks and not is_loopback(options.host):
        message = f"{options.host} is not a loopback address and has no {' and no '.join(lacks)}"
        raise Fatal("MR-2020", message)


def tls_context(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """The server's side of TLS; None without a certificate. Fatal MR-2021."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise Fatal("MR-2021", "--tls-cert and --tls-key are given together or not at all")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except OSError as error:  # an SSLError too
        message = f"{certificate} and {key} can't be used: {error.strerror or error}"
        raise Fatal("MR-2021", message) from error
    return context


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise Fatal("MR-8009", f"{host}:{port}: {error.strerror}") from error


def _end(open_sockets: dict[threading.Thread, socket.socket]) -> None:
    """Let clients hear the reason, then cut those that do not read."""
    for thread in open_sockets:
        thread.join(GRACE_S / max(len(open_sockets), 1))
    for thread, connection in open_sockets.items():
        if thread.is_alive():
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
