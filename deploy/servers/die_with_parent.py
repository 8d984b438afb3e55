"""Becomes a program that the kernel kills when its parent ends: ``die_with_parent.py PARENT_PID PROGRAM ARGUMENT…``.

A program of its own: asking for it between fork and exec would run Python in the child of a process with threads.
The kernel means the parent's *thread*: the signal comes when the thread that started this process ends. A parent that
was gone before we asked is noticed, and we end at once.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h

if __name__ == "__main__":
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):
        sys.exit(1)
    os.execvp(sys.argv[2], sys.argv[2:])
