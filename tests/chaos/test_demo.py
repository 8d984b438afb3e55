"""`millrace demo` as a user runs it, to its end and interrupted."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from millrace.deploy.local.background import records
from millrace.deploy.servers import die_with_parent
from millrace.deploy.servers.process import ProcessRecord, session_members
from millrace.home_folder import home
from tests.kit.waiting import eventually

START_S = 300
END_S = 180
SERVERS = 6  # source primary and two replicas, target, Kafka, ZooKeeper
SERVICES = 4  # registry, scheduler, worker, apply


@contextmanager
def _demo(log: Path, *options: str) -> Iterator[tuple["subprocess.Popen[bytes]", Path]]:
    """Run the command in its own process group, as a shell does; return it with its folder."""
    before = set(home().glob("run/demo-*"))
    program = (sys.executable, "-m", "millrace", "demo", *options)
    command = (sys.executable, "-IS", die_with_parent.__file__, str(os.getpid()), *program)
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "200"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            process_group=0,
        )
    try:
        eventually(lambda: set(home().glob("run/demo-*")) - before)
        (folder,) = set(home().glob("run/demo-*")) - before
        yield process, folder
    finally:
        process.kill()  # its servers end with it
        process.wait()
        for folder in set(home().glob("run/demo-*")) - before:
            shutil.rmtree(folder, ignore_errors=True)


def _started(folder: Path, found: dict[str, ProcessRecord]) -> int:
    """Count the demo's recorded processes; ``found`` keeps them after their folder is removed."""
    found.update({record.spec.name: record for record in records(folder)})
    return len(found)


def _left(found: dict[str, ProcessRecord]) -> dict[str, tuple[int, ...]]:
    """Processes that still run, by the name of their session's leader."""
    members = {name: session_members(record.identity) for name, record in found.items()}
    return {name: pids for name, pids in members.items() if pids}


def test_demo_exits_with_0_and_reports_its_steps(tmp_path: Path) -> None:
    """Commands, one row from source to target, comparison and summary. No process is left."""
    log, found = tmp_path / "log", dict[str, ProcessRecord]()
    with _demo(log, "--duration", "3") as (process, folder):
        eventually(lambda: _started(folder, found) == SERVERS + SERVICES)
        assert process.wait(timeout=900) == 0, log.read_text()
    output = log.read_text()
    for command in (
        "set create -f .*shop.yaml",
        "set create -f .*warehouse.yaml",
        "task create -f .*shop-capture.yaml",
        "task create -f .*shop-to-warehouse.yaml",
        "task wait shop-to-warehouse --timeout 300",
        "compare shop-to-warehouse",
        "topic verify shop",
    ):
        assert re.search(rf"^\$ millrace {command}$", output, re.MULTILINE), command
    assert "source> UPDATE customers SET name = 'Grace', tags = 'gold' WHERE id = 7" in output
    assert re.search(r"^topic>  seq \d+  op u  shop.customers  gtid ", output, re.MULTILINE)
    assert re.search(r"^target> \(7, 'Grace', ", output, re.MULTILINE)
    rows = re.search(r"^source   ([\d,]+) transactions, ([\d,]+) row changes", output, re.MULTILINE)
    done = re.findall(
        r"^(topic|target) +([\d,]+) changes (captured|applied), visible after p50 [\d,]+ ms, p99 ",
        output,
        re.MULTILINE,
    )
    assert rows is not None
    assert [(name, verb) for name, _, verb in done] == [
        ("topic", "captured"),
        ("target", "applied"),
    ]
    assert done[0][1] == done[1][1]
    assert int(done[0][1].replace(",", "")) > int(rows[2].replace(",", "")) > 100
    assert "differences  none: every row of every table is equal" in output
    assert not _left(found)
    assert not folder.exists()


@pytest.mark.parametrize(
    "moment",
    ["starting millrace registry", pytest.param("a shop at work", marks=pytest.mark.chaos)],
    ids=["while it starts", "in the middle of the shop"],
)
def test_ctrl_c_leaves_no_demo_process(tmp_path: Path, moment: str) -> None:
    """Ctrl-C while all servers and processes run gives exit code 130 and leaves no process and no folder."""
    log, found = tmp_path / "log", dict[str, ProcessRecord]()
    with _demo(log, "--duration", "60") as (process, folder):
        eventually(lambda: moment in log.read_text())
        eventually(lambda: _started(folder, found) == SERVERS + SERVICES)
        driver = found["millrace apply"].identity
        eventually(lambda: len(session_members(driver)) > 1)  # its JVM
        assert len(_left(found)) == SERVERS + SERVICES
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=END_S) == 130, log.read_text()
    assert not _left(found)
    assert not folder.exists()
    assert "Traceback" not in log.read_text()
