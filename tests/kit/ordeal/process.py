"""An apply task in a separate process, to be killed, and a request for later loads: run | ask, a ``Place`` as JSON."""

import json
import sys
import threading
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

from millrace.consumer.backfill import backfill
from millrace.consumer.load import request
from millrace.consumer.load.tables import Admission
from millrace.consumer.spark.session import SparkDriver
from millrace.consumer.task.runner import ApplyRunner
from millrace.drivers.mysql.connection import connect
from millrace.drivers.mysql.primary import primary_member
from millrace.errors import Fenced, MillraceError, Retryable
from millrace.schemas.documents import (
    ApplyTask,
    Brokers,
    CaptureTask,
    Directives,
    LoadRules,
    Registry,
    SetDocument,
    TableFilter,
    TopicAddress,
)
from millrace.schemas.status import TaskReport
from tests.fixtures.spark import PASSWORD_VARIABLE as TARGET_PASSWORD
from tests.fixtures.spark import FixedLease
from tests.kit.apply.documents import local_set
from tests.kit.apply.loading import LOADER, load_task
from tests.kit.apply.loading import PASSWORD_VARIABLE as SOURCE_PASSWORD
from tests.kit.ordeal.driver import LocalDriver

RETRY_S = 0.2
LATER_RETRY_S = 1.0
BLOCKED = 3  # the exit status of a task that an operator must look at


@dataclass(frozen=True, slots=True)
class Place:
    """The task's servers, documents and name. ``ports``: of the source's members."""

    name: str
    ports: tuple[int, ...]
    target: tuple[int, str]  # its port and account
    kafka: tuple[str, str]  # its address and that of the registry
    exclude: tuple[str, ...] = ()
    chunk_rows: int = 60

    def to_json(self) -> str:
        """For a command line."""
        return json.dumps(asdict(self))

    @classmethod
    def of_json(cls, text: str) -> "Place":
        """The value of a text of ``to_json``."""
        plain = json.loads(text)
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in plain.items()
        }
        return cls(**values)

    @property
    def topic(self) -> TopicAddress:
        """The topic has the task's name."""
        bootstrap, registry = self.kafka
        return TopicAddress(
            topic=self.name, brokers=Brokers(bootstrap), registry=Registry(registry)
        )

    @property
    def task(self) -> ApplyTask:
        """Starts with a load."""
        rules = LoadRules(parallel=3, chunk_rows=self.chunk_rows)
        tables = TableFilter(include=(f"{self.name}.*",), exclude=self.exclude)
        return replace(load_task(self.name, tables=tables, rules=rules), source=self.topic)

    def set_document(self, name: str) -> SetDocument:
        """The source's or the target's."""
        if name == "target":
            port, user = self.target
            return local_set(name, (port,), user=user, variable=TARGET_PASSWORD)
        return local_set(name, self.ports, user=LOADER.user, variable=SOURCE_PASSWORD)

    def directives(self, set_name: str) -> Directives:
        """No operator has any."""
        return Directives()

    def capture_task_of(self, task: ApplyTask) -> CaptureTask:
        """The only one."""
        return CaptureTask(
            name=f"{task.name}-capture",
            set_name="source",
            output=self.topic,
            tables=TableFilter(include=(f"{self.name}.*",)),
        )


def run(place: Place) -> int:
    """Run until killed, again after each error that a supervisor retries."""
    backfill.RETRY_S = LATER_RETRY_S
    runner = ApplyRunner(cast(SparkDriver, LocalDriver()), place)
    never = threading.Event()
    while not never.wait(RETRY_S):
        lease = FixedLease(place.name)
        try:
            runner.run(place.task, lease=lease, stop=never, report=_ignore)
        except (Retryable, Fenced) as exc:
            print(f"again: {exc}", file=sys.stderr, flush=True)
        except MillraceError as exc:
            print(f"blocked: {exc} {dict(exc.context)}", file=sys.stderr, flush=True)
            return BLOCKED
    return 0


def _ignore(_: TaskReport) -> None:
    """Ignore the report."""


def ask(place: Place, names: list[str]) -> int:
    """Let tables wait for a load, as `millrace task load` does."""
    source_set = place.set_document("source")
    admission = Admission.of(source_set, place.capture_task_of(place.task), place.task)
    with (
        closing(connect(primary_member(place.set_document("target")))) as target,
        closing(connect(primary_member(source_set, for_writing=False))) as source,
    ):
        known = request.read_known(source, target, admission)
        wanted = [f"{place.name}.{name}" for name in names]
        found = request.prepare(target, place.task, wanted, known)
        request.store(target, place.name, found, by="operator")
    return 0


if __name__ == "__main__":
    verb, given, *names = sys.argv[1:]
    sys.exit(run(Place.of_json(given)) if verb == "run" else ask(Place.of_json(given), names))
