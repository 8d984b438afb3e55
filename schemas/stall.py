"""The dead man's rule: a task that should move rows and does not is STALLED, whatever its runner reports. Pure.

    the runner reports RUNNING, but …                                        it is stalled because
    no report reached ZooKeeper for ``REPORT_AGE_S_MAX``                      its worker is silent
    the runner has not reported to its worker for ``STALL_S``                 its thread hangs
    the member that it reads misses transactions and applies none             replication has stopped there
    rows wait in the relay log, and none was published for ``STALL_S``        Kafka or the converter is stuck
    records wait in the topic, and none was applied for ``STALL_S``           the target is stuck

All durations are measured with the clock of the worker, except the age of a report. A runner that works on one large
piece, such as an ALTER TABLE on the target, counts as stalled too: nothing else of the task moves meanwhile.
"""

from dataclasses import replace

from millrace.errors import Retryable
from schemas.status import TaskReport, TaskState

STALL_S = 30.0
REPORT_AGE_S_MAX = 15.0  # owners write a report every 5 s at least (``zk.tree.reports.REPEAT_S``)


def with_stall(report: TaskReport, *, age_s: float = 0.0) -> TaskReport:
    """The report; as STALLED with the reason if the rule says so. ``age_s``: since it was written."""
    reason = find_stall(report, age_s=age_s)
    if not reason:
        return report
    why = f"{reason}; it reported: {report.why}" if report.why else reason
    stalled = Retryable("MR-4016", why)
    return replace(report, state=TaskState.STALLED, why=why, code=stalled.code, fix=stalled.fix)


def find_stall(report: TaskReport, *, age_s: float = 0.0) -> str:
    """Why a task that reports RUNNING does not move; "" if it moves, has nothing to do, or is in another state."""
    if report.state is not TaskState.RUNNING:
        return ""
    if age_s > REPORT_AGE_S_MAX:
        return f"no report for {age_s:.0f} s: {report.worker or 'its worker'} is silent"
    if report.silent_s + age_s > STALL_S:
        return f"its thread in {report.worker or 'the worker'} has not reported for {report.silent_s + age_s:.0f} s"
    published, applied = report.published, report.applied
    if published is not None and published.waits_s > STALL_S:
        return f"no row was published for {published.waits_s:.0f} s, and rows wait in the relay log"
    if applied is not None and applied.waits_s > STALL_S:
        return f"nothing was applied for {applied.waits_s:.0f} s, and records wait in the topic"
    source = report.captured.source if report.captured is not None else None
    if source is not None and source.missing and (source.still_s or 0.0) > STALL_S:
        missing = "1 transaction" if source.missing == 1 else f"{source.missing} transactions"
        member = f"{source.host}:{source.port}"
        return (
            f"{member} misses {missing} of the set and has applied none for {source.still_s:.0f} s"
        )
    return ""
