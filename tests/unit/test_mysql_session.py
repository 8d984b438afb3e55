"""Sessions on servers, each with an answer in place of a server."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from millrace.drivers.mysql.connection import Endpoint, MySqlSession
from millrace.schemas.server_version import ServerVersion
from tests.kit.waiting import eventually


def _session(host: str) -> MySqlSession:
    return MySqlSession(Endpoint(host, 3306, "millrace", ""), connection=cast(Any, None))


def test_silent_server_blocks_no_session_on_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each new session asks for the version: a member that does not answer must not delay the others."""
    asked, may_answer = threading.Event(), threading.Event()

    def answer(session: MySqlSession, _: str) -> list[tuple[str]]:
        if session.endpoint.host == "silent":
            asked.set()
            may_answer.wait()
        return [("11.8.3-MariaDB",)]

    monkeypatch.setattr(MySqlSession, "query", answer)
    with ThreadPoolExecutor(2) as pool:
        try:
            silent = pool.submit(lambda: _session("silent").version)
            asked.wait()
            other = pool.submit(lambda: _session("other").version)
            eventually(other.done, timeout_s=30, what="the other server's version is known")
        finally:
            may_answer.set()
        assert silent.result() == other.result() == ServerVersion.parse("11.8.3-MariaDB")
