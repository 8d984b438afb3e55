"""A machine that has no thread or no descriptor left, for as long as a block lasts."""

import resource
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


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """The system itself refuses to open anything for this process; what is open stays so."""
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))
