"""Shared by the ledger's writers and its DDL."""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from millrace.deploy.workload.shop import Counts


@dataclass(slots=True)
class LedgerCounts(Counts):
    """The counts of the workload. ``acknowledged``: for each writer, the last n whose COMMIT was acknowledged."""

    acknowledged: dict[int, int] = field(default_factory=dict)
    in_savepoints: int = 0
    overtaken: int = 0


def paced(deadline: float, pause_s: float, ending: threading.Event) -> Iterator[None]:
    """Yield every ``pause_s`` until the deadline or the end."""
    due = time.monotonic()
    while due < deadline and not ending.is_set():
        yield
        due += pause_s
        ending.wait(max(due - time.monotonic(), 0.0))
