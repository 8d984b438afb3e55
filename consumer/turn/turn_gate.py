"""The gate between the turns of main: a later load begins, and a side stream joins, while no turn is under way.

    main       holds the gate for each turn
    ask        from now on main waits before its next turn
    is_held    whether its last turn has ended, so that the thread that has asked may act; waits a little
    release    main continues

A closed gate lets main pass at once.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class TurnGate:
    """For one thread of turns and one that asks."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._in_turn = self._asked = self._closed = False

    @contextmanager
    def turn(self) -> Iterator[None]:
        """One turn; begins when the gate is free."""
        with self._changed:
            self._changed.wait_for(lambda: not self._asked or self._closed)
            self._in_turn = True
        try:
            yield
        finally:
            with self._changed:
                self._in_turn = False
                self._changed.notify_all()

    def ask(self) -> None:
        """Ask for the time after the present turn."""
        with self._changed:
            self._asked = True

    def is_held(self, wait_s: float = 0.0) -> bool:
        """Whether no turn is under way, and none begins before ``release``."""
        with self._changed:
            self._changed.wait_for(lambda: not self._in_turn or self._closed, wait_s)
            return self._asked and not self._in_turn and not self._closed

    def release(self) -> None:
        """Let main continue."""
        with self._changed:
            self._asked = False
            self._changed.notify_all()

    def close(self) -> None:
        """At the end of the run."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
