"""The comparisons of a task, in a thread beside its stream: when one is due, source and target are compared.

What is due is decided by ``consumer.compare.schedule`` from what the target has, so it survives a restart and a move of
the task. A comparison that fails is repeated after a growing pause and shown as a warning (MR-5135). The task's rows do
not wait for it, and no error of it ends the task.

While an operator's `millrace compare` of the same task runs, or a load copies tables, nothing is compared.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from millrace.consumer.compare.chunk import ChunkResult
from millrace.consumer.compare.schedule import LOOK_S, Last, next_step, retry_s
from millrace.errors import MillraceError, Retryable, defect
from millrace.log import get_logger
from millrace.schemas.documents import CompareRules, StructureRule
from millrace.schemas.stages import Compared

END_S = 10.0  # a thread that waits for a connection longer than this ends later; it only reads

_log = get_logger("compare")


@dataclass(frozen=True, slots=True)
class Comparing:
    """The comparisons beside a task.

    ``trouble``: the error of one that is repeated. ``warning``: the last one has left differences.
    """

    stage: Compared | None = None
    trouble: Retryable | None = None
    warning: str = ""


class Comparer(Protocol):
    """Compares the sets of one task. The calls come from one thread."""

    def last(self) -> Last:
        """The task's comparisons as the target has them."""

    def compare(self, *, resumes: bool, seen: Callable[[ChunkResult], None]) -> None:
        """Compare all tables, or continue the last comparison; ``seen`` gets each chunk. The target has the result.

        Retryable MR-5136 while another comparison of the task runs.
        """

    def end(self) -> None:
        """Break the call under way and each later one, from any thread."""


@dataclass(eq=False)
class Comparisons(threading.Thread):
    """The thread of one run."""

    comparer: Comparer
    task: str
    rules: CompareRules
    _stage: Compared = field(init=False)
    _trouble: Retryable | None = None
    _failures: int = 0
    _ending: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        super().__init__(name="comparisons", daemon=True)
        self._stage = Compared(every_h=self.rules.every_h, repair=self.rules.repair)

    @property
    def comparing(self) -> Comparing:
        """For the status."""
        stage = self._stage
        warning = _warning(self.task, stage, fails=self.rules.structure is StructureRule.FAIL)
        return Comparing(stage, self._trouble, warning)

    def run(self) -> None:
        """Compare whenever it is due, until the end of the run."""
        pause_s = 0.0
        while not self._ending.wait(pause_s):
            try:
                pause_s = self._step()
            except MillraceError as exc:
                pause_s = self._note(exc)
            except Exception as exc:  # noqa: BLE001 - a defect must not end the comparisons unseen
                pause_s = self._note(defect(exc), exc)

    def end(self) -> None:
        """End the comparison under way, and the thread."""
        self._ending.set()
        self.comparer.end()
        if self.is_alive():
            self.join(END_S)

    def _step(self) -> float:
        """Compare if it is due. The seconds until the next look."""
        last = self.comparer.last()
        self._stage = replace(self._stage, result=last.result)
        step = next_step(last, self.rules.every_h)
        if step.after_s:
            self._succeed()
            return min(step.after_s, LOOK_S)
        _log.info("a comparison begins", task=self.task, resumes=step.resumes)
        self._stage = replace(self._stage, running_rows=0)
        try:
            self.comparer.compare(resumes=step.resumes, seen=self._saw)
        finally:
            self._stage = replace(self._stage, running_rows=None)
        self._succeed()
        return 0.0

    def _saw(self, chunk: ChunkResult) -> None:
        self._succeed()
        rows = (self._stage.running_rows or 0) + chunk.part.rows
        self._stage = replace(self._stage, running_rows=rows)

    def _succeed(self) -> None:
        self._failures, self._trouble = 0, None

    def _note(self, exc: MillraceError, defect: Exception | None = None) -> float:
        """Note an error; the seconds until the comparison is repeated. ``defect``: what was raised."""
        if self._ending.is_set():
            return 0.0
        if exc.code == "MR-5136":
            return LOOK_S
        self._failures += 1
        pause_s = retry_s(self._failures)
        self._trouble = Retryable(
            "MR-5135", f"{exc.code} {exc.message}", fix=exc.fix, **dict(exc.context)
        )
        trouble = {"task": self.task, "error": self._trouble, "after_s": pause_s}
        _log.warning("a comparison is repeated", **trouble, exc_info=defect)
        return pause_s


def _warning(task: str, stage: Compared, *, fails: bool) -> str:
    """A note for the operator while the last comparison has left differences; else "".

    ``fails``: differences of structure count.
    """
    if stage.result is None:
        return ""
    if not stage.result.left:
        is_noted = fails and stage.result.counts.structure
        return f"{stage.result.text}: `millrace compare {task}` lists them." if is_noted else ""
    return (
        f"{stage.result.text}: `millrace compare {task}` lists them, `millrace compare {task} --repair` repairs rows."
        " A table that only one side has is never repaired: the list says how to load or drop it."
    )
