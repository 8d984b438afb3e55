"""Commits batches into the set topic, one or several in a Kafka transaction, and recovers when the outcome is unknown.

    outcome of a batch            what is known           what happens
    commit OK, fast               it is committed         the audit reads it back later
    commit OK, slow (≥ 0.8 s)     it is committed; a      the instance is discarded before the next transaction: the
                                  late EndTxn may follow  broker then rejects the late request by its producer epoch
    an error, but not             nothing                 new instance, tail read: all of the batch is there → done,
    "unavailable"                                         none → sent once more, a part → Retryable (resume after it)
    such an error in a Kafka      nothing                 new instance, tail read: all is there → done, else Retryable:
    transaction of several                                the next ``open`` resumes after the tail
    batches
    such an error of a batch of   nothing: they do not    sent once more; a repeated schema record does no harm, a
    schema records alone          change the progress     missing one makes rows unreadable
    "unavailable", or an error    nothing                 Retryable; the next ``open`` reads the tail
    of the second attempt
    fenced                        a newer instance        Fenced; the task's next owner verifies its lease before it
                                  exists                  makes a new instance
    a record over the limit       nothing was committed   Fatal with the row's table; after an operator resumes the
                                                          task, the whole batch is published again

An instance is one Kafka producer with its producer epoch (``Transactions``). The tail is the last records of the topic.
"Rule N" is a rule of the package ``producer.publish``.

Guarantees: records are in the topic in the given order, each exactly once, regardless of crashes. ``progress`` is what
the topic holds. A batch is committed with its ``resolved`` record or not at all (or recovered as above). After an error
a publisher cannot be used again: close it and open another. One thread uses it. Of a Kafka transaction of several
batches it keeps only the last one; the client's queue has copies of all.
Not done here: conversion, the choice of batches, waiting between retries.
"""

import time
from collections.abc import Callable
from typing import Protocol, Self

from millrace.drivers.kafka.bulk import Bounds, Octets
from millrace.errors import Fatal, Retryable
from millrace.faults import fault_point, register
from millrace.log import get_logger
from millrace.metrics import counter, histogram
from millrace.producer.publish.audit import VERDICT_S, Audit, Commit
from millrace.producer.publish.codec import RecordCodec
from millrace.producer.publish.config import PublisherConfig
from millrace.producer.publish.driver import Driver, Transactions
from millrace.producer.publish.kafka import KafkaDriver
from millrace.producer.publish.opening import Basis, Opened, Opener, TailHint
from millrace.producer.publish.positions import Codec
from millrace.producer.publish.published_part import PublishedPart, find_published_part
from millrace.producer.publish.topic_check import durability_warning
from millrace.producer.publish.transaction import Chunk, OpenTransaction, oversize_error
from millrace.schemas.progress import Progress
from millrace.wording import counted

log = get_logger("producer.publish")

COMMIT_SECONDS = histogram("millrace_kafka_txn_seconds")
ENDED = counter("millrace_kafka_txn_total")  # by result and reason, a code
ENDED.labels(result="commit", reason="")

BEFORE_BEGIN = register("publisher.before_begin")
AFTER_BEGIN = register("publisher.after_begin")
BETWEEN_CHUNKS = register("publisher.between_chunks")
MID_PRODUCE = register("publisher.mid_produce")
BEFORE_COMMIT = register("publisher.before_commit")
AFTER_COMMIT = register("publisher.after_commit")
BEFORE_RENEW = register("publisher.before_renew")
AFTER_RENEW = register("publisher.after_renew")

_AWAY_CODE = "MR-3001"
_OVERSIZE_CODE = "MR-3004"
# librdkafka's back-off if a Kafka transaction begins before the marker of the last one is written
MARKER_S = 0.02


class RecordBatchLike(Protocol):
    """A batch from the converter, or from a test."""

    @property
    def buffer(self) -> Octets: ...

    @property
    def bounds(self) -> Bounds:
        """(n, 4): key_start, key_end, value_start, value_end; key_start -1: no key."""

    @property
    def progress(self) -> Progress:
        """The topic's progress after the last record."""


