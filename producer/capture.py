"""One capture task at work: the set's relay log becomes records of its topic.

    receiver's thread     source → relay log            one per set, shared by its tasks (producer.set_stream)
    converter's thread    relay log → batches           (producer.handoff)
    this thread           batches → Kafka transactions  (producer.publisher)

Every start is a full start: the lease is verified, the topic's tail says where to go on, the member is chosen anew.

    step                           a crash behind it leaves
    1 open the publisher           a fence record of our epoch; the former owner can't write any more
    2 attach to the set's stream   relay files, which may be deleted
      (inside a source transaction: only where its rows are those of the topic, see ``producer.resume``)
    3 publish a batch              the batch whole or not at all; the next start reads the tail
    4 report                       a status that is older than the topic; nothing is resumed from it

Guarantees: those of the publisher; when ``run`` returns or raises, every thread of this task is joined and its
Kafka instance closed. Not done here: retries, leases, states (``zk.supervisor``).
"""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace

from millrace.errors import Fatal
from millrace.faults import fault_point, register
from millrace.log import get_logger
from producer.converter.converter import Converter, ConverterSource
from producer.handoff import Handoff
from producer.publisher.config import PublisherConfig, transactional_id
from producer.publisher.opening import NO_END, TailHint
from producer.publisher.publisher import Publisher
from producer.relay.reader import RelayReader
from producer.resume import Resumed, resume_inside
from producer.set_stream import SetStream, SetStreams, login_of
from producer.source.inventory import ask_flavour
from schemas.coordinates import Coordinates
from schemas.documents import CaptureTask, TaskDocument
from schemas.gtid import Flavour, parse_gtid_set
from schemas.progress import Progress
from schemas.registry.client import RegistryClient
from schemas.status import Figure, TaskReport, TaskState
from zk.runner import HeldLease, Report, SetSource

# One Kafka transaction while catching up: more amortises the commit (2 to 25 ms) no further.
BATCH_ROWS_MAX = 50_000
BATCH_BYTES_MAX = 16 << 20
TAKE_S = 0.1  # how long an empty hand-off is waited for before the publisher may write a resolved
POLL_S = 0.05  # how often the first file of the relay log is looked for
REPORT_S = 0.25  # the supervisor writes at most two a second

AFTER_ATTACH = register("capture.after_attach")

log = get_logger("producer.capture")


class CaptureRunner:
    """Runs the capture tasks of one worker, which every fence record names; see ``zk.runner.TaskRunner``."""

    def __init__(self, sets: SetSource, streams: SetStreams, worker: str) -> None:
        self._sets = sets
        self._streams = streams
        self._worker = worker

    def run(
        self, task: TaskDocument, *, lease: HeldLease, stop: threading.Event, report: Report
    ) -> None:
        """Publish until ``stop``; see the module."""
        if not isinstance(task, CaptureTask):
            raise Fatal("MR-9001", f"{task.name} is not a capture task")
        document = self._sets.set_document(task.set_name)
        flavour = ask_flavour(document.members, login_of(document))
        registry = RegistryClient(task.output.registry)
        start = Progress(parse_gtid_set(flavour, task.start.gtid_set), None, 0)
        config = self._publisher_config(task, flavour, lease.epoch)
        publisher = Publisher.open(
            config,
            verify_lease=lease.verify,
            register=registry.register,
            start=start,
            hint=hint_of(self._sets.last_report(task), task.output.topic, flavour=flavour),
        )
        with closing(publisher):
            progress = publisher.progress
            is_first = progress.gtid_set.is_empty and progress.open is None
            wanted = None if is_first else progress.gtid_set
            with self._streams.attach(task.name, document, wanted=wanted) as stream:
                fault_point(AFTER_ATTACH)
                with stream.reader() as reader:
                    at = first_coordinates(stream, reader, progress=progress, stop=stop)
                    if at is None:
                        return
                    if is_first:
                        progress = _from_first_file(stream, at, progress)
                    source = ConverterSource(
                        set_name=task.set_name,
                        task_name=task.name,
                        flavour=flavour,
                        topic=task.output.topic,
                        filter=task.tables,
                        folds_names=stream.choice.folds_names,
                    )
                    pump = _Pump(stream, reader, publisher, report)
                    convert = converting(source, reader, registry.register)
                    if progress.open is not None:
                        pump.tell(why=f"compares the rows of {progress.open.gtid} with the topic's")
                        resumed = _resumed(publisher, stream, reader, convert=convert, stop=stop)
                        if resumed is None:
                            return
                        at, progress = resumed.at, resumed.progress
                    pump.run(convert(progress, at), stop)

    def _publisher_config(self, task: CaptureTask, flavour: Flavour, epoch: int) -> PublisherConfig:
        topic = task.output.topic
        return PublisherConfig(
            bootstrap=task.output.bootstrap,
            topic=topic,
            transactional_id=transactional_id(topic),
            epoch=epoch,
            worker=self._worker,
            set=task.set_name,
            flavour=flavour,
        )


