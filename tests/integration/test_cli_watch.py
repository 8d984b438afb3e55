"""`millrace status --watch` as a process, on a real ZooKeeper."""

import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from tests.fixtures.shell import CAPTURE, SHOP, Shell
from tests.kit.control.control import ScriptedRunner
from tests.kit.faults.proxy import Proxy
from tests.kit.waiting import eventually

ALTERNATE_SCREEN, NORMAL_SCREEN, SHOWN_CURSOR = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?25h"


@pytest.mark.parametrize("way", ["terminal", "pipe", "json"])
def test_watch_prints_changed_status_until_ctrl_c(shell: Shell, way: str) -> None:
    """Changes appear without a new command; Ctrl-C ends it with 130, and `top` restores the terminal."""
    shell("set", "create", "-f", shell.file(SHOP))
    shell("task", "create", "-f", shell.file(CAPTURE))
    options = ["--json"] if way == "json" else []
    words = ["top"] if way == "terminal" else ["status", "-w", *options]
    with _watched(words, on_terminal=way == "terminal") as (process, seen):
        eventually(lambda: b"no capture worker is running" in seen)
        assert b"waits for changes" not in seen
        with shell.running(ScriptedRunner()):
            eventually(lambda: b"waits for changes" in seen)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == 130
    if way == "terminal":
        assert seen.count(ALTERNATE_SCREEN) == 1
        assert seen.partition(ALTERNATE_SCREEN)[2].count(NORMAL_SCREEN) == 1
        assert seen.endswith(SHOWN_CURSOR + NORMAL_SCREEN)
    if way == "json":
        states = [json.loads(line)["tasks"][0]["state"] for line in seen.splitlines()]
        assert states[0] == "pending"
        assert "running" in states


class Door(Proxy):
    """Refuses connections while it is closed."""

    is_open = True

    def takes(self) -> bool:
        return self.is_open


@pytest.mark.chaos
@pytest.mark.parametrize("options", [["-w"], ["-w", "--json"]], ids=["pipe", "json"])
def test_watch_resumes_after_a_lost_connection(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    """It reports the lost connection meanwhile."""
    host, _, port = shell.ensemble.hosts.partition(":")
    with Door(host, int(port)) as door:
        monkeypatch.setenv("MILLRACE_ZOOKEEPER", f"127.0.0.1:{door.port}")
        with _watched(["status", *options], on_terminal=False, stderr=subprocess.STDOUT) as (
            process,
            seen,
        ):
            eventually(lambda: b"cluster" in seen)
            door.is_open = False
            door.cut()
            eventually(lambda: b"MR-4001" in seen)
            door.is_open = True
            eventually(lambda: b"cluster" in seen.rpartition(b"MR-4001")[2])
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=120) == 130


@contextmanager
def _watched(
    words: list[str], *, on_terminal: bool, stderr: int | None = None
) -> Iterator[tuple["subprocess.Popen[bytes]", bytearray]]:
    """Run a command of `millrace` as a process and collect its output; the process ends with the block."""
    terminal, its = pty.openpty() if on_terminal else os.pipe()
    command = (sys.executable, "-m", "millrace", *words)
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "150", "LINES": "40"}
    process = subprocess.Popen(
        command, stdout=its, stderr=stderr, stdin=subprocess.DEVNULL, env=environment
    )
    os.close(its)
    seen = bytearray()

    def read() -> None:
        with suppress(OSError):  # EIO: the other side closed the terminal
            while found := os.read(terminal, 1 << 16):
                seen.extend(found)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield process, seen
    finally:
        process.kill()
        process.wait()
        reader.join()
        os.close(terminal)
