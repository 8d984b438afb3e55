"""The HTTP page of a process: `/metrics`, `/livez`, `/readyz`.

    with open_page(option) as page:     # /readyz: 503 "it starts"
        page.wait("for ZooKeeper …")    # /readyz: 503 "it starts: it waits for ZooKeeper …"
        page.show(Probes(hung=…, unready=…, metrics=…))

Guarantees: no answer waits for the process's work: the probes only read values. A connection ends ``CLIENT_S`` after
its begin, whatever its client does. At most ``REQUESTS_MAX`` are open at the same time. If all are, the oldest client
that has not sent its request within ``ROOM_S`` loses its place to the next one, so slow clients keep no probe out. None
delays the end of the process.
Not done here: TLS and logins. The default is loopback.
"""

import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from socketserver import ThreadingMixIn
from types import MappingProxyType
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import StartResponse, WSGIEnvironment

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from millrace.errors import Fatal
from millrace.log import get_logger
from millrace.metrics import PROCESS, Exposition
from millrace.tls import is_loopback

OFF = "none"
LOOPBACK = "127.0.0.1"
CLIENT_S = 10.0
ROOM_S = 0.25  # a probe sends its request at once
REQUESTS_MAX = 16  # a thread each
_ROUND_S = 0.02  # between two looks for a free place
POLL_S = 0.1  # until a closed page's thread ends
PORTS: Mapping[str, int] = MappingProxyType(
    {
        "millrace worker": 9471,
        "millrace apply": 9472,
        "millrace scheduler": 9473,
        "millrace registry": 9474,
        "millrace relay serve": 9475,
    }
)

