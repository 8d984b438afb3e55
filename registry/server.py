"""The registry's REST API over HTTP.

Maps paths to the service's functions. Answers have the type ``application/vnd.schemaregistry.v1+json``, those to
Apicurio's clients ``application/json``. When the store
is fenced, because another registry has taken over its topic, the server answers 503 and ends with that error.

``registry.door`` decides about TLS and tokens. Monitoring sees the requests, and whether the event loop runs.
"""

import asyncio
import json
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from millrace.errors import Fatal, Fenced, MillraceError
from millrace.http import Page, Probes
from millrace.log import get_logger
from millrace.metrics import counter, histogram
from millrace.registry.door import Door
from millrace.registry.service import (
    SCHEMA_INVALID,
    SCHEMA_UNKNOWN,
    Refusal,
    RegistryService,
    SchemaStore,
)
from millrace.schemas.json_input import load_json
from millrace.schemas.record.avro_schema import Json

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
PLAIN_TYPE = "application/json"
APICURIO = "/apis/registry"
BODY_BYTES_MAX = 4 * 1024 * 1024  # a table of 4096 columns with long names is below 2 MiB
HEAD_S = 10.0  # until the headers of a request have arrived
BODY_S = 30.0
_NOT_CHANGED_HERE = 40501
_PATH_UNKNOWN = 404
_STORE_FAILED = 50001
_UNAUTHORIZED = 40101
_BODY_TOO_LARGE = 41301
_BODY_TOO_SLOW = 40801
_FROM_A_PAGE = 40301
_GRACE_S = 2

_Body: TypeAlias = Mapping[str, Json]
_Function: TypeAlias = Callable[[Mapping[str, str], _Body], Json]
_Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]

log = get_logger("registry")


@dataclass(frozen=True, slots=True)
class RegistryServer:
    """Answers on a socket from ``listen``. ``page`` shows it to monitoring."""

    listening: socket.socket
    store: SchemaStore
    door: Door = field(default_factory=Door)
    page: Page = field(default_factory=Page)

    @property
    def address(self) -> str:
        return f"{self.door.scheme}://{address_text(self.listening)}"

    def run(self, *, ready: Callable[[], None] = lambda: None) -> None:
        """Load the store, call ``ready`` and answer until SIGTERM or SIGINT.

        Raises Fenced when another registry takes over. Errors of loading are raised before ``ready``.
        """
        fenced: list[Fenced] = []

        def end(error: Fenced) -> None:
            fenced.append(error)
            server.should_exit = True

        try:
            app = application(RegistryService(self.store), self.door, on_fenced=end)
            pulse = Pulse()
            self.page.show(pulse.probes())
            ready()
            config = uvicorn.Config(
                Counted(app),
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=_GRACE_S,
                http=_Connection,
                ssl_certfile=self.door.certificate,
                ssl_keyfile=self.door.key,
                callback_notify=pulse.beat,
                timeout_notify=TICK_S,
            )
            server = _Server(config)
            server.run(sockets=[self.listening])
        finally:
            self.store.close()
        if fenced:
            raise fenced[0]


class _Server(uvicorn.Server):
    """Returns after a signal. uvicorn raises it again, which would end the process before the store is closed."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        with super().capture_signals():
            try:
                yield
            finally:
                self._captured_signals.clear()


class _Connection(H11Protocol):
    """A connection that ends if no whole head of a request arrives within ``HEAD_S``."""

    _watch: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch_from(self.cycle)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch is not None:
            self._watch.cancel()
        super().connection_lost(exc)

    def _watch_from(self, cycle: object) -> None:
        self._watch = self.loop.call_later(HEAD_S, self._look, cycle)

    def _look(self, cycle: object) -> None:
        """Close it if the request that it had before is still the last, and is answered."""
        is_idle = self.cycle is None or self.cycle.response_complete
        if is_idle and self.cycle is cycle:
            self.transport.close()
        else:
            self._watch_from(self.cycle)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; ``port`` 0 takes a free one. Fatal MR-8009 if the address is taken or not permitted."""
    try:
        listening = socket.create_server((host, port))
    except OSError as exc:
        raise Fatal("MR-8009", f"{host}:{port}: {exc.strerror}") from exc
    # Accepted sockets inherit it; asyncio sets it only if the protocol is given. Without it an answer in two writes
    # waits 40 ms for the client's acknowledgment.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def address_text(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"{host}:{port}"


