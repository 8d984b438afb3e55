"""What the demonstration shows while rows go through."""

import time

import pytest

from deploy.demo.observe import Sightings
from deploy.demo.run import _stage
from schemas.status import TaskReport, TaskState


def test_the_age_of_a_stage_that_stalls_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is visible gets older while nothing newer comes; the ages at sight stay as they were seen."""
    now_s = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    monkeypatch.setattr(time, "time_ns", lambda: 5_000_000_000)
    report = TaskReport(TaskState.RUNNING, why="publishes", seq=7)
    seen = Sightings()
    assert _stage("topic", report, seen).age_ms is None
    seen.add_age(4_960_000)
    assert _stage("topic", report, seen).age_ms == pytest.approx(40)
    now_s += 3
    assert _stage("topic", report, seen).age_ms == pytest.approx(3_040)
    seen.add_age(4_990_000)
    assert _stage("topic", report, seen).age_ms == pytest.approx(10)
    assert seen.ages_ms == pytest.approx([40, 10])
    assert seen.percentile(0.99) == pytest.approx(40)
