"""A task whose thread hangs, on a real ZooKeeper."""

import threading

import pytest

from schemas import stall
from schemas.documents import Work
from schemas.status import TaskState
from tests.kit.control.control import ScriptedRunner, a_capture
from tests.kit.control.stage import Stage
from zk.run.runner import HeldLease
from zk.tree import reports


def _hang(_task: Work, _lease: HeldLease, stop: threading.Event) -> None:
    stop.wait()


def test_task_whose_thread_hangs_is_shown_as_stalled(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last report says RUNNING, and its worker repeats that. The worker adds how old it is."""
    monkeypatch.setattr(reports, "REPEAT_S", 0.2)
    monkeypatch.setattr(stall, "STALL_S", 1.0)
    stage.scheduler()
    stage.worker(ScriptedRunner(_hang))
    stage.store.create_task(a_capture())
    report = stage.reaches("shop-capture", TaskState.STALLED, "has not reported")
    assert report.gtid_set == "0-1-7"