def application(
    service: RegistryService, door: Door, *, on_fenced: Callable[[Fenced], None]
) -> Starlette:
    """The ASGI application. It calls ``on_fenced`` when the store is fenced."""

    def endpoint(function: _Function) -> _Endpoint:
        async def answer(request: Request) -> Response:
            try:
                if refusal := door.page_refusal(request.headers):
                    return _error(403, _FROM_A_PAGE, refusal)
                authorization = request.headers.get("authorization", "")
                if not await run_in_threadpool(door.admits, authorization):
                    return _no_entry()
                try:
                    body = await asyncio.wait_for(_body(request), BODY_S)
                except TimeoutError:
                    return _error(408, _BODY_TOO_SLOW, f"a request arrives within {BODY_S:g} s")
                parameters = {**request.query_params, **request.path_params}
                answer = await run_in_threadpool(function, parameters, body)
                return _json(200, answer, PLAIN_TYPE if _is_apicurios(request) else CONTENT_TYPE)
            except Refusal as refusal:
                return _refused(request, refusal)
            except MillraceError as error:
                log.error("a request failed", error=str(error))
                if isinstance(error, Fenced):
                    on_fenced(error)
                return _error(503 if isinstance(error, Fenced) else 500, _STORE_FAILED, str(error))

        return answer

    return Starlette(
        routes=[
            Route(path, endpoint(function), methods=[method])
            for method, path, function in _functions(service)
        ],
        exception_handlers={404: _unknown_path, 405: _not_changed},
    )


def _functions(service: RegistryService) -> list[tuple[str, str, _Function]]:
    def version(params: Mapping[str, str]) -> tuple[str, str]:
        return params["subject"], params["version"]

    return [
        (
            "POST",
            "/subjects/{subject}/versions",
            lambda p, body: service.register(p["subject"], body),
        ),
        ("POST", "/subjects/{subject}", lambda p, body: service.look_up(p["subject"], body)),
        ("GET", "/subjects", lambda p, _b: service.subjects(p)),
        ("GET", "/subjects/{subject}/versions", lambda p, _b: service.versions(p["subject"])),
        (
            "GET",
            "/subjects/{subject}/versions/{version}",
            lambda p, _b: service.version(*version(p)),
        ),
        (
            "GET",
            "/subjects/{subject}/versions/{version}/schema",
            lambda p, _b: json.loads(service.version_schema(*version(p))),
        ),
        ("GET", "/schemas", lambda p, _b: service.schemas(p)),
        ("GET", "/schemas/types", lambda _p, _b: ["AVRO"]),
        ("GET", "/contexts", lambda _p, _b: ["."]),
        ("GET", "/schemas/ids/{id}", lambda p, _b: service.schema(p["id"], p)),
        ("GET", "/schemas/ids/{id}/schema", lambda p, _b: json.loads(service.schema_text(p["id"]))),
        (
            "GET",
            "/schemas/ids/{id}/subjects",
            lambda p, _b: [entry.subject for entry in service.uses(p["id"])],
        ),
        (
            "GET",
            "/schemas/ids/{id}/versions",
            lambda p, _b: [
                {"subject": entry.subject, "version": entry.version}
                for entry in service.uses(p["id"])
            ],
        ),
        *(
            ("GET", path, lambda _p, _b: {"compatibilityLevel": "NONE"})
            for path in ("/config", "/config/{subject}")
        ),
        *(
            ("GET", path, lambda _p, _b: {"mode": "READWRITE"})
            for path in ("/mode", "/mode/{subject}")
        ),
        (
            "POST",
            "/compatibility/subjects/{subject}/versions/{version}",
            lambda _p, _b: {"is_compatible": True},
        ),
        ("GET", "/", lambda _p, _b: {}),
        *_apicurio_functions(service),
    ]


