"""Processes that are to be killed, without the second that the imports of each would take.

A server process imports the modules once; each process is its fork and runs one function.
"""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from millrace import faults
from tests.kit.waiting import eventually

PRELOADED = ("tests.kit.relay.warmed",)
END_S = 120.0

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(list(PRELOADED))


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
