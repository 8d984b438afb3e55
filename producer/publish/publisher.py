"""One Kafka transaction per batch into the set topic, and what to do when its outcome is unknown.

    outcome of a batch            what is known           what happens
    commit OK, fast               it stands               audited behind the stream
    commit OK, slow (≥ 0.8 s)     it stands; a late       the instance is thrown away before the next begin: the new
                                  EndTxn may be about     one's producer epoch makes the late request be refused
    an error, not "away"          nothing                 new instance, tail read: stands all of it → done, none → sent
                                                          once more, a part → Retryable (start again behind the part)
    broker away, second error     nothing                 Retryable; the next open reads the tail
    fenced                        a newer instance is     Fenced; a new instance is made only after the lease was
                                                          verified by whoever opens again
    a record over the limit       nothing was committed   Fatal, naming the row; the whole batch comes again later

Guarantees: records stand in the topic in the order given, each exactly once, whatever dies where; ``progress`` is
what stands there; a batch is committed with its ``resolved`` or not at all (or healed as above). After an error was
raised the publisher is spent: close it and open another. One thread uses it.
Not done here: conversion, the choice of batches, waiting between retries.
"""

import time
from collections.abc import Callable
from typing import Protocol, Self

import numpy as np

from millrace.errors import Fatal, Retryable
from millrace.faults import fault_point, register
from millrace.log import get_logger
from producer.publish.audit import JUDGEMENT_S, Audit, Commit
from producer.publish.codec import RecordMarks
from producer.publish.config import PublisherConfig
from producer.publish.driver import Bounds, Driver, Octets, Transactions
from producer.publish.kafka import KafkaDriver
from producer.publish.opening import Opened, Opener, TailHint
from producer.publish.oversize import oversize_error
from producer.publish.positions import Marks
from producer.publish.published_part import PublishedPart, find_part
from producer.publish.topic_check import durability_warning
from schemas.progress import Progress

log = get_logger("producer.publish")

BEFORE_BEGIN = register("publisher.before_begin")
AFTER_BEGIN = register("publisher.after_begin")
MID_PRODUCE = register("publisher.mid_produce")
BEFORE_COMMIT = register("publisher.before_commit")
AFTER_COMMIT = register("publisher.after_commit")
BEFORE_RENEW = register("publisher.before_renew")
AFTER_RENEW = register("publisher.after_renew")

_AWAY_CODE = "MR-3001"
_OVERSIZE_CODE = "MR-3004"
_NO_OCTETS: Octets = np.empty(0, np.uint8)
_NO_BOUNDS: Bounds = np.empty((0, 4), np.int64)


