"""Threads that work for the length of a ``with`` block."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self


class Background:
    """Runs ``work(stop)`` in a thread for the length of the ``with`` block, whose end joins it.

    The error that ends the work is raised by ``check``, and at the end of the block if it ends without another error.
    With ``is_checked``, only ``check`` raises it.
    """

    def __init__(
        self, name: str, work: Callable[[threading.Event], None], *, is_checked: bool = False
    ) -> None:
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._work = work
        self._is_checked = is_checked
        self._thread = threading.Thread(target=self._run, name=name)

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def check(self) -> None:
        """Raise the error that has ended the work."""
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if kind is None and not self._is_checked:
            self.check()

    def _run(self) -> None:
        try:
            self._work(self._stop)
        except BaseException as failure:  # noqa: BLE001 - raised again in the thread that made this
            self._failure = failure


def chore(name: str, run: Callable[[], None], *, every_s: float) -> Background:
    """Calls ``run`` every ``every_s`` seconds; the owner calls ``check``. A run that fails is the last one."""

    def work(stop: threading.Event) -> None:
        while not stop.is_set():
            run()
            stop.wait(every_s)

    return Background(name, work, is_checked=True)


@contextmanager
def sampled(name: str, look: Callable[[], None], *, every_s: float) -> Iterator[None]:
    """Calls ``look`` at the begin, every ``every_s`` seconds in a thread, and at the end."""

    def watch(stop: threading.Event) -> None:
        while not stop.wait(every_s):
            look()

    look()
    with Background(name, watch):
        yield
    look()
