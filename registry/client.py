"""The registry client of capture and apply: registers schemas and gets them by ID, with Confluent's REST API.

    register(subject, schema_text) -> id      known pairs are answered from memory
    learn(prefix)                             makes all pairs of the registry known whose subject begins with it
    schema_by_id(id) -> schema_text           known IDs are answered from memory

    Retryable MR-6020   no connection, a timeout, a truncated answer, a proxy's page, HTTP 408, 425, 429 or 5xx, or the
                        answer of another program: without the fields of a registry's, or an error without its number
    Retryable MR-6024   one ID was assigned to two schemas: the registry lost its data, and this client must be replaced
    Fatal MR-6009       the ID is not registered
    Fatal MR-6021       any other refusal

    Retryable MR-7014   the login is refused: the secret is read again for each request
    Retryable MR-7015   the registry's certificate is not trusted
    Fatal MR-7007       the CA file can't be used

Each request is tried once; the caller retries. Connections are kept between requests. Calls block. Several threads may
use one client. Secrets never appear in an error.
Not done here: client certificates, proxies.
"""

import json
from hashlib import sha256
from typing import NoReturn
from urllib.parse import SplitResult, quote, urlsplit

import urllib3
from urllib3.exceptions import HTTPError, SSLError

from millrace.errors import Fatal, Retryable
from millrace.schemas.documents import Registry
from millrace.schemas.record.avro_schema import Json
from millrace.tls import UnusableAuthorityError, verifying

_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"
_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_TIMEOUT_S = 10.0
_CONNECTIONS_MAX = 32  # kept: schemas of many new tables are registered at the same time
ANSWER_BYTES_MAX = 16 * 1024 * 1024
_ASK_AGAIN = frozenset({408, 425, 429})
_NO_ENTRY = frozenset({401, 403})
_PAGE_SCHEMAS = 200  # listed in one answer; a schema has 1 to 60 kB
_SCHEMA_UNKNOWN = 40403
_FOREIGN_FIX = (
    "Another program may answer at this address: check the address in the task document, and that the registry runs"
    " there: `curl <registry>/subjects` lists its subjects."
)


