"""Runs one capture task: converts the set's relay log to records and publishes them to the task's topic.

    receiver's thread     source → relay log            one per set, shared by its tasks (producer.source.set_stream)
    converter's thread    relay log → batches           (producer.task.pipeline)
    chores                purge the relay log; report while this thread waits for Kafka (millrace.background)
    snapshot's threads    rows that exist already       (producer.snapshot.task)
    this thread           batches → Kafka transactions  (producer.publish)

Every start is a full start: it verifies the lease, reads the position from the topic's tail, and chooses the member
again.

    step                           a crash after it leaves
    1 open the publisher           a fence record of this epoch; the former owner can no longer write
      (executes an operator's      its gap record in the topic, and the decision in ZooKeeper: the next start finds
      decision, if one waits)      the record and only removes the decision
    2 attach to the set's stream   relay files, which may be deleted
      (to resume inside a source transaction, its rows must match those in the topic, see ``producer.task.resume``)
    3 publish batches              all of a Kafka transaction or nothing; the next start reads the tail
    4 report                       a status older than the topic; no start resumes from it

Guarantees: those of the publisher. When ``run`` returns or raises, every thread of this task is joined and its Kafka
instance is closed. Not done here: retries, leases, states (``zk.run.supervisor``).
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial

from millrace.background import Background, chore
from millrace.drivers.kafka.acls import Grants, capture_acls
from millrace.errors import Fatal
from millrace.faults import fault_point, register
from millrace.log import get_logger
from millrace.producer.convert.converter import Converter, ConverterSource
from millrace.producer.convert.interleave import Inserts
from millrace.producer.convert.tables import Prepare
from millrace.producer.publish.config import publisher_config
from millrace.producer.publish.kafka import KafkaDriver
from millrace.producer.publish.opening import NO_END, Basis, TailHint
from millrace.producer.publish.publisher import Publisher
from millrace.producer.publish.topic_schemas import SchemaIds
from millrace.producer.relay.purge import Positions
from millrace.producer.relay.reader import RelayReader
from millrace.producer.snapshot.task import TaskSnapshots, snapshots_of
from millrace.producer.source.choose.chooser import ask_flavour
from millrace.producer.source.set_stream import Upstream, resolve_login
from millrace.producer.source.set_streams import Upstreams
from millrace.producer.task.batching import (
    BATCH_BYTES_MAX,
    BATCH_ROWS_MAX,
    Published,
    publish_together,
)
from millrace.producer.task.lag import Pace, reader_lag_s
from millrace.producer.task.pipeline import BatchSource, Pipeline
from millrace.producer.task.relay_task import PURGE_CHECK_S, RelayRunner, needed_positions
from millrace.producer.task.resume import Resumed, resume_inside
from millrace.registry.client import RegistryClient
from millrace.schemas.documents import CaptureTask, RelayTask, Work
from millrace.schemas.gtid import Flavour, parse_gtid_set
from millrace.schemas.place import Coordinates
from millrace.schemas.progress import Progress
from millrace.schemas.snapshot import initial_state
from millrace.schemas.status import TaskReport, TaskState
from millrace.wording import counted
from millrace.zk.run.runner import HeldLease, Report, SetSource

TAKE_S = 0.1  # time the loop waits for a batch before the publisher may write a resolved record
POLL_S = 0.05  # interval of the check for the first file of the relay log
WAIT_S = 2.0  # a Kafka transaction of 64 MiB takes less
WAIT_LOOK_S = 0.5
REPORT_S = 0.25  # the supervisor writes at most two reports per second

AFTER_ATTACH = register("capture.after_attach")
BEFORE_DECISION_ENDS = register("decision.before_removal")
AFTER_DECISION_ENDED = register("decision.after_removal")

log = get_logger("producer.task.capture")


class CaptureRunner:
    """Runs the capture tasks of one worker (``zk.run.runner.TaskRunner``). Every fence record names the worker."""

    def __init__(self, sets: SetSource, streams: Upstreams, worker: str) -> None:
        self._sets = sets
        self._streams = streams
        self._worker = worker
        self._relays = RelayRunner(sets, streams)

    def run(self, task: Work, *, lease: HeldLease, stop: threading.Event, report: Report) -> None:
        """Publish until ``stop`` is set; see the module. A relay is run as ``producer.task.relay_task`` says."""
        if isinstance(task, RelayTask):
            self._relays.run(task, lease=lease, stop=stop, report=report)
            return
        if not isinstance(task, CaptureTask):
            raise Fatal("MR-9001", f"{task.name} is not a capture task")
        grants = Grants(task.output.brokers, capture_acls(task.output.topic))
        with grants.explained():
            self._capture(task, lease=lease, stop=stop, report=report)

    def _capture(
        self, task: CaptureTask, *, lease: HeldLease, stop: threading.Event, report: Report
    ) -> None:
        document = self._sets.set_document(task.set_name)
        flavour = ask_flavour(document.members, resolve_login(document))
        config = publisher_config(task, flavour=flavour, epoch=lease.epoch, worker=self._worker)
        registry = RegistryClient(task.output.registry)
        schemas = SchemaIds(registry, KafkaDriver(config).partition, topic=config.topic)
        basis = self._basis(task, flavour)
        publisher = Publisher.open(
            config, verify_lease=lease.verify, register=schemas.register, basis=basis
        )
        with closing(publisher):
            if basis.decision is not None:
                # before anything else is published: see ``producer.publish.decision``
                fault_point(BEFORE_DECISION_ENDS)
                self._sets.end_decision(task, basis.decision)
                fault_point(AFTER_DECISION_ENDED)
            progress = publisher.progress
            is_first = progress.gtid_set.is_empty and progress.open is None
            wanted = None if is_first else progress.gtid_set
            with self._streams.attach(task.name, document, wanted=wanted) as stream:
                fault_point(AFTER_ATTACH)
                with stream.reader(task.name) as reader:
                    at = wait_for_start(stream, reader, progress=progress, stop=stop)
                    if at is None:
                        return
                    if is_first:
                        progress = start_at_first_file(stream, at, progress)
                    source = ConverterSource(
                        set_name=task.set_name,
                        task_name=task.name,
                        flavour=flavour,
                        topic=task.output.topic,
                        filter=replace(task.tables, hidden=document.heartbeat.table),
                        folds_names=stream.choice.folds_names,
                    )
                    needed = needed_positions(self._sets, task.set_name, flavour)
                    convert = converter_factory(source, reader, schemas.register, schemas.prepare)
                    loop = PublishLoop(stream, reader, publisher, report, needed)
                    if progress.open is not None:
                        loop.report(why=f"compares the rows of {progress.open.gtid} with the topic")
                        resumed = resume_open_transaction(
                            publisher, stream, reader, convert=convert, stop=stop
                        )
                        if resumed is None:
                            return
                        at, progress = resumed.at, resumed.progress
                    with snapshots_of(
                        source,
                        document,
                        limits=task.snapshot_limits,
                        stream=stream,
                        publisher=publisher,
                        sets=self._sets,
                        progress=progress,
                    ) as snapshots:
                        convert = converter_factory(
                            source, reader, schemas.register, schemas.prepare, snapshots.inserts
                        )
                        loop.run(convert(progress, at), stop, snapshots)

    def _basis(self, task: CaptureTask, flavour: Flavour) -> Basis:
        """The inputs of the start besides the topic."""
        snapshot = initial_state(task.tables.include) if task.begins_with_rows else None
        start = Progress(parse_gtid_set(flavour, task.start.gtid_set), None, 0, snapshot)
        hint = tail_hint(self._sets.last_report(task), task.output.topic, flavour=flavour)
        return Basis(start, hint, self._sets.waiting_decision(task))


class PublishLoop:
    """Takes batches, publishes them and reports. A failed stream ends the loop, even if more batches are available."""

    def __init__(
        self,
        stream: Upstream,
        reader: RelayReader,
        publisher: Publisher,
        report: Report,
        needed: Callable[[], Positions | None],
    ) -> None:
        self._stream = stream
        self._needed = needed
        self._reader = reader
        self._publisher = publisher
        self._send_report = report
        self._reported_at_s = 0.0
        self._at: Coordinates | None = None
        self._pace = Pace(at_s=time.monotonic())
        self._measuring = threading.Lock()  # around the pace, which two threads use
        self._unread: list[Published] = []  # committed, and not seen by a reader yet
        self._filter_warning = self._logged_warning = ""
        self._snapshots: TaskSnapshots | None = None

    def run(
        self,
        converter: BatchSource,
        stop: threading.Event,
        snapshots: TaskSnapshots | None = None,
    ) -> None:
        """Publish until ``stop`` is set. Raises the errors of the stream, the converter and the publisher."""
        self._snapshots = snapshots
        purge = partial(self._stream.purge_if_due, self._needed)
        with (
            Pipeline(converter, rows_max=BATCH_ROWS_MAX, bytes_max=BATCH_BYTES_MAX) as pipeline,
            chore("purge", purge, every_s=PURGE_CHECK_S) as purging,
            chore("waits", self._report_wait, every_s=WAIT_LOOK_S) as waiting,
        ):
            self.report(why="starts")
            try:
                self._publish_all(pipeline, converter, (purging, waiting), stop)
            finally:
                # If retention empties the topic, the next start needs the end of the topic from this report.
                self.report(why="ends")

    def _publish_all(
        self,
        pipeline: Pipeline,
        converter: BatchSource,
        chores: Sequence[Background],
        stop: threading.Event,
    ) -> None:
        while not stop.is_set():
            self._stream.check()
            for thread in chores:
                thread.check()
            self._settle()
            batch = pipeline.take(timeout_s=TAKE_S)
            self._filter_warning = converter.filter_warning
            if batch is None:
                self._publisher.idle()
                if converter.is_caught_up:
                    with self._measuring:
                        self._pace.idle(at_s=time.monotonic())
                    self._log_filter_warning()
                self._report_if_due(why=self._idle_reason(converter))
                continue
            with self._measuring:
                self._pace.begins(at_s=time.monotonic())
            published = publish_together(self._publisher, batch, pipeline, converter)
            self._unread.append(published)
            self._at = published.coordinates
            self._reader.release(published.coordinates)
            self._report_if_due(why="publishes")

    def _settle(self) -> None:
        """Note what readers of the topic see by now."""
        if self._publisher.wait_visible() and self._unread:
            now_s, now_ms = time.monotonic(), time.time_ns() // 1_000_000
            with self._measuring:
                for published in self._unread:
                    self._pace.published(
                        published.rows, published.commit_ms, at_s=now_s, at_ms=now_ms
                    )
            self._unread.clear()

    def _idle_reason(self, converter: BatchSource) -> str:
        if not converter.is_caught_up:
            return "reads the relay log"
        if self._stream.paused_by:
            return f"has read the relay log; the relay is paused by {self._stream.paused_by}"
        source = self._stream.captured().source
        name = f"{source.host}:{source.port}"
        if source.missing and source.lag_s is None:
            missing = counted(source.missing, "transaction")
            return f"waits for {name}, which misses {missing} of the set"
        if source.lag_s:
            return f"waits for {name}, which is {source.lag_s:.0f} s behind the primary"
        if self._snapshots is not None and (pause := self._snapshots.pause):
            return f"the snapshot pauses: {pause}"
        return "waits for changes"

    def _log_filter_warning(self) -> None:
        """Log the warning once the task has caught up: until then, the first included table may still come."""
        if self._filter_warning and not self._logged_warning:
            self._logged_warning = self._filter_warning
            log.warning("the task publishes no table", why=self._filter_warning)

    def _report_if_due(self, *, why: str) -> None:
        if time.monotonic() - self._reported_at_s >= REPORT_S:
            self.report(why=why)

    def _report_wait(self) -> None:
        """Report in the place of the loop while it waits for Kafka: a frozen broker holds it up for 20 s."""
        since_s = self._publisher.request_since_s
        if since_s is not None and (age_s := time.monotonic() - since_s) >= WAIT_S:
            self.report(why=f"waits for Kafka, which has not answered for {age_s:.0f} s")

    def report(self, *, why: str) -> None:
        now_s = self._reported_at_s = time.monotonic()
        with self._measuring:
            stage = self._pace.stage(at_s=now_s)
        captured = self._stream.captured()
        is_paused = bool(self._stream.paused_by)
        publisher = self._publisher
        hint = publisher.hint
        progress = hint.progress
        self._send_report(
            TaskReport(
                TaskState.RUNNING,
                why=why,
                gtid_set=str(progress.gtid_set),
                seq=progress.seq,
                topic=publisher.topic,
                topic_end=0 if progress.open else hint.end_offset,
                warnings=self._warnings(),
                captured=captured,
                relayed=self._stream.relayed(),
                published=replace(
                    stage,
                    lag_s=reader_lag_s(stage.lag_s, captured.source, is_paused=is_paused),
                    at=str(self._at or ""),
                    commit_s=publisher.commit_s,
                    renewed=publisher.renewed_count,
                    slow_path=publisher.slow_path,
                ),
                snapshot=self._snapshots.stage(at_s=now_s) if self._snapshots is not None else None,
            )
        )

    def _warnings(self) -> tuple[str, ...]:
        found = (
            self._publisher.topic_warning,
            self._stream.heartbeat_warning,
            self._filter_warning,
            *(self._snapshots.warnings if self._snapshots is not None else ()),
        )
        return tuple(warning for warning in found if warning)


def tail_hint(report: TaskReport | None, topic: str, *, flavour: Flavour) -> TailHint | None:
    """The last reported progress and end of this topic, in case it is empty or deleted; see the publisher's rule 6."""
    if report is None or report.topic not in ("", topic) or not (report.topic_end or report.seq):
        return None
    progress = Progress(parse_gtid_set(flavour, report.gtid_set), None, report.seq)
    return TailHint(progress, report.topic_end or NO_END)


