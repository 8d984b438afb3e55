"""Settings that let the processes of tests take less CPU and memory: for a lane, and for the runner's own servers."""

import os


def economize() -> None:
    """Set them for all processes that are started from here.

    Java's second compiler pays off only in processes that live longer than those of tests: a third of the CPU time of
    a shared broker was its. A dozen servers share the machine: glibc's malloc keeps few arenas and returns large
    buffers at once.
    """
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    os.environ.setdefault("MALLOC_TRIM_THRESHOLD_", "131072")
