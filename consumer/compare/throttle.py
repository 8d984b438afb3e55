"""When a comparison pauses: the target is late, or one of the servers is busy."""

import time
from dataclasses import dataclass

from consumer.compare.sides import Sides
from consumer.load.throttle import threads_running

PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class Throttle:
    """Limits, each None for no limit.

    ``lag_s_max``: how long the target may take to contain what the source has now. ``threads_max``: Threads_running of
    either server, with the sessions of the comparison.
    """

    lag_s_max: float | None = None
    threads_max: int | None = None

    def wait(self, sides: Sides) -> None:
        """Return when no limit is exceeded."""
        while self._is_exceeded(sides):
            time.sleep(PAUSE_S)

    def _is_exceeded(self, sides: Sides) -> bool:
        if self.threads_max is not None and any(
            threads_running(session) > self.threads_max for session in (sides.source, sides.target)
        ):
            return True
        if self.lag_s_max is None or not sides.ends.task:
            return False
        return sides.reach(sides.position()) > self.lag_s_max
