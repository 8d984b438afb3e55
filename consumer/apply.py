"""The runner of apply tasks: from what the target says to what the topic holds, until it is asked to stop.

Start, in this order: the writable member of the target set; our tables; the fence (from here on no earlier run
writes); a statement of an earlier run is ended; progress and inventory are read; the query begins at the offset of
the mark, or at the first that retention left.

Reports ``gtid_set`` and ``seq`` as of the mark, and figures; DEGRADED while the broker is silent. Ends when ``stop``
is set, with the query, its Spark jobs and the micro-batch under way ended; raises Retryable, Fenced, Fatal as the
runner's contract says.
"""

import threading
import time
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from consumer.batch import Assignment, BatchApplier
from consumer.ddl import end_earlier
from consumer.spark import FIRST_OFFSET, LANES_MAX, Records, SparkDriver, TopicQuery
from consumer.target.connection import Endpoint, TargetConnection, connect
from consumer.target.fence import raise_fence
from consumer.target.inventory import read_inventory
from consumer.target.members import primary_member
from consumer.target.progress import (
    Mark,
    check_fence,
    create_tables,
    insert_mark,
    read_standing,
)
from consumer.topic.kafka import first_offset
from consumer.warm import warm
from millrace.errors import Fatal, MillraceError, Retryable
from millrace.log import get_logger
from schemas.documents import ApplyTask, Consistency, SetDocument, TaskDocument, TopicAddress
from schemas.gtid import Flavour, parse_gtid_set
from schemas.status import TaskReport, TaskState
from zk.runner import HeldLease, Report

LOOK_S = 0.2  # how soon a stop is seen
# What the driver itself applies may wait for a row that somebody has locked, LOCK_TRIES_MAX times LOCK_WAIT_S. At a
# stop its connection is cut after this long: fence and mark tell the next run what became of it.
CUT_AFTER_S = 2.0
# A broker that does not say where the topic ends for so long is away. A query without work asks most of the time, and
# what it does is only sampled: fifty samples in a row don't fall on questions that were answered.
SILENCE_S = 10.0

_log = get_logger("apply")


class TargetSets(Protocol):
    """Where the set documents are."""

    def set_document(self, name: str) -> SetDocument:
        """As it stands now."""


class ApplyRunner:
    """Runs apply tasks on one Spark driver."""

    def __init__(self, driver: SparkDriver, sets: TargetSets) -> None:
        warm()
        self._driver = driver
        self._sets = sets

    def run(
        self, task: TaskDocument, *, lease: HeldLease, stop: threading.Event, report: Report
    ) -> None:
        """Until ``stop`` is set or an error is raised."""
        if not isinstance(task, ApplyTask):
            raise Fatal("MR-4101", f"{task.name} is not an apply task")
        if task.rules.consistency is not Consistency.CAUSAL:
            raise Fatal(
                "MR-5008", "consistency: transactional is not available yet", task=task.name
            )
        endpoint = primary_member(self._sets.set_document(task.target))
        lease.verify()
        session = connect(endpoint)
        try:
            applier = take_over(session, endpoint, task, epoch=lease.epoch)
        finally:
            session.close()
        run = _Run(self._driver, task, applier, report)
        try:
            run.until(stop)
        finally:
            run.end()


def take_over(
    session: TargetConnection, endpoint: Endpoint, task: ApplyTask, *, epoch: int
) -> BatchApplier:
    """Fence, progress, inventory: everything that a start asks of the target."""
    create_tables(session)
    owner = raise_fence(session, task=task.name, epoch=epoch)
    end_earlier(session, task.name)
    standing = read_standing(session, task.name)
    mark = standing.mark
    if mark is None:
        mark = first_mark(task)
        check_fence(session, owner)  # two first starts at once: one of them writes it
        insert_mark(session, task.name, mark)
    elif mark.topic != task.source.topic:
        raise Fatal(
            "MR-5022", f"progress is of topic {mark.topic}, the task names {task.source.topic}"
        )
    inventory = read_inventory(session)
    session.commit()
    _log.info("apply begins", task=task.name, run=owner.run, seq=mark.seq, offset=mark.next_offset)
    given = Assignment(
        owner, endpoint, task.rules.conflict, min(task.rules.lanes, LANES_MAX), task.source.registry
    )
    return BatchApplier.at(given, standing, inventory, mark)


