"""The runner of apply tasks: applies a topic from the progress on the target until it is asked to stop.

A start takes these steps in order:

    1  find the writable member of the target set
    2  create the tables of Millrace, and the procedure for readers
    3  raise the fence: no earlier run writes after this
    4  end a statement that an earlier run still executes
    5  read the progress
    6  compare the topic's ID with that of the mark
    7  start the query at the offset of the mark, or at the first offset that retention has left

The topic's ID is compared again before a micro-batch, and every ``LOOK_AGAIN_S`` while an executor applies. If a topic
is deleted, created again and filled beyond the mark in less time, ``consumer.window`` detects it by seq and GTID set.

Looks once a second at the topic's end, and at the mark on the target while an executor applies. Reports ``gtid_set``
and ``seq`` of the mark, the pace (``consumer.pace``) and figures; DEGRADED while the broker is silent. Ends when
``stop`` is set, after the query, its Spark jobs and the current micro-batch have ended. Raises Retryable, Fenced and
Fatal as the contract of runners requires.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from consumer.apply.batch import Assignment, BatchApplier
from consumer.apply.ddl import end_earlier_statement
from consumer.pace import End, Look, Pace
from consumer.report import running_report
from consumer.safe_mode import SafeMode
from consumer.spark.driver import FIRST_OFFSET, LANES_MAX, Records, SparkDriver, TopicQuery
from consumer.target.conflicts import forget_blocking
from consumer.target.connection import Endpoint, TargetConnection, connect
from consumer.target.fence import raise_fence
from consumer.target.members import primary_member
from consumer.target.progress import (
    Mark,
    MarkTopic,
    add_missing_columns,
    check_fence,
    create_tables,
    insert_mark,
    read_mark,
)
from consumer.target.wait_procedure import create_procedure
from consumer.topic.kafka import NO_TOPIC, TopicIdentity, first_offset
from consumer.warm import warm
from millrace.errors import Fatal, MillraceError, Retryable
from millrace.kafka_refusals import explained
from millrace.kafka_wire import find_refusal
from millrace.log import get_logger
from schemas.documents import ApplyTask, SetDocument, TopicAddress, Work
from schemas.gtid import parse_any_gtid_set
from schemas.kafka_acls import Grants, apply_acls
from schemas.stages.applied import Applied
from zk.run.runner import HeldLease, Report

LOOK_S = 0.2  # delay until a stop is noticed
# A broker that does not report the topic's end for this time is unavailable. An idle query asks most of the time, and
# its state is only sampled: fifty samples in a row can not all hit requests that were answered.
SILENCE_S = 10.0
# The topic's ID takes about 6 ms, its end and the mark a few more. Spark requests the end every few milliseconds and
# notices one that moves back. It misses only a new topic that grows past the mark between two requests.
LOOK_AGAIN_S = 1.0

_log = get_logger("apply")


class TargetSets(Protocol):
    """A source of set documents."""

    def set_document(self, name: str) -> SetDocument:
        """The current document."""


class ApplyRunner:
    """Runs apply tasks on one Spark driver."""

    def __init__(self, driver: SparkDriver, sets: TargetSets) -> None:
        warm()
        self._driver = driver
        self._sets = sets

    def run(self, task: Work, *, lease: HeldLease, stop: threading.Event, report: Report) -> None:
        """Run until ``stop`` is set or an error is raised."""
        if not isinstance(task, ApplyTask):
            raise Fatal("MR-4101", f"{task.name} is not an apply task")
        grants = Grants(task.source.brokers, apply_acls(task.source.topic))
        with explained(task.source.brokers, grants.fix):
            self._apply(task, lease=lease, stop=stop, report=report)

    def _apply(
        self, task: ApplyTask, *, lease: HeldLease, stop: threading.Event, report: Report
    ) -> None:
        endpoint = primary_member(self._sets.set_document(task.target))
        lease.verify()
        session = connect(endpoint)
        try:
            applier = take_over(session, endpoint, task, epoch=lease.epoch)
        finally:
            session.close()
        topic = TopicIdentity(task.source.brokers, task.source.topic)
        run = ApplyRun(self._driver, task, applier, report, topic)
        try:
            run.until(stop)
        finally:
            run.end()


def take_over(
    session: TargetConnection, endpoint: Endpoint, task: ApplyTask, *, epoch: int
) -> BatchApplier:
    """Raise the fence and read the progress: all requests of a start to the target."""
    create_tables(session)
    create_procedure(session)
    owner = raise_fence(session, task=task.name, epoch=epoch)
    end_earlier_statement(session, task.name)
    add_missing_columns(session)
    forget_blocking(session, task.name)
    found = read_mark(session, task.name)
    mark = found[0] if found else None
    if mark is None:
        mark = first_mark(task)
        check_fence(session, owner)  # of two concurrent first starts, only one inserts the mark
        insert_mark(session, task.name, mark)
    elif mark.topic.name != task.source.topic:
        raise Fatal(
            "MR-5022",
            f"the progress belongs to topic {mark.topic.name}, the task reads {task.source.topic}",
            fix=f"Set `topic` back to {mark.topic.name} (`millrace task create -f FILE --replace`), then `millrace"
            f" task resume {task.name}`. To apply {task.source.topic}, create a task with another name.",
        )
    session.commit()
    _log.info("apply begins", task=task.name, run=owner.run, seq=mark.seq, offset=mark.next_offset)
    lanes = min(task.rules.lanes, LANES_MAX)
    rules = task.rules
    given = Assignment(
        endpoint,
        rules.conflict,
        lanes,
        task.source,
        task.tables,
        rules.safe_mode.until_gtid,
        rules.consistency,
    )
    return BatchApplier(given, owner, mark)


def first_mark(task: ApplyTask) -> Mark:
    """The mark of a task without progress. Rows that ``start`` covers are skipped later."""
    if task.start.is_first:
        return Mark(0, FIRST_OFFSET, topic=MarkTopic(task.source.topic))
    start = parse_any_gtid_set(task.start.gtid_set)
    topic = MarkTopic(task.source.topic)
    return Mark(-1, FIRST_OFFSET, str(start), str(start.flavour), topic, past_start=False)


class Identity(Protocol):
    """Implemented by ``TopicIdentity``."""

    def ask(self) -> str:
        """The topic's current ID."""

    def end(self) -> int:
        """The topic's current end, with Kafka's markers."""

    def seq_before(self, end: int) -> int | None:
        """The ``seq`` of the last record before this end; None if it could not be read soon."""

    def close(self) -> None:
        """Release connections."""


