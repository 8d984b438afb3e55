"""How apply's kernel is compiled; see ``millrace.compiled``."""

from pathlib import Path

from millrace.compiled import kernel_compiler

compiled = kernel_compiler("apply", Path(__file__).parent)
