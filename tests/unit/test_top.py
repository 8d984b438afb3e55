"""The live screen: which columns fit a terminal, and what of a reason is readable."""

import io

import pytest
from rich.console import Console

from millrace.cli.status.top import COLUMNS, columns_for, screen
from millrace.schemas.documents import TaskKind
from millrace.schemas.stages import Applied, Backlog, Rates
from millrace.schemas.status import TaskReport, TaskState
from millrace.zk.view import Cluster, TaskView
from tests.kit.control.reports import FULL_CAPTURE

CLUSTER = Cluster(
    tasks={},
    workers={"w1": TaskKind.CAPTURE},
    assigned={},
    owners={},
    saved_reports={},
    leader="s1",
)
APPLY = TaskReport(
    TaskState.RUNNING,
    why="applied up to offset 70; safe mode until 0-1-5; 3 statements not executed",
    seq=912_101,
    applied=Applied(lag_s=1.5, backlog=Backlog(500, 1237, 240_000), rates=Rates(4321.0, 100.0)),
)
BLOCKED = TaskReport(
    TaskState.BLOCKED, why="rows as a statement " * 9, code="MR-6501", fix="Skip it."
)


def _screen(*reports: TaskReport, width: int, name: str = "shop-apply-warehouse") -> list[str]:
    views = [
        TaskView(name=name, kind="", route="", report=report, assigned="w1", age_s=1)
        for report in reports
    ]
    out = io.StringIO()
    Console(file=out, width=width, highlight=False, markup=False).print(
        screen("default", CLUSTER, views, width=width)
    )
    return [line.rstrip() for line in out.getvalue().splitlines()]


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_screen_fits_and_cuts_nothing(width: int) -> None:
    """Columns are left out instead, and reasons are wrapped."""
    lines = _screen(FULL_CAPTURE, APPLY, BLOCKED, width=width)
    assert max(map(len, lines)) <= width
    assert "…" not in "".join(lines)
    words = " ".join(" ".join(lines).split())
    assert "rows as a statement rows as a statement" in words
    assert "BLOCKED" in words


def test_80_columns_show_state_lag_and_reason() -> None:
    """The seq and the member are left out first."""
    lines = _screen(FULL_CAPTURE, APPLY, width=80)
    assert lines[2].split() == ["TASK", "STATE", "LAG", "WAITS", "WHY"]
    assert "waits for changes" in lines[3]
    assert "1,237 rows" in lines[4]
    assert "3 statements not executed" in " ".join(" ".join(lines[4:]).split())


def test_wide_terminal_shows_every_column() -> None:
    """Without tasks there is nothing to make room for."""
    assert _screen(APPLY, width=140)[2].split() == list(COLUMNS)
    assert columns_for([], width=20) == list(COLUMNS)
