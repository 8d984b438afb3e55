"""How apply's kernel is compiled; see ``millrace.compiled``.

``MILLRACE_KERNEL_CHECKED=1`` adds a bounds check to every array index (for fuzzing). ``NUMBA_DISABLE_JIT=1`` runs plain
Python.
"""

import os
from pathlib import Path

from millrace import doubles
from millrace.compiled import kernel_compiler
from millrace.text_protocol import walk

CHECKED = os.environ.get("MILLRACE_KERNEL_CHECKED", "") == "1"

compiled = kernel_compiler(
    "apply", Path(__file__).parent, doubles.SOURCE, walk.SOURCE, is_checked=CHECKED
)
