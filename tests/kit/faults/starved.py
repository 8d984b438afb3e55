"""A machine without free threads or file descriptors during a block."""

import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager

STACK_BYTES = 1 << 46  # a quarter of the address space: no system can allocate it


@contextmanager
def no_thread_left() -> Iterator[None]:
    """The system refuses every new Python thread; running threads continue."""
    before = threading.stack_size(STACK_BYTES)
    try:
        yield
    finally:
        threading.stack_size(before)


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """The system refuses every new file descriptor of this process; open ones stay open."""
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))
