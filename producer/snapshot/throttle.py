"""Measures whether a snapshot must pause: the lag and the threads of the member that it reads."""

from collections.abc import Callable
from dataclasses import dataclass

from drivers.mysql.connection import MySqlSession
from schemas.documents import SnapshotLimits
from schemas.throttle import Measured, why_paused


@dataclass(frozen=True, slots=True)
class Throttle:
    """``lag_s``: of the member that is captured, as the set's watch knows it; None while it is unknown."""

    limits: SnapshotLimits
    lag_s: Callable[[], float | None]

    def why_paused(self, connection: MySqlSession) -> str:
        """The reason to pause now; "" if there is none. An unknown lag is none: the watch leaves a silent member."""
        (row,) = connection.named("SHOW GLOBAL STATUS LIKE 'Threads_running'")
        measured = Measured(self.lag_s() or 0.0, int(row["Value"] or 0))
        return why_paused(measured, self.limits, busy="member")
