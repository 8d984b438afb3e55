"""Server processes, their sessions and records, and the keeper."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from millrace.deploy.local.background import end_background
from millrace.deploy.local.keeper import CALM_S, PAUSE_FIRST_S, PAUSE_MAX_S, Keeper, next_death
from millrace.deploy.servers.process import (
    PORT_FIRST,
    RECORD_NAME,
    ProcessRecord,
    ProcessSpec,
    ServerProcess,
    end_session,
    free_port,
    is_running,
    session_members,
)
from millrace.errors import Fatal
from tests.kit.waiting import eventually

# a leader with a child in a separate process group, as Spark's Python daemon is
FAMILY = (
    "import os, subprocess, sys, time\n"
    "subprocess.Popen([sys.executable, '-c', 'import os, time; os.setpgid(0, 0); time.sleep(600)'])\n"
    "time.sleep(600)\n"
)


def _spec(folder: Path, *program: str) -> ProcessSpec:
    return ProcessSpec("sample", (sys.executable, "-c", *program), folder / "sample" / "log")


def test_restart_pauses_double_and_reset_after_a_calm() -> None:
    """A crash loop does not spin; one crash a day is repaired at once."""
    death = next_death(None, 0.0)
    pauses = []
    for _ in range(8):
        pauses.append(death.pause_s)
        death = next_death(death, death.due_s + 1.0)
    assert pauses[:3] == [PAUSE_FIRST_S, 2 * PAUSE_FIRST_S, 4 * PAUSE_FIRST_S]
    assert pauses[-1] == PAUSE_MAX_S
    assert next_death(death, death.due_s + CALM_S).pause_s == PAUSE_FIRST_S


def test_ending_a_session_ends_children_outside_the_process_group(tmp_path: Path) -> None:
    """No process outlives the leader, in any process group."""
    process = ServerProcess(_spec(tmp_path, FAMILY))
    process.launch()
    eventually(lambda: len(session_members(process.identity)) == 2)
    process.stop()
    assert session_members(process.identity) == ()


def test_ctrl_c_during_process_start_finds_it_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cleanup after the interruption finds the process in the record."""
    popen = subprocess.Popen

    def interrupted(*arguments: Any, **options: Any) -> Any:
        born = popen(*arguments, **options)
        signal.raise_signal(signal.SIGINT)
        return born

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    process = ServerProcess(_spec(tmp_path, "import time; time.sleep(600)"))
    with pytest.raises(KeyboardInterrupt):
        process.launch()
    record = ProcessRecord.read(tmp_path / "sample" / RECORD_NAME)
    assert is_running(record.identity)
    process.stop()
    assert not is_running(record.identity)


def test_reused_pid_is_not_signaled(tmp_path: Path) -> None:
    """Its start time differs, so nothing is signaled."""
    process = ServerProcess(_spec(tmp_path, "import time; time.sleep(600)"))
    process.launch()
    other = replace(process.identity, start_ticks=process.identity.start_ticks - 1)
    assert session_members(other) == ()
    end_session(other, timeout_s=0.1)
    assert process.is_alive()
    process.kill()


def test_failed_process_start_reports_the_last_log_lines(tmp_path: Path) -> None:
    """The message has the end of the log."""
    process = ServerProcess(_spec(tmp_path, "print('out of luck'); raise SystemExit(3)"))
    process.launch()
    with pytest.raises(Fatal, match="out of luck") as caught:
        process.wait_ready(lambda: False, timeout_s=20)
    assert caught.value.code == "MR-8004"


def test_server_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    """A killed test run leaves no server."""
    program = (
        "import sys, time; from pathlib import Path; from millrace.deploy.servers.process import *\n"
        "command = (sys.executable, '-c', 'import time; time.sleep(600)')\n"
        f"spec = ProcessSpec('sample', command, Path({str(tmp_path)!r}) / 'log')\n"
        "process = ServerProcess(spec); process.launch(); print('up', flush=True); time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"up\n"
        identity = ProcessRecord.read(tmp_path / RECORD_NAME).identity
        assert is_running(identity)
        parent.kill()
    eventually(lambda: not is_running(identity))


def test_keeper_restarts_killed_processes(tmp_path: Path) -> None:
    """The command is the same, the process new and recorded."""
    process = ServerProcess(_spec(tmp_path, "import time; time.sleep(600)"), dies_with_parent=True)
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


def test_process_that_ends_before_it_is_recorded_has_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine a short program ends before its starter runs again; a start must not depend on that."""

    def popen(*given: Any, **named: Any) -> "subprocess.Popen[bytes]":
        made = really(*given, **named)
        state = Path(f"/proc/{made.pid}/stat")
        eventually(lambda: state.read_text().rpartition(")")[2].split()[0] == "Z")
        return made

    really = subprocess.Popen
    monkeypatch.setattr("millrace.deploy.servers.process.subprocess.Popen", popen)
    process = ServerProcess(_spec(tmp_path, "pass"))
    process.launch()
    assert ProcessRecord.read(tmp_path / "sample" / RECORD_NAME).identity == process.identity
    assert not is_running(process.identity)
    assert session_members(process.identity) == ()
    process.kill()
    assert process.exit_status == 0


def test_missing_program_is_reported_as_a_failed_start(tmp_path: Path) -> None:
    """MR-8004 names it instead of a bare OSError."""
    process = ServerProcess(
        ProcessSpec("sample", ("/nonexistent/program",), tmp_path / "log"), dies_with_parent=False
    )
    with pytest.raises(Fatal, match="/nonexistent/program") as caught:
        process.launch()
    assert caught.value.code == "MR-8004"


def test_chosen_port_is_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its server listens, neither another call nor bind(0) returns it."""
    drawn = (number // 2 for number in count())  # each twice
    monkeypatch.setattr("millrace.deploy.servers.process.secrets.randbelow", lambda _: next(drawn))
    first, second = free_port(), free_port()
    assert first != second
    of_system = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert max(first, second) < of_system or of_system <= PORT_FIRST


# a session without a leader, like a daemon that forked twice; its remaining member prints the session's number
DAEMON = (
    "import os, subprocess, sys\n"
    "program = 'import os, time; print(os.getsid(0), flush=True); time.sleep(600)'\n"
    "subprocess.Popen([sys.executable, '-c', program])\n"
)


def _record_of_another(folder: Path, **other: object) -> Path:
    """Return the path of a record with the identity in ``other``."""
    sample = ServerProcess(_spec(folder, "pass"))
    sample.launch()
    sample.kill()
    path = folder / "sample" / RECORD_NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), **other}))
    return path


