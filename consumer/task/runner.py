"""The runner of apply tasks: applies a topic from the progress on the target until it is asked to stop.

A start takes these steps in order:

    1  find the writable member of the target set
    2  create the tables of Millrace, and the procedure for readers
    3  raise the fence: no earlier run writes after this
    4  end a statement that an earlier run still executes
    5  read the progress
    6  without progress, and with ``start: load``, load the tables that exist (``consumer.load``)
    7  compare the topic's ID with that of the mark; follow into an adopted topic (``follow_topic``)
    8  start the query at the offset of the mark, or at the first offset that retention has left

The topic's ID is compared again before a micro-batch, and every ``LOOK_AGAIN_S`` while an executor applies. If a topic
is deleted, created again and filled beyond the mark in less time, ``consumer.window.window`` detects it by seq and GTID
set.

Looks once a second at the topic's end, and at the mark on the target while an executor applies. Reports ``gtid_set``
and ``seq`` of the mark, the pace (``consumer.task.lag``) and figures; DEGRADED while the broker is silent. Ends when
``stop`` is set, after the query, its Spark jobs and the current micro-batch have ended. Raises Retryable, Fenced and
Fatal as the contract of runners requires.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from millrace.consumer.backfill.backfill import LaterLoads, Parts
from millrace.consumer.backfill.loader import LaterLoad
from millrace.consumer.backfill.new_tables import loading_missing, note_filter
from millrace.consumer.backfill.threads import Loader
from millrace.consumer.compare.single_run import TaskComparer
from millrace.consumer.compare.task_comparison import Comparisons
from millrace.consumer.load.load import Destination, Load, RowSource, first_load
from millrace.consumer.spark.session import Records, SparkDriver, TopicQuery
from millrace.consumer.target.load_range import side_of
from millrace.consumer.target.loads import LoadStream
from millrace.consumer.target.progress import Mark, read_mark
from millrace.consumer.target.running_statement import ANSWER_S, RunningStatement, find_statement
from millrace.consumer.target.running_statement import LOOK_S as STATEMENT_LOOK_S
from millrace.consumer.target.sessions import Kept
from millrace.consumer.target.streams import is_partial
from millrace.consumer.task.companions import Beside
from millrace.consumer.task.follow_topic import follow
from millrace.consumer.task.lag import End, Look, Pace
from millrace.consumer.task.loss import TimeToLoss
from millrace.consumer.task.report import loading_report, running_report, waiting_report
from millrace.consumer.task.start import (
    applier_of,
    end_load,
    has_to_load,
    loading,
    owner_of,
    weighed,
)
from millrace.consumer.topic.beginning import begin_at, topic_begin, waiting_for
from millrace.consumer.turn.driver import BatchApplier
from millrace.consumer.turn.warm_up import warm
from millrace.consumer.window.safe_mode import SafeMode
from millrace.drivers.kafka.acls import Grants, apply_acls
from millrace.drivers.kafka.reader import Retention, TopicIdentity, TopicSample
from millrace.drivers.kafka.wire import find_refusal
from millrace.drivers.mysql.connection import Endpoint, MySqlSession, connect
from millrace.drivers.mysql.primary import primary_member, renewed
from millrace.errors import Fatal, MillraceError, Retryable
from millrace.log import get_logger
from millrace.schemas.documents import (
    ApplyTask,
    CaptureTask,
    Directives,
    SetDocument,
    TopicAddress,
    Work,
)
from millrace.schemas.stages import Applied
from millrace.zk.run.runner import HeldLease, Report

LOOK_S = 0.2  # delay until a stop is noticed
# A broker that does not report the topic's end for this time is unavailable. An idle query asks most of the time, and
# its state is only sampled: fifty samples in a row can not all hit requests that were answered.
SILENCE_S = 10.0
# The topic's ID takes about 6 ms, its end and the mark a few more. Spark requests the end every few milliseconds and
# notices one that moves back. It misses only a new topic that grows past the mark between two requests.
LOOK_AGAIN_S = 1.0

_log = get_logger("apply")


class Documents(Protocol):
    """The documents that a run reads besides its task's (``zk.run.runner.SetSource``)."""

    def set_document(self, name: str) -> SetDocument:
        """The current document of a set."""

    def directives(self, set_name: str) -> Directives:
        """An operator's wishes about the members of a set. Retryable while they are unknown."""

    def capture_task_of(self, task: ApplyTask) -> CaptureTask:
        """The task that captures to the apply task's topic."""


