"""Signals: an event ends a service, and Ctrl-C ends a command without a traceback.

A handler runs in the main thread. So the main thread must not wait for the event: it may hold the lock that the
handler needs. It asks ``is_set`` between short sleeps instead.

Python prints a traceback if Ctrl-C meets an import, and some libraries drop the exception there. So until a command
runs, and where it only waits for imports and answers, the handler ends the process at once.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it


def stop_on_signals() -> threading.Event:
    """The event, which is set at the first signal. Call it from the main thread."""
    stop = threading.Event()

    def handle(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)
    return stop


def _leave(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


def leave_at_interrupt() -> None:
    """From now on, Ctrl-C ends the process at once. Not if it is ignored, as under nohup, or has a handler."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def raise_at_interrupt() -> None:
    """From now on, Ctrl-C raises KeyboardInterrupt again, as Python does by itself."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def ending_at_interrupt(end: Callable[[], int]) -> Iterator[None]:
    """In the block, Ctrl-C calls ``end`` and ends the process at once with the exit code that it returns."""

    def handle(_number: int, _frame: FrameType | None) -> None:
        os._exit(end())

    with _handled(handle):
        yield


@contextmanager
def raising_at_interrupt() -> Iterator[None]:
    """In the block, the first Ctrl-C raises KeyboardInterrupt. A later one does what it did before the block."""
    before = signal.getsignal(signal.SIGINT)

    def handle(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        raise KeyboardInterrupt

    with _handled(handle):
        yield


@contextmanager
def noted_interrupts() -> Iterator[Callable[[], bool]]:
    """In the block, the first Ctrl-C is only noted: the result returns True. A later one does what it did before.

    For a block that calls libraries which drop a KeyboardInterrupt.
    """
    before, noted = signal.getsignal(signal.SIGINT), list[int]()

    def handle(number: int, _frame: FrameType | None) -> None:
        noted.append(number)
        signal.signal(signal.SIGINT, before)

    with _handled(handle):
        yield lambda: bool(noted)


@contextmanager
def held_interrupts() -> Iterator[None]:
    """In the block, a Ctrl-C waits; in a program that the block executes, until it calls ``release_interrupts``."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        release_interrupts()


def release_interrupts() -> None:
    """A Ctrl-C that waits comes now."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


@contextmanager
def _handled(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """With this handler, unless Ctrl-C is ignored."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
