"""A process of the simulation. It counts its requests, and a planned fault occurs at one of them.

    KILL   the process is gone; later requests are dropped
    STOP   it waits (SIGSTOP) until a caller of ``resume``: its pending requests arrive later
    FAIL   the request, or its answer, is lost: the client's error

``after``: the request took effect before the fault. A stopped process has a separate thread, but only one thread runs
at a time: threads pass a turn to each other, so runs are deterministic.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType

TURN_S = 300.0  # every turn takes less than a second, unless a kernel is compiled first


class Fate(StrEnum):
    """The fault at the planned request."""

    KILL = "kill"
    STOP = "stop"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Plan:
    """``fate`` at request number ``at``, counted from 1."""

    fate: Fate
    at: int
    after: bool = False


class KilledError(BaseException):
    """The process is gone."""


_here = threading.local()


def current() -> "Process":
    """The process whose work this thread does."""
    found: Process = _here.process
    return found


class Process:
    """One operating-system process; ``name`` identifies it to servers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.on_request: Callable[[int], None] = lambda _: None
        self.residents: dict[str, object] = {}  # what a real process would keep in a module
        self._plan: Plan | None = None
        self._count = 0
        self._thread_id = 0
        self._thread: threading.Thread | None = None
        self._raised: BaseException | None = None
        self._go = threading.Event()
        self._back = threading.Event()

    @property
    def is_stopped(self) -> bool:
        """True while it waits inside some work."""
        return self._thread is not None

    def run(self, work: Callable[[], object], plan: Plan | None = None) -> None:
        """Do ``work``; its errors are raised here or by ``resume``."""
        assert not self.is_stopped
        self._plan, self._count = plan, 0
        if plan is None or plan.fate is not Fate.STOP:
            self._enter()
            work()
            return
        self._raised = None
        self._thread = threading.Thread(target=self._live, args=(work,), name=self.name)
        self._back.clear()
        self._thread.start()
        self._take_turn()

    def resume(self) -> None:
        """Resume where it stopped, to the end of its work."""
        assert self.is_stopped
        self._back.clear()
        self._go.set()
        self._take_turn()

    def forget_plan(self) -> None:
        """Cancel the planned fault."""
        self._plan = None

    def kill(self) -> None:
        """Kill the process: later requests are dropped."""
        self.is_dead = True
        if self.is_stopped:
            try:
                self.resume()
            except KilledError:
                return

    def asks(self, error: Callable[[], Exception]) -> "Request":
        """Wrap a request around its effect; ``error`` is the client's error when no answer arrives."""
        return Request(self, error)

    def meet(self, error: Callable[[], Exception], *, after: bool) -> None:
        """Count a request, or its answer, and apply the planned fault."""
        if threading.get_ident() != self._thread_id:
            return  # a thread of the product that only reads (audit, a waiting lock)
        if self.is_dead:
            raise KilledError
        if not after:
            self._count += 1
            self.on_request(self._count)
        plan = self._plan
        if plan is None or (plan.at, plan.after) != (self._count, after):
            return
        self._plan = None
        if plan.fate is Fate.FAIL:
            raise error()
        if plan.fate is Fate.KILL:
            self.is_dead = True
            raise KilledError
        self._back.set()
        assert self._go.wait(TURN_S)
        self._go.clear()
        if self.is_dead:
            raise KilledError

    def _enter(self) -> None:
        self._thread_id = threading.get_ident()
        _here.process = self

    def _live(self, work: Callable[[], object]) -> None:
        self._enter()
        try:
            work()
        except BaseException as raised:  # noqa: BLE001 - raised again by run or resume
            self._raised = raised
        finally:
            self._thread_id = 0
            self._back.set()

    def _take_turn(self) -> None:
        assert self._back.wait(TURN_S), f"{self.name} does not give its turn back"
        if self._thread_id:
            return  # it stopped
        assert self._thread is not None
        self._thread.join()
        self._thread = None
        if self._raised is not None:
            raise self._raised


class Request:
    """Wrap the effect of one request."""

    __slots__ = ("_error", "_process")

    def __init__(self, process: Process, error: Callable[[], Exception]) -> None:
        self._process = process
        self._error = error

    def __enter__(self) -> None:
        self._process.meet(self._error, after=False)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._process.meet(self._error, after=True)
