"""Watches Spark's JVM process and reports its unexpected end. Apart: a thread, no session.

PySpark starts only one JVM per Python process, so the driver ends with it and a service manager restarts the driver.
Only a JVM that Python started is watched. If spark-submit started Python, Python ends with the JVM.
"""

import subprocess
import threading
from collections.abc import Callable

from millrace.errors import Retryable


class Jvm:
    """``process`` as PySpark started it. ``None`` if PySpark did not start it; then nothing is watched."""

    def __init__(self, process: "subprocess.Popen[bytes] | None") -> None:
        self._process = process
        self._is_released = False
        self.is_lost = False  # it ended before ``release``

    def release(self) -> None:
        """Expect its end from now on."""
        self._is_released = True

    def watch(self, lost: Callable[[Retryable], None]) -> None:
        """Call ``lost`` once, from another thread, with MR-5053 when it ends unexpectedly."""
        process = self._process
        if process is None:
            return

        def wait() -> None:
            status = process.wait()
            if not self._is_released:
                self.is_lost = True
                lost(Retryable("MR-5053", f"Spark's JVM has ended with status {status}"))

        threading.Thread(target=wait, name="jvm", daemon=True).start()
