"""One server process: started in its own session, watched, paused, and ended with everything that it started.

We end a *session* (setsid), not a process group: Spark's Python daemon makes its own group, and no process may outlive
the stack. A session's number is its leader's pid. The kernel does not reuse a pid while its session has members. So the
leader's pid and start time identify the session, also for another process (``millrace down``).

    recorded in another boot                    our session is gone, nothing is signaled
    leader alive, start time as recorded        it is our session
    leader gone, members of the session alive   ours are those with the record's path in MILLRACE_RECORD
    pid alive with another start time           the pid was reused: our session is gone, nothing is signaled

``process.json`` beside the log records the process and its command, without secrets. A later command reads it.

Guarantees: a process that cannot be recorded is ended. With ``dies_with_parent`` the kernel kills the process when the
*thread* that started it ends, so start servers from a thread that lives long enough. Otherwise it outlives us.
Not done here: restarts and health checks.
"""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Self

from millrace.errors import Fatal

POLL_S = 0.02
_STOPPED = "TtZX"  # in /proc/PID/task/TID/stat, proc(5)
STOP_S = 20.0
LOG_LINES = 12
PORT_FIRST = 10_000
PORT_TRIES = 200
RECORD_NAME = "process.json"
MARK = "MILLRACE_RECORD"  # in the environment of every process of a session
_EPHEMERAL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_DIE_WITH_PARENT = Path(__file__).with_name("die_with_parent.py")


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """A program to start. ``environment`` (no secrets) extends ours. ``log`` is appended to; one process per folder."""

    name: str
    command: tuple[str, ...]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A session's leader: pid, start in clock ticks since boot, boot, and the path of its record."""

    pid: int
    start_ticks: int
    boot_id: str
    record: Path


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    spec: ProcessSpec
    identity: ProcessIdentity

    @classmethod
    def read(cls, path: Path) -> Self:
        plain = json.loads(path.read_text())
        identity = ProcessIdentity(
            plain["pid"], plain["start_ticks"], plain.get("boot_id", _boot_id()), path.absolute()
        )
        command = tuple(plain["command"])
        return cls(
            ProcessSpec(plain["name"], command, path.parent / plain["log"], plain["environment"]),
            identity,
        )

    def write(self) -> None:
        """Replace the file atomically, so that a reader never sees half of it."""
        spec = self.spec
        plain = {
            "name": spec.name,
            "pid": self.identity.pid,
            "start_ticks": self.identity.start_ticks,
            "boot_id": self.identity.boot_id,
        }
        rest = {
            "command": spec.command,
            "log": spec.log.name,
            "environment": dict(spec.environment),
        }
        scratch = spec.log.parent / "process.json.new"
        scratch.write_text(json.dumps({**plain, **rest}, indent=1))
        scratch.rename(spec.log.parent / RECORD_NAME)


