"""How fast a piece of work is, and what it costs: rows per second, and CPU time of all processes that take part."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Self

from deploy.bench.apply.processes import uses
from deploy.servers import DatabaseServer


@dataclass(frozen=True, slots=True)
class Pace:
    """Rows per second, and the CPU time of clients and servers for a row."""

    rate: float
    cpu_us: float

    @classmethod
    def of(cls, servers: Sequence[DatabaseServer], rows: int, work: Callable[[], object]) -> Self:
        """Do the work once. Its processes other than the servers must have ended when it returns."""
        begin_s, cpu_s = time.monotonic(), _cpu_s(servers)
        work()
        rate = rows / (time.monotonic() - begin_s)
        return cls(rate, (_cpu_s(servers) - cpu_s) / rows * 1e6)

    @classmethod
    def median(cls, paces: Sequence[Self]) -> Self:
        return cls(median(pace.rate for pace in paces), median(pace.cpu_us for pace in paces))


def _cpu_s(servers: Sequence[DatabaseServer]) -> float:
    """CPU seconds of the servers, this process and its children that have ended."""
    used = (use for server in servers for use in uses(server.process))
    return sum(os.times()[:4]) + sum(use.cpu_s for use in used)
