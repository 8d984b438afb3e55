"""Spark's JVM as a process of ours: whether it ended though nobody asked it to.

A Python process has one JVM in its life (PySpark makes no second one), so that its end is the end of the driver, which
a service manager starts again. Only where Python started the JVM: where spark-submit started Python, it ends with it.
"""

import subprocess
import threading
from collections.abc import Callable

from millrace.errors import Retryable


class Jvm:
    """``process`` as PySpark started it; ``None`` if somebody else did, and then nothing is watched."""

    def __init__(self, process: "subprocess.Popen[bytes] | None") -> None:
        self._process = process
        self._is_released = False
        self.is_lost = False  # it ended, and nobody had called ``release``

    def release(self) -> None:
        """Its end is wanted from now on."""
        self._is_released = True

    def watch(self, lost: Callable[[Retryable], None]) -> None:
        """Call ``lost`` once, from a thread, with MR-5053 when it ends unwanted."""
        process = self._process
        if process is None:
            return

        def wait() -> None:
            status = process.wait()
            if not self._is_released:
                self.is_lost = True
                lost(Retryable("MR-5053", f"Spark's JVM has ended with status {status}"))

        threading.Thread(target=wait, name="jvm", daemon=True).start()
