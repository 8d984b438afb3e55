"""The report of a running apply task, from its mark, its figures and its pace. Pure.

``figures`` count the turns that have ended since the start of the run. A turn takes up to half a minute; the pace is
never older than the last look.
"""

from collections.abc import Sequence
from dataclasses import replace

from consumer.apply.batch import Figures
from consumer.target.progress import DATABASE, Mark
from millrace.errors import Retryable
from schemas.stages.applied import Applied, AppliedCounts
from schemas.status import TaskReport, TaskState

IN_ORDER_NAMED = 5  # in a status


def running_report(
    mark: Mark,
    figures: Figures,
    pace: Applied,
    *,
    warning: Retryable | None = None,
    silence: Retryable | None = None,
    safe_mode: str = "",
    consistency: str = "",
) -> TaskReport:
    """RUNNING, or DEGRADED with the reason while the broker is silent. ``warning``: does not stop the task."""
    shown = silence or warning
    counts = figures.counts
    filtered = filter_warning(figures)
    return TaskReport(
        TaskState.DEGRADED if silence else TaskState.RUNNING,
        why=shown.message if shown else why_running(mark.next_offset, figures, safe_mode),
        code=shown.code if shown else "",
        fix=shown.fix if shown else "",
        gtid_set=mark.gtid_set,
        seq=max(mark.seq, 0),
        warnings=(filtered,) if filtered else (),
        applied=replace(
            pace,
            counts=AppliedCounts(
                rows=counts.rows,
                statements=counts.statements,
                ddl=counts.ddl,
                left_out=counts.left_out,
                turns=figures.turns,
            ),
            in_order=in_order_text(figures.in_order),
            consistency=consistency,
            safe_mode=safe_mode,
        ),
    )


def filter_warning(figures: Figures) -> str:
    """A note for the operator while the task leaves out every table that the topic has rows of; else ""."""
    if not figures.only_left_out:
        return ""
    return (
        "`include` and `exclude` leave out every table that the topic has rows of so far, such as"
        f" {figures.only_left_out}"
    )


def in_order_text(found: Sequence[tuple[str, str]]) -> str:
    """At most ``IN_ORDER_NAMED`` tables, such as "shop.log: no usable key"; "" if all are applied in parallel."""
    more = len(found) - IN_ORDER_NAMED
    named = [f"{table}: {why}" for table, why in found[:IN_ORDER_NAMED]]
    return ", ".join([*named, f"{more} more"] if more > 0 else named)


def why_running(offset: int, figures: Figures, safe_mode: str = "") -> str:
    """The status text of a running task, with safe mode and the place of statements that it did not execute."""
    why = "waiting for the first record" if offset < 0 else f"applied up to offset {offset}"
    if safe_mode:
        why += f"; safe mode {safe_mode}"
    if left_out := figures.counts.left_out:
        statements = "1 statement" if left_out == 1 else f"{left_out} statements"
        where = f"SELECT * FROM {DATABASE}.left_out on the target"
        why += f"; {statements} about views, routines, excluded tables or the like not executed: {where}"
    return why
