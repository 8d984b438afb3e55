"""CPU time and memory of whole sessions: a service with its JVM and all its Python workers.

Read from /proc. The CPU time of a process that has ended is in its parent's. A peak is the kernel's own (VmHWM), so no
sample can miss it while the process lives.
"""

import os
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from millrace.background import sampled
from millrace.deploy.servers.process import ServerProcess, session_members

POLL_S = 0.5
_TICKS_S = os.sysconf("SC_CLK_TCK")
_CPU_FIELDS = slice(11, 15)  # utime, stime, cutime, cstime: fields 14 to 17 of /proc/pid/stat


class Part(Enum):
    """The kinds of processes in a driver's session."""

    JVM = "jvm"
    PYTHON = "python"  # the driver itself
    WORKER = "worker"  # a Python worker, or the daemon that forks them


@dataclass(frozen=True, slots=True)
class Use:
    """A process: CPU seconds so far, and the peak of its resident memory in MB (2**20 bytes)."""

    pid: int
    part: Part
    cpu_s: float
    peak_mb: float


def uses(process: ServerProcess) -> Iterator[Use]:
    """Every living process of the session."""
    leader = process.identity.pid
    for pid in session_members(process.identity):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2]
            status = Path(f"/proc/{pid}/status").read_text(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        lines = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        if "VmHWM" not in lines:
            continue  # a zombie
        is_java = lines["Name"].strip() == "java"
        part = Part.JVM if is_java else Part.PYTHON if pid == leader else Part.WORKER
        ticks = sum(map(int, fields.split()[_CPU_FIELDS]))
        yield Use(pid, part, ticks / _TICKS_S, int(lines["VmHWM"].split()[0]) / 1024)


@contextmanager
def use_watch(
    processes: Sequence[ServerProcess],
    *,
    parts: Collection[Part] = tuple(Part),
    every_s: float = POLL_S,
) -> "Iterator[UseWatch]":
    """Samples the use of sessions every ``every_s`` for the length of the ``with`` block.

    ``parts``: whose CPU time counts.
    """
    watch = UseWatch(processes, parts)
    with sampled("use of processes", watch.look, every_s=every_s):
        yield watch


class UseWatch:
    """The use of sessions over time."""

    def __init__(
        self, processes: Sequence[ServerProcess], parts: Collection[Part] = tuple(Part)
    ) -> None:
        self._processes, self._parts = processes, parts
        self._cpu: list[tuple[float, float]] = []
        self._peaks: dict[Part, float] = {}

    def cpu_s(self, begin_s: float, end_s: float) -> float:
        """CPU seconds of all sessions between two moments of the monotonic clock, interpolated between samples."""
        return self._cpu_at(end_s) - self._cpu_at(begin_s)

    def peak_mb(self, part: Part) -> float:
        """The largest peak of one process of this part; 0 if there was none."""
        return self._peaks.get(part, 0.0)

    def _cpu_at(self, at_s: float) -> float:
        before = [sample for sample in self._cpu if sample[0] <= at_s] or self._cpu[:1]
        after = [sample for sample in self._cpu if sample[0] > at_s] or self._cpu[-1:]
        (left_s, left), (right_s, right) = before[-1], after[0]
        if right_s <= left_s:
            return left
        return left + (right - left) * (at_s - left_s) / (right_s - left_s)

    def look(self) -> None:
        now = [use for process in self._processes for use in uses(process)]
        cpu_s = sum(use.cpu_s for use in now if use.part in self._parts)
        self._cpu.append((time.monotonic(), cpu_s))
        for use in now:
            self._peaks[use.part] = max(self._peaks.get(use.part, 0.0), use.peak_mb)