@contextmanager
def _without_ctrl_c() -> Iterator[None]:
    """Defer SIGINT to the end of the block. A new process does not inherit this: exec resets handlers."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python interrupts only the main thread
        return
    received: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if received:
            signal.raise_signal(signal.SIGINT)


class ServerProcess:
    """A process that this one started from a spec."""

    def __init__(self, spec: ProcessSpec, *, dies_with_parent: bool = True) -> None:
        self.spec = spec
        self._dies_with_parent = dies_with_parent
        self._popen: subprocess.Popen[bytes] | None = None
        self._identity: ProcessIdentity | None = None

    @property
    def identity(self) -> ProcessIdentity:
        """Its identity. Fatal MR-8004 before ``launch``."""
        if self._identity is None:
            raise Fatal("MR-8004", f"{self.spec.name} was not started")
        return self._identity

    def launch(self) -> None:
        self.spec.log.parent.mkdir(parents=True, exist_ok=True)
        command = self.spec.command
        if self._dies_with_parent:
            command = (sys.executable, "-IS", str(_DIE_WITH_PARENT), str(os.getpid()), *command)
        with self.spec.log.open("ab") as log, _without_ctrl_c():
            self._start(command, log)

    def _start(self, command: tuple[str, ...], log: IO[bytes]) -> None:
        """Start the process and write its record. After an interruption or on a full disk there are both or neither."""
        path = (self.spec.log.parent / RECORD_NAME).absolute()
        try:
            self._popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.spec.environment, MARK: str(path)},
                start_new_session=True,
            )
        except OSError as error:
            raise self.failure(f"can't be executed ({error})") from error
        fields = _stat(self._popen.pid)  # also of a child that has ended, until we wait for it
        if not fields:
            raise self.failure("ended at once")
        self._identity = ProcessIdentity(self._popen.pid, int(fields[19]), _boot_id(), path)
        try:
            ProcessRecord(self.spec, self._identity).write()
        except OSError as error:
            kill_session(self._identity)
            self._popen.wait()
            raise self.failure(f"can't be recorded ({error})") from error

    def wait_ready(self, is_ready: Callable[[], bool], *, timeout_s: float) -> None:
        """Wait until ``is_ready()``. Fatal MR-8004 with the last log lines if the process ends or time is up."""
        deadline = time.monotonic() + timeout_s
        while not is_ready():
            if not self.is_alive():
                raise self.failure("ended while it was started")
            if time.monotonic() > deadline:
                raise self.failure(f"was not ready within {timeout_s:.0f} s")
            time.sleep(POLL_S)

    def is_alive(self) -> bool:
        """True while the leader runs. A zombie does not."""
        return self._popen is not None and self._popen.poll() is None

    @property
    def exit_status(self) -> int | None:
        """The exit status, or minus the signal's number. None while it runs or before ``launch``."""
        return None if self._popen is None else self._popen.poll()

    def terminate(self) -> None:
        if self._popen is not None and self._popen.poll() is None:
            self._popen.send_signal(signal.SIGTERM)
            self._popen.send_signal(signal.SIGCONT)

    def stop(self, *, timeout_s: float = STOP_S) -> None:
        """Send SIGTERM, and SIGKILL after ``timeout_s``. No process of the session is left."""
        if self._popen is None or self._identity is None:
            return
        self.terminate()
        if self._popen.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                self._popen.wait(timeout=timeout_s)
        self.kill()

    def kill(self) -> None:
        """Kill the whole session and wait until no process of it is left."""
        if self._popen is None or self._identity is None:
            return
        kill_session(self._identity)
        self._popen.wait()

    def pause(self) -> None:
        """Send SIGSTOP to the whole session, and wait until each thread has stopped: one may still answer before."""
        signal_session(self.identity, signal.SIGSTOP)
        deadline = time.monotonic() + STOP_S
        while not _all_stopped(self.identity) and time.monotonic() < deadline:
            time.sleep(POLL_S)

    def resume(self) -> None:
        signal_session(self.identity, signal.SIGCONT)

    def failure(self, what: str) -> Fatal:
        """A Fatal MR-8004 with ``what`` as the message and the last lines of the log."""
        lines = last_lines(self.spec.log)
        return Fatal(
            "MR-8004", f"{self.spec.name} {what}; its log ends:\n{lines}", log=self.spec.log
        )


def end_session(identity: ProcessIdentity, *, timeout_s: float = STOP_S) -> None:
    """End a session that another of our processes started: SIGTERM to its leader, then SIGKILL to the rest."""
    terminate(identity)
    deadline = time.monotonic() + timeout_s
    while is_running(identity) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    kill_session(identity)


def terminate(identity: ProcessIdentity) -> None:
    if is_running(identity):
        _send(identity.pid, signal.SIGTERM)
        _send(identity.pid, signal.SIGCONT)


def kill_session(identity: ProcessIdentity) -> None:
    """Kill every process of a session and wait until none is left."""
    while members := session_members(identity):
        for pid in members:
            _send(pid, signal.SIGKILL)
        time.sleep(POLL_S)


