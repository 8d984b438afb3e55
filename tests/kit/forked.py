"""Processes that are to be killed, without the second that the imports of each would take.

A server process imports the modules once; each process is its fork and runs one function.
"""

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from millrace import faults
from millrace.deploy.servers import die_with_parent
from tests.kit.waiting import eventually

PRELOADED = (
    "tests.kit.relay.warmed",
    "tests.kit.control.process",
    "millrace.cli.worker",
    "registry.kafka",
    "kazoo.client",
)
END_S = 120.0

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(list(PRELOADED))


@dataclass
class Fork:
    """A running fork, with the methods of ``subprocess.Popen`` that tests use. It ends with this process."""

    process: ForkServerProcess

    @property
    def pid(self) -> int:
        """Its process ID."""
        assert self.process.pid is not None
        return self.process.pid

    def poll(self) -> int | None:
        """The exit status, of a signal negative; None while it runs."""
        return self.process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """The exit status; TimeoutExpired after ``timeout`` seconds."""
        self.process.join(timeout)
        if (status := self.poll()) is None:
            raise subprocess.TimeoutExpired(str(self.process), timeout or 0.0)
        return status

    def send_signal(self, number: signal.Signals) -> None:
        """Nothing happens after its end."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


def ending_with_us(*command: str) -> tuple[str, ...]:
    """The command of a process that the kernel kills when the thread that starts it ends."""
    return (sys.executable, "-IS", die_with_parent.__file__, str(os.getpid()), *command)


def fork(
    main: Callable[[list[str]], int],
    arguments: list[str],
    *,
    environment: Mapping[str, str],
    log: Path,
    errors: Path | None = None,
) -> Fork:
    """Run ``main`` in a new process, as a separate program with this environment and its output in ``log``.

    ``errors`` gets its standard error, if that is wanted apart. What ``main`` returns is its exit status.
    ``MILLRACE_FAULT`` of the environment is armed.
    """
    whole = {**os.environ, **environment}
    outputs = (log, errors or log)
    for path in outputs:
        path.write_bytes(b"")
    process = _CONTEXT.Process(target=_run_program, args=(main, arguments, whole, outputs))
    process.start()
    return Fork(process)


def _run_program(
    main: Callable[[list[str]], int],
    arguments: list[str],
    environment: dict[str, str],
    outputs: tuple[Path, Path],
) -> None:
    ctypes.CDLL(None).prctl(
        die_with_parent.PR_SET_PDEATHSIG, signal.SIGKILL
    )  # the parent is the server of forks
    for number, path in enumerate(outputs, 1):
        with path.open("ab") as file:
            os.dup2(file.fileno(), number)
    os.environ.clear()
    os.environ.update(environment)
    faults.arm(environment.get(faults.ENVIRONMENT, ""))
    sys.exit(main(arguments))


def exit_status(main: Callable[..., object], *arguments: Any, fault: str = "") -> int:
    """Run ``main`` in a new process with ``MILLRACE_FAULT`` armed as given; a signal's number is negative."""
    process = _CONTEXT.Process(target=_run, args=(main, arguments, fault))
    process.start()
    process.join(END_S)
    status = process.exitcode
    assert status is not None, f"not ended within {END_S:.0f} s"
    return status


def killed_at(fault: str, work: Callable[[], object]) -> None:
    """Run ``work`` in a fork of this process with ``MILLRACE_FAULT`` armed as given; it must die by SIGKILL."""
    child = os.fork()
    if child == 0:
        try:
            faults.arm(fault)
            work()
        except BaseException:  # noqa: BLE001 - the child must not run the parent's code
            sys.excepthook(*sys.exc_info())
        os._exit(1)
    ended: list[int] = []

    def has_ended() -> bool:
        pid, status = os.waitpid(child, os.WNOHANG)
        ended[:] = [status] if pid else []
        return bool(pid)

    try:
        eventually(has_ended, what=f"the fork dies at {fault}")
    finally:
        if not ended:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(ended[0]) == -signal.SIGKILL


def _run(main: Callable[..., object], arguments: tuple[object, ...], fault: str) -> None:
    faults.arm(fault)
    main(*arguments)