def test_daemon_of_a_session_with_reused_pid_is_not_signaled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without a leader, the mark in the environment identifies Millrace's processes."""
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    command = (sys.executable, "-c", DAEMON)
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as leader:
        assert leader.stdout is not None
        session = int(leader.stdout.readline())
        assert leader.wait() == 0
        (daemon,) = [pid for pid in _pids() if pid != session and _sid(pid) == session]
        try:
            _record_of_another(tmp_path / "run" / "stack", pid=session)
            assert end_background("stack") == 0
            os.kill(daemon, 0)
            assert _sid(daemon) == session
        finally:
            os.kill(daemon, signal.SIGKILL)


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _sid(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def test_process_record_of_another_boot_is_ignored(tmp_path: Path) -> None:
    """Ticks count from the boot. After the next one, a foreign process may have the same pid and start time."""
    process = ServerProcess(_spec(tmp_path, "import time; time.sleep(600)"))
    process.launch()
    path = tmp_path / "sample" / RECORD_NAME
    try:
        assert is_running(ProcessRecord.read(path).identity)
        path.write_text(json.dumps({**json.loads(path.read_text()), "boot_id": "another"}))
        identity = ProcessRecord.read(path).identity
        assert not is_running(identity)
        assert session_members(identity) == ()
        end_session(identity, timeout_s=0.1)
        assert process.is_alive()
    finally:
        process.kill()


def test_children_of_a_dead_leader_are_ended_by_its_record(tmp_path: Path) -> None:
    """Its children have its mark, in any process group."""
    process = ServerProcess(_spec(tmp_path, FAMILY))
    process.launch()
    identity = ProcessRecord.read(tmp_path / "sample" / RECORD_NAME).identity
    eventually(lambda: len(session_members(identity)) == 2)
    os.kill(identity.pid, signal.SIGKILL)
    eventually(lambda: not process.is_alive())
    assert len(session_members(identity)) == 1
    end_session(identity, timeout_s=5)
    assert session_members(identity) == ()


def _full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_process_that_cannot_be_recorded_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No later process could find it. On a full disk: MR-8004, and no process is left."""
    monkeypatch.setattr(ProcessRecord, "write", _full_disk)
    before = set(_children())
    process = ServerProcess(_spec(tmp_path, FAMILY), dies_with_parent=False)
    with pytest.raises(Fatal, match="No space left") as caught:
        process.launch()
    left = set(_children()) - before
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left
    assert caught.value.code == "MR-8004"
    assert not process.is_alive()


def _children() -> list[int]:
    children = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text()
    return [int(pid) for pid in children.split()]


def test_full_disk_does_not_end_the_keeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While neither record nor log can be written, it retries; then it restarts the process."""
    process = ServerProcess(_spec(tmp_path, "import time; time.sleep(600)"))
    process.launch()
    first = process.identity
    process.kill()
    stop, tries, write = threading.Event(), list[str](), ProcessRecord.write
    monkeypatch.setattr("millrace.log.get_logger", lambda _: FullLog())
    keeper = Keeper(tmp_path)

    def write_when_there_is_room(record: ProcessRecord) -> None:
        tries.append(record.spec.name)
        if len(tries) == 1:
            _full_disk()
        write(record)

    monkeypatch.setattr(ProcessRecord, "write", write_when_there_is_room)
    monkeypatch.setattr("millrace.deploy.local.keeper.PAUSE_FIRST_S", 0.1)
    monkeypatch.setattr("millrace.deploy.local.keeper.POLL_S", 0.05)
    watching = threading.Thread(target=keeper.run, args=(stop,))
    watching.start()
    record = tmp_path / "sample" / RECORD_NAME
    try:
        eventually(lambda: ProcessRecord.read(record).identity != first)
        assert len(tries) == 2
        assert is_running(ProcessRecord.read(record).identity)
    finally:
        stop.set()
        watching.join()
        end_session(ProcessRecord.read(record).identity, timeout_s=5)
        keeper.reap()


class FullLog:
    """A log on a full disk."""

    def warning(self, *_: object, **__: object) -> None:
        """Fail."""
        _full_disk()

    info = warning
