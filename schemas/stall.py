"""A task that should move rows and does not is STALLED, whatever its runner reports. Pure.

    the runner reports RUNNING, but …                                        it is stalled because
    no report reached ZooKeeper for ``REPORT_AGE_S_MAX``                      its worker is silent
    the runner has not reported to its worker for ``STALL_S``                 its thread hangs
    the member that it reads misses transactions and applies none             replication has stopped there
    rows wait in the relay log, and none was published for ``STALL_S``        Kafka or the converter is stuck
    records wait in the topic, and none was applied for ``STALL_S``           the target is stuck
    records wait in the set topic, and none was delivered for ``STALL_S``     the brokers or an executor are stuck

All durations are measured with the clock of the worker, except the age of a report. A runner that works on one large
piece, such as an ALTER TABLE on the target, counts as stalled too: nothing else of the task moves meanwhile.
"""

from dataclasses import replace

from millrace.errors import Retryable
from millrace.schemas.status import TaskReport, TaskState
from millrace.wording import counted

STALL_S = 30.0
_AGAIN = "`millrace task pause TASK` and `millrace task resume TASK` start it again."
_PROCESSES = (
    "SHOW PROCESSLIST on the target shows the lock or the long statement that holds the task up."
)
_FIRST_TURN = " If it shows none, wait: before its first turn, a new installation compiles for a minute or two."
_COMPILES = "compiles kernels, once for each installation and version"
_COMPILE_FIX = (
    "Nothing to do: this takes a minute or two, and the task then continues. A worker that starts compiles them in the"
    " background; `python -m millrace.producer.task.warm_up` does so before."
)
_COMPILE_S = 2.0  # a task that has waited for longer may wait for the compiler of its process
REPORT_AGE_S_MAX = 15.0  # owners write a report every 5 s at least (``zk.tree.reports.REPEAT_S``)


def with_compiler(report: TaskReport) -> TaskReport:
    """The report of a task in a process that compiles kernels: a task that starts or waits says so."""
    waits_s = [report.silent_s, *(s.waits_s for s in (report.published, report.delivered) if s)]
    is_waiting = report.state is TaskState.RUNNING and max(waits_s) > _COMPILE_S
    if not is_waiting and report.state is not TaskState.ASSIGNED:
        return report
    return replace(report, why=f"{_COMPILES}; {report.why}")


def with_stall(report: TaskReport, *, age_s: float = 0.0) -> TaskReport:
    """The report; as STALLED with the reason if the rule says so. ``age_s``: since it was written."""
    reason, fix = _find(report, age_s)
    if not reason:
        return report
    why = f"{reason}; it reported: {report.why}" if report.why else reason
    if _COMPILES in report.why and age_s <= REPORT_AGE_S_MAX:
        fix = _COMPILE_FIX
    stalled = Retryable("MR-4016", why, fix=fix)
    return replace(report, state=TaskState.STALLED, why=why, code=stalled.code, fix=stalled.fix)


def _find(report: TaskReport, age_s: float) -> tuple[str, str]:
    """Why it does not move, and the fix; "" if it moves, has nothing to do, or is in another state than RUNNING."""
    if report.state is not TaskState.RUNNING:
        return "", ""
    worker = report.worker or "its worker"
    if age_s > REPORT_AGE_S_MAX:
        return (
            f"no report for {age_s:.0f} s: {worker} is silent",
            f"Read the log of {worker}. {_AGAIN}",
        )
    if report.silent_s + age_s > STALL_S:
        silent_s = report.silent_s + age_s
        return (
            f"its thread in {worker} has not reported for {silent_s:.0f} s",
            f"Read the log of {worker}. {_AGAIN}",
        )
    published, applied = report.published, report.applied
    if published is not None and published.waits_s > STALL_S:
        return (
            f"no row was published for {published.waits_s:.0f} s, and rows wait in the relay log",
            f"`millrace check TASK` asks the brokers and the registry. {_AGAIN}",
        )
    if applied is not None and applied.waits_s > STALL_S and applied.executes:
        return (
            f"nothing was applied for {applied.waits_s:.0f} s: the target executes a statement",
            "Nothing to do: the statement is waited for, however long it takes. `millrace ddl end TASK"
            f" {report.seq + 1}` ends it.",
        )
    if applied is not None and applied.waits_s > STALL_S:
        return (
            f"nothing was applied for {applied.waits_s:.0f} s, and records wait in the topic",
            _PROCESSES if applied.counts.turns else _PROCESSES + _FIRST_TURN,
        )
    delivered = report.delivered
    if delivered is not None and delivered.waits_s > STALL_S:
        return (
            f"nothing was delivered for {delivered.waits_s:.0f} s, and records wait in the set topic",
            f"`millrace check TASK` asks the brokers. {_AGAIN}",
        )
    source = report.captured.source if report.captured is not None else None
    if source is not None and source.missing and (source.still_s or 0.0) > STALL_S:
        missing = counted(source.missing, "transaction")
        member = f"{source.host}:{source.port}"
        return (
            f"{member} misses {missing} of the set and has applied none for {source.still_s:.0f} s",
            f"Start replication on {member}. Or let another member be read: `millrace replica list SET` shows why each"
            " is not, such as a drain, which `millrace replica undrain SET HOST:PORT` ends.",
        )
    return "", ""
