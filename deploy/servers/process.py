"""One server process: started in a session of its own, watched, paused, ended with everything it started.

A *session* (setsid) is what we end, not a process group: Spark's Python daemon makes a group of its own, and no process
of ours must outlive the stack. A session's number is its leader's pid, and the kernel gives no pid again that a living
session still bears; so the leader's pid with its start time names the session for good, also from another process
(``millrace down``), and a pid that was given again is recognised by its start time.

    recorded in another boot                    ours is gone, nobody is signalled
    leader alive, start time as recorded        it is ours, and so is its session
    leader gone, members of the session alive   ours are those that bear the record's path in MILLRACE_RECORD
    pid alive with another start time           given again: ours is gone, nobody is signalled

Beside its log stands ``process.json``: who it is and how it was started, without a secret. Who has lost the object (a
later command, after a crash) reads it there.

Guarantees: what can't be recorded does not live.
With ``dies_with_parent`` the kernel kills the process when the *thread* that started it ends (so start
servers from a thread that lives as long as they shall); without, it survives us.
Not done here: no restart, no health: the owner of the server asks it.
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
STOP_S = 20.0
LOG_LINES = 12
PORT_FIRST = 10_000
PORT_TRIES = 200
RECORD_NAME = "process.json"
MARK = "MILLRACE_RECORD"  # in the environment of all that a session starts
_SYSTEMS_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_DIE_WITH_PARENT = Path(__file__).with_name("die_with_parent.py")


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """What to start. ``environment`` (no secrets) is added to ours; ``log`` is appended to, one process a folder."""

    name: str
    command: tuple[str, ...]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A session's leader: its pid, when it started in clock ticks since boot, which boot, and its record's path."""

    pid: int
    start_ticks: int
    boot_id: str
    record: Path


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """What ``process.json`` tells."""

    spec: ProcessSpec
    identity: ProcessIdentity

    @classmethod
    def read(cls, path: Path) -> Self:
        """The record in this file."""
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
        """Replace the file at once, so that a reader never sees half of it."""
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
    """SIGINT waits for the end of the block (a new process is not born with that: its handlers are the system's)."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python interrupts the main thread alone
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
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
        """Who it is; an error before ``launch``."""
        if self._identity is None:
            raise Fatal("MR-8004", f"{self.spec.name} was not started")
        return self._identity

    def launch(self) -> None:
        """Start it; returns at once."""
        self.spec.log.parent.mkdir(parents=True, exist_ok=True)
        command = self.spec.command
        if self._dies_with_parent:
            command = (sys.executable, "-IS", str(_DIE_WITH_PARENT), str(os.getpid()), *command)
        with self.spec.log.open("ab") as log, _without_ctrl_c():
            self._start(command, log)

    def _start(self, command: tuple[str, ...], log: IO[bytes]) -> None:
        """The process and its record: an interruption, or a full disk, finds neither or both."""
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
        ticks = _start_ticks(self._popen.pid)
        if ticks is None:
            raise self.failure("ended at once")
        self._identity = ProcessIdentity(self._popen.pid, ticks, _boot_id(), path)
        try:
            ProcessRecord(self.spec, self._identity).write()
        except OSError as error:
            kill_session(self._identity)
            self._popen.wait()
            raise self.failure(f"can't be recorded ({error})") from error

    def wait_ready(self, is_ready: Callable[[], bool], *, timeout_s: float) -> None:
        """Until ``is_ready()``; Fatal MR-8004 with the last log lines when it ends or time is up."""
        deadline = time.monotonic() + timeout_s
        while not is_ready():
            if not self.is_alive():
                raise self.failure("ended while it was started")
            if time.monotonic() > deadline:
                raise self.failure(f"was not ready within {timeout_s:.0f} s")
            time.sleep(POLL_S)

    def is_alive(self) -> bool:
        """Whether the leader runs (a zombie does not)."""
        return self._popen is not None and self._popen.poll() is None

    @property
    def exit_status(self) -> int | None:
        """How it ended: negative is the signal's number; None while it runs or was not started."""
        return None if self._popen is None else self._popen.poll()

    def terminate(self) -> None:
        """Ask it to end (SIGTERM); returns at once."""
        if self._popen is not None and self._popen.poll() is None:
            self._popen.send_signal(signal.SIGTERM)
            self._popen.send_signal(signal.SIGCONT)

    def stop(self, *, timeout_s: float = STOP_S) -> None:
        """Ask it to end (SIGTERM), insist after ``timeout_s`` (SIGKILL); nothing of its session is left."""
        if self._popen is None or self._identity is None:
            return
        self.terminate()
        if self._popen.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                self._popen.wait(timeout=timeout_s)
        self.kill()

    def kill(self) -> None:
        """SIGKILL to its whole session; returns when the leader is gone."""
        if self._popen is None or self._identity is None:
            return
        signal_session(self._identity, signal.SIGKILL)
        self._popen.wait()

    def pause(self) -> None:
        """SIGSTOP to its whole session."""
        signal_session(self.identity, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT to its whole session."""
        signal_session(self.identity, signal.SIGCONT)

    def failure(self, what: str) -> Fatal:
        """MR-8004 that says what happened, with the log's last lines."""
        lines = last_lines(self.spec.log)
        return Fatal(
            "MR-8004", f"{self.spec.name} {what}; its log ends:\n{lines}", log=self.spec.log
        )


def end_session(identity: ProcessIdentity, *, timeout_s: float = STOP_S) -> None:
    """End a session that another process of ours started: SIGTERM to its leader, then SIGKILL to what is left."""
    terminate(identity)
    deadline = time.monotonic() + timeout_s
    while is_running(identity) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    kill_session(identity)


def terminate(identity: ProcessIdentity) -> None:
    """Ask a session's leader to end (SIGTERM); returns at once."""
    if is_running(identity):
        _send(identity.pid, signal.SIGTERM)
        _send(identity.pid, signal.SIGCONT)


def kill_session(identity: ProcessIdentity) -> None:
    """SIGKILL to every process of a session; returns when none is left."""
    while members := session_members(identity):
        for pid in members:
            _send(pid, signal.SIGKILL)
        time.sleep(POLL_S)


def is_running(identity: ProcessIdentity) -> bool:
    """Whether the leader itself is alive."""
    return identity.boot_id == _boot_id() and _start_ticks(identity.pid) == identity.start_ticks


def signal_session(identity: ProcessIdentity, number: signal.Signals) -> None:
    """Send a signal to every living process of the session."""
    for pid in session_members(identity):
        _send(pid, number)


def session_members(identity: ProcessIdentity) -> tuple[int, ...]:
    """The living processes of the session; none when its number was given to somebody else."""
    if identity.boot_id != _boot_id():
        return ()
    leader = _stat(identity.pid)  # a zombie, too, holds the number
    if leader and int(leader[19]) != identity.start_ticks:
        return ()
    members = tuple(pid for pid in _all_pids() if _session(pid) == identity.pid)
    return members if leader else tuple(pid for pid in members if _bears(pid, identity.record))


def free_port() -> int:
    """A loopback TCP port that nobody listens on now, given to nobody else while this process lives.

    A server listens on it seconds later, and again after it was killed. So it is none of those that the system itself
    gives to whoever connects or asks for any, and a name that the kernel keeps as long as we live holds it against
    everybody who comes here.
    """
    given_from = _systems_first_port()
    for _ in range(PORT_TRIES):
        is_narrow = given_from <= PORT_FIRST
        wanted = 0 if is_narrow else PORT_FIRST + secrets.randbelow(given_from - PORT_FIRST)
        with suppress(OSError):  # somebody listens there, or has chosen it and does not listen yet
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", wanted))
                port: int = probe.getsockname()[1]
            _hold(port)
            return port
    raise Fatal("MR-8004", f"no free port was found in {PORT_TRIES} tries")


def _systems_first_port() -> int:
    """The lowest that it gives by itself; 0 where it does not say."""
    with suppress(OSError):
        return int(_SYSTEMS_PORTS.read_text().split()[0])
    return 0


def _hold(port: int) -> None:
    """OSError when another process has; ends with this one."""
    with socket.socket(socket.AF_UNIX) as held:
        held.bind(f"\0millrace-port-{port}")
        held.detach()  # left open


def last_lines(log: Path, *, count: int = LOG_LINES) -> str:
    """The end of a log, indented; empty when there is none."""
    if not log.is_file():
        return ""
    lines = log.read_text(errors="replace").splitlines()[-count:]
    return "\n".join(f"    {line}" for line in lines)


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # it ended by itself meanwhile


def _all_pids() -> Iterator[int]:
    return (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())


def _start_ticks(pid: int) -> int | None:
    """Field 22 of /proc/pid/stat; None for a process that is gone or a zombie."""
    fields = _stat(pid)
    return int(fields[19]) if fields and fields[0] not in "ZX" else None


def _session(pid: int) -> int | None:
    """Field 6 of /proc/pid/stat; None for a process that is gone or a zombie."""
    fields = _stat(pid)
    return int(fields[3]) if fields and fields[0] not in "ZX" else None


def _bears(pid: int, record: Path) -> bool:
    """Whether the process was started with this record's mark; not if it is gone or somebody else's."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False
    return os.fsencode(f"{MARK}={record}") in environment.split(b"\0")


def _boot_id() -> str:
    return _BOOT_ID.read_text().strip()


def _stat(pid: int) -> list[str]:
    """The fields from the third (state) on: the second holds the program's name, in parentheses, blanks and all."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return []
    return text.rpartition(")")[2].split()
