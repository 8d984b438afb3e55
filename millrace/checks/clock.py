"""How far a server's clock is from this machine's. Values and the judgement; the callers ask."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from millrace.checks.requirement import Requirement, Subject

CLOCK_S_MAX = 1.0  # beyond it, a lag that compares two clocks misleads
CLOCK_SQL = "SELECT CAST(UNIX_TIMESTAMP(NOW(6)) AS CHAR) AS now_s"


@dataclass(frozen=True, slots=True)
class Clock:
    """``ahead_s``: how far the server's clock is ahead of this machine's; ``error_s``: at most this far off."""

    ahead_s: float
    error_s: float


def read_clock(ask: Callable[[], float]) -> Clock:
    """Compare the clocks. ``ask`` returns the server's time in seconds, which it reads within the call."""
    before_s = time.time()
    now_s = ask()
    after_s = time.time()
    return Clock(now_s - (before_s + after_s) / 2, (after_s - before_s) / 2)


def judge_clock(subject: Subject, clock: Clock) -> Requirement:
    """MR-4163 if the clocks differ by more than ``CLOCK_S_MAX``, whatever the time of the query hides."""
    side = "ahead of" if clock.ahead_s > 0 else "behind"
    found = f"{abs(clock.ahead_s):.1f} s {side} this machine"
    if abs(clock.ahead_s) - clock.error_s > CLOCK_S_MAX:
        return subject.warn("MR-4163", "clock", found=found, wanted=f"at most {CLOCK_S_MAX:g} s")
    return subject.ok("clock", found)