log = get_logger("http")


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """The values that a process shows. The functions never wait.

    ``hung``, ``unready``: the reason, or "". ``metrics`` adds what the process does not count in instruments.
    """

    hung: Callable[[], str] = lambda: ""
    unready: Callable[[], str] = lambda: ""
    metrics: Callable[[Exposition], None] = lambda _: None


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen; port 0 takes a free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address_of(text: str) -> Address | None:
    """The address; a free port on loopback if ``text`` is empty. None, for no page, if it is ``none``.

    Fatal MR-8020 if it is not HOST:PORT.
    """
    if not text:
        return Address(LOOPBACK, 0)
    if text == OFF:
        return None
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (host and port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise Fatal("MR-8020", f"--http or MILLRACE_HTTP is {text[:80]!r}")
    return Address(host, int(port))


class Page:
    """The WSGI application. Another thread may call ``wait`` and ``show``. ``address``: None if it is not served."""

    def __init__(self, address: Address | None = None) -> None:
        self.address = address
        self._probes = Probes(unready=lambda: "it starts")

    def wait(self, what: str) -> None:
        """The process starts, and waits for this. Show it until ``show``."""
        self._probes = Probes(unready=lambda: f"it starts: it waits {what}")

    def show(self, probes: Probes) -> None:
        """Show these from now on."""
        self._probes = probes

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        probes, path = self._probes, environ["PATH_INFO"]
        status, kind = "200 OK", "text/plain; charset=utf-8"
        if path == "/metrics":
            kind, body = CONTENT_TYPE_PLAIN_0_0_4, _metrics(probes)
        elif path in ("/livez", "/readyz"):
            problem = probes.hung() if path == "/livez" else probes.unready()
            status = "503 Service Unavailable" if problem else status
            body = f"{problem or 'ok'}\n".encode()
        else:
            status, body = "404 Not Found", b"/metrics, /livez, /readyz\n"
        start_response(status, [("Content-Type", kind), ("Content-Length", str(len(body)))])
        return [body]


def _metrics(probes: Probes) -> bytes:
    found = Exposition()
    found.add("millrace_live", not probes.hung())
    found.add("millrace_ready", not probes.unready())
    probes.metrics(found)
    return generate_latest(PROCESS) + found.text().encode()


@contextmanager
def open_page(option: str = "") -> Iterator[Page]:
    """The page of this process, served until the block ends. ``option``: see ``address_of``.

    Fatal MR-8020, and MR-8009 if the address can't be used.
    """
    wanted = address_of(option)
    if wanted is None:
        yield Page()
        return
    server = _listen(wanted)
    at = Address(server.server_name, server.server_port)
    page = Page(at)
    server.set_app(page)
    log.info("http listens", address=str(at))
    if not is_loopback(at.host):
        log.warning("anyone who reaches this address can read the metrics", address=str(at))
    thread = threading.Thread(target=server.serve_forever, args=(POLL_S,), name="http", daemon=True)
    thread.start()
    try:
        yield page
    finally:
        server.end()
        thread.join()


def _listen(address: Address) -> "_Server":
    kind = _Server6 if ":" in address.host else _Server
    try:
        return kind((address.host, address.port), _Request)
    except OSError as error:
        raise Fatal(
            "MR-8009",
            f"{address}, for metrics: {error.strerror}",
            fix="Choose another --http or MILLRACE_HTTP. `ss -ltnp` lists the processes that listen.",
        ) from error


class _Request(WSGIRequestHandler):
    """Logs nothing."""

    server: "_Server"
    timeout = CLIENT_S

    def parse_request(self) -> bool:
        """Read the head of the request."""
        is_valid = super().parse_request()
        self.server.note_request(self.connection)
        return is_valid

    def log_message(self, *_: object) -> None:
        pass


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each connection, and a limit to them and to their time."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, *arguments: object) -> None:
        self._free = threading.BoundedSemaphore(REQUESTS_MAX)
        self._ends = threading.Event()
        self._lock = threading.Lock()
        self._begun_s: dict[socket.socket, float] = {}  # of open connections, oldest first
        self._silent: set[socket.socket] = set()  # without a whole request
        super().__init__(*arguments)  # type: ignore[arg-type]

    def end(self) -> None:
        """Accept no more clients and cut those that are connected. Called from another thread than the server's."""
        self._ends.set()
        self.shutdown()
        self.server_close()
        self._cut(lambda _: True)

    def note_request(self, connection: socket.socket) -> None:
        with self._lock:
            self._silent.discard(connection)

    def service_actions(self) -> None:
        """Cut connections that are too old. Called several times a second."""
        before_s = time.monotonic() - CLIENT_S
        self._cut(lambda connection: self._begun_s[connection] <= before_s)

    def _make_room(self) -> None:
        """Cut the oldest client that has not sent its request in time."""
        before_s = time.monotonic() - ROOM_S
        with self._lock:
            late = next((one for one in self._begun_s if one in self._silent), None)
            is_late = late is not None and self._begun_s[late] <= before_s
        self._cut(lambda connection: is_late and connection is late)

    def _cut(self, is_cut: Callable[[socket.socket], bool]) -> None:
        """End these connections. Their threads meet the end of the input."""
        with self._lock:
            for connection in [one for one in self._begun_s if is_cut(one)]:
                del self._begun_s[connection]
                self._silent.discard(connection)
                with suppress(OSError):  # the client has ended it
                    connection.shutdown(socket.SHUT_RDWR)

    def server_bind(self) -> None:
        """Without the look-up of the host's name in http.server, which may wait for a name server."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def process_request(self, request: Any, client_address: object) -> None:
        """Answer in a new thread, once fewer than ``REQUESTS_MAX`` are busy."""
        while not self._free.acquire(timeout=_ROUND_S):
            if self._ends.is_set():
                self.shutdown_request(request)
                return
            self.service_actions()
            self._make_room()
        with self._lock:
            self._begun_s[request] = time.monotonic()
            self._silent.add(request)
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._forget(request)
            raise

    def process_request_thread(self, request: Any, client_address: object) -> None:
        """The body of that thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._forget(request)

    def _forget(self, connection: socket.socket) -> None:
        with self._lock:
            self._begun_s.pop(connection, None)
            self._silent.discard(connection)
        self._free.release()

    def handle_error(self, *_: object) -> None:
        """Log it for developers only: a client may end its connection at any time."""
        log.debug("a request for metrics failed", exc_info=True)


class _Server6(_Server):
    address_family = socket.AF_INET6
