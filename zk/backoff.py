"""What a task does after its runner ended: a pure function from the error to the next step.

error              state      next
Retryable          degraded   try again after 0.5, 1, 2, … at most 30 s; from 0.5 again after a steady run
Fenced             degraded   the same, with a new lease; after 5 in a row blocked (MR-4006)
Fatal              blocked    an operator acts (`task resume`, a new document)
none, not asked    degraded   as Retryable, MR-4010
what says that     degraded   as Retryable, MR-4014: no defect, but memory, threads, descriptors or room that others
the machine lacks             have taken
anything else      blocked    MR-9001: a defect
"""

from dataclasses import dataclass

from millrace.codes import CATALOGUE
from millrace.errors import Fatal, Fenced, MillraceError, Retryable
from millrace.lack import lack_of
from schemas.status import TaskState


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast tasks are tried again and reported."""

    first_try_s: float = 0.5
    longest_try_s: float = 30.0
    steady_s: float = 10.0  # a run that moved rows this long counts as mended
    fenced_max: int = 5  # starts in a row that may be fenced while the lease is held
    report_s: float = 0.5  # two status writes a second for a task at most
    stop_s: float = 30.0  # after this a runner that does not end is told of


@dataclass(frozen=True, slots=True, kw_only=True)
class Tries:
    """What went before, in a row."""

    failed: int = 0
    fenced: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """Where the task goes from here. ``wait_s`` is only of use while degraded."""

    state: TaskState
    error: MillraceError
    tries: Tries
    wait_s: float = 0.0


def after(error: BaseException | None, tries: Tries, pace: Pace) -> NextStep:
    """The next step after a run that ended with ``error`` (``None``: it returned unasked)."""
    if isinstance(error, Fenced):
        counted = Tries(failed=tries.failed + 1, fenced=tries.fenced + 1)
        if counted.fenced >= pace.fenced_max:
            told = Fatal("MR-4006", f"fenced {counted.fenced} times in a row: {error.told}")
            return NextStep(state=TaskState.BLOCKED, error=told, tries=counted)
        return _degraded(error, counted, tries, pace)
    if (lacking := lack_of(error)) is not None:
        error = lacking
    if isinstance(error, Retryable):
        return _degraded(error, Tries(failed=tries.failed + 1), tries, pace)
    if isinstance(error, MillraceError):  # Fatal, and a branch that nobody knows
        return NextStep(state=TaskState.BLOCKED, error=error, tries=tries)
    if error is None:
        ended = Retryable("MR-4010", "the runner returned although nobody asked it to stop")
        return _degraded(ended, Tries(failed=tries.failed + 1), tries, pace)
    defect = Fatal("MR-9001", f"{type(error).__name__}: {str(error)[:300]}")
    return NextStep(state=TaskState.BLOCKED, error=defect, tries=tries)


def wait_s_after(failed: int, pace: Pace) -> float:
    """Doubling from ``first_try_s``, never above ``longest_try_s``. No jitter: tasks fail at different times."""
    doublings = min(failed, 30)  # 2**30 first tries are beyond every bound
    return float(min(pace.longest_try_s, pace.first_try_s * 2**doublings))


def _degraded(error: MillraceError, counted: Tries, before: Tries, pace: Pace) -> NextStep:
    wait_s = wait_s_after(before.failed, pace)
    return NextStep(state=TaskState.DEGRADED, error=error, tries=counted, wait_s=wait_s)


assert {"MR-4006", "MR-4010", "MR-9001"} <= CATALOGUE.keys()
