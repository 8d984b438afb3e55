"""Passes batches from the converter's thread to the publisher's: the next batch is converted while one is committed.

A batch is cut when the publisher takes it, or when it is full. So a row that arrives while a Kafka transaction is
committed is in the next one, whatever arrived before it.

Guarantees: at most ``BATCHES_MAX`` batches wait. One is published, one waits and one is converted, so the memory limit
is three times the limit of a batch (``producer.task.batching`` has the client's own). ``take`` raises the converter's
error after it has returned all finished batches. The end of the ``with`` block joins the thread.
"""

import queue
import threading
from typing import Protocol

from millrace.background import Background
from millrace.producer.convert.batch import RecordBatch

BATCHES_MAX = 1
POLL_S = 0.2  # interval at which the converter's thread checks for a stop


class BatchSource(Protocol):
    @property
    def filter_warning(self) -> str: ...

    @property
    def is_caught_up(self) -> bool: ...

    def next_batch(
        self,
        *,
        rows_max: int,
        bytes_max: int,
        timeout_s: float,
        wanted: threading.Event | None = None,
    ) -> RecordBatch | None:
        """The next batch; None after ``timeout_s``. See ``Converter.next_batch``."""


class Pipeline(Background):
    """Runs ``source`` in another thread inside the ``with`` block."""

    def __init__(self, source: BatchSource, *, rows_max: int, bytes_max: int) -> None:
        super().__init__("converter", self._convert, is_checked=True)
        self._source = source
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._queue: queue.Queue[RecordBatch] = queue.Queue(BATCHES_MAX)
        self._wanted = threading.Event()  # the publisher waits for a batch

    def __exit__(self, kind: object, *others: object) -> None:
        self._stop.set()
        self._wanted.set()
        super().__exit__(kind, *others)

    def take(self, *, timeout_s: float) -> RecordBatch | None:
        """The next batch; None after ``timeout_s``. Raises the error that ended the converter."""
        batch = self.take_more(timeout_s=timeout_s)
        if batch is None and self._failure is not None and self._queue.empty():
            raise self._failure
        return batch

    def take_more(self, *, timeout_s: float) -> RecordBatch | None:
        """As ``take``, but the converter's error is left to ``take``."""
        try:
            return self._queue.get_nowait()
        except queue.Empty:
            self._wanted.set()
        try:
            return self._queue.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def _convert(self, stop: threading.Event) -> None:
        while not stop.is_set():
            batch = self._source.next_batch(
                rows_max=self._rows_max,
                bytes_max=self._bytes_max,
                timeout_s=POLL_S,
                wanted=self._wanted,
            )
            if batch is not None:
                self._wanted.clear()
                self._put(batch)

    def _put(self, batch: RecordBatch) -> None:
        while not self._stop.is_set():
            try:
                self._queue.put(batch, timeout=POLL_S)
            except queue.Full:
                continue
            return
