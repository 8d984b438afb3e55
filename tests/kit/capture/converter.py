"""Shared by the converter's tests: binlog files as a relay log, a registry in memory, decoded records."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from millrace.producer.binlog.events import CHECKSUM_BYTES, HEADER_BYTES, TRANSACTION_PAYLOAD
from millrace.producer.binlog.zstd import MemorySource, Source
from millrace.producer.convert.batch import RecordBatch
from millrace.producer.convert.converter import Converter, ConverterSource
from millrace.producer.convert.tables import Prepare
from millrace.schemas.documents import TableFilter
from millrace.schemas.gtid import Flavour, parse_gtid_set
from millrace.schemas.place import FIRST_POS, Coordinates
from millrace.schemas.progress import OpenTransaction, Progress
from millrace.schemas.record.control import DdlRecord, SchemaRecord
from millrace.schemas.record.record import KnownSchemas, Record, RowRecord, decode_record
from tests.kit.binlog.builder import BinlogBuilder

SUBDIR = "3e11fa47-71ca-11e1-9e33-c80aa9429562.000001"
UUID_TEXT = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


@dataclass(frozen=True, slots=True)
class FileSpan:
    """Whole events."""

    at: Coordinates
    payload: memoryview


class FileReader:
    """Binlog files in memory, by name, as the relay log of one sub-directory."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = dict(sorted(files.items()))
        self.held: list[Coordinates] = []

    @classmethod
    def of_server(cls, folder: Path) -> "FileReader":
        """A server's own files: they are byte-identical with the relay log's."""
        files = sorted(path for path in folder.glob("mysql-bin.*") if path.suffix[1:].isdigit())
        return cls({path.name: path.read_bytes() for path in files})

    def first(self) -> Coordinates:
        """The start of the first file."""
        return Coordinates(SUBDIR, next(iter(self._files)), FIRST_POS)

    def files_until(self, at: Coordinates) -> list[Coordinates]:
        """All files up to this one."""
        return [Coordinates(SUBDIR, name, FIRST_POS) for name in self._files if name <= at.file]

    def hold(self, at: Coordinates) -> Callable[[], None]:
        """Keep the place in ``held`` until the result is called."""
        self.held.append(at)
        return lambda: self.held.remove(at)

    def read(self, at: Coordinates, *, bytes_max: int, cuts_payloads: bool = False) -> FileSpan:
        """As many whole events as fit, at least one; or the beginning of a payload that is larger."""
        content = self._files[at.file]
        end = at.pos
        is_large = self._event_bytes(at) > bytes_max
        if cuts_payloads and is_large and content[at.pos + 4] == TRANSACTION_PAYLOAD:
            return FileSpan(at, memoryview(content)[at.pos : at.pos + bytes_max])
        while end + HEADER_BYTES <= len(content):
            size = int.from_bytes(content[end + 9 : end + 13], "little")
            if end + size > len(content) or (end > at.pos and end + size - at.pos > bytes_max):
                break
            end += size
        return FileSpan(at, memoryview(content)[at.pos : end])

    def open_event(self, at: Coordinates) -> Source:
        """The event without its checksum."""
        end = at.pos + self._event_bytes(at) - CHECKSUM_BYTES
        return MemorySource(memoryview(self._files[at.file])[at.pos : end])

    def wait(self, at: Coordinates, timeout_s: float) -> bool:
        """No more data will come."""
        return False

    def after_file(self, at: Coordinates) -> Coordinates | None:
        """The next file."""
        names = list(self._files)
        following = names.index(at.file) + 1
        if at.pos < len(self._files[at.file]) or following == len(names):
            return None
        return Coordinates(SUBDIR, names[following], FIRST_POS)

    def _event_bytes(self, at: Coordinates) -> int:
        """The size of the event at `at` if it is whole, else 0."""
        content = self._files[at.file]
        size = int.from_bytes(content[at.pos + 9 : at.pos + 13], "little")
        return size if at.pos + size <= len(content) else 0


class MemoryRegistry:
    """Ids in the order of registration."""

    def __init__(self) -> None:
        self.ids: dict[tuple[str, str], int] = {}

    def __call__(self, subject: str, text: str) -> int:
        return self.ids.setdefault((subject, text), len(self.ids) + 1)


@dataclass(frozen=True, slots=True)
class Conversion:
    """One run of a converter over a reader."""

    reader: FileReader
    flavour: Flavour = Flavour.MYSQL
    filter: TableFilter = field(default_factory=TableFilter)
    progress: Progress | None = None
    at: Coordinates | None = None
    registry: MemoryRegistry = field(default_factory=MemoryRegistry)
    folds_names: bool = False

    def converter(self, prepare: Prepare = lambda _: None) -> Converter:
        """A converter at ``at``, or at the first file."""
        start = Progress(parse_gtid_set(self.flavour, ""), None, 0)
        return Converter(
            source=ConverterSource(
                "shop", "shop-capture", self.flavour, "shop", self.filter, self.folds_names
            ),
            reader=self.reader,
            register=self.registry,
            progress=self.progress or start,
            at=self.at or self.reader.first(),
            prepare=prepare,
        )

    def batches(self, *, rows_max: int = 32_768, bytes_max: int = 1 << 20) -> Iterator[RecordBatch]:
        """All remaining batches."""
        converter = self.converter()
        while True:
            # ``FileReader.wait`` never waits
            batch = converter.next_batch(rows_max=rows_max, bytes_max=bytes_max, timeout_s=600)
            if batch is None:
                return
            yield batch

    def records(self) -> list[Record]:
        """All decoded records except schema records."""
        known = KnownSchemas()
        return [
            record
            for batch in self.batches()
            for record in decoded(batch, known)
            if not isinstance(record, SchemaRecord)
        ]

    def rows(self) -> list[RowRecord]:
        """The rows."""
        return [record for record in self.records() if isinstance(record, RowRecord)]

    def statements(self) -> list[DdlRecord]:
        """The Ddl records."""
        return [record for record in self.records() if isinstance(record, DdlRecord)]


def raw_records(batch: RecordBatch) -> list[tuple[bytes | None, bytes]]:
    """Key and value bytes."""
    return [
        (
            batch.buffer[ks:ke].tobytes() if ks >= 0 else None,
            batch.buffer[vs:ve].tobytes(),
        )
        for ks, ke, vs, ve in batch.bounds.tolist()
    ]


def decoded(batch: RecordBatch, known: KnownSchemas) -> list[Record]:
    """The records, by the reference decoder."""
    return [decode_record(key, value, known) for key, value in raw_records(batch)]


def convert(builder: BinlogBuilder, **options: object) -> Conversion:
    """Return a conversion of one file."""
    return Conversion(FileReader({"mysql-bin.000001": bytes(builder.content)}), **options)  # type: ignore[arg-type]


def mysql_progress(gtid_set: str, *, seq: int, opened: OpenTransaction | None = None) -> Progress:
    """Return a MySQL progress."""
    return Progress(parse_gtid_set(Flavour.MYSQL, gtid_set), opened, seq)


def two_transactions() -> BinlogBuilder:
    """Return a transaction of three rows and one of one row."""
    builder = BinlogBuilder()
    builder.transaction(1, 7, "t", [(1, "a"), (2, None), (3, "ü")])
    builder.transaction(2, 7, "t", [(4, "d")])
    return builder
