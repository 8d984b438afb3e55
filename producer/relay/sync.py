"""Grouped fsync: one thread makes written bytes durable, by count of bytes or by delay, whichever comes first.

A write costs the writer only a counter. Guarantees: if ``sync`` fails, the error is kept and raised by the next
``count_written``, and nothing is synced any more. Not done here: tracking what is synced, which ``sync`` does.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from millrace.errors import MillraceError


@dataclass(frozen=True, slots=True)
class SyncPolicy:
    """A power cut loses at most the last ``bytes_max`` or ``delay_ms`` of the relay log, which are fetched again.

    16 MiB at 500 MB/s take 30 ms. A delay of 200 ms means five fsyncs per second at low load.
    """

    bytes_max: int = 16 << 20
    delay_ms: int = 200


class SyncThread:
    """Calls ``sync`` while written bytes are not durable."""

    def __init__(self, policy: SyncPolicy, sync: Callable[[], None]) -> None:
        self._policy = policy
        self._sync = sync
        self._condition = threading.Condition()
        self._unsynced_bytes = 0
        self._oldest_at_s = 0.0
        self._error: BaseException | None = None
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="relay-sync", daemon=True)
        self._thread.start()

    def count_written(self, count_bytes: int) -> None:
        """Count written bytes. Raises the error that ``sync`` failed with, if it did."""
        with self._condition:
            self.raise_failure()
            if self._unsynced_bytes == 0:
                self._oldest_at_s = time.monotonic()
                self._condition.notify()
            self._unsynced_bytes += count_bytes
            if self._unsynced_bytes >= self._policy.bytes_max:
                self._condition.notify()

    def raise_failure(self) -> None:
        """Raise the error that ended the thread, if any: Retryable MR-2003, MR-2002, an error of the content, a bug."""
        error = self._error
        if isinstance(error, MillraceError):
            raise type(error)(error.code, error.message, **error.context) from error
        if error is not None:
            raise error

    def stop(self) -> None:
        """End the thread. The caller must sync the remaining bytes."""
        with self._condition:
            self._is_stopped = True
            self._condition.notify()
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._wait_until_due():
                self._sync()
        except BaseException as error:  # noqa: BLE001 - raised by `count_written`, in the writer's thread
            with self._condition:
                self._error = error

    def _wait_until_due(self) -> bool:
        with self._condition:
            while not self._is_stopped:
                if self._unsynced_bytes == 0:
                    self._condition.wait()
                    continue
                left_s = self._oldest_at_s + self._policy.delay_ms / 1000 - time.monotonic()
                if left_s <= 0 or self._unsynced_bytes >= self._policy.bytes_max:
                    self._unsynced_bytes = 0
                    return True
                self._condition.wait(left_s)
            return False