def same_topic(identity: Identity, mark: Mark, *, source: TopicAddress) -> Mark:
    """The mark with the topic's ID; Fatal MR-5035 if the mark has another ID.

    Progress of an earlier version has no ID. It gets one when the mark moves, after the checks of seq and GTID set.
    """
    with _waiting_for(source):
        found = identity.ask()
    known = mark.topic
    if known.id and found and known.id != found:
        raise Fatal(
            "MR-5035",
            f"topic {known.name} has the id {found}; the task has applied the topic with the id {known.id}",
        )
    return replace(mark, topic=replace(known, id=found or known.id))


def _begin(source: TopicAddress, offset: int) -> int:
    if offset < 0:
        return offset
    with _waiting_for(source):
        return first_offset(source.brokers, source.topic, offset)


@contextmanager
def _waiting_for(source: TopicAddress) -> Iterator[None]:
    """Makes a missing topic Retryable MR-5054 and an unavailable broker Retryable MR-5052."""
    try:
        yield
    except MillraceError as exc:
        if exc.code != "MR-3501":
            raise
        if exc.context.get("answer") in NO_TOPIC:
            raise Retryable("MR-5054", f"there is no {source}") from exc
        raise Retryable("MR-5052", f"{source}: {exc.message}") from exc


@dataclass(frozen=True, slots=True)
class _MarkRead:
    """The mark that the last look read on the target, with its lag; None before the first."""

    mark: Mark
    lag_s: float | None = None


