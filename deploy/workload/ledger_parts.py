"""What the ledger's writers and its DDL share."""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from deploy.workload.shop import Counts


@dataclass(slots=True)
class LedgerCounts(Counts):
    """What the workload did; ``acknowledged`` is the last n of each writer whose COMMIT was answered."""

    acknowledged: dict[int, int] = field(default_factory=dict)
    in_savepoints: int = 0
    overtaken: int = 0


def paced(deadline: float, pause_s: float, ending: threading.Event) -> Iterator[None]:
    """Until the deadline or the end, once every ``pause_s``."""
    due = time.monotonic()
    while due < deadline and not ending.is_set():
        yield
        due += pause_s
        ending.wait(max(due - time.monotonic(), 0.0))
