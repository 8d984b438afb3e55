"""One apply task in a separate process, to be killed: NAME TOPIC BOOTSTRAP PORT USER [MASTER [SETTING=VALUE …]]."""

import sys
import threading

from millrace.consumer.spark.session import SparkDriver
from millrace.consumer.task.runner import ApplyRunner
from millrace.errors import Fenced, Retryable
from millrace.schemas.documents import (
    ApplyTask,
    Brokers,
    CaptureTask,
    Directives,
    SetDocument,
    TopicAddress,
)
from millrace.schemas.status import TaskReport
from tests.fixtures.spark import PASSWORD_VARIABLE, FixedLease
from tests.kit.apply.documents import local_set

RETRY_S = 0.5


class _Sets:
    def __init__(self, port: int, user: str) -> None:
        self._document = local_set("target", (port,), user=user, variable=PASSWORD_VARIABLE)

    def set_document(self, name: str) -> SetDocument:
        assert name == "target"
        return self._document

    def directives(self, set_name: str) -> Directives:
        """No operator has any."""
        return Directives()

    def capture_task_of(self, task: ApplyTask) -> CaptureTask:
        raise Retryable("MR-4203", f"no task captures to {task.source.topic}")


def main(name: str, topic: str, bootstrap: str, port: str, user: str, *spark: str) -> None:
    """Run until killed, again after each error that a supervisor retries; ``spark`` is a master and settings."""
    master, *settings = spark or ("local[2]",)
    given = dict(setting.partition("=")[::2] for setting in settings)
    runner = ApplyRunner(SparkDriver(master=master, settings=given), _Sets(int(port), user))
    task = ApplyTask(
        name=name, source=TopicAddress(topic=topic, brokers=Brokers(bootstrap)), target="target"
    )
    never = threading.Event()
    while not never.wait(RETRY_S):
        try:
            runner.run(task, lease=FixedLease(name), stop=never, report=_ignore)
        except (Retryable, Fenced) as exc:
            print(exc, file=sys.stderr)


def _ignore(report: TaskReport) -> None:
    """Ignore the report."""


if __name__ == "__main__":
    main(*sys.argv[1:])
