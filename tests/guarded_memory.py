"""Memory between two pages that nobody may touch: machine code that reaches beyond it ends the process, in any mode."""

import ctypes
import mmap
import os
import signal
from typing import Any

import numpy as np

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

AREA_PAGES = 16


class Area:
    """Memory with a forbidden page in front of it and one behind."""

    def __init__(self, pages: int = AREA_PAGES) -> None:
        self.size_bytes = pages * mmap.PAGESIZE
        memory = mmap.mmap(-1, self.size_bytes + 2 * mmap.PAGESIZE)
        self._octets = np.frombuffer(memory, np.uint8)
        address = self._octets.ctypes.data
        for page in (address, address + mmap.PAGESIZE + self.size_bytes):
            if ctypes.CDLL(None).mprotect(ctypes.c_void_p(page), mmap.PAGESIZE, 0):
                raise OSError("mprotect")

    def lay(self, octets: bytes, *, is_at_end: bool) -> Bytes:
        """``octets`` between nothing and the forbidden page behind, or in front."""
        start = mmap.PAGESIZE + (self.size_bytes - len(octets) if is_at_end else 0)
        made = self._octets[start : start + len(octets)]
        made[:] = np.frombuffer(octets, np.uint8)
        return made

    def touch(self, *, is_behind: bool) -> None:
        """The forbidden page."""
        self._octets[mmap.PAGESIZE + self.size_bytes if is_behind else mmap.PAGESIZE - 1].sum()


def assert_seeing(area: Area) -> None:
    """Who touches a forbidden page dies."""
    for is_behind in (False, True):
        child = os.fork()
        if child == 0:
            area.touch(is_behind=is_behind)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGSEGV
