"""Executes a program that the kernel kills when its parent ends: ``die_with_parent.py PARENT_PID PROGRAM ARGUMENT…``.

This is a separate program because Python code between fork and exec is unsafe in a process with threads.
For the kernel the parent is a *thread*: the signal comes when the thread that started this process ends. If the parent
has ended before the request, this program exits at once.
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