class _Pump:
    """Takes batches, publishes them, reports."""

    def __init__(
        self, stream: SetStream, reader: RelayReader, publisher: Publisher, report: Report
    ) -> None:
        self._stream = stream
        self._reader = reader
        self._publisher = publisher
        self._report = report
        self._reported_at_s = 0.0
        self._rows = 0
        self._at: Coordinates | None = None

    def run(self, converter: Converter, stop: threading.Event) -> None:
        with Handoff(converter, rows_max=BATCH_ROWS_MAX, bytes_max=BATCH_BYTES_MAX) as handoff:
            self.tell(why="begins")
            try:
                self._publish_all(handoff, stop)
            finally:
                # where the topic ends now is what a start after retention took everything has to know
                self.tell(why="ends")

    def _publish_all(self, handoff: Handoff, stop: threading.Event) -> None:
        while not stop.is_set():
            self._stream.purge_now_and_then()
            batch = handoff.take(timeout_s=TAKE_S)
            if batch is None:
                self._stream.check()
                self._publisher.idle()
                member = self._stream.status().member
                self._tell_now_and_then(why=f"caught up with {member}: waits for changes")
                continue
            self._publisher.publish(batch)
            self._rows += batch.counts.rows
            self._at = batch.coordinates
            self._reader.release(batch.coordinates)
            self._tell_now_and_then(why="publishes")

    def _tell_now_and_then(self, *, why: str) -> None:
        if time.monotonic() - self._reported_at_s >= REPORT_S:
            self.tell(why=why)

    def tell(self, *, why: str) -> None:
        """Report."""
        self._reported_at_s = time.monotonic()
        hint = self._publisher.hint
        progress = hint.progress
        self._report(
            TaskReport(
                TaskState.RUNNING,
                why=why,
                gtid_set=str(progress.gtid_set),
                seq=progress.seq,
                topic=self._publisher.topic,
                topic_end=0 if progress.open else hint.end_offset,
                figures=self._figures(),
            )
        )

    def _figures(self) -> Mapping[str, Figure]:
        receiver = self._stream.status()
        end = self._stream.relay.end()
        return {
            "source": receiver.member,
            "choice": " | ".join(self._stream.choice.reasons().values()),
            "connects": receiver.connects,
            "received_bytes": receiver.figures.received_bytes,
            "relay_end": str(end or ""),
            "converted_to": str(self._at or ""),
            "rows": self._rows,
            "commit_ms": round(self._publisher.commit_s * 1000, 1),
            "instances_renewed": self._publisher.renewed_count,
        }


def hint_of(report: TaskReport | None, topic: str, *, flavour: Flavour) -> TailHint | None:
    """What the status remembers of this topic, for one that is empty or gone; see the publisher's rule 6."""
    if report is None or report.topic not in ("", topic) or not (report.topic_end or report.seq):
        return None
    progress = Progress(parse_gtid_set(flavour, report.gtid_set), None, report.seq)
    return TailHint(progress, report.topic_end or NO_END)


def first_coordinates(
    stream: SetStream, reader: RelayReader, *, progress: Progress, stop: threading.Event
) -> Coordinates | None:
    """Where in the relay log the first wanted source transaction is, once it is there; None when stopped."""
    is_first = stream.wanted is None and progress.gtid_set.is_empty
    while not stop.is_set():
        stream.check()
        if stream.is_agreed:
            at = stream.first(reader) if is_first else reader.seek(progress.gtid_set)
            if (
                at is not None
                and stream.is_received(at)
                and (not is_first or stream.relay.position_before(at) is not None)
            ):
                return at
        stop.wait(POLL_S)
    return None


def converting(
    source: ConverterSource, reader: RelayReader, register: Callable[[str, str], int]
) -> Callable[[Progress, Coordinates], Converter]:
    """Makes converters: behind this progress, from this place of the relay log."""

    def convert(progress: Progress, at: Coordinates) -> Converter:
        return Converter(source=source, reader=reader, register=register, progress=progress, at=at)

    return convert


def _resumed(
    publisher: Publisher,
    stream: SetStream,
    reader: RelayReader,
    *,
    convert: Callable[[Progress, Coordinates], Converter],
    stop: threading.Event,
) -> Resumed | None:
    """Where the open source transaction goes on; None when stopped."""

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


def _from_first_file(stream: SetStream, at: Coordinates, progress: Progress) -> Progress:
    """Everything in front of the first binlog there is counts as done: nobody can have it."""
    before = stream.relay.position_before(at)
    assert before is not None, "waited for in first_coordinates"
    return replace(progress, gtid_set=before)
