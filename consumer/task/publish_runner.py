"""The runner of publish tasks: publishes a topic from the progress in Kafka until it is asked to stop.

A start takes these steps in order:

    1  fence every slot, read the progress, store the document if it makes other records (``consumer.publish.opening``),
       with the weights of the texts in its conditions, which the source is asked for
    2  compare the set topic's ID with that of the progress
    3  without progress, and with ``start: snapshot``, ask the capture task for the rows that exist
    4  give each slot to an executor, in turns

Each slot is independent: it reads the set topic from its own place on. An error of one ends the run. While executors
work, the runner reads the places that they store, once a second, and reports the earliest of them.
"""

import threading
import time
from contextlib import closing
from functools import partial

from millrace.consumer.publish.definitions import Definitions
from millrace.consumer.publish.mark import Position
from millrace.consumer.publish.opening import Started, start_task
from millrace.consumer.publish.order import PublishOrder
from millrace.consumer.publish.outputs import TaskOrder
from millrace.consumer.publish.places import PlacesReader, SlotPlace
from millrace.consumer.publish.warm_up import warm_publishing
from millrace.consumer.spark.session import SparkDriver
from millrace.consumer.target.progress import Mark
from millrace.consumer.task.lag import End, Look, Pace
from millrace.consumer.task.loss import TimeToLoss
from millrace.consumer.task.publish_report import publish_report
from millrace.consumer.task.publish_start import (
    Documents,
    described,
    first_position,
    task_order,
)
from millrace.consumer.topic.beginning import begin_at, waiting_for
from millrace.consumer.turn.order import Calls
from millrace.drivers.kafka.acls import Grants, publish_acls
from millrace.drivers.kafka.reader import TopicIdentity
from millrace.errors import Fatal, Retryable
from millrace.log import get_logger
from millrace.metrics.rates import LONG_S, SHORT_S, Meter
from millrace.schemas.documents import PublishTask, Work
from millrace.schemas.stages import Applied, Rates
from millrace.zk.run.runner import HeldLease, Report

LOOK_S = 0.2
LOOK_AGAIN_S = 1.0
TURN_S = 30.0

_log = get_logger("publish")


class PublishRunner:
    """Runs publish tasks on one Spark driver."""

    def __init__(self, driver: SparkDriver, documents: Documents) -> None:
        self._driver, self._documents = driver, documents

    def run(self, task: Work, *, lease: HeldLease, stop: threading.Event, report: Report) -> None:
        """Run until ``stop`` is set or an error is raised."""
        if not isinstance(task, PublishTask):
            raise Fatal("MR-4101", f"{task.name} is not a publish task")
        warm_publishing(task.format.name)
        grants = Grants(task.source.brokers, publish_acls(task))
        topic = TopicIdentity(task.source.brokers, task.source.topic)
        with grants.explained(), closing(topic):
            lease.verify()
            order = task_order(task, epoch=lease.epoch)
            with waiting_for(task.source):
                topic_id = topic.ask()
            started = start_task(
                order,
                start=partial(first_position, task, topic, self._documents),
                describe=partial(described, task, self._documents),
            )
            _check_topic(task, started, topic_id)
            run = PublishRun(self._driver, order, task, started, topic, report)
            try:
                run.until(stop)
            finally:
                run.end()


def _check_topic(task: PublishTask, started: Started, topic_id: str) -> None:
    """Fatal MR-5035 if the progress is that of another topic of this name."""
    for position in started.positions:
        if position.topic_id and topic_id and position.topic_id != topic_id:
            raise Fatal(
                "MR-5035",
                f"topic {task.source.topic} has the id {topic_id}; the task has published the topic with the id"
                f" {position.topic_id}",
            )


class PublishRun:
    """One thread for each slot, which gives its turns to an executor."""

    def __init__(
        self,
        driver: SparkDriver,
        order: TaskOrder,
        task: PublishTask,
        started: Started,
        topic: TopicIdentity,
        report: Report,
    ) -> None:
        self._order, self._task, self._started = order, task, started
        self._topic, self._report = topic, report
        self._definitions = Definitions.of(started.definitions)
        self._topic_id = started.positions[0].topic_id
        self._calls: Calls[PublishOrder, Mark] = driver.publishing(task.name)
        self._reader = PlacesReader(order)
        self._places: tuple[SlotPlace, ...] = ()
        self._pace, self._loss, self._looked_s = Pace(), TimeToLoss(topic), 0.0
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._delivered = Meter()
        self._show(Applied())
        self._threads = [
            threading.Thread(target=self._run_slot, args=(slot,), name=f"{task.name}/{slot}")
            for slot in range(order.slots)
        ]
        for thread in self._threads:
            thread.start()

    def _run_slot(self, slot: int) -> None:
        try:
            while not self._ended.is_set():
                order = PublishOrder(
                    task=self._order,
                    definitions=self._definitions,
                    slot=slot,
                    accepted=self._task.accept_ddl,
                    first_offset=begin_at(self._task.source, self._position(slot).next_offset),
                    turn_s=TURN_S,
                )
                self._calls.call(order)
        except BaseException as exc:  # noqa: BLE001 - `until` raises it in the thread that the supervisor watches
            if not self._ended.is_set():
                self._failure = self._failure or exc
                self._ended.set()

    def until(self, stop: threading.Event) -> None:
        """Wait for the end; raises the error of a slot."""
        while not stop.is_set() and self._failure is None:
            self._ended.wait(LOOK_S)
            if time.monotonic() - self._looked_s >= LOOK_AGAIN_S:
                self._look()
        if self._failure is not None:
            raise self._failure

    def _look(self) -> None:
        """Once a second: how far the slots and the topic are."""
        with waiting_for(self._task.source):
            same_id = self._topic.ask()
            end = self._topic.end()
        if same_id and self._topic_id and same_id != self._topic_id:
            raise Retryable("MR-5072", f"{self._task.source} was created again")
        self._places = self._reader.look()
        slowest = self._slowest()
        self._looked_s = time.monotonic()
        look = Look(
            at_s=self._looked_s,
            mark=slowest.reached(self._task.source.topic),
            lag_s=slowest.lag_s,
            end=End(end, partial(self._topic.seq_before, end)),
        )
        records = sum(place.records for place in self._places)
        self._delivered.note(records, at_s=self._looked_s)
        self._show(self._loss.with_loss(self._pace.saw(look), look))

    def _show(self, pace: Applied) -> None:
        begins = self._definitions.begins
        self._report(
            publish_report(
                self._slowest(),
                self._places,
                pace,
                record_rates=Rates(self._delivered.over(SHORT_S), self._delivered.over(LONG_S)),
                definition=(len(begins), max(begins[-1] - 1, 0)),
            )
        )

    def _slowest(self) -> Position:
        return min(
            (self._position(slot) for slot in range(self._order.slots)),
            key=lambda position: position.next_offset,
        )

    def _position(self, slot: int) -> Position:
        stored = self._places[slot].position if self._places else None
        return stored or self._started.positions[slot]

    def end(self) -> None:
        """End the turns. Afterwards no executor publishes for this run."""
        self._ended.set()
        try:
            self._calls.stop()
        finally:
            for thread in self._threads:
                thread.join()
            self._reader.close()
