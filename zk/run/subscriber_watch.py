"""Measures the subscribers of the tasks that a worker runs, once a minute, in one thread for all of them.

A task's reports get the last measurement (``zk.run.slot``). A new subscriber is measured at once.

Guarantees: no error of a broker, of ZooKeeper or of a measurement ends or delays a task. While ZooKeeper is away, the
subscribers that are known are measured. Only a task that runs is measured: another worker may run the others.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from millrace.errors import Fatal, MillraceError
from millrace.log import get_logger
from millrace.schemas.documents import TaskDocument
from millrace.schemas.documents.subscriber import Subscriber
from millrace.schemas.stages import SubscriberStage
from millrace.zk.client.mirror import Mirror
from millrace.zk.client.session import Session
from millrace.zk.tree.paths import Tree
from millrace.zk.tree.subscribers import FOLDER, SubscriberEntry, read_subscriber, subscribers_of

MEASURE_S = 60.0
TICK_S = 2.0  # a task that has begun to run is measured so soon

log = get_logger("zk.run.subscribers")


class Meter(Protocol):
    """Implemented by ``drivers.kafka.subscribers.SubscriberMeter``."""

    def measure(self, subscribers: Sequence[Subscriber]) -> tuple[SubscriberStage, ...]:
        """One stage for each."""


@dataclass(slots=True)
class _Task:
    document: TaskDocument
    meter: Meter
    subscribers: tuple[Subscriber, ...] = ()
    measured_at_s: float = float("-inf")
    stages: tuple[SubscriberStage, ...] = ()


def kafka_meter(task: TaskDocument) -> Meter:
    """Asks the task's brokers."""
    from millrace.drivers.kafka.subscribers import (
        SubscriberMeter,  # only where there are subscribers
    )

    return SubscriberMeter(task)


class SubscriberWatch:
    """The subscribers of one worker's tasks."""

    def __init__(
        self, session: Session, tree: Tree, *, meter: Callable[[TaskDocument], Meter] = kafka_meter
    ) -> None:
        self._wake = threading.Event()
        self._mirror = Mirror(session, tree.folder(FOLDER), self._wake.set)
        self._meter = meter
        self._tasks: dict[str, _Task] = {}

    def latest(self, task: str) -> tuple[SubscriberStage, ...]:
        """The last measurement of a task's subscribers. For any thread."""
        known = self._tasks.get(task)
        return known.stages if known is not None else ()

    def run(self, stop: threading.Event, running: Callable[[], Mapping[str, TaskDocument]]) -> None:
        """Measure until ``stop`` is set; call ``wake`` after setting it. ``running``: the tasks that run now."""
        while not stop.is_set():
            try:
                self.round(running(), stop)
            except Exception as error:  # a defect here must end no task
                log.error("subscribers are not measured", exc_info=error)
            self._wake.wait(TICK_S)
            self._wake.clear()

    def wake(self) -> None:
        """Start the next round now."""
        self._wake.set()

    def round(self, running: Mapping[str, TaskDocument], stop: threading.Event) -> None:
        """Measure what is due."""
        try:
            nodes = self._mirror.snapshot()
        except MillraceError as error:
            log.debug("the subscribers could not be read", error=error)
        else:
            entries = {name: read_subscriber(node, name=name) for name, node in nodes.items()}
            self._take(running, entries)
        for name in running:
            task = self._tasks.get(name)
            if task is None or stop.is_set():
                continue
            if time.monotonic() - task.measured_at_s >= MEASURE_S:
                task.stages = task.meter.measure(task.subscribers)
                task.measured_at_s = time.monotonic()

    def _take(
        self, running: Mapping[str, TaskDocument], entries: Mapping[str, SubscriberEntry | Fatal]
    ) -> None:
        """Watch these tasks. One with other subscribers, or another document, is due.

        A task that does not run now keeps its last measurement: it may run again soon.
        """
        for name in running.keys() | self._tasks.keys():
            wanted = subscribers_of(entries, name)
            known = self._tasks.get(name)
            if not wanted:
                self._tasks.pop(name, None)
                continue
            document = running.get(name)
            if document is not None and (known is None or known.document != document):
                known = self._tasks[name] = _Task(document, self._meter(document))
            if known is not None and known.subscribers != wanted:
                known.subscribers, known.measured_at_s = wanted, float("-inf")
