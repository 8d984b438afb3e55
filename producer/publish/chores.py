"""Runs a chore in another thread inside the ``with`` block, so that the publishing loop does not wait for the disk.

Guarantees: one run at a time, ``every_s`` apart. A run that fails is the last one, and ``check`` raises its error. The
end of the ``with`` block joins the thread.
"""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self


class Housekeeping:
    """See the module. ``name`` is the thread's."""

    def __init__(self, name: str, chore: Callable[[], None], *, every_s: float) -> None:
        self._chore = chore
        self._every_s = every_s
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def check(self) -> None:
        """Raise the error of the last run."""
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._chore()
                self._stop.wait(self._every_s)
        except BaseException as error:  # noqa: BLE001 - raised by `check`, in the thread that the supervisor watches
            self._failure = error