MakeLoader = Callable[[ApplyTask, Endpoint], Loader | None]


class ApplyRunner:
    """Runs apply tasks on one Spark driver. ``make_loader``: copies the tables of later loads."""

    def __init__(
        self, driver: SparkDriver, documents: Documents, make_loader: MakeLoader | None = None
    ) -> None:
        warm()
        self._driver = driver
        self._documents = documents
        self._make_loader = make_loader or self._loader

    def run(self, task: Work, *, lease: HeldLease, stop: threading.Event, report: Report) -> None:
        """Run until ``stop`` is set or an error is raised."""
        if not isinstance(task, ApplyTask):
            raise Fatal("MR-4101", f"{task.name} is not an apply task")
        grants = Grants(task.source.brokers, apply_acls(task.source.topic))
        try:
            with grants.explained():
                self._apply(task, lease=lease, stop=stop, report=report)
        except Retryable as exc:
            # of the target; the next run tries again
            if exc.errno is not None and not stop.is_set():
                self._driver.tally.retried(task.name, str(exc.errno))
            raise

    def _apply(
        self, task: ApplyTask, *, lease: HeldLease, stop: threading.Event, report: Report
    ) -> None:
        target = self._documents.set_document(task.target)
        endpoint = primary_member(target)
        lease.verify()
        topic = TopicIdentity(task.source.brokers, task.source.topic)
        with connect(endpoint) as session:
            waiting = partial(show_wait, report=report, stop=stop)
            owner = owner_of(session, task, epoch=lease.epoch, waiting=waiting)
            if owner is None:
                return  # stopped
            weigh = partial(weighed, task, self._documents)
            if has_to_load(session, task):
                first = loading(session, task, weigh=weigh)
                loaded = self._load(first, Destination(endpoint, owner), stop, report)
                if loaded is None:
                    return  # stopped
                end_load(session, task, owner, loaded)
            applier = applier_of(session, endpoint, task, owner, weigh=weigh)
            applier.mark = followed(session, applier, topic, source=task.source)
            loader = self._make_loader(replace(task, view=applier.assignment.view), endpoint)
            note_filter(session, applier.owner, task, loader)
            applier.assignment = loading_missing(applier.assignment, task, loader)
            applier.is_partial = is_partial(session, task.name)
            session.rollback()
        applier.renewed = partial(renewed, document=target)
        comparisons = self._comparisons(task, lambda: applier.renewed(endpoint))
        beside = Beside(self._later_loads(task, applier, loader), comparisons)
        run = ApplyRun(self._driver, task, applier, report, topic, beside)
        try:
            run.until(stop)
        finally:
            run.end()

    def _load(
        self, task: ApplyTask, destination: Destination, stop: threading.Event, report: Report
    ) -> LoadStream | None:
        """Load the tables that exist: the range of the load; None if ``stop`` was set before its end."""
        with waiting_for(task.source):
            needed = topic_begin(task.source)
        load = Load(
            task,
            replace(self._origin(task), needed=needed),
            destination,
            self._driver.copies(task.name),
            lambda loaded: report(loading_report(loaded)),
        )
        return first_load(load, stop)

    def _origin(self, task: ApplyTask) -> RowSource:
        capture = self._documents.capture_task_of(task)
        document = self._documents.set_document(capture.set_name)
        return RowSource(document, capture, partial(self._documents.directives, capture.set_name))

    def _loader(self, task: ApplyTask, endpoint: Endpoint) -> LaterLoad | None:
        """None if this cluster does not have the task that captures to the topic."""
        try:
            self._documents.capture_task_of(task)
        except Retryable as exc:
            if exc.code != "MR-4203":
                raise
            return None
        copies = self._driver.copies(side_of(task.name))
        return LaterLoad(task, lambda: self._origin(task), endpoint, copies)

    def _later_loads(
        self, task: ApplyTask, applier: BatchApplier, loader: Loader | None
    ) -> LaterLoads | None:
        if loader is None:
            return None
        turns = self._driver.turns(side_of(task.name), task.source)
        return LaterLoads(Parts(applier, loader, turns))

    def _comparisons(
        self, task: ApplyTask, find_target: Callable[[], Endpoint]
    ) -> Comparisons | None:
        if not task.rules.compare.every_h:
            return None
        comparer = TaskComparer(task, lambda: self._origin(task), find_target)
        return Comparisons(comparer, task.name, task.rules.compare)


