"""A slot's report while its task fails and starts again."""

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from millrace.errors import Retryable
from millrace.schemas.documents import Work
from millrace.schemas.status import TaskReport, TaskState
from millrace.zk.run import slot as slot_module
from millrace.zk.run.runner import HeldLease, Report
from millrace.zk.run.slot import AssignedTask, Slot, WorkerContext
from millrace.zk.tree.entries import TaskEntry
from millrace.zk.tree.reports import Offered
from tests.kit.control.control import QUICK, a_capture


class _Runs:
    """Fails twice, then runs until it is stopped. Keeps the report that a status shows at each start."""

    def __init__(self) -> None:
        self.slot: Slot | None = None
        self.at_start: list[TaskReport] = []

    def run(self, _: Work, *, lease: HeldLease, stop: threading.Event, report: Report) -> None:
        assert self.slot is not None
        self.at_start.append(self.slot.report)
        if len(self.at_start) < 3:
            raise Retryable(
                "MR-3001", f"no broker answers, try {len(self.at_start)}", fix="Start it"
            )
        report(TaskReport(TaskState.RUNNING, why="waits for changes"))
        self.slot.end()


def test_reason_stays_while_a_task_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start can take longer than the pauses between two: an operator would see no reason most of the time."""
    lease = SimpleNamespace(incarnation=1, epoch=7, release=lambda: None)
    monkeypatch.setattr(slot_module, "acquire", lambda *_, **__: lease)
    monkeypatch.setattr(slot_module, "read_status", lambda *_: None)
    runs, offered = _Runs(), list[TaskReport]()
    starts = SimpleNamespace(begin=lambda *_, **__: None, end=lambda *_: None)

    def offer(_: str, report: Offered) -> None:
        offered.append(report.report)

    status = SimpleNamespace(offer=offer, flush=lambda _: True)
    context: Any = {"session": None, "tree": None, "status": status, "starts": starts}
    entry = cast(TaskEntry, SimpleNamespace(document=a_capture(), revision=1, created=1))
    slot = Slot(
        AssignedTask(entry, None),
        WorkerContext(**context, worker="w1", runner=runs, pace=QUICK),
        on_end=lambda: None,
    )
    runs.slot = slot
    slot.start()
    assert slot.join(60.0)
    first, *others = runs.at_start
    assert (first.state, first.why) == (TaskState.ASSIGNED, "starting")
    for number, report in enumerate(others, start=1):
        shown = (report.state, report.code, report.fix, report.next_try_s)
        assert shown == (TaskState.DEGRADED, "MR-3001", "Start it", 0.0)
        assert f"try {number}" in report.why
    running = next(one for one in offered if one.state is TaskState.RUNNING)
    assert (running.code, running.why) == ("", "waits for changes")
