"""The metrics of a scheduler. Apart: a table of names.

Those about tasks and workers are of the last round in which it led, and 0 otherwise."""

from collections import Counter
from collections.abc import Iterable

from millrace.metrics import counter, gauge
from millrace.schemas.documents import TaskKind

LEADING = gauge("millrace_scheduler_leading")
ROUNDS = counter("millrace_scheduler_rounds_total")
ASSIGNMENTS = counter("millrace_scheduler_assignments_total")
TASKS = gauge("millrace_scheduler_tasks")
PENDING = gauge("millrace_scheduler_pending_tasks")
WORKERS = gauge("millrace_scheduler_workers")


def note_round(result: str, *, is_leading: bool) -> None:
    """A round ended: done, delayed or fenced."""
    ROUNDS.labels(result=result).inc()
    LEADING.set(is_leading)
    if not is_leading:
        note_tasks(0, placed=0)
        note_workers(())


def note_tasks(count: int, *, placed: int) -> None:
    """The leader may place ``count`` tasks; ``placed`` of them have a live worker."""
    TASKS.set(count)
    PENDING.set(count - placed)


def note_workers(kinds: Iterable[TaskKind]) -> None:
    """The leader sees workers of these kinds."""
    found = Counter(kinds)
    for kind in (TaskKind.CAPTURE, TaskKind.APPLY):
        WORKERS.labels(kind=kind.value).set(found[kind])
