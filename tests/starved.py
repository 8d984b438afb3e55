"""A machine that has no thread left, for as long as a block lasts."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

STACK_BYTES = 1 << 46  # a quarter of what an address can name: no system has room for it


@contextmanager
def no_thread_left() -> Iterator[None]:
    """The system itself refuses every thread that Python asks for; those that run go on."""
    before = threading.stack_size(STACK_BYTES)
    try:
        yield
    finally:
        threading.stack_size(before)
