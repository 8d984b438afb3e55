"""Compiles the kernel of snapshots; see ``millrace.compiled``. It calls functions of the converter's kernel."""

from pathlib import Path

from millrace import doubles
from millrace.compiled import kernel_compiler
from millrace.producer.binlog.compiled import SOURCES
from millrace.producer.convert import kernel
from millrace.producer.convert.kernel.compiled import CHECKED
from millrace.text_protocol import walk

_CONVERTER = Path(kernel.__file__).parent

compiled = kernel_compiler(
    "snapshot",
    Path(__file__).parent,
    _CONVERTER,
    *SOURCES,
    doubles.SOURCE,
    walk.SOURCE,
    is_checked=CHECKED,
)
