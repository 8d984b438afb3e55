"""Apply and publish tasks in one driver, each by its own runner. Apart: neither runner knows the other."""

import threading
from dataclasses import dataclass

from millrace.consumer.task.publish_runner import PublishRunner
from millrace.consumer.task.runner import ApplyRunner
from millrace.schemas.documents import PublishTask, Work
from millrace.zk.run.runner import HeldLease, Report


@dataclass(frozen=True, slots=True)
class Runners:
    """Implements ``zk.run.runner.TaskRunner``."""

    apply: ApplyRunner
    publish: PublishRunner

    def run(self, task: Work, *, lease: HeldLease, stop: threading.Event, report: Report) -> None:
        """By the kind of the task."""
        runner = self.publish if isinstance(task, PublishTask) else self.apply
        runner.run(task, lease=lease, stop=stop, report=report)
