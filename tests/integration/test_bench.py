"""The benchmark: peers do the same work as Millrace, and every line is one figure."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from millrace.deploy.bench import load, peers
from millrace.deploy.bench.apply import workloads
from millrace.deploy.bench.apply.clock import binlog_clock
from millrace.deploy.bench.capture.relay import LINES as RELAY_LINES
from millrace.deploy.bench.capture.relay import relay_figures
from millrace.deploy.bench.comparison import LINES as COMPARE_LINES
from millrace.deploy.bench.comparison import compare_figures
from millrace.deploy.bench.copy import LINES as LOAD_LINES
from millrace.deploy.bench.copy import copy_figures
from millrace.deploy.bench.figure import Size, run_groups
from millrace.deploy.bench.run import APPLY, CAPTURE, COMPARE, LOAD, PUBLISH
from millrace.deploy.servers import DatabaseServer, sql
from millrace.errors import Fatal
from millrace.schemas.gtid import Flavour
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


@pytest.mark.chaos
def test_decoding_peer_starts_where_the_load_starts(source: DatabaseServer) -> None:
    """It skips the earlier binlog. Otherwise the comparison would favor Millrace."""
    beginning = source.gtid_position()
    load.create_load(lambda: sql.open_root(source.socket))
    assert load.run_load(lambda: sql.open_root(source.socket), changes=CHANGES) == CHANGES
    account = peers.make_account(source)
    assert peers.decode_rate(source, account, beginning, database="bench", rows=CHANGES) > 0


@pytest.mark.chaos
def test_replica_and_clock_see_what_was_written_meanwhile(
    new_server: Callable[..., DatabaseServer], tmp_path: Path
) -> None:
    """The replica does nothing until it is asked; the clock runs from its first commit to its last."""
    source = new_server(Flavour.MARIADB)
    workload = workloads.merge()
    workload.create(partial(sql.open_root, source.socket))
    with peers.NativeReplica(source, peers.make_account(source), tmp_path / "peer") as replica:
        replica.catch_up()
        made = workload.write(partial(sql.open_root, source.socket), workloads.STEP)
        query = f"SELECT COUNT(*) FROM {workload.database}.items"
        assert replica.server.execute(query) == [(0,)]
        with binlog_clock(replica.server) as clock:
            replica.catch_up()
        assert replica.server.execute(query) == source.execute(query)
        assert made == workloads.STEP
        assert clock.pace().rate(made) > 0


@pytest.mark.chaos
@pytest.mark.parametrize("name", ["bulk", "merge", "small", "hot", "text"])
def test_workload_makes_the_number_of_changes_it_reports(
    mariadb_server: DatabaseServer, name: str
) -> None:
    """Counted by the server: rates are per change."""
    workload = getattr(workloads, name)()
    connect = partial(sql.open_root, mariadb_server.socket)
    workload.create(connect)
    before = _row_changes(mariadb_server)
    assert workload.write(connect, workloads.STEP) == workloads.STEP
    assert _row_changes(mariadb_server) - before == workloads.STEP
    mariadb_server.execute(f"DROP DATABASE {workload.database}")


def _row_changes(server: DatabaseServer) -> int:
    names = "'Handler_write', 'Handler_update', 'Handler_delete'"
    found = server.execute(f"SHOW GLOBAL STATUS WHERE Variable_name IN ({names})")
    return sum(int(str(value)) for _, value in found)


@pytest.mark.chaos
@pytest.mark.parametrize("flavour", FLAVOURS, ids=str)
def test_every_benchmark_output_line_is_one_figure(flavour: Flavour) -> None:
    """Standard output has only JSON lines; each figure appears once with all its keys."""
    command = (sys.executable, "-m", "millrace", "bench", "--changes", str(10 * CHANGES))
    done = subprocess.run(
        (*command, "--flavour", str(flavour)),
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    figures = [json.loads(line) for line in done.stdout.splitlines()]
    with_peer = {"capture.bulk": "python-mysql-replication"}
    latencies = ["capture.latency.p50", "capture.latency.p99"]
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


@pytest.mark.chaos
def test_every_apply_line_is_one_figure() -> None:
    """Standard output has only JSON lines; every line is there, once for each of its peers."""
    command = (sys.executable, "-m", "millrace", "bench", "--apply", "--rounds", "1")
    done = subprocess.run(
        (*command, "--scale", "0.01"), capture_output=True, text=True, timeout=3_000, check=False
    )
    assert done.returncode == 0, done.stderr
    figures = [json.loads(line) for line in done.stdout.splitlines()]
    lines = [line for group in APPLY if not group.is_long for line in group.lines]
    pairs = {(figure["name"], figure["peer"]) for figure in figures}
    assert len(pairs) == len(figures)
    assert {name for name, _ in pairs} == set(lines)
    for figure in figures:
        assert list(figure) == ["name", "value", "unit", "peer", "peer_value", "ratio"]
        assert figure["value"] > 0
        assert (figure["peer"] is None) == (figure["ratio"] is None)


@pytest.mark.chaos
def test_every_capture_line_is_one_figure() -> None:
    """Standard output has only JSON lines; every line is there, once for each of its peers."""
    command = (sys.executable, "-m", "millrace", "bench", "--capture", "--rounds", "1")
    done = subprocess.run(
        (*command, "--scale", "0.02"), capture_output=True, text=True, timeout=1_000, check=False
    )
    assert done.returncode == 0, done.stderr
    figures = [json.loads(line) for line in done.stdout.splitlines()]
    lines = [line for group in CAPTURE for line in group.lines]
    assert sorted(figure["name"] for figure in figures) == sorted(lines)
    for figure in figures:
        assert list(figure) == ["name", "value", "unit", "peer", "peer_value", "ratio"]
        assert figure["value"] > 0


@pytest.mark.chaos
def test_every_publish_line_is_one_figure() -> None:
    """Standard output has only JSON lines; every line is there once, and all but the costs alone have a peer."""
    command = (sys.executable, "-m", "millrace", "bench", "--publish", "--rounds", "1")
    done = subprocess.run(
        (*command, "--scale", "0.02"), capture_output=True, text=True, timeout=2_000, check=False
    )
    assert done.returncode == 0, done.stderr
    figures = [json.loads(line) for line in done.stdout.splitlines()]
    lines = [line for group in PUBLISH for line in group.lines]
    assert sorted(figure["name"] for figure in figures) == sorted(lines)
    for figure in figures:
        assert list(figure) == ["name", "value", "unit", "peer", "peer_value", "ratio"]
        assert figure["value"] > 0 or figure["unit"].startswith("CPU")  # too few rows for a sample
        assert (figure["peer"] is None) == (figure["name"] in {"publish.cpu", "publish.kernels"})


@pytest.mark.chaos
@pytest.mark.parametrize("flavour", FLAVOURS, ids=str)
def test_relay_lines_have_the_servers_own_client_as_peer(flavour: Flavour) -> None:
    """Both copy the same binlog, with and without TLS; a copy of another size fails the run."""
    figures = {figure.name: figure for figure in relay_figures(Size(flavour, 0.005, 1))}
    assert tuple(figures) == RELAY_LINES
    for name, figure in figures.items():
        assert figure.unit == ("MB/s" if name.startswith("relay.write") else "CPU s per 100 MB")
        assert figure.value > 0
        assert figure.peer is not None
        assert figure.peer_value is not None
        assert figure.peer_value > 0


@pytest.mark.chaos
@pytest.mark.parametrize("flavour", FLAVOURS, ids=str)
def test_load_lines_have_the_servers_own_dump_as_peer(flavour: Flavour) -> None:
    """Each copies the same table; a copy that differs fails the run. Memory has no peer."""
    figures = list(copy_figures(Size(flavour, 0.001, 1)))
    assert {figure.name for figure in figures} == set(LOAD_LINES)
    by_dump = {figure.name for figure in figures if figure.peer == "mysqldump | mysql"}
    assert by_dump == set(LOAD_LINES) - {"load.rss"}
    for figure in figures:
        assert figure.value > 0
        assert figure.peer_value is None or figure.peer_value > 0


@pytest.mark.chaos
def test_compare_lines_have_checksum_table_as_peer() -> None:
    """Each sums the same tables on both servers. A difference that is found or repaired wrongly fails the run."""
    figures = list(compare_figures(Size(Flavour.MARIADB, 0.0002, 1)))
    assert {figure.name for figure in figures} == set(COMPARE_LINES)
    by_server = [figure for figure in figures if figure.peer == "CHECKSUM TABLE on both servers"]
    assert {figure.name for figure in by_server} == set(COMPARE_LINES) - {"compare.repair"}
    for figure in figures:
        assert figure.value > 0
        if figure.unit == "rows/s":
            assert figure.peer_value is not None
            assert figure.peer_value > 0


def test_unknown_line_is_refused() -> None:
    """Before anything starts."""
    for groups in (APPLY, CAPTURE, LOAD, COMPARE, PUBLISH):
        with pytest.raises(Fatal, match=r"no such line: any\.fast"):
            run_groups(groups, Size(Flavour.MARIADB, only=["any.fast"]))
