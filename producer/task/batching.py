"""Publishes batches, as many in one Kafka transaction as are ready: a commit costs as much for one row as for 200,000.

    first batch ──► add ──► is there another one soon? ──► add ──► … ──► commit

Another batch is taken while the converter has more to read, or while a source transaction is published in part, up to
the limits below. A batch that was cut because the publisher waited for it, at the end of the relay log, is committed at
once. So a Kafka transaction of a caught-up task has one batch.

Memory: the converter's batches are as many as without this (``producer.task.pipeline``): a batch is released when the
next one is queued. librdkafka holds a copy of the open Kafka transaction: at most ``TRANSACTION_BYTES_MAX``, and one
batch more.
"""

import time
from dataclasses import dataclass

from millrace.producer.convert.batch import RecordBatch
from millrace.producer.publish.publisher import Publisher
from millrace.producer.task.pipeline import BatchSource, Pipeline
from millrace.schemas.place import Coordinates
from millrace.schemas.record.control import RecordKind
from millrace.schemas.record.framing import peek_kind
from millrace.schemas.record.row_end import SNAPSHOT_OP, read_row_end

# One batch. The converter fills the next one meanwhile, so smaller ones keep both threads busy.
BATCH_ROWS_MAX = 25_000
BATCH_BYTES_MAX = 8 << 20
# One Kafka transaction while catching up: begin, flush, commit and marker cost 10 to 30 ms, its records half a second.
TRANSACTION_ROWS_MAX = 200_000
TRANSACTION_BYTES_MAX = 64 << 20
TRANSACTION_S_MAX = 1.0  # a reader of the topic waits so long for the first of its records
# The last row of a batch is before at most the schema and DDL records of the next statements.
ROW_SEARCHED_MAX = 64
HEAD_BYTES = 32  # of a record: its kind
TAIL_BYTES = 256  # of a row record: the fields after its images take less
LOOK_S = 0.01  # the converter makes a batch in 10 to 30 ms; it is looked at in between whether it makes one


@dataclass(frozen=True, slots=True)
class Published:
    """The rows of one Kafka transaction, and the relay position after it.

    ``commit_ms``: when the source committed the last row of its last batch (Unix time); 0 if that has no row.
    """

    rows: int
    coordinates: Coordinates
    commit_ms: int = 0


def publish_together(
    publisher: Publisher, first: RecordBatch, pipeline: Pipeline, converter: BatchSource
) -> Published:
    """Commit ``first`` and the batches that follow it soon, and release them."""
    until_s = time.monotonic() + TRANSACTION_S_MAX
    last, records, size_bytes, rows = first, len(first.bounds), _size_bytes(first), first.rows
    releases = [first.release]
    publisher.add(first)
    while (
        records + BATCH_ROWS_MAX <= TRANSACTION_ROWS_MAX
        and size_bytes + BATCH_BYTES_MAX <= TRANSACTION_BYTES_MAX
        and (batch := _take_more(pipeline, converter, last, until_s)) is not None
    ):
        publisher.add(batch)
        last.release.recycle()  # its records are in the client's queue; what it holds is kept until the commit
        releases.append(batch.release)
        records += len(batch.bounds)
        size_bytes += _size_bytes(batch)
        last, rows = batch, rows + batch.rows
    commit_ms = _commit_ms(last)
    publisher.commit()
    for release in releases:
        release()
    return Published(rows, last.coordinates, commit_ms)


def _take_more(
    pipeline: Pipeline, converter: BatchSource, last: RecordBatch, until_s: float
) -> RecordBatch | None:
    """The next batch if it comes soon; None if the converter has nothing more to read, or when time is up."""
    while last.progress.open is not None or not converter.is_caught_up:
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            return None
        batch = pipeline.take_more(timeout_s=min(left_s, LOOK_S))
        if batch is not None:
            return batch
    return None


def _size_bytes(batch: RecordBatch) -> int:
    return int(batch.bounds[-1, 3] - batch.bounds[0, 2]) if len(batch.bounds) else 0


def _commit_ms(batch: RecordBatch) -> int:
    """When the source committed the last row of the batch; 0 if it has none."""
    if batch.rows == 0:
        return 0
    for start, end in reversed(batch.bounds[-ROW_SEARCHED_MAX:, 2:].tolist()):
        head = batch.buffer[start : start + HEAD_BYTES].tobytes()
        if peek_kind(head) is RecordKind.ROW:
            row = read_row_end(batch.buffer[max(start, end - TAIL_BYTES) : end].tobytes())
            if row.op != SNAPSHOT_OP:  # a snapshot's row was committed long ago
                return row.ts_ms
    return 0