def first_mark(task: ApplyTask) -> Mark:
    """Where a task begins that has no progress; rows that ``start`` covers will be passed over."""
    if task.start.is_first:
        return Mark(0, FIRST_OFFSET, topic=task.source.topic)
    flavour = Flavour.MYSQL if ":" in task.start.gtid_set else Flavour.MARIADB
    start = parse_gtid_set(flavour, task.start.gtid_set)
    return Mark(-1, FIRST_OFFSET, str(start), str(flavour), task.source.topic, 0, False)


def _begin(source: TopicAddress, offset: int) -> int:
    """``first_offset``; a topic that is not there yet is waited for, as a broker is."""
    if offset < 0:
        return offset
    try:
        return first_offset(source.bootstrap, source.topic, offset)
    except MillraceError as exc:
        if exc.code == "MR-3501":
            raise Retryable("MR-5052", exc.message) from exc
        raise


class _Run:
    """One query and its applier."""

    def __init__(
        self, driver: SparkDriver, task: ApplyTask, applier: BatchApplier, report: Report
    ) -> None:
        self._applier = applier
        self._report = report
        self._busy = threading.Lock()  # held while a micro-batch is under way
        self._ended = False
        self._failure: BaseException | None = None
        self._asked_at_s: float | None = None  # since when the broker owes an answer
        self._is_silent = False
        self._progressed(applier.mark)
        self._query: TopicQuery = driver.query(
            task.name,
            task.source,
            offset=_begin(task.source, applier.mark.next_offset),
            process=self._process,
        )

    def _process(self, records: Records) -> None:
        with self._busy:
            if self._ended:
                return
            try:
                self._applier.process(records, self._moved)
            except BaseException as exc:  # noqa: BLE001 - comes out of `until`, in the thread that the supervisor watches
                self._failure = exc
            # Short and without its causes: Spark runs a regular expression over the text of what is raised here. A
            # failed Spark job's story overflowed the stack of the query's thread, and the query neither ran nor ended.
            if self._failure is not None:
                raise Retryable("MR-5050", "the micro-batch failed")

    def _moved(self, mark: Mark) -> None:
        self._progressed(mark)
        if self._ended:  # what the driver itself applies, no cancelled job ends
            raise Retryable("MR-5050", "the run ends")

    def _progressed(self, mark: Mark) -> None:
        self._report(self._running(mark))

    def _running(self, mark: Mark) -> TaskReport:
        figures = self._applier.figures
        return TaskReport(
            TaskState.RUNNING,
            gtid_set=mark.gtid_set,
            seq=max(mark.seq, 0),
            figures={
                "offset": mark.next_offset,
                "rows": figures.rows,
                "statements": figures.statements,
                "micro_batches": figures.batches,
                "ddl": figures.ddl,
                "last_commit_ms": figures.commit_ms,
                "not_applied": figures.left_out,
            },
        )

    def until(self, stop: threading.Event) -> None:
        """Wait for the end; raises what a micro-batch raised."""
        try:
            while not stop.is_set() and self._failure is None:
                if self._query.wait(LOOK_S):
                    break
                self._look_for_silence()
        except MillraceError as exc:
            raise self._failure or exc from exc
        if self._failure is not None:
            raise self._failure

    def _look_for_silence(self) -> None:
        """Say so when the broker does not answer, and when it does again; the query goes on asking."""
        now_s = time.monotonic()
        if not self._query.is_asking():
            self._asked_at_s = None
            if self._is_silent:
                self._is_silent = False
                self._progressed(self._applier.mark)
        elif self._asked_at_s is None:
            self._asked_at_s = now_s
        elif not self._is_silent and now_s - self._asked_at_s > SILENCE_S:
            self._is_silent = True
            why = Retryable("MR-5052", f"the broker did not answer for {SILENCE_S:g} s")
            told = replace(self._running(self._applier.mark), state=TaskState.DEGRADED)
            self._report(replace(told, why=why.message, code=why.code, fix=why.fix))

    def end(self) -> None:
        """No micro-batch runs and none begins after this."""
        self._ended = True
        over = threading.Event()
        cutting = threading.Thread(target=self._cut_until, args=(over,), name="cut", daemon=True)
        try:
            with suppress(RuntimeError):  # no thread for it: what waits for a row waits
                cutting.start()
            self._query.stop()
        finally:
            with self._busy:
                over.set()
                if cutting.is_alive():
                    cutting.join()
                self._applier.close()

    def _cut_until(self, over: threading.Event) -> None:
        while not over.wait(CUT_AFTER_S):
            self._applier.cut()
