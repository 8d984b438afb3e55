"""Waiting for a condition with a deadline: what tests do instead of sleeping."""

import time
from collections.abc import Callable

POLL_S = 0.02


def eventually(
    claim: Callable[[], object], *, timeout_s: float = 20.0, every_s: float = POLL_S, what: str = ""
) -> None:
    """Return when ``claim()`` is true; fail when it is not within the time."""
    deadline = time.monotonic() + timeout_s
    while not claim():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:.0f} s: {what or claim}")
        time.sleep(every_s)
