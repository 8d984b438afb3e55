"""One line for a task: what it shows, and how it fits a terminal."""

from dataclasses import replace

import pytest

from millrace.cli.status.detail import detail_of
from millrace.cli.status.line import lines_of
from millrace.cli.texts import duration, size
from millrace.schemas.stages import (
    Applied,
    Backlog,
    Compared,
    ComparedCounts,
    ComparedResult,
    Loaded,
    LoadedTable,
    Rates,
)
from millrace.schemas.status import TaskReport, TaskState
from millrace.zk.view import TaskView
from tests.kit.control.reports import FULL_CAPTURE

QUIET = replace(FULL_CAPTURE, warnings=())
APPLY = TaskReport(
    TaskState.RUNNING,
    why="applied up to offset 70",
    seq=912_101,
    applied=Applied(
        lag_s=1.5, backlog=Backlog(500, 237, 240_000), rates=Rates(4321.0, 100.0), eta_s=3723.4
    ),
)

LOAD = TaskReport(
    TaskState.RUNNING,
    why="loads: 1 of 3 tables copied",
    loaded=Loaded(
        source="db2:3306",
        rows=1_200_000,
        bytes=300 << 20,
        expected=3_000_000,
        rates=Rates(45_000.0, 40_000.0),
        eta_s=40.0,
        done=1,
        count=3,
        tables=(
            LoadedTable(name="shop.log", state="copies", rows=9, expected=20, snapshot="no key"),
        ),
    ),
)


def _lines(report: TaskReport, width: int, name: str = "shop-capture") -> list[str]:
    view = TaskView(name=name, kind="", route="", report=report, assigned="w", age_s=0)
    return lines_of(view, name_width=len(name), width=width)


def test_running_task_shows_its_stages_in_one_line() -> None:
    """In the order of the way of a change, the reason last."""
    assert _lines(QUIET, 160) == [
        "shop-capture RUNNING  db2:3306 lag 0.2 s | relay +0 B | seq 912,338 (0.03 s)"
        " | 120 rows/s | snapshot table 4 of 12 | waits for changes"
    ]
    assert _lines(APPLY, 160, "to-wh") == [
        "to-wh RUNNING  lag 1.5 s | backlog 237 rows, 234.4 KiB | 4,321 rows/s | ETA 1:02:03"
        " | seq 912,101 | applied up to offset 70"
    ]
    assert _lines(LOAD, 160, "to-wh") == [
        "to-wh RUNNING  1,200,000 rows of about 3,000,000, 300.0 MiB | 45,000 rows/s | ETA 40 s"
        " | loads: 1 of 3 tables copied"
    ]
    later = replace(APPLY, loaded=LOAD.loaded)
    assert _lines(later, 180, "to-wh") == [
        "to-wh RUNNING  loads 1,200,000 rows of about 3,000,000, ETA 40 s | lag 1.5 s"
        " | backlog 237 rows, 234.4 KiB | 4,321 rows/s | ETA 1:02:03 | seq 912,101 | applied up to offset 70"
    ]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120])
@pytest.mark.parametrize("report", [QUIET, APPLY, replace(QUIET, why="w" * 500)])
def test_line_fits_the_terminal(report: TaskReport, width: int) -> None:
    """Figures are left out first, then the reason is cut."""
    (line,) = _lines(report, width)
    assert len(line) <= width


def test_terminal_of_80_columns_keeps_lag_and_reason() -> None:
    """The relay and the rate are left out first."""
    (line,) = _lines(QUIET, 80)
    assert "db2:3306 lag 0.2 s | seq 912,338 (0.03 s) | waits for " in line


