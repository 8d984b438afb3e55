"""Counts the worker processes that end under a task. The count is in ZooKeeper, so it survives each process.

    starts/<task>   {"format":1,"revision":…,"process":"…","worker":"w1","began_ms":0,"counts":true,
                     "kills":[{"worker":"w0","process":"…","began_ms":…,"at_ms":…},…]}

    step               a crash after it leaves
    1 count a kill     the node without a process; only if the node has another one
    2 begin            the node with this process; the next process that begins the task counts it as killed
    3 the task runs    the same, however long it runs
    4 end              no process; the kills stay while they count

Guarantees
- A task whose process ended under it ``kills_max`` times in ``KILLS_S`` under one revision is not started again (Fatal
  MR-4015) until an operator acts, which gives a new revision.
- Times are the ensemble's: a time of 0 in a node is the time at which the ensemble wrote that node (``modified_ms``).
  The clocks of workers don't matter.
- From ``kills_max - 1`` kills on, a task is *on trial*: a worker starts such tasks one after another, and meanwhile the
  end of its process counts only against that task. A task that runs longer than its killed processes did is cleared.
  So tasks that only shared a process with the guilty one are not blamed for the last kill.
- A process that lives does not count as killed: if only its session was lost, it corrects the count when it notices.

Not done here: a task that lets its process live longer each time, or longer than ``TRIAL_S_MAX``, may pass its trial.
A task that kills the JVM of an apply driver is not found.
"""

import os
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from millrace.errors import Fatal, Retryable
from millrace.schemas.plain import Wire, from_plain, to_plain
from millrace.wording import counted
from millrace.zk.client.session import Node, Session
from millrace.zk.tree.paths import Tree, decode, encode

KILLS_MAX = 3
KILLS_S = 600.0
TRIAL_S_MAX = 120.0  # the longest trial: others that wait for theirs are delayed as long


@dataclass(frozen=True, slots=True)
class Kill:
    """The end of a process under a task: when the run began and when the end was found, 0 until that is known."""

    worker: str
    process: str
    began_ms: int
    at_ms: int = 0

    @property
    def lived_s(self) -> float:
        """How long the run lasted at most."""
        return max(0, self.at_ms - self.began_ms) / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A node of ``starts``. ``process`` is "" while none runs the task. ``began_ms`` 0: when the node was written."""

    revision: int
    process: Annotated[str, Wire(is_added_later=True)] = ""
    worker: Annotated[str, Wire(is_added_later=True)] = ""
    began_ms: Annotated[int, Wire(is_added_later=True)] = 0
    counts: Annotated[bool, Wire(is_added_later=True)] = True
    kills: Annotated[tuple[Kill, ...], Wire(is_added_later=True)] = ()

    def content(self) -> bytes:
        """The content of its node."""
        return encode(to_plain(self))


def start_of(node: Node | None, *, revision: int) -> Start:
    """The start in a node. An empty one if it is missing, has another revision or can't be read."""
    start = _read(node) if node is not None else None
    return start if start and start.revision == revision else Start(revision=revision)


def _read(node: Node) -> Start | None:
    """The start of whichever revision; None if it can't be read."""
    try:
        start = from_plain(Start, decode(node.content, "starts"))
    except (Fatal, ValueError, TypeError, KeyError):
        return None
    kills = tuple(replace(kill, at_ms=kill.at_ms or node.modified_ms) for kill in start.kills)
    return replace(start, began_ms=start.began_ms or node.modified_ms, kills=kills)


def kills_seen(start: Start, *, process: str) -> tuple[Kill, ...]:
    """The kills as ``process`` finds them when it begins the task; the last one may have no time yet."""
    if start.process in ("", process) or not start.counts:
        return start.kills
    return (*start.kills, Kill(start.worker, start.process, start.began_ms))


def recent(kills: tuple[Kill, ...], now_ms: int) -> tuple[Kill, ...]:
    """The kills of the last ``KILLS_S``; those without a time happened now."""
    timed = (kill if kill.at_ms else replace(kill, at_ms=now_ms) for kill in kills)
    return tuple(kill for kill in timed if now_ms - kill.at_ms < KILLS_S * 1000)


