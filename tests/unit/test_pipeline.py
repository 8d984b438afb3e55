"""Between converter and publisher: a batch is cut when it is taken."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from millrace.errors import Retryable
from millrace.producer.convert.batch import RecordBatch
from millrace.producer.convert.converter import Converter
from millrace.producer.task.pipeline import Pipeline
from millrace.schemas.place import Coordinates
from millrace.schemas.record.record import KnownSchemas, RowRecord
from tests.kit.binlog.builder import BinlogBuilder
from tests.kit.capture.converter import Conversion, FileReader, FileSpan, decoded
from tests.kit.waiting import PATIENCE_S, eventually

FILE = "mysql-bin.000001"


class GrowingReader(FileReader):
    """A relay log of one file that grows."""

    def __init__(self) -> None:
        self._builder = BinlogBuilder()
        super().__init__({FILE: bytes(self._builder.content)})
        self._grown = threading.Condition()
        self._number = 0
        self.walked_to = 0

    def grow(self) -> None:
        """Add a source transaction of one row, whose id is its number."""
        with self._grown:
            self._number += 1
            self._builder.transaction(self._number, 7, "t", [(self._number, "x")])
            self._files[FILE] = bytes(self._builder.content)
            self._grown.notify_all()

    @property
    def is_read(self) -> bool:
        """Whether the converter has asked for what follows the last byte."""
        return self.walked_to == len(self._files[FILE])

    def read(self, at: Coordinates, *, bytes_max: int, cuts_payloads: bool = False) -> FileSpan:
        span = super().read(at, bytes_max=bytes_max, cuts_payloads=cuts_payloads)
        self.walked_to = at.pos
        return span

    def wait(self, at: Coordinates, timeout_s: float) -> bool:
        with self._grown:
            return self._grown.wait_for(lambda: at.pos < len(self._files[FILE]), timeout_s)


def ids(batch: RecordBatch | None, known: KnownSchemas) -> list[object]:
    """Return the ids of the batch's rows."""
    assert batch is not None
    rows = [record for record in decoded(batch, known) if isinstance(record, RowRecord)]
    return [row.change.after["id"] for row in rows if row.change.after is not None]


def test_batch_grows_until_it_is_wanted() -> None:
    """Without a demand there is none; with it there is one, with everything that has arrived."""
    reader, wanted, known = GrowingReader(), threading.Event(), KnownSchemas()
    converter = Conversion(reader).converter()
    for _ in range(3):
        reader.grow()
        assert _next(converter, wanted, timeout_s=0.0) is None
        assert converter.is_caught_up
    wanted.set()
    reader.grow()
    assert ids(_next(converter, wanted, timeout_s=PATIENCE_S), known) == [1, 2, 3, 4]


def test_full_batch_needs_no_demand() -> None:
    """The memory of a batch is bounded, whatever the publisher does."""
    reader, wanted, known = GrowingReader(), threading.Event(), KnownSchemas()
    for _ in range(50):
        reader.grow()
    converter = Conversion(reader).converter()
    found: list[object] = []
    while (batch := _next(converter, wanted, rows_max=10, timeout_s=0.0)) is not None:
        assert len(batch.bounds) <= 11
        found += ids(batch, known)
    assert found == list(range(1, len(found) + 1))
    assert 40 <= len(found) < 50


def test_rows_that_arrive_during_a_commit_are_one_batch() -> None:
    """Otherwise the first of them is cut alone, and the others wait for one more Kafka transaction."""
    known = KnownSchemas()
    with _running() as (reader, pipeline):
        for _ in range(5):  # nothing takes a batch now, as during a commit
            reader.grow()
            eventually(lambda: reader.is_read)
        assert ids(pipeline.take(timeout_s=PATIENCE_S), known) == [1, 2, 3, 4, 5]
        assert pipeline.take(timeout_s=0.0) is None
        reader.grow()
        assert ids(pipeline.take(timeout_s=PATIENCE_S), known) == [6]


class _Failing:
    """A converter of one batch, which then fails."""

    filter_warning = ""
    is_caught_up = False

    def __init__(self) -> None:
        self.batches: list[Any] = [SimpleNamespace()]
        self.has_failed = threading.Event()

    def next_batch(self, **_: object) -> Any:
        if self.batches:
            return self.batches.pop()
        self.has_failed.set()
        raise Retryable("MR-2011", "a relay file is missing")


def test_converters_error_comes_after_its_batches() -> None:
    """A finished batch is returned before the error."""
    source = _Failing()
    with Pipeline(source, rows_max=1, bytes_max=1) as pipeline:
        assert source.has_failed.wait(PATIENCE_S)
        assert pipeline.take(timeout_s=PATIENCE_S) is not None
        with pytest.raises(Retryable, match="missing"):
            eventually(lambda: pipeline.take(timeout_s=0.1))


def _next(
    converter: Converter, wanted: threading.Event, *, timeout_s: float, rows_max: int = 1000
) -> RecordBatch | None:
    return converter.next_batch(
        rows_max=rows_max, bytes_max=1 << 20, timeout_s=timeout_s, wanted=wanted
    )


@contextmanager
def _running() -> Iterator[tuple[GrowingReader, Pipeline]]:
    reader = GrowingReader()
    with Pipeline(Conversion(reader).converter(), rows_max=1000, bytes_max=1 << 20) as pipeline:
        yield reader, pipeline