def wait_for_start(
    stream: Upstream, reader: RelayReader, *, progress: Progress, stop: threading.Event
) -> Coordinates | None:
    """Wait for the first wanted source transaction and return its place in the relay log; None when stopped."""
    is_first = stream.wanted is None and progress.gtid_set.is_empty
    while not stop.is_set():
        stream.check()
        if stream.is_verified:
            at = stream.first(reader) if is_first else reader.seek(progress.gtid_set)
            if (
                at is not None
                and stream.may_start_at(at)
                and (not is_first or stream.relay.position_before(at) is not None)
            ):
                return at
        stop.wait(POLL_S)
    return None


def converter_factory(
    source: ConverterSource,
    reader: RelayReader,
    register: Callable[[str, str], int],
    prepare: Prepare = lambda _: None,
    inserts: Inserts | None = None,
) -> Callable[[Progress, Coordinates], Converter]:
    """Returns a function that creates a converter for a progress and a place in the relay log."""

    def convert(progress: Progress, at: Coordinates) -> Converter:
        return Converter(
            source=source,
            reader=reader,
            register=register,
            progress=progress,
            at=at,
            prepare=prepare,
            inserts=inserts,
        )

    return convert


def resume_open_transaction(
    publisher: Publisher,
    stream: Upstream,
    reader: RelayReader,
    *,
    convert: Callable[[Progress, Coordinates], Converter],
    stop: threading.Event,
) -> Resumed | None:
    """Where to resume inside the open source transaction; None when stopped."""

    def may_wait() -> bool:
        stream.check()
        return not stop.is_set()

    progress = publisher.progress
    with closing(publisher.published_part()) as part:
        places = reader.seek_all(progress.gtid_set)
        resumed = resume_inside(part, places, progress, convert=convert, may_wait=may_wait)
    if resumed is not None:
        reader.release(resumed.at)
    return resumed


def start_at_first_file(stream: Upstream, at: Coordinates, progress: Progress) -> Progress:
    """Progress that counts everything before the first available binlog file as done: no server has it any more."""
    before = stream.relay.position_before(at)
    assert before is not None, "wait_for_start has waited for it"
    return replace(progress, gtid_set=before)