@pytest.mark.parametrize("state", [TaskState.STALLED, TaskState.DEGRADED, TaskState.BLOCKED])
def test_task_that_needs_attention_shows_reason_and_fix_whole(state: TaskState) -> None:
    """Wrapped below its line, with the code and the next try."""
    why = "the source is away, " * 12
    report = replace(QUIET, state=state, why=why, code="MR-1001", fix="Start it.", next_try_s=4.0)
    lines = _lines(report, 80)
    assert max(map(len, lines)) <= 80
    text = " ".join(line.strip() for line in lines[1:])
    assert text.startswith(f"why  MR-1001 {why}"[:60])
    assert text.endswith("(retries after 4.0 s) fix  Start it.")


def test_warning_is_below_the_line() -> None:
    """It does not stop the task."""
    _, below = _lines(FULL_CAPTURE, 80)
    assert below == "  warning  the topic has one replica"


def test_unknown_figures_are_left_out() -> None:
    """A task that has no report has only its reason."""
    pending = TaskReport(TaskState.PENDING, "no capture worker is running")
    assert _lines(pending, 80) == ["shop-capture PENDING  no capture worker is running"]


def test_detail_names_every_stage() -> None:
    """Members, switches, relay, topic, lag and pace, each in its line."""
    view = TaskView(
        name="t",
        kind="capture",
        route="set s → topic t",
        report=FULL_CAPTURE,
        assigned="w",
        age_s=1,
    )
    lines = detail_of(view, width=80)
    labels = [line.split()[0] for line in lines]
    wanted = "t why warning route source member switch relay disk to topic lag pace Kafka snapshot"
    wanted += " table reads left"
    assert labels == wanted.split()
    assert "  lag       0.030 s from the source's commit to a reader of the topic" in lines


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0 s"), (59.4, "59 s"), (61, "0:01:01"), (3723.4, "1:02:03"), (200_000, "2 d 7 h")],
)
def test_durations_are_short(seconds: float, text: str) -> None:
    """Clock form from a minute on, days from two days on."""
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB")]
)
def test_sizes_have_a_unit(count: int, text: str) -> None:
    """The largest that is not below one."""
    assert size(count) == text


def test_detail_of_a_load_shows_tables_and_pause() -> None:
    """With rows, pace and why a table is read in one snapshot."""
    assert LOAD.loaded is not None
    paused = replace(LOAD, loaded=replace(LOAD.loaded, paused="the replica has a lag of 40 s"))
    view = TaskView(name="t", kind="apply", route="", report=paused, assigned="w", age_s=0)
    lines = "\n".join(detail_of(view, width=120))
    assert "load      1 of 3 tables copied, read from db2:3306" in lines
    assert "pauses    the replica has a lag of 40 s" in lines
    assert "shop.log copies, 9 rows of about 20, in one snapshot: no key" in lines


def test_last_comparison_is_shown_until_the_next_one_runs() -> None:
    """In the line as far as there is room, in the detail with the tables that differ."""
    result = ComparedResult(
        began_ms=1_795_662_000_000,
        ended_ms=1_795_662_600_000,
        counts=ComparedCounts(tables=12, rows=9_000_000, differences=3),
        by_table=(("shop.orders", 2), ("shop.log", 1)),
    )
    compared = replace(APPLY, compared=Compared(every_h=24, repair=True, result=result))
    text = "compared 2026-11-26 03:10: 12 tables, 9,000,000 rows, 3 differences (shop.orders 2, shop.log 1)"
    (line,) = _lines(compared, 250, "to-wh")
    assert f" | seq 912,101 | {text} | applied up to offset 70" in line
    view = TaskView(name="t", kind="apply", route="", report=compared, assigned="w", age_s=0)
    assert detail_of(view, width=120)[-4:] == [
        "  compares  24 h after the last comparison, and repairs",
        f"  {text}, in 0:10:00",
        "  differs   shop.orders: 2 rows",
        "  differs   shop.log: 1 row",
    ]
    assert compared.compared is not None
    runs = replace(compared, compared=replace(compared.compared, running_rows=700))
    (line,) = _lines(runs, 250, "to-wh")
    assert " | compares, 700 rows | applied up to offset 70" in line
