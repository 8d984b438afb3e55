"""Ends a service by a signal: an event that SIGTERM and SIGINT set.

The handler runs in the main thread. So the main thread must not wait for the event: it may hold the lock that the
handler needs. It asks ``is_set`` between short sleeps instead.
"""

import signal
import threading
from types import FrameType


def stop_on_signals() -> threading.Event:
    """The event, which is set at the first signal. Call it from the main thread."""
    stop = threading.Event()

    def handle(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)
    return stop