class Starts:
    """The task starts of one worker process. Thread-safe."""

    def __init__(
        self, session: Session, tree: Tree, *, worker: str, kills_max: int = KILLS_MAX
    ) -> None:
        self._session = session
        self._tree = tree
        self._worker = worker
        self._kills_max = kills_max
        # the worker's name is not enough: its next process has the same
        self._process = uuid.uuid4().hex
        self._running: dict[str, Start] = {}
        self._trial = ""  # the task against which alone the end of this process counts
        self._lock = threading.RLock()

    def is_suspect(self, task: str, *, revision: int) -> bool:
        """Whether the task must be on trial, as far as its node says. Ask before its lease is acquired."""
        start = start_of(self._session.get(self._tree.starts(task)), revision=revision)
        return self._is_suspect(kills_seen(start, process=self._process))

    def begin(self, task: str, *, revision: int) -> None:
        """Record that the task starts here. Fatal MR-4015 when it has killed ``kills_max`` processes.

        Call it under the task's lease: another process that is in the node is then known to be gone.
        """
        path = self._tree.starts(task)
        with self._lock:
            node = self._session.get(path)
            start = start_of(node, revision=revision)
            kills = kills_seen(start, process=self._process)
            if len(kills) > len(start.kills):  # first without a process: it may be the last start
                node = self._write(path, node, replace(start, process="", kills=kills, began_ms=0))
            if node is not None:
                kills = recent(kills, node.modified_ms)
            if self._kills_max and len(kills) >= self._kills_max:
                raise _quarantine(task, kills)
            counts = self._trial in ("", task)
            begun = Start(
                revision=revision,
                process=self._process,
                worker=self._worker,
                counts=counts,
                kills=kills,
            )
            written = self._write(path, node, begun)
            self._running[task] = replace(begun, began_ms=written.modified_ms)

    def end(self, task: str) -> None:
        """Record that the run ended and that this process lives."""
        with self._lock:
            self._running.pop(task, None)
            path = self._tree.starts(task)
            node = self._session.get(path)
            if node is None:
                return
            start = _read(node) or Start(revision=0)
            kills = tuple(kill for kill in start.kills if kill.process != self._process)
            if start.process not in ("", self._process):
                if kills != start.kills:
                    self._write(path, node, replace(start, kills=kills))
            elif kills:
                self._write(path, node, replace(start, process="", kills=kills, began_ms=0))
            else:
                self._session.delete(path, version=node.version)

    def trial_s(self, task: str) -> float:
        """How long the task must run to be cleared: longer than the processes that it may have killed."""
        with self._lock:
            start = self._running.get(task)
        return min(
            TRIAL_S_MAX, max((kill.lived_s for kill in start.kills), default=0.0) if start else 0.0
        )

    def begin_trial(self, task: str) -> None:
        """From now on, the end of this process counts only against this task. Call it before the task starts."""
        with self._lock:
            self._trial = task
            for name in tuple(self._running):
                self._rewrite(name, counts=name == task)

    def end_trial(self, *, is_cleared: bool) -> None:
        """The end of this process counts against all its tasks again; a cleared task has no kills any more."""
        with self._lock:
            if is_cleared and self._trial in self._running:
                self._rewrite(self._trial, kills=())
            self._trial = ""
            for name in tuple(self._running):
                self._rewrite(name, counts=True)

    def _is_suspect(self, kills: tuple[Kill, ...]) -> bool:
        times = [kill.at_ms for kill in kills if kill.at_ms]
        known = recent(kills, max(times, default=0))
        return 1 < self._kills_max <= len(known) + 1

    def _rewrite(self, task: str, **changes: object) -> None:
        before = self._running[task]
        after: Start = replace(before, **changes)  # type: ignore[arg-type]  # fields of Start
        if after == before:
            return
        path = self._tree.starts(task)
        node = self._session.get(path)
        if node is not None and start_of(node, revision=before.revision).process == self._process:
            self._write(path, node, after)
        self._running[task] = after

    def _write(self, path: str, node: Node | None, start: Start) -> Node:
        if node is not None:
            return self._session.put(path, start.content(), version=node.version)
        written = self._session.create(path, start.content())
        if written is None:
            raise Retryable("MR-4007", f"another worker has just created {path}")
        return written


def kills_max_from(environment: Mapping[str, str] = os.environ) -> int:
    """``MILLRACE_KILLS_MAX``, 3 if unset; 0 is never. Fatal MR-4125."""
    text = environment.get("MILLRACE_KILLS_MAX", "") or str(KILLS_MAX)
    if not text.isascii() or not text.isdigit() or len(text) > 6:
        raise Fatal("MR-4125", f"MILLRACE_KILLS_MAX is {text[:40]!r}, wanted a whole number")
    return int(text)


def _quarantine(task: str, kills: tuple[Kill, ...]) -> Fatal:
    workers = ", ".join(f"{kill.worker} (after {kill.lived_s:.0f} s)" for kill in kills)
    span_s = (kills[-1].at_ms - kills[0].at_ms) / 1000
    what = f"the process of {task} ended under it {counted(len(kills), 'time')} in {span_s:.0f} s: {workers}"
    return Fatal("MR-4015", what, task=task)
