"""Kernels are compiled before a task needs them, and a process knows when it compiles."""

import os
import subprocess
import sys
from pathlib import Path

import numba
import pytest
from numba.core import event

from millrace import compiled, machine_code
from millrace.cli import worker
from millrace.cli.check.check import KERNELS
from millrace.schemas.documents import ApplyTask, CaptureTask, PublishTask, TaskKind
from millrace.zk.lease.membership import WorkerIdentity
from millrace.zk.run import worker as process

WARM_UPS = {
    CaptureTask: "millrace.producer.task.warm_up",
    ApplyTask: "millrace.consumer.turn.warm_up",
    PublishTask: "millrace.consumer.publish.warm_up",
}


def test_idle_worker_compiles_before_its_first_task(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Not if all is compiled, or in a process of plain Python."""
    began: list[str] = []
    monkeypatch.setattr(worker, "keep_private", lambda: None)
    monkeypatch.setattr(process, "run_worker", lambda *_, **__: began.append("worker"))
    monkeypatch.setattr(machine_code, "compile_in_background", lambda: began.append("compiler"))
    monkeypatch.delenv(machine_code.INTERPRETED, raising=False)
    monkeypatch.setenv("MILLRACE_ZOOKEEPER", "127.0.0.1:1")
    for is_compiled in (False, True):
        monkeypatch.setattr(machine_code, "is_compiled", lambda found=is_compiled: found)
        worker.run_capture(WorkerIdentity(name="w1", kind=TaskKind.CAPTURE), tmp_path, "")
    assert began == ["compiler", "worker", "worker"]


def test_home_that_cannot_be_written_stops_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tasks report that, or need no kernel."""

    def refuse() -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.delenv(machine_code.INTERPRETED, raising=False)
    monkeypatch.setattr(machine_code, "is_compiled", lambda: False)
    monkeypatch.setattr(machine_code, "compile_in_background", refuse)
    machine_code.compile_ahead()


def test_process_that_compiles_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also between two functions of a kernel."""
    seen: list[bool] = []

    class Watches(event.Listener):
        def on_start(self, _event: object) -> None:
            seen.append(machine_code.is_compiling())

        def on_end(self, _event: object) -> None:
            seen.append(machine_code.is_compiling())

    with event.install_listener("numba:compile", Watches()):
        numba.njit(lambda value: value + 1)(1)
    assert seen
    assert all(seen)
    assert machine_code.is_compiling()
    monkeypatch.setattr(compiled, "GAP_S", 0.0)
    assert not machine_code.is_compiling()


@pytest.mark.parametrize("kind", WARM_UPS)
def test_check_wants_only_kernels_that_a_worker_compiles(kind: type) -> None:
    """Those that the warm-up imports; the groups of another kind of task are never compiled."""
    names = f"import {WARM_UPS[kind]}; from millrace.compiled import cache_folders; print(*cache_folders)"
    imported = subprocess.run(
        [sys.executable, "-c", names],
        env={**os.environ, machine_code.INTERPRETED: "0"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert KERNELS[kind].keys() <= set(imported.stdout.split())
