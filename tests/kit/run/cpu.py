"""The CPU time of a lane with its servers, drivers and all other processes that it starts.

A process belongs to the lane if it is the lane or has its mark in its environment, which children inherit. Linux adds
the time of a child that has ended to its parent once the parent has waited for it. The time of an orphan is lost.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

MARK = "MILLRACE_TEST_LANE"
_PROC = Path("/proc")
_UTIME = 11  # in /proc/PID/stat after the name: utime, stime, cutime, cstime, proc(5)
_STARTED = 19
_TICKS_S = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class LaneCpu:
    """Reads the clocks of all processes of this lane."""

    _belongs: dict[tuple[str, str], bool] = field(default_factory=dict)
    _last_s: float = 0.0

    def __post_init__(self) -> None:
        os.environ[MARK] = str(
            os.getpid()
        )  # for children; the lane's own environment in /proc stays as it was

    def since_last(self) -> float:
        """Seconds since the last call; the first counts from the lane's start."""
        now_s = sum(self._clock(folder.name) for folder in _PROC.glob("[0-9]*")) / _TICKS_S
        passed_s, self._last_s = max(now_s - self._last_s, 0.0), now_s
        return passed_s

    def _clock(self, pid: str) -> int:
        try:
            fields = (_PROC / pid / "stat").read_text().rpartition(") ")[2].split()
            key = (pid, fields[_STARTED])
            if key not in self._belongs:
                self._belongs[key] = self._is_ours(pid)
        except OSError:  # it has ended, or is another user's
            return 0
        return sum(map(int, fields[_UTIME : _UTIME + 4])) if self._belongs[key] else 0

    def _is_ours(self, pid: str) -> bool:
        mark = f"{MARK}={os.getpid()}".encode()
        return int(pid) == os.getpid() or mark in (_PROC / pid / "environ").read_bytes().split(
            b"\0"
        )
