"""`docs/status.md` lists exactly the keys of `millrace status --json`."""

import re
from collections.abc import Iterator

from millrace.cli.status.json_form import task_as_plain
from millrace.schemas.documents import TaskKind
from millrace.schemas.stages import Applied, Compared, Delivered, Loaded
from millrace.schemas.status import TaskReport, TaskState
from millrace.zk.view import TaskView
from tests.kit.control.reports import FULL_CAPTURE
from tests.kit.paths import ROOT

OWN_PAGE = ("relay", "switches")  # described as a whole
KEY = re.compile(r"`([a-z_0-9.]+)(?:\[\])?`")


def _keys(plain: object, before: str = "") -> Iterator[str]:
    """The path of each value."""
    if not isinstance(plain, dict) or before in OWN_PAGE:
        yield before
        return
    for key, value in plain.items():
        yield from _keys(value, f"{before}.{key}" if before else key)


def test_status_page_lists_the_keys_of_the_json() -> None:
    """Scripts rely on them, for each kind of task."""
    reports = {
        TaskKind.CAPTURE.value: FULL_CAPTURE,
        TaskKind.APPLY.value: TaskReport(
            TaskState.RUNNING, applied=Applied(), loaded=Loaded(), compared=Compared(every_h=24)
        ),
        TaskKind.PUBLISH.value: TaskReport(TaskState.RUNNING, delivered=Delivered()),
        "relay": FULL_CAPTURE,
    }
    views = [
        TaskView(name="t", kind=kind, route="", report=report, assigned="w", age_s=0)
        for kind, report in reports.items()
    ]
    shown = {key for view in views for key in _keys(task_as_plain(view))}
    tables = (ROOT / "docs/status.md").read_text().partition("## The JSON")[2]
    rows = [line for line in tables.splitlines() if line.startswith("| `")]
    listed = {key for row in rows for key in KEY.findall(row.split("|")[1])}
    listed |= {"consistent_gtid"}  # in the text above the table
    assert listed == shown