class RecordBatchLike(Protocol):
    """What the converter hands over; ``progress`` is progress once the batch stands."""

    @property
    def buffer(self) -> Octets:
        """Record bytes."""
        ...

    @property
    def bounds(self) -> Bounds:
        """(n, 4): key_start, key_end, value_start, value_end; key_start -1: no key."""
        ...

    @property
    def progress(self) -> Progress:
        """Behind the last record."""
        ...


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
        self._progress = self._wanted = opened.progress
        self._end = opened.end
        self._hint = TailHint(opened.progress, opened.end)
        self._audit = self._audited()
        self._marked_at_s = time.monotonic()
        self._commit_s = opened.commit_s
        self._is_suspicious = self._commit_s >= self._limits.suspicious_s
        self._renewed_count = 0
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
        start: Progress,
        hint: TailHint | None = None,
    ) -> Self:
        """Rules 1 and 2: become the one writer. ``register(subject, schema_json)`` gives a schema's id.

        ``start`` is where an empty topic begins; ``hint`` is what the task's status remembers.
        """
        marks = RecordMarks.registered(config, register)
        return cls.open_with(
            KafkaDriver(config),
            config,
            marks=marks,
            verify_lease=verify_lease,
            start=start,
            hint=hint,
        )

    @classmethod
    def open_with(
        cls,
        driver: Driver,
        config: PublisherConfig,
        *,
        marks: Marks,
        verify_lease: Callable[[], None],
        start: Progress,
        hint: TailHint | None = None,
    ) -> Self:
        """``open`` over any side of the seam."""
        opener = Opener(config=config, driver=driver, marks=marks, verify_lease=verify_lease)
        opened = opener.open(start, hint)
        try:
            return cls(opener, opened)
        except BaseException:
            opened.transactions.discard()
            opened.partition.close()
            raise

    @property
    def progress(self) -> Progress:
        """What stands in the topic."""
        return self._progress

    @property
    def hint(self) -> TailHint:
        """What the task's status may keep for a start after retention took everything (rule 6).

        Progress and end that stood together; also once the publisher is spent.
        """
        return self._hint

    @property
    def topic(self) -> str:
        """Where it writes."""
        return self._opener.config.topic

    @property
    def renewed_count(self) -> int:
        """Instances thrown away since the start."""
        return self._renewed_count

    @property
    def topic_warning(self) -> str:
        """MR-3021 where the topic can lose acknowledged records; empty where it can not, or the document says so."""
        warning = self._topic_warning
        return "" if warning is None else f"{warning}. {warning.fix}"

    @property
    def slow_path(self) -> str:
        """Why records are sent one by one, much slower than a batch at a time; empty when they are not."""
        return self._slow_path

    @property
    def commit_s(self) -> float:
        """Seconds the last commit took."""
        return self._commit_s

    def published_part(self) -> PublishedPart:
        """What stands of ``progress.open``; before anything is published. Fatal MR-3019. Close it."""
        assert self._progress.open is not None
        partition = self._opener.driver.partition()
        try:
            return find_part(
                partition,
                self._opener.marks,
                self._progress.open,
                timeout_s=self._limits.audit_timeout_s,
            )
        except BaseException:
            partition.close()
            raise

    def publish(self, batch: RecordBatchLike) -> None:
        """Commit the records of ``batch`` and a resolved of its progress; returns when they stand.

        A batch without records only moves progress, which is written with the next resolved.
        """
        self._wanted = batch.progress
        if len(batch.bounds) == 0:
            self.idle()
            return
        self._send(batch.buffer, batch.bounds)

    def idle(self) -> None:
        """A resolved if one is due; call it at least every ``progress_interval_s`` while there is nothing to send."""
        self._audit.check()
        idle_s = time.monotonic() - self._marked_at_s
        moved = self._wanted != self._progress
        if idle_s >= self._limits.resolved_interval_s or (
            moved and idle_s >= self._limits.progress_interval_s
        ):
            self._send(_NO_OCTETS, _NO_BOUNDS)

    def close(self) -> None:
        """Wait for the audit, then let go. Raises what the audit found; repeated calls do nothing."""
        if self._transactions is None:
            return
        try:
            self.drain()
        finally:
            self.discard()

    def drain(self) -> None:
        """Wait until every commit so far is audited. Raises what the audit found; Retryable MR-3016 after its time."""
        timeout_s = self._limits.audit_timeout_s + JUDGEMENT_S
        if not self._audit.drain(timeout_s):
            raise Retryable("MR-3016", f"commits could not be read back in {timeout_s:g} s")

    def _audited(self) -> Audit:
        return Audit(
            self._partition,
            end=self._end,
            limits=self._limits,
            find_successor=lambda: self._opener.find_successor(self._partition),
            find_hider=self._opener.find_hider,
        )

    def discard(self) -> None:
        """Release everything at once: nothing is aborted and no audit is awaited. Repeated calls do nothing."""
        transactions, self._transactions = self._transactions, None
        if transactions is not None:
            transactions.discard()
            self._audit.stop()
            self._partition.close()

    def _send(self, buffer: Octets, bounds: Bounds) -> None:
        try:
            self._audit.check()
            if self._is_suspicious:
                self._renew_between()
            try:
                self._transact(buffer, bounds)
            except Retryable as unknown:
                if unknown.code == _AWAY_CODE:
                    raise
                if not self._is_committed_after(unknown):
                    self._transact(buffer, bounds)
        except BaseException:
            self.discard()
            raise

    def _transact(self, buffer: Octets, bounds: Bounds) -> None:
        """One Kafka transaction. Crash table: before the commit is received nothing stands; then all of it does."""
        transactions = self._live
        mark = self._opener.marks.resolved(self._wanted)
        end = self._end + len(bounds) + 2  # the records, their resolved, the marker
        self._audit.plan(end)
        fault_point(BEFORE_BEGIN)
        transactions.begin()
        fault_point(AFTER_BEGIN)
        half = len(bounds) // 2
        self._add(transactions, buffer, bounds[:half])
        fault_point(MID_PRODUCE)
        self._add(transactions, buffer, bounds[half:])
        transactions.add(((None, mark),))
        try:
            transactions.flush()
            fault_point(BEFORE_COMMIT)
            self._commit_s = transactions.commit()
        except Fatal as failure:
            if failure.code == _OVERSIZE_CODE:
                raise oversize_error(
                    buffer, bounds, limit_bytes=self._record_bytes_max
                ) from failure
            raise
        fault_point(AFTER_COMMIT)
        self._note_commit(end)
        self._is_suspicious = self._commit_s >= self._limits.suspicious_s
        self._audit.submit(Commit(end, mark, len(bounds) + 1))

    @property
    def _live(self) -> Transactions:
        if self._transactions is None:
            raise Retryable("MR-3002", "the publisher is closed; open another")
        return self._transactions

    def _add(self, transactions: Transactions, buffer: Octets, bounds: Bounds) -> None:
        refused = transactions.add_slices(buffer, bounds)
        if refused is not None:
            raise oversize_error(
                buffer, bounds[refused : refused + 1], limit_bytes=self._record_bytes_max
            )

    def _note_commit(self, end: int) -> None:
        self._end = end
        self._progress = self._wanted
        self._hint = TailHint(self._progress, end + self._audit.shift)
        self._marked_at_s = time.monotonic()

    def _is_committed_after(self, unknown: Retryable) -> bool:
        """Ask the tail what became of the Kafka transaction under way: True if it stands, False if nothing does."""
        log.warning(
            "the outcome of a Kafka transaction is unknown; its topic is asked", why=str(unknown)
        )
        found = self._renew()
        if found == self._wanted:
            self._note_commit(self._end)
            return True
        if found == self._progress:
            self._hint = TailHint(found, self._end)
            return False
        if found.seq < self._progress.seq:
            raise Fatal(
                "MR-3018",
                "records that were committed have gone from the topic",
                committed_seq=self._progress.seq,
                seq=found.seq,
            ) from unknown
        raise Retryable(
            "MR-3002", f"a part of a batch stands in the topic, up to seq {found.seq}"
        ) from unknown

    def _renew_between(self) -> None:
        """A new instance while no Kafka transaction is open: the tail must be what we know."""
        if self._renew() != self._progress:
            raise Retryable("MR-3002", "the tail changed while no Kafka transaction was open")
        self._hint = TailHint(self._progress, self._end)

    def _renew(self) -> Progress:
        """Rule 3: throw the instance away, make one anew, and read where the topic stands."""
        fault_point(BEFORE_RENEW)
        self.drain()
        self._live.discard()
        self._audit.stop()
        transactions, tail, self._end = self._opener.renew(self._partition, self._record_bytes_max)
        self._transactions = transactions
        self._audit = self._audited()
        self._is_suspicious = False
        self._renewed_count += 1
        fault_point(AFTER_RENEW)
        log.info(
            "producer instance made anew", seq=tail.progress.seq, epoch=self._opener.config.epoch
        )
        return tail.progress