class ApplyRun:
    """One query and its applier."""

    def __init__(
        self,
        driver: SparkDriver,
        task: ApplyTask,
        applier: BatchApplier,
        report: Report,
        topic: Identity,
    ) -> None:
        self._applier = applier
        self._report = report
        self._source = task.source
        self._topic = topic
        self._busy = threading.Lock()  # held while a micro-batch is under way
        self._ended = False
        self._failure: BaseException | None = None
        self._asked_at_s: float | None = (
            None  # when the broker got the request that it has not answered
        )
        self._silence: Retryable | None = None  # of the broker to Spark
        self._unanswered: Retryable | None = None  # a request of the last look
        self._looked_s = 0.0
        self._pace, self._applied = Pace(), Applied(commit_ms=applier.mark.commit_ms)
        self._mark = applier.mark  # the newest that is known
        self._read = _MarkRead(applier.mark)
        self._reporting = threading.Lock()
        self._observer: TargetConnection | None = None
        self._compare_topic()
        self._progressed(applier.mark)
        applier.begin = _begin(task.source, applier.mark.next_offset)
        self._query: TopicQuery = driver.query(
            task.name,
            task.source,
            offset=applier.begin,
            process=self._process,
        )

    def _process(self, records: Records) -> None:
        with self._busy:
            if self._ended:
                return
            try:
                self._compare_topic()
                self._applier.process(records, self._moved)
            except BaseException as exc:  # noqa: BLE001 - `until` raises it in the thread that the supervisor watches
                self._failure = self._failure or exc
            # A short error without causes: Spark matches a regular expression against its text. The text of a failed
            # Spark job overflowed the stack of the query's thread, and the query neither ran nor ended.
            if self._failure is not None:
                raise Retryable("MR-5050", "the micro-batch failed")

    def _compare_topic(self) -> None:
        self._applier.mark = same_topic(self._topic, self._applier.mark, source=self._source)

    def _moved(self, mark: Mark) -> None:
        self._progressed(mark)
        if self._ended:
            raise Retryable("MR-5050", "the run is ending")

    def _progressed(self, mark: Mark) -> None:
        applier = self._applier
        safe_mode = SafeMode.of(applier.assignment.safe_until)
        with self._reporting:
            self._mark = max(self._mark, mark, key=_place)
            report = running_report(
                self._mark,
                applier.figures,
                self._applied,
                warning=applier.warning(),
                silence=self._unanswered or self._silence,
                safe_mode=safe_mode.text(self._mark) if safe_mode else "",
                consistency=str(applier.assignment.consistency),
            )
            self._report(report)  # also an unchanged one: a silent runner counts as stalled

    def until(self, stop: threading.Event) -> None:
        """Wait for the end; raises the error of a micro-batch."""
        try:
            while not stop.is_set() and self._failure is None:
                if self._query.wait(LOOK_S):
                    break
                self._look_for_silence()
                self._look()
        except MillraceError as exc:
            raise self._failure or exc from exc
        if self._failure is not None:
            raise self._failure

    def _look(self) -> None:
        """Once a second: how far the topic goes, and while an executor applies, how far the mark on the target is."""
        now_s = time.monotonic()
        if now_s - self._looked_s < LOOK_AGAIN_S:
            return
        is_busy = self._busy.locked()
        read_to = self._applier.read_to
        end = self._end_of_topic(is_busy=is_busy)
        if is_busy or self._read.lag_s is None or _place(self._read.mark) < _place(self._mark):
            self._read_mark()
        read = self._read
        self._looked_s = time.monotonic()
        look = Look(
            at_s=self._looked_s,
            mark=read.mark,
            lag_s=read.lag_s,
            end=None if end is None else End(end, partial(self._topic.seq_before, end)),
            read_to=read_to,
            record_bytes=self._applier.figures.mean_record_bytes,
        )
        self._applied = self._pace.saw(look)
        self._progressed(read.mark)

    def _end_of_topic(self, *, is_busy: bool) -> int | None:
        """The topic's end; None if the broker does not answer, which the next report shows.

        Compares the topic's ID while an executor reads it, and after the broker was silent. An idle query notices an
        end that moves back.
        """
        try:
            if is_busy or self._unanswered or self._silence:
                same_topic(self._topic, self._applier.mark, source=self._source)
            with _waiting_for(self._source):
                end = self._topic.end()
        except Retryable as exc:
            if is_busy and exc.code == "MR-5054":
                raise
            self._unanswered = self._refused() or exc
            return None
        self._unanswered = None
        return end

    def _refused(self) -> Retryable | None:
        """The brokers' reason to refuse a login or a certificate, which the client reports as silence."""
        brokers = self._source.brokers
        refusal = None if brokers.is_open else find_refusal(brokers)
        return refusal if isinstance(refusal, Retryable) else None

    def _read_mark(self) -> None:
        try:
            if self._observer is None or not self._observer.is_open:
                self._observer = connect(self._applier.assignment.endpoint)
            found = read_mark(self._observer, self._applier.owner.task)
            self._observer.rollback()
        except Retryable:
            return  # the executor finds out
        if found is not None:
            mark, lag_ms = found
            self._read = _MarkRead(mark, lag_ms / 1000 if mark.commit_ms else 0.0)

    def _look_for_silence(self) -> None:
        """Notice when the broker stops answering Spark and when it answers again. Spark keeps asking.

        A deleted topic looks the same to Spark. Fatal MR-5035 if another topic was created in its place.
        """
        now_s = time.monotonic()
        if not self._query.is_asking():
            self._asked_at_s = None
            if self._silence is not None:
                self._silence = None
                self._progressed(self._mark)
        elif self._asked_at_s is None:
            self._asked_at_s = now_s
        elif self._silence is None and now_s - self._asked_at_s > SILENCE_S:
            self._silence = self._why_silent()
            self._progressed(self._mark)

    def _why_silent(self) -> Retryable:
        try:
            same_topic(self._topic, self._applier.mark, source=self._source)
        except Retryable as exc:
            return exc
        return Retryable(
            "MR-5052", f"{self._source}: the broker did not answer Spark for {SILENCE_S:g} s"
        )

    def end(self) -> None:
        """End the query. Afterwards no micro-batch is running and none begins."""
        self._ended = True
        try:
            self._query.stop()
        finally:
            with self._busy:
                if self._observer is not None:
                    self._observer.close()
                self._topic.close()


def _place(mark: Mark) -> tuple[int, int]:
    return mark.seq, mark.next_offset