def show_wait(running: RunningStatement | None, *, report: Report, stop: threading.Event) -> bool:
    """Show the statement of an earlier run, which still runs; False at a stop."""
    report(waiting_report(running))
    return not stop.wait(STATEMENT_LOOK_S)


class Identity(Protocol):
    """Implemented by ``TopicIdentity``."""

    def ask(self) -> str:
        """The topic's current ID."""

    def end(self) -> int:
        """The topic's current end, with Kafka's markers."""

    def seq_before(self, end: int) -> int | None:
        """The ``seq`` of the last record before this end; None if it could not be read soon."""

    def retention(self) -> Retention:
        """How long the topic keeps records."""

    def sample(self, start: int, stop: int) -> TopicSample | None:
        """A sample of these offsets."""

    def close(self) -> None:
        """Release connections."""


def followed(
    session: MySqlSession, applier: BatchApplier, identity: Identity, *, source: TopicAddress
) -> Mark:
    """The mark, in the topic that was created again if the task can follow into it. Fatal MR-5070, MR-5071."""
    with waiting_for(source):
        topic_id = identity.ask()
        return follow(session, applier.owner, applier.mark, source=source, topic_id=topic_id)


def same_topic(identity: Identity, mark: Mark, *, source: TopicAddress) -> Mark:
    """The mark with the topic's ID; Fatal MR-5035 if the mark has another ID.

    Progress of an earlier version has no ID. It gets one when the mark moves, after the checks of seq and GTID set.
    """
    with waiting_for(source):
        found = identity.ask()
    known = mark.topic
    if known.id and found and known.id != found:
        raise Fatal(
            "MR-5035",
            f"topic {known.name} has the id {found}; the task has applied the topic with the id {known.id}",
        )
    return replace(mark, topic=replace(known, id=found or known.id))


@dataclass(frozen=True, slots=True)
class _MarkRead:
    """The mark that the last look read on the target, with its lag; None before the first.

    ``statement``: one that the target executes for the task, as text for the status; "" if there is none.
    """

    mark: Mark
    lag_s: float | None = None
    statement: str = ""


_ALONE = Beside()


