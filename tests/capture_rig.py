"""Capture without Kafka: from the set to records, taken up again after every error, as the supervisor does."""

import threading
from dataclasses import dataclass, field

from millrace.errors import MillraceError, Retryable
from producer.converter.converter import Converter, ConverterSource
from producer.relay.reader import RelayReader
from producer.set_stream import SetStream, SetStreams
from schemas.coordinates import Coordinates
from schemas.documents import SetDocument, TableFilter
from schemas.progress import Progress
from schemas.record import RowRecord, SchemaBook
from tests.converter_rig import MemoryRegistry, decoded

PAUSE_S = 0.2


@dataclass
class MemoryCapture:
    """Rows of the set from ``progress`` on; ``errors`` are those after which it went on, ``error`` is its end."""

    streams: SetStreams
    document: SetDocument
    filter: TableFilter
    progress: Progress
    rows: list[RowRecord] = field(default_factory=list)
    members: list[str] = field(default_factory=list)
    errors: list[MillraceError] = field(default_factory=list)
    error: MillraceError | None = None

    def __enter__(self) -> "MemoryCapture":
        self._stop = threading.Event()
        self._registry, self._book = MemoryRegistry(), SchemaBook()
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
            self.members.append(str(stream.choice.member))
            at = self._first(stream, reader)
            if at is not None:
                self._convert(stream, reader, at)

    def _first(self, stream: SetStream, reader: RelayReader) -> Coordinates | None:
        while not self._stop.wait(0.02):
            stream.check()
            at = reader.seek(self.progress.gtid_set)
            if at is not None:
                return at
        return None

    def _convert(self, stream: SetStream, reader: RelayReader, at: Coordinates) -> None:
        flavour = stream.choice.flavour
        name = self.document.name
        converter = Converter(
            source=ConverterSource(name, "capture", flavour, name, self.filter),
            reader=reader,
            register=self._registry,
            progress=self.progress,
            at=at,
        )
        while not self._stop.is_set():
            batch = converter.next_batch(rows_max=500, bytes_max=1 << 20, timeout_s=0.1)
            if batch is None:
                stream.check()
                continue
            records = decoded(batch, self._book)
            self.rows += [record for record in records if isinstance(record, RowRecord)]
            self.progress = batch.progress
            reader.release(batch.coordinates)
