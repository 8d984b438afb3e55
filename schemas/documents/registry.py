"""A schema registry: where it is, and how a client trusts it and logs in.

    registry: https://registry1:8081
    registry: {url: https://registry1:8081, tls_ca: /path/ca.pem, user: u, password: file:/path | env:NAME}
    registry: {url: https://registry1:8081, token: file:/path | env:NAME}

A login needs https: it would be readable otherwise. The secret is read for each request, so a rotated one takes effect.
"""

import base64
from dataclasses import dataclass

from millrace.schemas.documents import readers
from millrace.schemas.documents.fields import Fields, Problem, refuse_if_any
from millrace.schemas.documents.secret import SecretReference, resolve_secret

EXAMPLE = "{url: https://registry1:8081, tls_ca: /path/ca.pem}"


@dataclass(frozen=True, slots=True)
class Registry:
    """Without a URL, none is used. ``secret`` is the password of ``user``, or without a user a bearer token."""

    url: str = ""
    ca_path: str = ""
    user: str = ""
    secret: SecretReference | None = None

    def authorization(self) -> dict[str, str]:
        """The header of a request; nothing without a login. Fatal MR-4106, Retryable MR-4014."""
        if self.secret is None:
            return {}
        secret = resolve_secret(self.secret)
        if not self.user:
            return {"Authorization": f"Bearer {secret}"}
        login = base64.b64encode(f"{self.user}:{secret}".encode()).decode()
        return {"Authorization": f"Basic {login}"}

    def __str__(self) -> str:
        return self.url


def take_registry(fields: Fields, *, needed: bool) -> Registry:
    """Read ``registry`` of a document."""
    part = fields.part("registry", needed=needed, example=EXAMPLE, short="url")
    is_given = isinstance(fields.plain, dict) and fields.plain.get("registry") is not None
    return _take(part, needs_url=is_given or needed)


def parse_registry(plain: object, *, origin: str) -> Registry:
    """The mapping alone; Fatal MR-4101."""
    problems: list[Problem] = []
    registry = _take(Fields(plain, "", problems, EXAMPLE), needs_url=True)
    refuse_if_any(problems, origin, "")
    return registry


def plain_registry(registry: Registry) -> str | dict[str, object]:
    """The registry as plain values: its URL alone if there is nothing else."""
    login = {"user": registry.user, "password": str(registry.secret)}
    found: dict[str, object] = {
        "url": registry.url,
        **({"tls_ca": registry.ca_path} if registry.ca_path else {}),
        **(login if registry.user else {}),
        **({"token": str(registry.secret)} if registry.secret and not registry.user else {}),
    }
    return registry.url if len(found) == 1 else found


def _take(part: Fields, *, needs_url: bool) -> Registry:
    url = part.take("url", readers.url, "", needed=needs_url)
    ca_path = part.take("tls_ca", readers.text("the path of a PEM file"), "", needed=False)
    user = part.take("user", readers.text("a user name"), "", needed=False)
    password = part.take("password", readers.secret, None, needed=False)
    token = part.take("token", readers.secret, None, needed=False)
    part.finish()
    if ":" in user:
        part.refuse("user", repr(user), "a user name without a colon")
    if bool(user) != (password is not None):
        part.refuse("password" if user else "user", "nothing", "user and password together")
    if token is not None and password is not None:
        part.refuse("token", "a value", "either a token, or user and password")
    if url.startswith("http:") and (ca_path or password or token):
        part.refuse("url", "http with a CA or a login", "https, which keeps the login secret")
    return Registry(url, ca_path, user, password or token)
