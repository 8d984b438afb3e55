"""Which capture task an apply task's records come from: found by an address in common, as the scheduler does."""

from types import SimpleNamespace
from typing import cast

import pytest

from millrace.cli import arrival
from millrace.cli.arrival import capture_task_of, source_set_of, wait_until_arrived
from millrace.cli.control import Control
from millrace.errors import Fatal, MillraceError
from schemas.documents import ApplyTask, CaptureTask, TopicAddress
from schemas.gtid import Flavour, parse_gtid_set
from schemas.status import TaskReport, TaskState
from zk.entries import Desired, TaskEntry


def _capture(name: str, bootstrap: str) -> CaptureTask:
    return CaptureTask(
        name=name, set_name=f"set-of-{name}", output=TopicAddress(topic="shop", bootstrap=bootstrap)
    )


def _control(*tasks: CaptureTask) -> Control:
    entries = {task.name: TaskEntry(Desired(task), 0, 0, 1) for task in tasks}
    return cast(Control, SimpleNamespace(store=SimpleNamespace(tasks=lambda: entries)))


@pytest.mark.parametrize(
    "bootstrap",
    ["kafka1:9092", "KAFKA1:9092", "kafka2:9092,kafka1:9092", "kafka0:9092, kafka1:9092"],
)
def test_the_topic_of_the_same_brokers_is_found_however_they_are_named(bootstrap: str) -> None:
    """A topic of the same name on other brokers belongs to somebody else."""
    now = _control(_capture("elsewhere", "other:9092"), _capture("ours", "kafka1:9092,kafka3:9092"))
    task = ApplyTask(
        name="apply", source=TopicAddress(topic="shop", bootstrap=bootstrap), target="warehouse"
    )
    assert capture_task_of(now, task).name == "ours"
    assert source_set_of(now, task) == "set-of-ours"


def test_a_topic_of_the_same_name_elsewhere_is_no_source() -> None:
    """It is refused, not compared with."""
    task = ApplyTask(
        name="apply", source=TopicAddress(topic="shop", bootstrap="kafka1:9092"), target="warehouse"
    )
    with pytest.raises(Fatal) as caught:
        capture_task_of(_control(_capture("elsewhere", "other:9092")), task)
    assert caught.value.code == "MR-4203"


@pytest.mark.parametrize(
    ("state", "has", "code"),
    [
        (TaskState.RUNNING, "0-1-7", ""),
        (TaskState.RUNNING, "0-1-6", "MR-4201"),
        (TaskState.PAUSED, "0-1-7", ""),  # it stands still, and there
        (TaskState.PAUSED, "0-1-6", "MR-4202"),
        (TaskState.BLOCKED, "0-1-6", "MR-4202"),
        (TaskState.BLOCKED, "0-1-7", "MR-4202"),  # a lost topic has nothing of it any more
    ],
)
def test_a_wait_that_can_not_end_well_ends_at_once(
    monkeypatch: pytest.MonkeyPatch, state: TaskState, has: str, code: str
) -> None:
    """Blocked always, paused unless it has arrived; only a task that may arrive is waited for."""
    task = _capture("shop", "kafka1:9092")
    control = _control(task)
    store = SimpleNamespace(
        task_entry=lambda _name: control.store.tasks()["shop"],
        set_entry=lambda _name: SimpleNamespace(document=None),
    )
    wanted = parse_gtid_set(Flavour.MARIADB, "0-1-7")
    monkeypatch.setattr(arrival, "primary_position", lambda _document: wanted)
    report = TaskReport(state, "paused by ann", gtid_set=has)
    monkeypatch.setattr(arrival, "_report", lambda _now, _name: report)

    def wait() -> None:
        timeout_s = 0.0 if code in ("", "MR-4201") else 5.0
        wait_until_arrived(cast(Control, SimpleNamespace(store=store)), "shop", timeout_s=timeout_s)

    if not code:
        wait()
        return
    with pytest.raises(MillraceError) as caught:
        wait()
    assert caught.value.code == code
