"""Which capture task an apply task's records come from: found by an address in common, as the scheduler does."""

from types import SimpleNamespace
from typing import cast

import pytest

from millrace.cli.arrival import capture_task_of, source_set_of
from millrace.cli.control import Control
from millrace.errors import Fatal
from schemas.documents import ApplyTask, CaptureTask, TopicAddress
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
