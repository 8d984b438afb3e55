"""The keeper's pauses and the sessions it ends."""

import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from deploy.keeper import CALM_S, PAUSE_FIRST_S, PAUSE_MAX_S, Keeper, next_death
from deploy.servers.process import (
    RECORD_NAME,
    ProcessIdentity,
    ProcessRecord,
    ProcessSpec,
    ServerProcess,
    end_session,
    is_running,
    session_members,
)
from millrace.errors import Fatal
from tests.waiting import eventually

# a leader with a child in a process group of its own, as Spark's Python daemon is
FAMILY = (
    "import os, subprocess, sys, time\n"
    "subprocess.Popen([sys.executable, '-c', 'import os, time; os.setpgid(0, 0); time.sleep(60)'])\n"
    "time.sleep(60)\n"
)


def _spec(folder: Path, *program: str) -> ProcessSpec:
    return ProcessSpec("sample", (sys.executable, "-c", *program), folder / "sample" / "log")


def test_pauses_double_up_to_a_limit_and_start_over_after_a_calm() -> None:
    """A crash loop does not spin; one crash a day is repaired at once."""
    death = next_death(None, 0.0)
    pauses = []
    for _ in range(8):
        pauses.append(death.pause_s)
        death = next_death(death, death.due_s + 1.0)
    assert pauses[:3] == [PAUSE_FIRST_S, 2 * PAUSE_FIRST_S, 4 * PAUSE_FIRST_S]
    assert pauses[-1] == PAUSE_MAX_S
    assert next_death(death, death.due_s + CALM_S).pause_s == PAUSE_FIRST_S


def test_ending_a_session_ends_children_that_left_the_process_group(tmp_path: Path) -> None:
    """Nothing outlives the leader, whatever group it made."""
    process = ServerProcess(_spec(tmp_path, FAMILY))
    process.launch()
    eventually(lambda: len(session_members(process.identity)) == 2)
    process.stop()
    assert session_members(process.identity) == ()


def test_a_ctrl_c_while_a_process_is_born_finds_it_on_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who cleans up after the interruption knows whom to end."""
    popen = subprocess.Popen

    def interrupted(*arguments: Any, **options: Any) -> Any:
        born = popen(*arguments, **options)
        signal.raise_signal(signal.SIGINT)
        return born

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    process = ServerProcess(_spec(tmp_path, "import time; time.sleep(60)"))
    with pytest.raises(KeyboardInterrupt):
        process.launch()
    record = ProcessRecord.read(tmp_path / "sample" / RECORD_NAME)
    assert is_running(record.identity)
    process.stop()
    assert not is_running(record.identity)


def test_a_pid_that_was_given_again_is_nobody_of_ours(tmp_path: Path) -> None:
    """The start time tells; nobody is signalled."""
    process = ServerProcess(_spec(tmp_path, "import time; time.sleep(60)"))
    process.launch()
    other = ProcessIdentity(process.identity.pid, process.identity.start_ticks - 1)
    assert session_members(other) == ()
    end_session(other, timeout_s=0.1)
    assert process.is_alive()
    process.kill()


def test_a_process_that_can_not_start_is_reported_with_its_last_words(tmp_path: Path) -> None:
    """The log's end is in the message."""
    process = ServerProcess(_spec(tmp_path, "print('out of luck'); raise SystemExit(3)"))
    process.launch()
    with pytest.raises(Fatal, match="out of luck") as caught:
        process.wait_ready(lambda: False, timeout_s=20)
    assert caught.value.code == "MR-8004"


def test_a_server_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    """A killed test run leaves no server behind."""
    program = (
        "import sys, time; from pathlib import Path; from deploy.servers.process import *\n"
        "command = (sys.executable, '-c', 'import time; time.sleep(60)')\n"
        f"spec = ProcessSpec('sample', command, Path({str(tmp_path)!r}) / 'log')\n"
        "process = ServerProcess(spec); process.launch(); print('up', flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"up\n"
        identity = ProcessRecord.read(tmp_path / RECORD_NAME).identity
        assert is_running(identity)
        parent.kill()
    eventually(lambda: not is_running(identity))


def test_the_keeper_starts_again_what_was_killed(tmp_path: Path) -> None:
    """Same command, new process, recorded."""
    process = ServerProcess(_spec(tmp_path, "import time; time.sleep(60)"), dies_with_parent=True)
    process.launch()
    first = process.identity
    stop = threading.Event()
    keeper = Keeper(tmp_path)
    watching = threading.Thread(target=keeper.run, args=(stop,))
    watching.start()
    record = tmp_path / "sample" / RECORD_NAME
    try:
        process.kill()
        eventually(lambda: ProcessRecord.read(record).identity != first)
        second = ProcessRecord.read(record)
        assert is_running(second.identity)
        assert second.spec == process.spec
    finally:
        stop.set()
        watching.join()
        end_session(ProcessRecord.read(record).identity, timeout_s=5)
        keeper.reap()


def test_a_program_that_does_not_exist_is_reported_as_a_failed_start(tmp_path: Path) -> None:
    """No bare OSError: MR-8004 names it."""
    process = ServerProcess(
        ProcessSpec("sample", ("/nonexistent/program",), tmp_path / "log"), dies_with_parent=False
    )
    with pytest.raises(Fatal, match="/nonexistent/program") as caught:
        process.launch()
    assert caught.value.code == "MR-8004"