class Publisher:
    """The one writer of a set topic; see the module's docstring."""

    def __init__(self, opener: Opener, opened: Opened) -> None:
        self._opener = opener
        self._limits = opener.config.limits
        self._partition = opened.partition
        self._record_bytes_max = opened.settings.record_bytes_max
        self._topic_warning = durability_warning(opened.settings, opener.config)
        if self._topic_warning is not None:
            log.warning("the topic can lose records", error=self._topic_warning)
        self._transactions: Transactions | None = opened.transactions
        self._progress = self._next_progress = opened.progress
        self._end = opened.end
        self._hint = TailHint(opened.progress, opened.end)
        self._audit = self._new_audit()
        self._open = OpenTransaction()
        self._resolved_at_s = self._looked_at_s = time.monotonic()
        self._idle_interval_s = self._limits.resolved_interval_s
        self._commit_s = opened.commit_s
        self._is_suspicious = self._commit_s >= self._limits.suspicious_s
        self._renewed_count = 0
        self._request_since_s: float | None = None
        self._slow_path = opened.transactions.slow_path
        if self._slow_path:
            log.warning("records are sent one by one, which is much slower", why=self._slow_path)

    @classmethod
    def open(
        cls,
        config: PublisherConfig,
        *,
        verify_lease: Callable[[], None],
        register: Callable[[str, str], int],
        basis: Basis,
    ) -> Self:
        """Become the one writer, by rules 1 and 2. ``register(subject, schema_json)`` returns a schema's ID.

        ``progress`` is then what the topic holds, after the decision in ``basis``, if there is one.
        """
        codec = RecordCodec.register(config, register)
        return cls.open_with(
            KafkaDriver(config),
            config,
            codec=codec,
            verify_lease=verify_lease,
            basis=basis,
        )

    @classmethod
    def open_with(
        cls,
        driver: Driver,
        config: PublisherConfig,
        *,
        codec: Codec,
        verify_lease: Callable[[], None],
        basis: Basis,
    ) -> Self:
        """``open`` with any implementation of ``Driver``."""
        opener = Opener(config=config, driver=driver, codec=codec, verify_lease=verify_lease)
        opened = opener.open(basis)
        try:
            return cls(opener, opened)
        except BaseException:
            opened.transactions.discard()
            opened.partition.close()
            raise

    @property
    def progress(self) -> Progress:
        return self._progress

    @property
    def hint(self) -> TailHint:
        """The hint to keep in the task's status, for a start after retention removed all records (rule 6).

        Its progress and its end offset belong to the same moment. It can be read even after an error.
        """
        return self._hint

    @property
    def topic(self) -> str:
        return self._opener.config.topic

    @property
    def renewed_count(self) -> int:
        """The number of instances replaced since the start."""
        return self._renewed_count

    @property
    def topic_warning(self) -> str:
        """MR-3021 if the topic can lose acknowledged records and the task document does not accept that; else empty."""
        warning = self._topic_warning
        return "" if warning is None else f"{warning}. {warning.fix}"

    @property
    def slow_path(self) -> str:
        """The reason why records are sent one by one, which is much slower; empty if they are sent in batches."""
        return self._slow_path

    @property
    def request_since_s(self) -> float | None:
        """When the present request to Kafka began (``time.monotonic``); None between two. Any thread may ask."""
        return self._request_since_s

    @property
    def commit_s(self) -> float:
        return self._commit_s

    def published_part(self) -> PublishedPart:
        """The published part of ``progress.open``. Call this before ``publish``, and close the part. Fatal MR-3019."""
        assert self._progress.open is not None
        partition = self._opener.driver.partition()
        try:
            return find_published_part(
                partition,
                self._opener.codec,
                self._progress.open,
                timeout_s=self._limits.audit_timeout_s,
            )
        except BaseException:
            partition.close()
            raise

    def publish(self, batch: RecordBatchLike) -> None:
        """Commit the records of ``batch`` with a resolved record of its progress; returns when they are committed.

        A batch without records writes nothing by itself: the next resolved record that is due contains its progress.
        """
        self.add(batch)
        self.commit()

    def add(self, batch: RecordBatchLike) -> None:
        """Queue the records of ``batch`` in the Kafka transaction that the next ``commit`` commits.

        Keep its buffer until the next ``add`` or ``commit`` has returned.
        """
        self._next_progress = batch.progress
        if len(batch.bounds):
            self._send(Chunk(batch.buffer, batch.bounds), is_last=False)

    def commit(self) -> None:
        """Commit what ``add`` has queued, with a resolved record; without records, do as ``idle``."""
        if self._open.chunk_count:
            self._send(None, is_last=True)
        else:
            self.idle()

    def wait_visible(self) -> bool:
        """Wait until the last commit is readable, at most ``MARKER_S``; whether it is.

        Without it, the first record of the next Kafka transaction may wait longer: see docs/decisions/publisher.md.
        """
        return self._audit.wait_visible(MARKER_S)

    def idle(self) -> None:
        """Write a resolved record if one is due, else compare the topic's end if that is due.

        While there are no batches, call it every ``progress_interval_s``.
        """
        self._audit.check()
        limits, now_s = self._limits, time.monotonic()
        idle_s = now_s - self._resolved_at_s
        moved = self._next_progress != self._progress
        if moved and idle_s >= limits.progress_interval_s:
            self._send(None, is_last=True)
        elif idle_s >= self._idle_interval_s:
            interval_s = self._idle_interval_s
            self._send(None, is_last=True)
            self._idle_interval_s = max(interval_s, min(2 * interval_s, limits.resolved_idle_s))
        elif now_s - self._looked_at_s >= limits.look_interval_s:
            self._look()

    def _look(self) -> None:
        """Compare the topic's end with the last commit. Raises what the audit raises."""
        self._request_since_s = time.monotonic()
        try:
            self._audit.look()
        finally:
            self._request_since_s = None
        self._looked_at_s = time.monotonic()

    def close(self) -> None:
        """Wait for the audit, then release all clients. Raises the audit's error; repeated calls do nothing."""
        if self._transactions is None:
            return
        try:
            self.drain()
        finally:
            self.discard()

    def drain(self) -> None:
        """Wait until all commits are audited. Raises the audit's error; Retryable MR-3016 after its timeout."""
        timeout_s = self._limits.audit_timeout_s + VERDICT_S
        if not self._audit.drain(timeout_s):
            raise Retryable("MR-3016", f"reading commits back took more than {timeout_s:g} s")

    def _new_audit(self) -> Audit:
        return Audit(
            self._partition,
            end=self._end,
            limits=self._limits,
            find_successor=lambda: self._opener.find_successor(self._partition),
            find_blocking_writer=self._opener.find_blocking_writer,
        )

    def discard(self) -> None:
        """Release all clients at once, without an abort and without the audit. Repeated calls do nothing."""
        transactions, self._transactions = self._transactions, None
        if transactions is not None:
            transactions.discard()
            self._audit.stop()
            self._partition.close()

    def _send(self, chunk: Chunk | None, *, is_last: bool) -> None:
        """Add ``chunk`` to the Kafka transaction, beginning it if necessary, and end it if ``is_last``."""
        self._request_since_s = time.monotonic()
        try:
            self._audit.check()
            if self._is_suspicious and not self._open.is_begun:
                self._renew_idle()
            if chunk is not None:
                self._open.note(chunk)
            try:
                committed = self._write(chunk, is_last=is_last)
            except Retryable as unknown:
                if unknown.code == _AWAY_CODE:
                    raise
                committed = self._recover(unknown, is_last=is_last)
            if committed is not None:
                self._audit.submit(committed)
        except BaseException as error:
            if self._open.is_begun:
                _note_end("discard", error)
            self.discard()
            raise
        finally:
            self._request_since_s = None

    def _recover(self, unknown: Retryable, *, is_last: bool) -> Commit | None:
        """None if the batch is committed after all; otherwise send it once more, as ``_write``.

        Retryable MR-3002 if that was its second attempt, or if earlier batches of the transaction are not kept.
        """
        sent = self._open
        is_committed = self._is_committed_after(unknown)
        self._open = OpenTransaction()
        if sent.is_begun:
            _note_end("commit" if is_committed else "discard", unknown)
        if is_committed:
            return None
        if sent.chunk_count > 1 or sent.is_retry:
            raise Retryable(
                "MR-3002",
                f"a Kafka transaction of {counted(sent.chunk_count, 'batch', 'batches')} is to be sent again",
            ) from unknown
        self._open.is_retry = True
        if sent.chunk is not None:
            self._open.note(sent.chunk)
        return self._write(sent.chunk, is_last=is_last)

    def _write(self, chunk: Chunk | None, *, is_last: bool) -> Commit | None:
        transactions = self._live
        if not self._open.is_begun:
            # the end is not known yet, but one beyond the last commit keeps the audit from judging the stable end
            self._audit.expect(self._end + self._open.record_count + 2)
            fault_point(BEFORE_BEGIN)
            transactions.begin()
            self._open.is_begun = True
            fault_point(AFTER_BEGIN)
        elif chunk is not None:
            fault_point(BETWEEN_CHUNKS)
        if chunk is not None:
            half = len(chunk.bounds) // 2
            self._add(transactions, chunk.buffer, chunk.bounds[:half])
            fault_point(MID_PRODUCE)
            self._add(transactions, chunk.buffer, chunk.bounds[half:])
        return self._end_transaction(transactions) if is_last else None

    def _end_transaction(self, transactions: Transactions) -> Commit:
        """End the Kafka transaction. A crash leaves it committed if the broker got the commit, else not at all."""
        resolved = self._opener.codec.resolved(self._next_progress)
        record_count = self._open.record_count + 1
        end = self._end + record_count + 1  # the records, their resolved, the marker
        self._audit.expect(end)
        transactions.add(((None, resolved),))
        try:
            transactions.flush()
            fault_point(BEFORE_COMMIT)
            self._commit_s = transactions.commit()
        except Fatal as failure:
            if failure.code == _OVERSIZE_CODE:
                limit = self._record_bytes_max
                raise oversize_error(self._open.largest, limit_bytes=limit) from failure
            raise
        fault_point(AFTER_COMMIT)
        _note_end("commit")
        COMMIT_SECONDS.observe(self._commit_s)
        self._open = OpenTransaction()
        self._note_commit(end)
        self._is_suspicious = self._commit_s >= self._limits.suspicious_s
        return Commit(end, resolved, record_count)

    @property
    def _live(self) -> Transactions:
        if self._transactions is None:
            raise Retryable("MR-3002", "the publisher is closed; open another")
        return self._transactions

    def _add(self, transactions: Transactions, buffer: Octets, bounds: Bounds) -> None:
        refused = transactions.add_slices(buffer, bounds)
        if refused is not None:
            start, end = bounds[refused, 2:].tolist()
            raise oversize_error(buffer[start:end].tobytes(), limit_bytes=self._record_bytes_max)

    def _note_commit(self, end: int) -> None:
        self._end = end
        self._progress = self._next_progress
        self._hint = TailHint(self._progress, end + self._audit.shift)
        self._resolved_at_s = self._looked_at_s = time.monotonic()
        self._idle_interval_s = self._limits.resolved_interval_s

    def _is_committed_after(self, unknown: Retryable) -> bool:
        """Find out whether the Kafka transaction is committed: replace the instance and read the tail."""
        log.warning(
            "the outcome of a Kafka transaction is unknown; reading the topic's tail",
            why=str(unknown),
        )
        found = self._renew()
        if found == self._next_progress and found != self._progress:
            self._note_commit(self._end)
            return True
        if found == self._progress:
            self._hint = TailHint(found, self._end)
            return False
        if found.seq < self._progress.seq:
            raise Fatal(
                "MR-3018",
                "committed records are missing from the topic",
                committed_seq=self._progress.seq,
                seq=found.seq,
            ) from unknown
        raise Retryable(
            "MR-3002", f"the topic has a part of a batch, up to seq {found.seq}"
        ) from unknown

    def _renew_idle(self) -> None:
        """Replace the instance between two Kafka transactions: the tail must be as before."""
        if self._renew() != self._progress:
            raise Retryable("MR-3002", "the tail changed while no Kafka transaction was open")
        self._hint = TailHint(self._progress, self._end)

    def _renew(self) -> Progress:
        """Rule 3: discard the instance, make a new one, and read the topic's progress."""
        fault_point(BEFORE_RENEW)
        self.drain()
        self._live.discard()
        self._audit.stop()
        transactions, tail, self._end = self._opener.renew(self._partition, self._record_bytes_max)
        self._transactions = transactions
        self._audit = self._new_audit()
        self._is_suspicious = False
        self._renewed_count += 1
        fault_point(AFTER_RENEW)
        log.info(
            "replaced the producer instance", seq=tail.progress.seq, epoch=self._opener.config.epoch
        )
        return tail.progress


def _note_end(result: str, error: BaseException | None = None) -> None:
    ENDED.labels(result=result, reason=getattr(error, "code", "")).inc()
