"""Compiles the converter's kernel; see ``millrace.compiled``.

Modes (environment):
    (nothing)                    machine code, memory access unchecked: the code checks lengths against the event
    MILLRACE_KERNEL_CHECKED=1    machine code in which each load, store and copy checks its array: for fuzzing
    NUMBA_DISABLE_JIT=1          plain Python, checked as well: slow, for a debugger
"""

import os
from pathlib import Path

from millrace import doubles
from millrace.compiled import IS_INTERPRETED, kernel_compiler
from millrace.producer.binlog.compiled import SOURCES

CHECKED = os.environ.get("MILLRACE_KERNEL_CHECKED", "") == "1"
INTERPRETED = IS_INTERPRETED

compiled = kernel_compiler(
    "converter", Path(__file__).parent, *SOURCES, doubles.SOURCE, is_checked=CHECKED
)
