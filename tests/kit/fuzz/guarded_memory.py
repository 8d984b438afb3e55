"""Memory between two forbidden pages: machine code that reaches beyond it ends the process, in any mode.

In plain Python the arrays check indexes themselves; ``Guarded`` arrays also refuse indexes below zero.
"""

import ctypes
import mmap
import os
import signal
from typing import Any

import numpy as np

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

AREA_PAGES = 16


class Area:
    """Memory with a forbidden page before it and one after it."""

    def __init__(self, pages: int = AREA_PAGES) -> None:
        self.size_bytes = pages * mmap.PAGESIZE
        memory = mmap.mmap(-1, self.size_bytes + 2 * mmap.PAGESIZE)
        self._octets = np.frombuffer(memory, np.uint8)
        address = self._octets.ctypes.data
        for page in (address, address + mmap.PAGESIZE + self.size_bytes):
            if ctypes.CDLL(None).mprotect(ctypes.c_void_p(page), mmap.PAGESIZE, 0):
                raise OSError("mprotect")

    def lay(self, octets: bytes, *, is_at_end: bool) -> Bytes:
        """``octets`` directly before the last forbidden page, or directly after the first one."""
        start = mmap.PAGESIZE + (self.size_bytes - len(octets) if is_at_end else 0)
        made = self._octets[start : start + len(octets)]
        made[:] = np.frombuffer(octets, np.uint8)
        return made

    def touch(self, *, is_after: bool) -> None:
        """Read a forbidden page."""
        self._octets[mmap.PAGESIZE + self.size_bytes if is_after else mmap.PAGESIZE - 1].sum()


_SINGLE = {int, np.int64}
_get = np.ndarray.__getitem__


class Guarded(np.ndarray[Any, Any]):
    """Refuses an index below zero."""

    def __getitem__(self, key: Any) -> Any:
        if type(key) not in _SINGLE or key < 0:  # kernels read single elements millions of times
            refuse_below_zero(key)
        return _get(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        refuse_below_zero(key)
        super().__setitem__(key, value)


def refuse_below_zero(key: Any) -> None:
    """Raise IndexError for an index below zero."""
    for one in key if isinstance(key, tuple) else (key,):
        if isinstance(one, int | np.integer) and one < 0:
            raise IndexError(f"an access at {key}")


def assert_guarded(area: Area) -> None:
    """Check the guards: touching a forbidden page ends a process, and guarded arrays refuse negative indexes."""
    try:
        np.zeros(8, np.uint8).view(Guarded)[-1]
    except IndexError:
        pass
    else:
        raise AssertionError("an index below zero is not seen")
    for is_after in (False, True):
        child = os.fork()
        if child == 0:
            area.touch(is_after=is_after)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGSEGV
