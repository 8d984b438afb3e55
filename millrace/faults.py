"""Named fault points: places where a test can kill, stop or fail this process.

    AFTER_WRITE = register("relay.after_write")     # at module level: importing the module registers the name
    fault_point(AFTER_WRITE)                        # in the code, between two steps that a crash can separate

The environment variable ``MILLRACE_FAULT`` arms points: ``name:action`` or ``name:action@N``, separated by commas.

    kill     SIGKILL to this process: nothing is flushed, no handler runs
    stop     SIGSTOP to this process: makes a stale owner that wakes up later
    raise    Retryable MR-9002, as if the step had failed
    @N       act at the N-th passage in this process, counted from 1; without it, at the first

Guarantees: while nothing is armed, a passage costs two checks of globals. An armed point acts exactly once per process.
Not done here: arming over network or file. The variable is read once, when this module is imported (and by ``arm``).
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from millrace.errors import Retryable

ENVIRONMENT = "MILLRACE_FAULT"


class Action(StrEnum):
    KILL = "kill"
    STOP = "stop"
    RAISE = "raise"


@dataclass(frozen=True, slots=True)
class ArmedFault:
    """``action`` is due at passage number ``passage`` of the point ``name``."""

    name: str
    action: Action
    passage: int


_names: set[str] = set()
_armed: dict[str, ArmedFault] | None = None
_passages: dict[str, int] = {}
_watcher: Callable[[str], object] | None = None
_lock = threading.Lock()


def register(name: str) -> str:
    """Declare a fault point and return its name. ValueError if the name is taken."""
    if name in _names:
        raise ValueError(f"fault point {name} is registered twice")
    _names.add(name)
    return name


def registered() -> tuple[str, ...]:
    """The names declared by the modules imported so far, sorted."""
    return tuple(sorted(_names))


def fault_point(name: str) -> None:
    """Pass the point ``name``. Nothing happens unless it is armed or watched."""
    if _armed is not None:
        _pass_armed(name)
    if _watcher is not None:
        _watcher(name)


@contextmanager
def watched(watcher: Callable[[str], object]) -> Iterator[None]:
    """In the block, call ``watcher`` with the name of each point passed, in the thread that passes it."""
    global _watcher
    assert _watcher is None, "fault points have one watcher"
    _watcher = watcher
    try:
        yield
    finally:
        _watcher = None


def is_armed(name: str) -> bool:
    """True if this point is armed. For a step that must be split to be interrupted in its middle."""
    return _armed is not None and name in _armed


def arm(text: str) -> None:
    """Arm the points in ``text``, written as in MILLRACE_FAULT. An empty text disarms all."""
    global _armed
    faults = parse_faults(text)
    with _lock:
        _passages.clear()
        _armed = {fault.name: fault for fault in faults} or None


def parse_faults(text: str) -> tuple[ArmedFault, ...]:
    """Parse ``name:action[@N]``, separated by commas. ValueError describes a syntax error."""
    return tuple(_parse_fault(item.strip()) for item in text.split(",") if item.strip())


def _parse_fault(item: str) -> ArmedFault:
    name, colon, rest = item.rpartition(":")
    action, at, passage = rest.partition("@")
    if not (colon and name and action in set(Action)) or (at and not passage.isdigit()):
        raise ValueError(f"{ENVIRONMENT}: {item!r} is not name:kill|stop|raise[@N]")
    number = int(passage or 1)
    if number < 1:
        raise ValueError(f"{ENVIRONMENT}: passages count from 1, found {item!r}")
    return ArmedFault(name, Action(action), number)


def _pass_armed(name: str) -> None:
    with _lock:
        fault = _armed.get(name) if _armed is not None else None
        if fault is None:
            return
        passage = _passages[name] = _passages.get(name, 0) + 1
    if passage != fault.passage:
        return
    match fault.action:
        case Action.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        case Action.STOP:
            os.kill(os.getpid(), signal.SIGSTOP)
        case Action.RAISE:
            raise Retryable("MR-9002", f"fault injected at {name}", passage=passage)


arm(os.environ.get(ENVIRONMENT, ""))
