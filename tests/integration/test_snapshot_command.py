"""``millrace task snapshot``: requests are checked on a real source and wait in a real ZooKeeper."""

import json
from dataclasses import replace

import pytest

from millrace.deploy.servers import DatabaseServer
from millrace.schemas.plain import to_plain
from millrace.schemas.requests.snapshot_request import (
    REQUESTS_MAX,
    EndedSnapshot,
    SnapshotRequest,
    Span,
)
from millrace.zk.client.session import Session
from millrace.zk.tree.store import Store
from tests.fixtures.shell import CAPTURE, Shell

SET = """
set: shop
members: [{{host: {host}, port: {port}}}]
user: {user}
password: env:MILLRACE_TEST_PASSWORD
tls: require-unverified
"""


@pytest.fixture
def source(
    shell: Shell, mysql_server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> DatabaseServer:
    """A set of one server and its capture task, which does not run."""
    server = mysql_server
    monkeypatch.setenv("MILLRACE_TEST_PASSWORD", server.password)
    text = SET.format(host=server.host, port=server.port, user=server.user)
    shell("set", "create", "-f", shell.file(text))
    shell("task", "create", "-f", shell.file(CAPTURE))
    return server


def ask(shell: Shell, *words: str, exit_code: int = 0) -> str:
    """Run the command for the task."""
    return shell("task", "snapshot", "shop-capture", *words, exit_code=exit_code)


def test_request_is_checked_on_the_source(shell: Shell, source: DatabaseServer) -> None:
    """Tables that are missing or have no primary key, and conditions that the SELECT of a chunk can't have."""
    source.execute("CREATE DATABASE asked")
    try:
        source.execute("CREATE TABLE whole (id INT PRIMARY KEY, v INT, n TEXT)", db="asked")
        source.execute("INSERT INTO whole VALUES (1, 1, 'x')", db="asked")
        source.execute("CREATE TABLE keyless (v INT)", db="asked")
        for tables, where, words in (
            ("asked.none", "", "asked.none matches no table"),
            ("asked.whoel", "", "did you mean asked.whole"),
            ("asked.keyless", "", "no primary key"),
            ("asked.whole", "v >", "the condition can't be used with asked.whole"),
            ("asked.whole", "w > 1", "the columns of asked.whole are id, v, n"),
            ("asked.whole", "v > 1) OR (1", "the condition can't be used with asked.whole"),
            ("asked.whole", "v > 1) ORDER BY (v", "the condition can't be used with asked.whole"),
            ("asked.whole", "v > 1 -- ", "the condition can't be used with asked.whole"),
            ("asked.whole", "COUNT(*) > 1", "the condition can't be used with asked.whole"),
            ("asked.whole", "n REGEXP '('", "the condition can't be used with asked.whole"),
        ):
            condition = ("--where", where) if where else ()
            refused = ask(shell, "--tables", tables, *condition, exit_code=4)
            assert refused.startswith("MR-4240 ")
            assert words in refused
        asked = json.loads(ask(shell, "--tables", "asked.*", "--where", "v > 1", "--json"))
        assert (asked["tables"], list(asked["left_out"])) == (["asked.whole"], ["asked.keyless"])
        found = json.loads(ask(shell, "--list", "--json"))
        waiting = {"id": asked["id"], "tables": ["asked.*"], "where": "v > 1"}
        assert found == {"running": None, "waiting": [waiting], "ended": []}
    finally:
        source.execute("DROP DATABASE asked")


@pytest.mark.usefixtures("source")
def test_ended_snapshots_are_listed(shell: Shell) -> None:
    """Their rows, how long they took and when they ended; what is not known is left out."""
    known = EndedSnapshot("s1", ("shop.t",), "a > 1", Span(1_000, 3_500), 1234)
    taken_over = EndedSnapshot("s2", ("shop.*",), "", Span(None, 4_000), None, is_stopped=True)
    with shell.ensemble.session() as session:
        store = Store(session, shell.ensemble.tree)
        store.change_snapshots(
            "shop-capture", lambda found: found.with_ended(known).with_ended(taken_over)
        )
    shown = [" ".join(line.split()) for line in ask(shell, "--list").splitlines()]
    assert "s2 stopped shop.* an unknown number of rows, 1970-01-01 00:00:04Z" in shown
    assert "s1 ended shop.t a > 1 1,234 rows in 2.5 s, 1970-01-01 00:00:03Z" in shown
    assert json.loads(ask(shell, "--list", "--json"))["ended"][0] == to_plain(known)


@pytest.mark.usefixtures("source")
def test_requests_wait_and_can_be_stopped(shell: Shell, source: DatabaseServer) -> None:
    """Only so many wait; one that is stopped waits no more. They end with the task."""
    source.execute("CREATE DATABASE waits")
    try:
        source.execute("CREATE TABLE t (id INT PRIMARY KEY)", db="waits")
        assert ask(shell, "--stop", "none", exit_code=4).startswith("MR-4241 ")
        with shell.ensemble.session() as session:
            fill(session, shell)
            assert ask(shell, "--tables", "waits.t", exit_code=4).startswith("MR-4242 ")
            ask(shell, "--stop", "r1")
            ask(shell, "--tables", "waits.t")
            shown = json.loads(ask(shell, "--list", "--json"))["waiting"]
            assert [one["id"] for one in shown][:2] == ["r0", "r2"]
            assert "asked by" in ask(shell, "--list")
            shell("task", "delete", "shop-capture")
            assert session.get(shell.ensemble.tree.snapshots("shop-capture")) is None
    finally:
        source.execute("DROP DATABASE waits")


def fill(session: Session, shell: Shell) -> None:
    """As many requests as may wait."""
    store = Store(session, shell.ensemble.tree)
    requests = tuple(SnapshotRequest(f"r{n}", ("waits.t",)) for n in range(REQUESTS_MAX))
    store.change_snapshots("shop-capture", lambda found: replace(found, requests=requests))


def test_one_action_is_given(shell: Shell, source: DatabaseServer) -> None:
    """More than one, or none, is wrong usage, as is a table without a database, and an empty condition."""
    assert source is not None
    for words in ((), ("--list", "--stop", "x"), ("--tables", "t"), ("--tables", ",")):
        ask(shell, *words, exit_code=2)
    for where in ("", " \t"):
        shown = ask(shell, "--tables", "shop.t", "--where", where, exit_code=2)
        assert "omit it to publish all rows" in " ".join(shown.split())