class ApplyRun:
    """One query and its applier."""

    def __init__(
        self,
        driver: SparkDriver,
        task: ApplyTask,
        applier: BatchApplier,
        report: Report,
        topic: Identity,
        beside: Beside = _ALONE,
    ) -> None:
        self._applier = applier
        self._beside = beside
        self._report = report
        self._source = task.source
        self._incidents = partial(driver.tally.of, task.name)
        self._topic, self._loss = topic, TimeToLoss(topic)
        self._busy = threading.Lock()  # held while a micro-batch is under way
        self._ended = False
        self._failure: BaseException | None = None
        # when the broker got the request that it has not answered
        self._asked_at_s: float | None = None
        self._silence: Retryable | None = None  # of the broker to Spark
        self._unanswered: Retryable | None = None  # a request of the last look
        self._looked_s = 0.0
        self._pace, self._applied = Pace(), Applied(commit_ms=applier.mark.commit_ms)
        self._mark = applier.mark  # the newest that is known
        self._read = _MarkRead(applier.mark)
        self._reporting = threading.Lock()
        self._observer: Kept | None = None
        applier.mark = same_topic(topic, applier.mark, source=task.source)
        self._progressed(applier.mark)
        applier.begin = begin_at(task.source, applier.mark.next_offset)
        self._query: TopicQuery = driver.query(
            task.name, task.source, offset=applier.begin, process=self._process
        )
        beside.start(lambda: self._progressed(self._mark))

    def _process(self, records: Records) -> None:
        with self._busy:
            if self._ended:
                return
            try:
                self._applier.mark = self._compare_topic()
                self._applier.process(records, self._moved)
            except BaseException as exc:  # noqa: BLE001 - `until` raises it in the thread that the supervisor watches
                self._progressed(self._mark)  # with the incidents of the failed turn
                self._failure = self._failure or exc
            # A short error without causes: Spark matches a regular expression against its text. The text of a failed
            # Spark job overflowed the stack of the query's thread, and the query neither ran nor ended.
            if self._failure is not None:
                raise Retryable("MR-5050", "the micro-batch failed")

    def _compare_topic(self) -> Mark:
        """As ``same_topic``; Retryable MR-5072 if the topic was created again: the next run decides about it."""
        try:
            return same_topic(self._topic, self._applier.mark, source=self._source)
        except Fatal as exc:
            if exc.code != "MR-5035":
                raise
            raise Retryable("MR-5072", exc.message) from exc

    def _moved(self, mark: Mark) -> None:
        self._progressed(mark)
        if self._ended:
            raise Retryable("MR-5050", "the run is ending")

    def _progressed(self, mark: Mark) -> None:
        applier = self._applier
        safe_mode = SafeMode.of(applier.assignment.rules.safe_until)
        with self._reporting:
            self._mark = max(self._mark, mark, key=_place)
            report = running_report(
                self._mark,
                applier.figures,
                self._applied,
                warning=applier.warning(),
                silence=self._unanswered or self._silence,
                safe_mode=safe_mode.text(self._mark) if safe_mode else "",
                consistency=str(applier.assignment.rules.consistency),
                incidents=self._incidents(),
                statement=self._read.statement if self._busy.locked() else "",
                loads=self._beside.loading,
                comparing=self._beside.comparing,
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
                if (failure := self._beside.failure) is not None:
                    raise failure
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
        counts, is_partial = self._applier.figures.counts, self._applier.is_partial
        applied = counts.rows + counts.ddl if is_partial else None
        self._applied = self._loss.with_loss(self._pace.saw(look, applied=applied), look)
        self._progressed(read.mark)

    def _end_of_topic(self, *, is_busy: bool) -> int | None:
        """The topic's end; None if the broker does not answer, which the next report shows.

        Compares the topic's ID while an executor reads it, and after the broker was silent. An idle query notices an
        end that moves back.
        """
        try:
            if is_busy or self._unanswered or self._silence:
                self._compare_topic()
            with waiting_for(self._source):
                end = self._topic.end()
        except Retryable as exc:
            if exc.code == "MR-5072" or (is_busy and exc.code == "MR-5054"):
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
            session = self._observing()
            found = read_mark(session, self._applier.owner.task)
            session.rollback()
            statement = ""
            if found is not None and _place(found[0]) == _place(self._read.mark):
                statement = self._statement(session)
        except Retryable:
            return  # the executor finds out
        if found is not None:
            mark, lag_ms = found
            self._read = _MarkRead(mark, lag_ms / 1000 if mark.commit_ms else 0.0, statement)

    def _statement(self, session: MySqlSession) -> str:
        task = self._applier.owner.task
        streams = [task, side_of(task)] if self._applier.is_partial else [task]
        found = (find_statement(session, stream) for stream in streams)
        return "; ".join(running.shown() for running in found if running is not None)

    def _observing(self) -> MySqlSession:
        """The session that reads the mark; a new one if it is too old."""
        owner, endpoint = self._applier.owner, self._applier.assignment.endpoint
        if self._observer is None or not self._observer.is_usable(endpoint):
            self._close_observer()
            session = connect(endpoint, answer_s=ANSWER_S)
            self._observer = Kept(owner, endpoint, session, time.monotonic())
        return self._observer.session

    def _close_observer(self) -> None:
        if self._observer is not None:
            self._observer.session.close()

    def _look_for_silence(self) -> None:
        """Notice when the broker stops answering Spark and when it answers again. Spark keeps asking.

        A deleted topic looks the same to Spark. Retryable MR-5072 if another topic was created in its place.
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
            self._compare_topic()
        except Retryable as exc:
            if exc.code == "MR-5072":
                raise
            return exc
        return Retryable(
            "MR-5052", f"{self._source}: the broker did not answer Spark for {SILENCE_S:g} s"
        )

    def end(self) -> None:
        """End the query. Afterwards no micro-batch is running and none begins."""
        self._ended = True
        try:
            self._beside.end()
        finally:
            self._end_query()

    def _end_query(self) -> None:
        try:
            self._query.stop()
        finally:
            with self._busy:
                self._close_observer()
                self._topic.close()


def _place(mark: Mark) -> tuple[int, int]:
    return mark.seq, mark.next_offset
