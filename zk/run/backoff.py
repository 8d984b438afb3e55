"""Decides what a task does after its runner ended. Pure: from the error to the next step.

error                state      next
Retryable            degraded   retry after 0.5, 1, 2, … at most 30 s; from 0.5 again after a steady run
Fenced               degraded   the same, with a new lease; blocked after 5 in a row (MR-4006)
Fatal                blocked    an operator acts (`task resume`, a new document)
refused login, after degraded   as Retryable, 12 times in a row: its password may be changing; then blocked
  a run that logged in
none, but not asked  degraded   as Retryable, MR-4010
  to stop
out of resources     degraded   as Retryable, MR-4014: memory, threads, descriptors or disk space ran out; no defect
anything else        blocked    MR-9001: a defect
"""

from dataclasses import dataclass, replace

from millrace.codes import CATALOGUE
from millrace.errors import Fatal, Fenced, MillraceError, Retryable, defect
from millrace.process.shortage import shortage_of
from millrace.schemas.status import TaskState
from millrace.zk.lease.starts import KILLS_MAX
from millrace.zk.tree.reports import PROGRESS_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often tasks are retried and reported."""

    first_retry_s: float = 0.5
    retry_s_max: float = 30.0
    steady_s: float = 10.0  # a run that moved rows for this long resets the count of failures
    fenced_max: int = 5  # a task is blocked after this many fenced runs in a row
    # at most two status writes a second for each task, when its state changes
    report_s: float = 0.5
    # between two writes of its progress: 200 tasks are 40 writes a second
    progress_s: float = PROGRESS_S
    stop_s: float = 30.0  # a runner that takes longer to stop is reported
    # a task under which so many processes ended in a short time is blocked; 0: never
    kills_max: int = KILLS_MAX


# a source or target refuses the login, or its secret can't be read; each retry resolves the secret again
REFUSED_LOGINS = frozenset({"MR-1002", "MR-5002", "MR-4106"})
REFUSED_MAX = 12  # with the pauses of ``Pace``, about four minutes for a change at both ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """Failed runs in a row, and how many of them were fenced or refused a login, in a row, at the end.

    ``has_run``: an earlier run under this document logged in, so its login was right then.
    """

    total: int = 0
    fenced: int = 0
    refused: int = 0
    has_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """The task's next state. ``wait_s``, the pause before the retry, only matters when it is degraded."""

    state: TaskState
    error: MillraceError
    failures: Failures
    wait_s: float = 0.0


def after(error: BaseException | None, failures: Failures, pace: Pace) -> NextStep:
    """The next step after a run that ended with ``error`` (``None``: it returned without being asked to stop)."""
    counted = Failures(total=failures.total + 1, has_run=failures.has_run)
    if isinstance(error, Fenced):
        counted = replace(counted, fenced=failures.fenced + 1)
        if counted.fenced >= pace.fenced_max:
            stale = Fatal(
                "MR-4006", f"fenced {counted.fenced} times in a row: {error.full_message}"
            )
            return NextStep(state=TaskState.BLOCKED, error=stale, failures=counted)
        return _degraded(error, counted, failures, pace)
    if (shortage := shortage_of(error)) is not None:
        error = shortage
    if isinstance(error, Retryable):
        return _degraded(error, counted, failures, pace)
    if isinstance(error, MillraceError):  # Fatal, or an unknown branch
        if error.code in REFUSED_LOGINS and failures.has_run and failures.refused < REFUSED_MAX:
            counted = replace(counted, refused=failures.refused + 1)
            return _degraded(error, counted, failures, pace)
        return NextStep(state=TaskState.BLOCKED, error=error, failures=failures)
    if error is None:
        ended = Retryable("MR-4010", "the runner returned without being asked to stop")
        return _degraded(ended, counted, failures, pace)
    return NextStep(state=TaskState.BLOCKED, error=defect(error), failures=failures)


def wait_s_after(failed: int, pace: Pace) -> float:
    """Doubling from ``first_retry_s``, never above ``retry_s_max``. No jitter: tasks fail at different times."""
    doublings = min(failed, 30)  # 2**30 first pauses exceed every limit
    return float(min(pace.retry_s_max, pace.first_retry_s * 2**doublings))


def _degraded(error: MillraceError, counted: Failures, before: Failures, pace: Pace) -> NextStep:
    wait_s = wait_s_after(before.total, pace)
    return NextStep(state=TaskState.DEGRADED, error=error, failures=counted, wait_s=wait_s)


assert {"MR-4006", "MR-4010", "MR-9001"} <= CATALOGUE.keys()