def is_running(identity: ProcessIdentity) -> bool:
    return identity.boot_id == _boot_id() and _start_ticks(identity.pid) == identity.start_ticks


def signal_session(identity: ProcessIdentity, number: signal.Signals) -> None:
    for pid in session_members(identity):
        _send(pid, number)


def session_members(identity: ProcessIdentity) -> tuple[int, ...]:
    """The living processes of the session. None if its number was reused."""
    if identity.boot_id != _boot_id():
        return ()
    leader = _stat(identity.pid)  # a zombie also holds the number
    if leader and int(leader[19]) != identity.start_ticks:
        return ()
    members = tuple(pid for pid in _all_pids() if _session(pid) == identity.pid)
    return members if leader else tuple(pid for pid in members if _has_mark(pid, identity.record))


def _all_stopped(identity: ProcessIdentity) -> bool:
    """Whether each thread of the session is stopped, or is ending."""
    for pid in session_members(identity):
        for thread in Path(f"/proc/{pid}/task").glob("*/stat"):
            with suppress(OSError):
                if thread.read_text().rpartition(") ")[2][:1] not in _STOPPED:
                    return False
    return True


def free_port() -> int:
    """A loopback TCP port without a listener. No other call returns it while this process lives.

    A server binds the port seconds later, and again after it was killed. So the port lies outside the range from which
    the system serves connections and bind(0), and an abstract socket name reserves it until this process ends.
    """
    ephemeral_from = _first_ephemeral_port()
    for _ in range(PORT_TRIES):
        is_narrow = ephemeral_from <= PORT_FIRST
        wanted = 0 if is_narrow else PORT_FIRST + secrets.randbelow(ephemeral_from - PORT_FIRST)
        with suppress(OSError):  # it has a listener, or another process has reserved it
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", wanted))
                port: int = probe.getsockname()[1]
            _reserve(port)
            return port
    raise Fatal("MR-8004", f"no free port was found in {PORT_TRIES} tries")


def _first_ephemeral_port() -> int:
    """The lowest port that the system assigns by itself. 0 if unknown."""
    with suppress(OSError):
        return int(_EPHEMERAL_PORTS.read_text().split()[0])
    return 0


def _reserve(port: int) -> None:
    """Reserve the port until this process ends. OSError if another process has reserved it."""
    with socket.socket(socket.AF_UNIX) as reserved:
        reserved.bind(f"\0millrace-port-{port}")
        reserved.detach()  # stays open


def last_lines(log: Path, *, count: int = LOG_LINES) -> str:
    """The end of a log, indented. Empty if there is no log."""
    if not log.is_file():
        return ""
    lines = log.read_text(errors="replace").splitlines()[-count:]
    return "\n".join(f"    {line}" for line in lines)


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # it has just ended


def _all_pids() -> Iterator[int]:
    return (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())


def _start_ticks(pid: int) -> int | None:
    """Field 22 of /proc/pid/stat. None for a zombie or a process that is gone."""
    fields = _stat(pid)
    return int(fields[19]) if fields and fields[0] not in "ZX" else None


def _session(pid: int) -> int | None:
    """Field 6 of /proc/pid/stat. None for a zombie or a process that is gone."""
    fields = _stat(pid)
    return int(fields[3]) if fields and fields[0] not in "ZX" else None


def _has_mark(pid: int, record: Path) -> bool:
    """True if the process has this record's mark in its environment. False if it is gone or unreadable."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False
    return os.fsencode(f"{MARK}={record}") in environment.split(b"\0")


def _boot_id() -> str:
    return _BOOT_ID.read_text().strip()


def _stat(pid: int) -> list[str]:
    """The fields from the third (state) on. The second is the program's name in parentheses and may hold spaces."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return []
    return text.rpartition(")")[2].split()
