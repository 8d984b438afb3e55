"""The report of a running apply task, from its mark, its figures and its pace. Pure.

``figures`` count the turns that have ended since the start of the run. A turn takes up to half a minute; the pace is
never older than the last look.
"""

from collections.abc import Sequence
from dataclasses import replace

from millrace.consumer.backfill.steps import Loads
from millrace.consumer.compare.task_comparison import Comparing
from millrace.consumer.target.progress import DATABASE, Mark
from millrace.consumer.target.running_statement import RunningStatement
from millrace.consumer.turn.driver import Figures
from millrace.errors import Retryable
from millrace.schemas.stages import Applied, AppliedCounts, Incidents, Loaded
from millrace.schemas.status import TaskReport, TaskState
from millrace.wording import counted

NONE = Incidents()
TABLES_NAMED = 5  # tables in a status


NO_LOADS = Loads()
NO_COMPARISON = Comparing()


def running_report(
    mark: Mark,
    figures: Figures,
    pace: Applied,
    *,
    warning: Retryable | None = None,
    silence: Retryable | None = None,
    safe_mode: str = "",
    consistency: str = "",
    incidents: Incidents = NONE,
    statement: str = "",
    loads: Loads = NO_LOADS,
    comparing: Comparing = NO_COMPARISON,
) -> TaskReport:
    """RUNNING, or DEGRADED with the reason while the broker is silent. ``warning``: does not stop the task."""
    silence = silence or loads.trouble
    shown = silence or warning or comparing.trouble
    counts = figures.counts
    filtered = filter_warning(figures)
    return TaskReport(
        TaskState.DEGRADED if silence else TaskState.RUNNING,
        why=shown.message
        if shown
        else why_running(mark.next_offset, figures, safe_mode, loads.why, statement),
        code=shown.code if shown else "",
        fix=shown.fix if shown else "",
        gtid_set=mark.gtid_set,
        seq=max(mark.seq, 0),
        warnings=tuple(filter(None, (filtered, kept_warning(figures), comparing.warning))),
        compared=comparing.stage,
        applied=replace(
            pace,
            counts=AppliedCounts(
                rows=counts.rows,
                statements=counts.statements,
                ddl=counts.ddl,
                left_out=counts.left_out,
                turns=figures.turns,
                incidents=incidents,
            ),
            in_order=in_order_text(figures.notes.in_order),
            consistency=consistency,
            safe_mode=safe_mode,
            executes=statement,
            kept_rows=figures.notes.kept,
        ),
        loaded=loads.loaded,
    )


def loading_report(loaded: Loaded) -> TaskReport:
    """RUNNING while a load copies; with MR-5097 as a warning while it pauses."""
    if not loaded.count:
        why = "reads the tables of the source"
    else:
        why = f"loads: {loaded.done} of {loaded.count} tables copied"
    if waits := [f"{table.name} ({table.waits})" for table in loaded.tables if table.waits]:
        why += f"; loaded again after this load: {', '.join(waits[:TABLES_NAMED])}"
    if not loaded.paused:
        return TaskReport(TaskState.RUNNING, why=why, loaded=loaded)
    pause = Retryable("MR-5097", f"{why}; pauses: {loaded.paused}")
    return TaskReport(
        TaskState.RUNNING, why=pause.message, code=pause.code, fix=pause.fix, loaded=loaded
    )


def waiting_report(running: RunningStatement | None) -> TaskReport:
    """RUNNING while a statement that an earlier run has begun runs on."""
    what = running.shown() if running is not None else "the target does not answer"
    why = f"waits for a statement that an earlier run has begun: {what}"
    return TaskReport(TaskState.RUNNING, why=why)


def filter_warning(figures: Figures) -> str:
    """A note for the operator while the task leaves out every table that the topic has rows of; else ""."""
    if not figures.notes.only_left_out:
        return ""
    return (
        "`include` and `exclude` leave out every table that the topic has rows of so far, such as"
        f" {figures.notes.only_left_out}"
    )


def kept_warning(figures: Figures) -> str:
    """A note for the operator while rows are kept aside; else ""."""
    if not figures.notes.kept:
        return ""
    rows = counted(figures.notes.kept, "row")
    return f"{rows} kept aside: `millrace conflict list TASK` shows them"


def in_order_text(found: Sequence[tuple[str, str]]) -> str:
    """At most ``TABLES_NAMED`` tables, such as "shop.log: no usable key"; "" if all are applied in parallel."""
    more = len(found) - TABLES_NAMED
    named = [f"{table}: {why}" for table, why in found[:TABLES_NAMED]]
    return ", ".join([*named, f"{more} more"] if more > 0 else named)


def why_running(
    offset: int, figures: Figures, safe_mode: str = "", loads: str = "", statement: str = ""
) -> str:
    """The status text of a running task: the statement under way, safe mode, loads, statements not executed."""
    why = "waiting for the first record" if offset < 0 else f"applied up to offset {offset}"
    if statement:
        why += f"; {statement}"
    if safe_mode:
        why += f"; safe mode {safe_mode}"
    if loads:
        why += f"; {loads}"
    if left_out := figures.counts.left_out:
        why += f"; {left_out} DDL left out, see {DATABASE}.left_out"
    return why