def _apicurio_functions(service: RegistryService) -> list[tuple[str, str, _Function]]:
    """The paths of Apicurio's deserializers. The schemas have no references."""
    ids = [f"{APICURIO}/{version}/ids/{{kind}}/{{id}}" for version in ("v2", "v3")]
    return [
        *(("GET", path, lambda p, _b: _apicurio_schema(service, p)) for path in ids),
        *(
            ("GET", f"{path}/references", lambda p, _b: _apicurio_references(service, p))
            for path in ids
        ),
    ]


def _apicurio_schema(service: RegistryService, params: Mapping[str, str]) -> Json:
    if params["kind"] not in ("globalIds", "contentIds"):
        raise Refusal(SCHEMA_UNKNOWN, f"{params['kind']} are not known here")
    schema: Json = json.loads(service.schema_text(params["id"]))
    return schema


def _apicurio_references(service: RegistryService, params: Mapping[str, str]) -> Json:
    _apicurio_schema(service, params)
    return []


def _no_entry() -> Response:
    answer = _error(401, _UNAUTHORIZED, "This registry requires a token.")
    answer.headers["www-authenticate"] = "Bearer, Basic"
    return answer


async def _body(request: Request) -> _Body:
    content = b""
    async for chunk in request.stream():
        content += chunk
        if len(content) > BODY_BYTES_MAX:
            raise Refusal(_BODY_TOO_LARGE, f"a request has at most {BODY_BYTES_MAX} bytes")
    if not content:
        return {}
    try:
        body = load_json(content)
    except ValueError as error:
        raise Refusal(SCHEMA_INVALID, f"the request is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise Refusal(SCHEMA_INVALID, "the request is not a JSON object")
    return body


def _refused(request: Request, refusal: Refusal) -> Response:
    """Confluent's form, which Apicurio's API v2 has too; v3 shows its clients the title of RFC 7807."""
    answer: dict[str, Json] = {"error_code": refusal.code, "message": refusal.message}
    if not _is_apicurios(request):
        return _json(refusal.status, answer)
    answer |= {"status": refusal.status, "title": refusal.message}
    return _json(refusal.status, answer, PLAIN_TYPE)


def _is_apicurios(request: Request) -> bool:
    return request.url.path.startswith(APICURIO)


async def _unknown_path(_request: Request, _cause: Exception) -> Response:
    return _error(404, _PATH_UNKNOWN, "HTTP 404 Not Found")


async def _not_changed(_request: Request, _cause: Exception) -> Response:
    return _error(
        405,
        _NOT_CHANGED_HERE,
        "This registry does not delete schemas or change its configuration.",
    )


def _error(status: int, code: int, message: str) -> Response:
    return _json(status, {"error_code": code, "message": message})


def _json(status: int, content: Json, media_type: str = CONTENT_TYPE) -> Response:
    return Response(
        json.dumps(content, ensure_ascii=False).encode(),
        status_code=status,
        media_type=media_type,
    )


HUNG_S = 30.0
TICK_S = 1

REQUESTS = counter("millrace_registry_requests_total")
SECONDS = histogram("millrace_registry_request_seconds")


@dataclass(frozen=True, slots=True)
class Counted:
    """The application, with its requests counted."""

    application: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        begun_s = time.monotonic()

        async def count(message: Message) -> None:
            if message["type"] == "http.response.start":
                SECONDS.observe(time.monotonic() - begun_s)
                REQUESTS.labels(method=_method(scope), status=message["status"]).inc()
            await send(message)

        await self.application(scope, receive, count)


def _method(scope: Scope) -> str:
    """The method; "other" for one that the registry does not know, since a client may send any word."""
    return (
        scope["method"] if scope["method"] in ("GET", "HEAD", "POST", "PUT", "DELETE") else "other"
    )


@dataclass(slots=True)
class Pulse:
    """Beats in the event loop every ``TICK_S``."""

    _at_s: float = field(default_factory=time.monotonic)

    async def beat(self) -> None:
        """Note that the loop runs."""
        self._at_s = time.monotonic()

    def probes(self) -> Probes:
        """The probes of a registry that has read its topic."""
        return Probes(hung=self._hung)

    def _hung(self) -> str:
        age_s = time.monotonic() - self._at_s
        return f"the event loop has not run for {age_s:.0f} s" if age_s > HUNG_S else ""
