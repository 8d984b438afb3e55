"""Freed memory is kept for the next batch."""

import subprocess
import sys

_ARRAYS = """
import resource, sys
import numpy as np
from millrace.process.memory import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
for round in range(6):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    arrays = [np.ones(1 << 20, np.uint8) for _ in range(20)]
    del arrays
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _pages(which: str) -> int:
    """The pages that the last round needs from the system."""
    done = subprocess.run(
        (sys.executable, "-c", _ARRAYS, which), capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def test_freed_memory_serves_the_next_batch() -> None:
    """20 MiB have 5,120 pages. Without the setting the system hands them out again."""
    assert _pages("keep") * 10 < _pages("return") + 1
