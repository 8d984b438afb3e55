"""Capture without Kafka: from the set to records, restarted after every error as the supervisor does."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from millrace.errors import MillraceError, Retryable
from millrace.producer.convert.converter import ConverterSource
from millrace.producer.relay.reader import RelayReader
from millrace.producer.source.set_stream import Upstream
from millrace.producer.source.set_streams import Upstreams
from millrace.producer.task.capture import converter_factory, wait_for_start
from millrace.producer.task.resume import resume_inside
from millrace.schemas.documents import SetDocument, TableFilter
from millrace.schemas.place import Coordinates
from millrace.schemas.progress import Progress
from millrace.schemas.record.control import RecordKind
from millrace.schemas.record.framing import peek_kind
from millrace.schemas.record.record import KnownSchemas, RowRecord
from millrace.schemas.record.row_end import read_row_end
from tests.kit.capture.converter import MemoryRegistry, decoded, raw_records

PAUSE_S = 0.2


@dataclass
class MemoryCapture:
    """Captures rows from ``progress`` on; it restarted after ``errors`` and ended with ``error``."""

    streams: Upstreams
    document: SetDocument
    filter: TableFilter
    progress: Progress
    rows: list[RowRecord] = field(default_factory=list)
    members: list[str] = field(default_factory=list)
    errors: list[MillraceError] = field(default_factory=list)
    error: MillraceError | None = None
    values: list[bytes] = field(default_factory=list)  # of rows and statements: the topic
    stream: Upstream = field(init=False)  # the one that is attached now, or was attached last
    ends_inside: bool = False  # at the first batch that ends inside of a source transaction

    def units(self) -> Iterator[bytes]:
        """The published part of the open source transaction, as ``publisher.published_part`` returns it."""
        opened = self.progress.open
        assert opened is not None
        return iter([value for value in self.values if _gtid_of(value) == opened.gtid])

    @property
    def is_alive(self) -> bool:
        """False after the end."""
        return self._thread.is_alive()

    def __enter__(self) -> "MemoryCapture":
        self._stop = threading.Event()
        self._registry, self._known = MemoryRegistry(), KnownSchemas()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._attach()
            except Retryable as error:
                self.errors.append(error)
                self._stop.wait(PAUSE_S)
            except MillraceError as error:
                self.error = error
                return

    def _attach(self) -> None:
        wanted = self.progress.gtid_set
        with (
            self.streams.attach("capture", self.document, wanted=wanted) as stream,
            stream.reader() as reader,
        ):
            self.stream = stream
            self.members.append(str(stream.choice.member))
            at = wait_for_start(stream, reader, progress=self.progress, stop=self._stop)
            if at is not None:
                self._convert(stream, reader, at)

    def _convert(self, stream: Upstream, reader: RelayReader, at: Coordinates) -> None:
        name = self.document.name
        choice = stream.choice
        source = ConverterSource(
            name, "capture", choice.flavour, name, self.filter, choice.folds_names
        )
        convert = converter_factory(source, reader, self._registry)
        progress = self.progress
        if progress.open is not None:

            def may_wait() -> bool:
                stream.check()
                return not self._stop.is_set()

            places = reader.seek_all(progress.gtid_set)
            resumed = resume_inside(self, places, progress, convert=convert, may_wait=may_wait)
            if resumed is None:
                return
            at, progress = resumed.at, resumed.progress
        converter = convert(progress, at)
        while not self._stop.is_set():
            batch = converter.next_batch(rows_max=500, bytes_max=1 << 20, timeout_s=0.1)
            if batch is None:
                stream.check()
                continue
            records = decoded(batch, self._known)
            found = [value for _, value in raw_records(batch)]
            self.values += [value for value in found if peek_kind(value) is RecordKind.ROW]
            self.rows += [record for record in records if isinstance(record, RowRecord)]
            self.progress = batch.progress
            reader.release(batch.coordinates)
            if batch.progress.open is not None and self.ends_inside:
                self._stop.set()


def _gtid_of(value: bytes) -> str:
    return read_row_end(value).gtid
