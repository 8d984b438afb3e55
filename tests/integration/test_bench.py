"""The benchmark: peers do the same work as Millrace, and every line is one figure."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.bench import load, peers
from deploy.servers import DatabaseServer, sql
from schemas.gtid import Flavour
from tests.fixtures.servers import FLAVOURS

CHANGES = 3_000


@pytest.fixture
def source(target_server: DatabaseServer) -> Iterator[DatabaseServer]:
    """A server with another database that has already run the load."""
    target_server.execute("CREATE DATABASE bench_before")
    load.create_load(lambda: sql.open_root(target_server.socket))
    load.run_load(lambda: sql.open_root(target_server.socket), changes=CHANGES)
    target_server.execute("DROP DATABASE bench")
    account = target_server.account
    yield target_server
    target_server.account = account
    for database in ("bench", "bench_before"):
        target_server.execute(f"DROP DATABASE {database}")
    target_server.execute("DROP USER peer")


def test_benchmark_peers_start_where_the_load_starts(
    source: DatabaseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Peers skip the earlier binlog. Otherwise the comparison would favor Millrace."""
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


@pytest.mark.chaos
@pytest.mark.parametrize("flavour", FLAVOURS, ids=str)
def test_every_benchmark_output_line_is_one_figure(flavour: Flavour) -> None:
    """Standard output has only JSON lines; each figure appears once with all its keys."""
    command = (sys.executable, "-m", "millrace", "bench", "--changes", "3000")
    done = subprocess.run(
        (*command, "--flavour", str(flavour)),
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    figures = [json.loads(line) for line in done.stdout.splitlines()]
    with_peer = {"capture.bulk": "python-mysql-replication", "apply.bulk": "native replica"}
    latencies = [f"{half}.latency.{p}" for half in ("capture", "apply") for p in ("p50", "p99")]
    names = [*with_peer, *latencies, "latency.load"]
    assert sorted(figure["name"] for figure in figures) == sorted(names)
    for figure in figures:
        assert list(figure) == ["name", "value", "unit", "peer", "peer_value", "ratio"]
        assert figure["value"] > 0
        if figure["name"] in with_peer:
            assert figure["unit"] == "rows/s"
            assert figure["peer"].startswith(with_peer[figure["name"]])
            assert figure["ratio"] == pytest.approx(
                figure["value"] / figure["peer_value"], rel=0.01, abs=0.001
            )
        else:
            unit = "transactions/s" if figure["name"] == "latency.load" else "ms"
            assert figure["unit"] == unit
            assert (figure["peer"], figure["peer_value"], figure["ratio"]) == (None, None, None)
