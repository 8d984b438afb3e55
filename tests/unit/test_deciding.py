"""An operator learns before a decision whether there is something to decide."""

from types import SimpleNamespace
from typing import Any

import pytest

from millrace.cli.unsafe.decision import Situation
from millrace.errors import Fatal
from millrace.schemas.gtid import Flavour, parse_gtid_set
from millrace.schemas.progress import Progress
from millrace.schemas.status import TaskReport, TaskState

PROGRESS = Progress(parse_gtid_set(Flavour.MARIADB, "0-1-6"), None, 7)
PAUSED = TaskReport(TaskState.PAUSED)
BLOCKED = TaskReport(TaskState.BLOCKED, code="MR-6501")


def _situation(
    report: TaskReport | None, *, paused_by: str = "ann", progress: Progress | None = PROGRESS
) -> Situation:
    unused: Any = None
    task: Any = SimpleNamespace(name="shop-capture", output=SimpleNamespace(topic="shop"))
    entry: Any = SimpleNamespace(paused_by=paused_by)
    look: Any = SimpleNamespace(exists=True, unreadable=None, progress=progress)
    return Situation(
        entry=entry,
        task=task,
        source=unused,
        flavour=Flavour.MARIADB,
        look=look,
        last_report=report,
    )


@pytest.mark.parametrize("report", [PAUSED, None])
def test_task_that_is_only_paused_needs_no_decision(report: TaskReport | None) -> None:
    """Resuming it loses nothing."""
    note = _situation(report).needless
    assert "`millrace task resume shop-capture` loses nothing" in note
    assert "nothing to decide" in note


def test_blocked_task_and_lost_topic_need_a_decision() -> None:
    """Also if the blocked task was paused later."""
    assert _situation(BLOCKED, paused_by="").needless == ""
    assert _situation(BLOCKED).needless == ""
    assert _situation(PAUSED, progress=None).needless == ""


def test_new_task_has_nothing_to_decide() -> None:
    """Its topic has no record, and a resume begins it."""
    with pytest.raises(Fatal) as caught:
        _ = _situation(PAUSED, progress=None).progress
    assert caught.value.code == "MR-4183"
    fix = caught.value.name(task="shop-capture").fix
    assert "nothing to decide: `millrace task resume shop-capture` loses nothing" in fix
