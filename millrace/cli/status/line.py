"""One line for a task, in the manner of gh-ost's: its state, the figures of its stages, and why it waits. Pure.

    shop-capture RUNNING   db2:3306 lag 0.2 s | relay +0 B | seq 912,338 (0.03 s) | waits for changes

A figure that is unknown is left out. If the line is wider than the terminal, figures are left out in the order of
``_Part.rank``, then the reason is cut. A task that needs attention shows its reason first, and whole below the line.
"""

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from millrace.cli.texts import duration, shortened, size
from millrace.schemas.stages import Applied, Compared, Delivered
from millrace.schemas.status import TaskReport, TaskState
from millrace.wording import counted
from millrace.zk.view import TaskView

SEPARATOR = " | "
NAME_CHARACTERS_MAX = 28
WHY_CHARACTERS_MIN = 12  # a shorter piece of a reason is no reason
TROUBLED = (TaskState.STALLED, TaskState.DEGRADED, TaskState.BLOCKED)
STATE_WIDTH = max(len(state.value) for state in TaskState)


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of the line. The one with the highest rank is left out first."""

    text: str
    rank: int


def lines_of(view: TaskView, *, name_width: int, width: int) -> list[str]:
    """The task's line, and below it the whole reason with its fix if the task needs attention."""
    report = view.report
    state = report.state.value.upper()
    head = f"{shortened(view.name, name_width):{name_width}} {state:{STATE_WIDTH}} "
    is_troubled = report.state in TROUBLED
    why = "" if is_troubled else report.why
    lines = [head + _fitted(parts_of(report), why, width - len(head))]
    if is_troubled:
        lines += notes_of(report, width=width)
    else:
        lines += _wrapped("warning", " ".join(report.warnings), width)
    return lines


def notes_of(report: TaskReport, *, width: int) -> list[str]:
    """The reason with its code, the next try, the fix, and the warnings, wrapped."""
    retry = f" (retries after {report.next_try_s:.1f} s)" if report.next_try_s else ""
    code = f"{report.code} " if report.code else ""
    return [
        *_wrapped("why", f"{code}{report.why}{retry}" if report.why or code else "", width),
        *_wrapped("fix", report.fix, width),
        *_wrapped("warning", " ".join(report.warnings), width),
    ]


def parts_of(report: TaskReport) -> list[_Part]:
    """The known figures of the stages, in the order of the way of a change."""
    return [
        *_captured_parts(report),
        *_loaded_parts(report),
        *_read_parts(report, report.applied or report.delivered),
    ]


def _captured_parts(report: TaskReport) -> Iterator[_Part]:
    if report.captured is not None and report.state in (TaskState.RUNNING, *TROUBLED):
        source = report.captured.source
        lag = "" if source.lag_s is None else f" lag {duration(source.lag_s, digits=1)}"
        yield _Part(f"{source.host}:{source.port}{lag}", 0)
    if report.relayed is not None and report.relayed.behind_bytes is not None:
        yield _Part(f"relay +{size(report.relayed.behind_bytes)}", 3)
    if report.published is not None:
        lag_s = report.published.lag_s
        late = "" if lag_s is None else f" ({lag_s:.2f} s)"
        yield _Part(f"seq {report.seq:,}{late}", 1)
        if rate := report.published.rates.over_10_s:
            yield _Part(f"{rate:,.0f} rows/s", 4)
    if report.snapshot is not None:
        stage = report.snapshot
        tables = "" if stage.tables is None else f" table {(stage.done or 0) + 1} of {stage.tables}"
        yield _Part(f"snapshot{tables}", 2)


def _loaded_parts(report: TaskReport) -> Iterator[_Part]:
    stage = report.loaded
    if stage is None or not stage.count:
        return
    share = "" if not stage.expected else f" of about {stage.expected:,}"
    if report.applied is not None:  # whose figures come next
        eta = f", ETA {duration(stage.eta_s)}" if stage.eta_s else ""
        yield _Part(f"loads {stage.rows:,} rows{share}{eta}", 1)
        return
    yield _Part(f"{stage.rows:,} rows{share}, {size(stage.bytes)}", 0)
    if stage.rates.over_10_s is not None:
        yield _Part(f"{stage.rates.over_10_s:,.0f} rows/s", 2)
    if stage.eta_s:
        yield _Part(f"ETA {duration(stage.eta_s)}", 1)


def _read_parts(report: TaskReport, stage: Applied | Delivered | None) -> Iterator[_Part]:
    """Those of a task that reads a set topic."""
    if stage is None:
        return
    if stage.lag_s is not None:
        yield _Part(f"lag {duration(stage.lag_s, digits=1)}", 0)
    if (backlog := backlog_text(stage)) is not None:
        yield _Part(f"backlog {backlog}", 1)
    if stage.rates.over_10_s is not None:
        yield _Part(f"{stage.rates.over_10_s:,.0f} rows/s", 3)
    if stage.eta_s is not None and stage.backlog.records:
        yield _Part(f"ETA {duration(stage.eta_s)}", 2)
    yield _Part(f"seq {report.seq:,}", 4)
    if report.compared is not None and (text := compared_text(report.compared)):
        yield _Part(text, 5)


def compared_text(stage: Compared) -> str:
    """The comparison under way, else the last result; "" before the first one."""
    if stage.running_rows is not None:
        return f"compares, {counted(stage.running_rows, 'row')}"
    return stage.result.text if stage.result else ""


def backlog_text(stage: Applied | Delivered) -> str | None:
    """Rows and bytes that wait; records while the number of rows is unknown; None: unknown."""
    backlog = stage.backlog
    if backlog.records == 0 or (backlog.records is None and backlog.rows == 0):
        return "0"
    if backlog.rows is not None:
        amount = counted(backlog.rows, "row")
    elif backlog.records is not None:
        amount = counted(backlog.records, "record")
    else:
        return None
    return amount if backlog.bytes is None else f"{amount}, {size(backlog.bytes)}"


def _fitted(parts: list[_Part], why: str, width: int) -> str:
    kept = list(parts)
    while True:
        text = SEPARATOR.join(part.text for part in kept)
        room = width - len(text) - (len(SEPARATOR) if text else 0)
        fits = room >= min(len(why), WHY_CHARACTERS_MIN) if why else len(text) <= width
        if fits or not kept:
            break
        kept.remove(max(kept, key=lambda part: part.rank))
    pieces = [text] if text else []
    if why and room > 0:
        pieces.append(shortened(why, room))
    return SEPARATOR.join(pieces).rstrip()


def _wrapped(label: str, text: str, width: int) -> list[str]:
    if not text:
        return []
    indent = " " * (len(label) + 4)
    return textwrap.wrap(
        text,
        width=max(width, len(indent) + 20),
        initial_indent=f"  {label}  ",
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
