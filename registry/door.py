"""The door of the registry: which requests it answers, and on which addresses it may listen.

A token opens it, as ``Authorization: Bearer TOKEN`` or as the password of basic authentication with any user, which
Confluent's clients can send. The token is read for each request, so a rotated one takes effect. Without TLS or without
a token, only loopback is listened on (Fatal MR-7016), unless the operator insists.

Loopback keeps out other machines, but not the pages that a browser on this machine shows. Without a token, a request
that a page has caused is refused: one with an ``Origin``, and on loopback one for a ``Host`` that is not this machine,
as after a name of a page was changed to 127.0.0.1 in the DNS. A name that the hosts file gives to loopback is this
machine: no page can have it.
"""

import base64
import hmac
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from millrace.errors import Fatal
from millrace.schemas.documents import SecretReference
from millrace.schemas.documents.secret import AskedSecret
from millrace.tls import is_loopback

HOSTS = Path("/etc/hosts")
_NAME_MAX = 253  # of a host, in the DNS


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """``certificate`` and ``key`` are PEM files. Without a token, every client may enter."""

    certificate: Path | None = None
    key: Path | None = None
    token: SecretReference | None = None
    is_local: bool = False  # it listens on loopback
    _secret: AskedSecret | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        if self.token is not None:
            object.__setattr__(self, "_secret", AskedSecret(self.token))

    @property
    def scheme(self) -> str:
        return "http" if self.certificate is None else "https"

    def check_exposure(self, host: str, *, is_accepted: bool) -> None:
        """Fatal MR-7016 if other machines could read and register schemas unseen; MR-7007 for unusable files."""
        missing = []
        if self.certificate is None:
            missing.append("TLS (--tls-cert and --tls-key)")
        if self.token is None:
            missing.append("token (--token)")
        if missing and not is_accepted and not is_loopback(host):
            message = f"{host} is not a loopback address and has no {' and no '.join(missing)}"
            raise Fatal("MR-7016", message)
        self._check_files()

    def _check_files(self) -> None:
        if self.certificate is None and self.key is None:
            return
        if self.certificate is None or self.key is None:
            raise Fatal("MR-7007", "--tls-cert and --tls-key are given together or not at all")
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key)
        except OSError as error:  # an SSLError too
            message = f"{self.certificate} and {self.key} can't be used: {error.strerror or error}"
            raise Fatal("MR-7007", message) from error

    def admits(self, authorization: str) -> bool:
        """True if a request with this header may enter. Fatal MR-4106 if the token can't be read."""
        if self._secret is None:
            return True
        return hmac.compare_digest(_given_secret(authorization), self._secret.value().encode())

    def page_refusal(self, headers: Mapping[str, str]) -> str:
        """Why a request with these headers (in lower case) may come from a page in a browser; "" if it does not."""
        if self.token is not None:
            return ""
        if "origin" in headers or headers.get("sec-fetch-site", "none") != "none":
            return "This registry answers no pages of a browser."
        name = _host_name(headers.get("host", ""))
        if not self.is_local or is_loopback(name) or name in _loopback_names():
            return ""
        return (
            f"The host {name[:_NAME_MAX]!r} is not this machine. Use 127.0.0.1 or localhost in the registry's URL, add"
            f" the name to the line of 127.0.0.1 in {HOSTS}, or start the registry with --token."
        )


def _host_name(host: str) -> str:
    """The host without its port and brackets; ``localhost`` if there is none, as in HTTP/1.0."""
    name = host.rpartition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return name.removeprefix("[").lower().removesuffix(".") or "localhost"


def _loopback_names() -> set[str]:
    """The names, in lower case, that the hosts file gives to loopback. Read each time, as a resolver does."""
    try:
        lines = HOSTS.read_text(errors="replace").splitlines()
    except OSError:
        return set()
    entries = (line.partition("#")[0].lower().split() for line in lines)
    return {
        name for address, *names in filter(None, entries) if is_loopback(address) for name in names
    }


def _given_secret(authorization: str) -> bytes:
    """The bearer token, or the password of basic authentication; empty for any other header."""
    kind, _, value = authorization.partition(" ")
    if kind.lower() == "bearer":
        return value.strip().encode()
    if kind.lower() != "basic":
        return b""
    try:
        return base64.b64decode(value, validate=True).partition(b":")[2]
    except ValueError:
        return b""
