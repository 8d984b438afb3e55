"""The benchmarks: peers do the same work as we, and every line is one figure."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.bench import load, peers
from deploy.servers import DatabaseServer, sql

CHANGES = 3_000


@pytest.fixture
def source(target_server: DatabaseServer) -> Iterator[DatabaseServer]:
    """A server that has had the load once before, and more in another database."""
    target_server.execute("CREATE DATABASE bench_before")
    load.create_load(lambda: sql.open_root(target_server.socket))
    load.run_load(lambda: sql.open_root(target_server.socket), changes=CHANGES)
    target_server.execute("DROP DATABASE bench")
    yield target_server
    for database in ("bench", "bench_before"):
        target_server.execute(f"DROP DATABASE {database}")
    target_server.execute("DROP USER peer")


def test_peers_begin_where_the_load_begins(
    source: DatabaseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stood in the binlog before the load is neither decoded nor applied by them: it would flatter us."""
    databases: list[str] = []
    discard = DatabaseServer.discard

    def look_and_discard(server: DatabaseServer) -> None:
        databases.extend(str(name) for (name,) in server.execute("SHOW DATABASES"))
        discard(server)

    monkeypatch.setattr(DatabaseServer, "discard", look_and_discard)
    beginning = source.gtid_position()
    load.create_load(lambda: sql.open_root(source.socket))
    assert load.run_load(lambda: sql.open_root(source.socket), changes=CHANGES) == CHANGES
    account = peers.make_account(source)
    assert peers.decode_rate(source, account, beginning, database="bench", rows=CHANGES) > 0
    assert peers.replica_rate(source, account, beginning, tmp_path / "peer", rows=CHANGES) > 0
    assert "bench" in databases
    assert "bench_before" not in databases
