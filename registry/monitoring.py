"""Shows the registry to monitoring: its requests, and whether its event loop runs."""

import time
from dataclasses import dataclass, field

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millrace.http import Probes
from millrace.metrics import counter, histogram

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
