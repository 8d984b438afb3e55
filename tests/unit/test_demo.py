"""The output of the demonstration while rows pass through."""

import time

import pytest

from millrace.deploy.demo.run import stage_of
from millrace.deploy.workload.beats import Arrivals
from millrace.schemas.status import TaskReport, TaskState


def test_age_of_a_stalled_stage_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The age of the newest visible beat grows until a newer one arrives."""
    now_s = 5.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    report = TaskReport(TaskState.RUNNING, why="publishes", seq=7)
    acknowledged: dict[int, float] = {}
    arrivals = Arrivals(acknowledged)
    assert stage_of("topic", report, arrivals).age_ms is None
    acknowledged[1] = 4.96
    arrivals.add([1], 5.0)
    assert stage_of("topic", report, arrivals).age_ms == pytest.approx(40)
    now_s = 8.0
    assert stage_of("topic", report, arrivals).age_ms == pytest.approx(3_040)
    acknowledged[2] = 7.99
    arrivals.add([2], 8.0)
    assert stage_of("topic", report, arrivals).age_ms == pytest.approx(10)