class RegistryClient:
    """A client of one registry. Fatal MR-6021 if its URL is not ``http[s]://host[:port][/path]``."""

    def __init__(self, registry: Registry, *, timeout_s: float = _TIMEOUT_S) -> None:
        try:
            parts = urlsplit(registry.url)
            is_usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            is_usable = False
        if not is_usable:
            raise Fatal("MR-6021", "the registry's address is not http[s]://host[:port]")
        self._registry = registry
        self._parts = parts
        self._pool = _pool(parts, registry.ca_path, timeout_s)
        self._ids: dict[tuple[str, str], int] = {}
        self._listed: dict[tuple[str, bytes], int] = {}  # by subject and SHA-256 of the text
        self._registered: dict[int, str] = {}
        self._texts: dict[int, str] = {}

    @property
    def address(self) -> str:
        port = f":{self._parts.port}" if self._parts.port else ""
        return f"{self._parts.scheme}://{self._parts.hostname}{port}{self._parts.path}"

    def register(self, subject: str, schema_text: str) -> int:
        """The ID of this schema under this subject; registers it if needed."""
        known = self._ids.get((subject, schema_text))
        if known is not None:
            return known
        schema_id = self._listed.get((subject, _digest(schema_text)))
        if schema_id is None:
            schema_id = self._ask_for_id(subject, schema_text)
        if self._registered.setdefault(schema_id, schema_text) != schema_text:
            raise Retryable("MR-6024", f"{self.address} assigned id {schema_id} to a second schema")
        self._ids[subject, schema_text] = schema_id
        return schema_id

    def knows(self, subject: str, schema_text: str) -> bool:
        """Whether ``register`` answers from memory."""
        pair = subject, schema_text
        return pair in self._ids or (subject, _digest(schema_text)) in self._listed

    def learn(self, prefix: str) -> None:
        """List the schemas of all subjects that begin with ``prefix``; ``register`` asks for none of them.

        Some hundred schemas in a request. A registry that changes the texts that it stores makes no pair known. Errors:
        see the module; a registry without such a list is Fatal MR-6021.
        """
        first = 0
        while True:
            query = f"subjectPrefix={quote(prefix, safe='')}&offset={first}&limit={_PAGE_SCHEMAS}"
            page = self._ask("GET", f"/schemas?{query}", None)
            if not isinstance(page, list):
                self._refuse("its list of schemas is not a list")
            known = len(self._listed)
            for listed in page:
                subject, text, schema_id = _listed_schema(listed)
                self._listed[subject, _digest(text)] = schema_id
            first += len(page)
            if len(page) != _PAGE_SCHEMAS or len(self._listed) == known:  # it may not know pages
                return

    def remember(self, subject: str, schema_text: str, schema_id: int) -> None:
        """Store a registration that a record of the topic shows. It never replaces an answer of the registry."""
        if self._registered.setdefault(schema_id, schema_text) == schema_text:
            self._ids.setdefault((subject, schema_text), schema_id)

    def schema_by_id(self, schema_id: int) -> str:
        known = self._texts.get(schema_id)
        if known is not None:
            return known
        answer = self._ask("GET", f"/schemas/ids/{schema_id}", None)
        text = answer.get("schema") if isinstance(answer, dict) else None
        if not isinstance(text, str):
            self._is_foreign(f"its answer for id {schema_id} has no schema: {answer!r}")
        self._texts[schema_id] = text
        return text

    def setting(self, path: str, name: str) -> str:
        """A setting of the whole registry: ``config`` and ``compatibilityLevel``, ``mode`` and ``mode``."""
        answer = self._ask("GET", f"/{path}", None)
        value = answer.get(name) if isinstance(answer, dict) else None
        if not isinstance(value, str):
            self._is_foreign(f"its answer to /{path} has no {name}: {answer!r}")
        return value

    def _ask_for_id(self, subject: str, schema_text: str) -> int:
        answer = self._ask(
            "POST",
            f"/subjects/{quote(subject, safe='')}/versions",
            {"schema": schema_text, "schemaType": "AVRO"},
        )
        schema_id = answer.get("id") if isinstance(answer, dict) else None
        if not isinstance(schema_id, int):
            self._is_foreign(f"its answer to a registration has no id: {answer!r}")
        return schema_id

    def _ask(self, method: str, path: str, body: Json) -> Json:
        headers = {"Accept": _ACCEPT} | self._registry.authorization()
        content = None
        if body is not None:
            content = json.dumps(body).encode()
            headers["Content-Type"] = _CONTENT_TYPE
        try:
            response = self._pool.urlopen(
                method,
                self._parts.path.rstrip("/") + path,
                body=content,
                headers=headers,
                retries=False,
                redirect=False,
                preload_content=False,
            )
            try:
                answer = response.read(ANSWER_BYTES_MAX + 1)
            except HTTPError:
                response.close()  # the rest of this answer would be read as the next one
                raise
            finally:
                response.release_conn()
        except SSLError as error:
            raise Retryable("MR-7015", f"{self.address}: {error}") from error
        except (OSError, HTTPError) as error:
            raise Retryable("MR-6020", f"{self.address} did not answer: {error}") from error
        return self._judged(response.status, answer)

    def _judged(self, status: int, answer: bytes) -> Json:
        is_json = True
        try:
            content: Json = json.loads(answer)
        except (ValueError, RecursionError):
            is_json = False
            content = " ".join(
                answer[:200].decode(errors="replace").split()
            )  # of a page with lines
        if status < 300:
            if len(answer) > ANSWER_BYTES_MAX:
                self._refuse(f"its answer has more than {ANSWER_BYTES_MAX} bytes")
            if not is_json:
                self._is_foreign(f"it answered {status} without JSON: {content}")
            return content
        if status in _NO_ENTRY:
            raise Retryable("MR-7014", f"{self.address} answered {status}: {_message(content)}")
        if status >= 500 or status in _ASK_AGAIN:
            raise Retryable("MR-6020", f"{self.address} answered {status}: {_message(content)}")
        number = content.get("error_code") if isinstance(content, dict) else None
        if not isinstance(number, int):
            self._is_foreign(f"it answered {status}: {_message(content)}")
        if number == _SCHEMA_UNKNOWN:
            raise Fatal("MR-6009", f"{self.address}: {_message(content)}")
        return self._refuse(f"it answered {status}: {_message(content)}")

    def _is_foreign(self, why: str) -> NoReturn:
        raise Retryable("MR-6020", f"{self.address}: {why}", fix=_FOREIGN_FIX)

    def _refuse(self, why: str) -> NoReturn:
        raise Fatal("MR-6021", f"{self.address}: {why}")


def _pool(parts: SplitResult, ca_path: str, timeout_s: float) -> urllib3.HTTPConnectionPool:
    host, timeout = parts.hostname or "", urllib3.Timeout(timeout_s)
    if parts.scheme == "https":
        try:
            context = verifying(ca_path, checks_name=True)
        except UnusableAuthorityError as error:
            raise Fatal("MR-7007", str(error)) from error
        return urllib3.HTTPSConnectionPool(
            host,
            parts.port,
            timeout=timeout,
            maxsize=_CONNECTIONS_MAX,
            ssl_context=context,
        )
    return urllib3.HTTPConnectionPool(host, parts.port, timeout=timeout, maxsize=_CONNECTIONS_MAX)


def _listed_schema(listed: Json) -> tuple[str, str, int]:
    """Subject, text and ID of an entry of a list; an entry without them is of no use."""
    if isinstance(listed, dict):
        subject, text, schema_id = (listed.get(name) for name in ("subject", "schema", "id"))
        if isinstance(subject, str) and isinstance(text, str) and isinstance(schema_id, int):
            return subject, text, schema_id
    return "", "", 0


def _digest(schema_text: str) -> bytes:
    return sha256(schema_text.encode()).digest()


def _message(content: Json) -> str:
    return str(content.get("message", content)) if isinstance(content, dict) else str(content)
