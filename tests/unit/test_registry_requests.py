"""The registry answers each invalid request with a 4xx and its reason, and does not change."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millrace.registry import door
from millrace.registry.door import Door
from millrace.registry.server import BODY_BYTES_MAX, application
from millrace.registry.service import RegistryService
from millrace.schemas.record.control import DDL_SCHEMA
from tests.kit.examples import examples
from tests.kit.memory_store import MemoryStore

_SERVICE = RegistryService(MemoryStore())
_SERVICE.register("topic-value", {"schema": DDL_SCHEMA.text})
_APPLICATION: Any = application(_SERVICE, Door(), on_fenced=lambda _: None)

PATHS = (
    "/subjects/{}/versions",
    "/subjects/{}",
    "/subjects/{}/versions/{}",
    "/subjects/{}/versions/{}/schema",
    "/schemas/ids/{}",
    "/schemas/ids/{}/schema",
    "/schemas/ids/{}/subjects",
    "/schemas/ids/{}/versions",
    "/compatibility/subjects/{}/versions/{}",
    "/apis/registry/v2/ids/{}/{}",
    "/apis/registry/v3/ids/{}/{}/references",
    "/{}",
)
WORDS = st.one_of(
    st.sampled_from(
        [
            "topic-value",
            "1",
            "-1",
            "latest",
            "9" * 5000,
            "\u0661",
            "0x1",
            "..",
            "%00",
            "\ufffd",
            " ",
            "a" * 9000,
        ]
    ),
    st.text(max_size=10),
)
BODIES = st.one_of(
    st.binary(max_size=50),
    st.sampled_from(
        [
            b"[" * 100_000,
            b'{"schema": "\\ud800"}',
            b'{"schema": "\\"\\ud800\\""}',
            b'{"schema": 5}',
            b'{"schema": "{\\"type\\":[]}"}',
            b'{"schema": "[[[]]]"}',
            b'{"schema": "null", "references": [1]}',
            b'{"schema": "int", "schemaType": "\\ud800"}',
            b'{"schema": "int", "schemaType": []}',
            b"\xff\xfe{",
            json.dumps({"schema": "[" * 50_000}).encode(),
            b"9" * 5000,
            b"x" * (BODY_BYTES_MAX + 1),
        ]
    ),
)


def asked(
    method: str,
    path: str,
    body: bytes,
    *,
    query: str = "",
    headers: Mapping[str, str] = MappingProxyType({}),
    application: Any = _APPLICATION,
) -> tuple[int, bytes]:
    """Return (status, answer) of one request, without a socket."""
    answer: list[Mapping[str, Any]] = []

    async def receive() -> Mapping[str, object]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Mapping[str, Any]) -> None:
        answer.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(errors="replace"),
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "root_path": "",
        "scheme": "http",
    }
    asyncio.run(application(scope, receive, send))
    return int(answer[0]["status"]), b"".join(part.get("body", b"") for part in answer[1:])


def test_reading_clients_get_what_they_ask_for() -> None:
    """Confluent's greatest ID and prefixes, a subject as a hint, and Apicurio's two paths in both versions."""
    schema = json.loads(DDL_SCHEMA.text)
    answers = {
        ("/schemas/ids/1", "subject=shop-value"): {"schema": DDL_SCHEMA.text},
        ("/schemas/ids/1", "fetchMaxId=true"): {"schema": DDL_SCHEMA.text, "maxId": 1},
        ("/subjects", "subjectPrefix=topic"): ["topic-value"],
        ("/subjects", "subjectPrefix=:*:topic"): ["topic-value"],
        ("/subjects", "subjectPrefix=nosuch"): [],
        ("/contexts", ""): ["."],
        ("/apis/registry/v2/ids/globalIds/1", "dereference=false"): schema,
        ("/apis/registry/v2/ids/globalIds/1/references", ""): [],
        ("/apis/registry/v3/ids/contentIds/1", ""): schema,
        ("/apis/registry/v3/ids/globalIds/1/references", "refType=OUTBOUND"): [],
    }
    for (path, query), expected in answers.items():
        status, answer = asked("GET", path, b"", query=query)
        assert (status, json.loads(answer)) == (200, expected), path
    for path in ("globalIds/2", "globalIds/2/references", "contentHashes/1"):
        assert asked("GET", f"/apis/registry/v2/ids/{path}", b"")[0] == 404


@examples(60)
@given(
    st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH"]),
    st.sampled_from(PATHS),
    st.tuples(WORDS, WORDS),
    BODIES,
)
@example("GET", "/schemas/ids/{}", ("9" * 5000, ""), b"")
@example("GET", "/subjects/{}/versions/{}", ("topic-value", "9" * 5000), b"")
@example("POST", "/subjects/{}/versions", ("a", ""), b"[" * 100_000)
def test_malformed_request_is_refused_with_a_reason(
    method: str, path: str, words: tuple[str, str], body: bytes
) -> None:
    """A 5xx would ask the client to retry."""
    status, answer = asked(method, path.format(*words[: path.count("{}")]), body)
    assert 200 <= status < 500, (status, answer[:300])
    content = json.loads(answer) if status != 307 else {}  # to the path without its last slash
    if status >= 400:
        assert str(content["error_code"]).startswith(str(status))
        assert content["message"]


@pytest.mark.parametrize(
    ("is_local", "headers", "is_answered"),
    [
        (True, {}, True),
        (True, {"host": "localhost:8081"}, True),
        (True, {"host": "127.0.0.1:8081", "content-type": "text/plain"}, True),
        (True, {"host": "[::1]:8081"}, True),
        (True, {"host": "127.0.0.1:8081", "origin": "http://pages.example"}, False),
        (True, {"host": "127.0.0.1:8081", "origin": "null"}, False),
        (True, {"host": "127.0.0.1:8081", "sec-fetch-site": "cross-site"}, False),
        (True, {"host": "127.0.0.1:8081", "sec-fetch-site": "none"}, True),
        (True, {"host": "pages.example:8081"}, False),
        (True, {"host": "localhost.pages.example"}, False),
        (True, {"host": "Registry1.example.:8081"}, True),  # in the hosts file, as loopback
        (True, {"host": "db1:8081"}, False),  # there, as another machine
        (True, {"host": "comment"}, False),
        (True, {"host": "registry1.example", "origin": "http://registry1.example"}, False),
        (False, {"host": "registry1:8081"}, True),
        (False, {"host": "registry1:8081", "origin": "http://registry1:8081"}, False),
    ],
)
def test_pages_of_a_browser_register_no_schema(
    is_local: bool,
    headers: dict[str, str],
    is_answered: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A page may send a POST to loopback without a question of the browser; clients send no Origin."""
    monkeypatch.setattr(door, "HOSTS", tmp_path / "hosts")
    (tmp_path / "hosts").write_text(
        "127.0.1.1\tregistry1.example registry1 # comment\n\n10.0.0.7 db1\n# 127.0.0.1 comment\nnonsense\n"
    )
    service = RegistryService(MemoryStore())
    app = application(service, Door(is_local=is_local), on_fenced=lambda _: None)
    body = json.dumps({"schema": DDL_SCHEMA.text}).encode()
    status, answer = asked("POST", "/subjects/x/versions", body, headers=headers, application=app)
    message = str(json.loads(answer).get("message", ""))
    assert (status == 200) == is_answered
    assert service.subjects({}) == (["x"] if is_answered else [])
    if not is_answered:
        assert status == 403
        assert ("--token" in message) == (
            "origin" not in headers and "sec-fetch-site" not in headers
        )
        assert asked("GET", "/subjects", b"", headers=headers, application=app)[0] == 403
