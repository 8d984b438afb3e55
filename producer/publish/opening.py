"""The start of a publisher: fences the previous owner, reads the topic's progress, writes its own fence.

    step                        a crash after it leaves
    1 lease verified            nothing
    2 topic created, checked    an empty topic
    3 init_transactions         the previous owner fenced; its open transaction is aborted
    4 stable end = high end     —   (otherwise another writer's open transaction would hide our records: MR-3013. One of
                                    our own that lost its marker is aborted: MR-3001)
    5 tail read                 —   (a greater epoch in it: Fenced)
    6 schema records + fence    a fence of our epoch; its owner is gone, the next start reads it as its tail
      (+ an operator's          the same, with the progress of the decision, or nothing: it is one Kafka transaction,
      decision, ``decision``) and the next start finds its gap record
    7 read back                 the same

Steps 3 to 5 in this order make it safe: after 3 no older instance can write, so the result of 5 stays true. The lease
(1) only avoids needless fencing. A stale owner that passes it by bad luck fences its successor, and reads the tail. It
finds the successor's fence there, or is fenced by the successor's next start.

Not done here: any retry; publishing (``publisher``).
"""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from millrace.drivers.kafka.open_transactions import find_open_writer
from millrace.drivers.kafka.reader import Ends
from millrace.drivers.kafka.topic import TopicSettings
from millrace.errors import Fatal, Fenced, MillraceError, Retryable
from millrace.faults import fault_point, register
from millrace.log import get_logger
from millrace.producer.publish.config import PublisherConfig
from millrace.producer.publish.decision import adopted_progress, must_execute
from millrace.producer.publish.driver import Driver, Partition, TopicAdmin, Transactions
from millrace.producer.publish.positions import Codec
from millrace.producer.publish.tail import Tail, last_decision, read_tail
from millrace.producer.publish.topic_check import check_topic
from millrace.schemas.progress import Progress
from millrace.schemas.requests.decision import Decision

log = get_logger("producer.publish")

AFTER_INIT = register("publisher.after_init")
AFTER_TAIL_READ = register("publisher.after_tail_read")
BEFORE_FENCE = register("publisher.before_fence")
AFTER_FENCE = register("publisher.after_fence")
BEFORE_GAP = register("decision.before_commit")
AFTER_GAP = register("decision.after_commit")

NO_END = -1
_LOOK_AGAIN_S = 0.01


@dataclass(frozen=True, slots=True)
class TailHint:
    """Progress from the task's status, valid only while the partition still ends at ``end_offset``.

    ``end_offset`` is NO_END if it is not known: then the hint only shows that the topic had records.
    """

    progress: Progress
    end_offset: int


@dataclass(frozen=True, slots=True)
class Basis:
    """The inputs of a start besides the topic.

    ``start``: the progress for an empty topic. ``hint``: the task's status. ``decision``: an operator's, to execute.
    """

    start: Progress
    hint: TailHint | None = None
    decision: Decision | None = None


class _StillOpenError(Retryable):
    """A Kafka transaction stays open: another writer's, or one of our own that lost its marker."""

    def __init__(self, stable_end: int) -> None:
        super().__init__("MR-3013", f"a Kafka transaction is open since offset {stable_end}")
        self.stable_end = stable_end


@dataclass(frozen=True, slots=True)
class Opened:
    """A live instance, a reader, the topic's progress, and the end of the partition."""

    transactions: Transactions
    partition: Partition
    progress: Progress
    end: int
    settings: TopicSettings
    commit_s: float  # how long the fence's commit took: rule 3 applies to it, too


@dataclass(frozen=True, slots=True, kw_only=True)
class Opener:
    """The inputs of the start sequence, so that it can run again after an instance is discarded."""

    config: PublisherConfig
    driver: Driver
    codec: Codec
    verify_lease: Callable[[], None]

    def open(self, basis: Basis) -> Opened:
        """Steps 1 to 7. ``basis.start`` is used only for a topic that never had a record."""
        self.verify_lease()
        hint, decision = basis.hint, basis.decision
        adopted = adopted_progress(decision, reported=hint.progress if hint else None)
        settings = ensure_topic(
            self.driver.admin(), self.config, None if adopted is not None else hint
        )
        with ExitStack() as undo:
            partition = self.driver.partition()
            undo.callback(partition.close)
            transactions = self.driver.transactions(settings.record_bytes_max)
            undo.callback(transactions.discard)
            ends, tail = self._take_over(transactions, partition)
            if tail is not None:
                progress = tail.progress
            elif adopted is not None:
                progress = adopted
            else:
                progress = progress_without_tail(ends, basis.start, hint)
            warn_of_lost_tail(tail, hint)
            if decision is not None and not self._is_due(decision, progress, partition, ends):
                decision = None
            values = self._first_values(progress, decision)
            if decision is not None:
                fault_point(BEFORE_GAP)
            end, commit_s = self._commit_first(transactions, partition, values, ends.stable)
            if decision is not None:
                fault_point(AFTER_GAP)
                log.warning("executed an operator's decision", what=decision.kind, id=decision.id)
                progress = _result(decision, progress)
            undo.pop_all()
        return Opened(transactions, partition, progress, end, settings, commit_s)

    def renew(self, partition: Partition, record_bytes_max: int) -> tuple[Transactions, Tail, int]:
        """Steps 1 and 3 to 5 with a new instance: the tail and the stable end. The run continues, so no fence is
        written."""
        self.verify_lease()
        transactions = self.driver.transactions(record_bytes_max)
        try:
            ends, tail = self._take_over(transactions, partition)
            if tail is None:
                raise Fatal(
                    "MR-3017", "the topic has no records left", low=ends.low, end=ends.stable
                )
        except BaseException:
            transactions.discard()
            raise
        return transactions, tail, ends.stable

    def _take_over(
        self, transactions: Transactions, partition: Partition
    ) -> tuple[Ends, Tail | None]:
        transactions.init()
        fault_point(AFTER_INIT)
        try:
            ends = wait_until_stable(partition, self.config)
        except _StillOpenError as still_open:
            raise self._abort_if_ours(
                transactions, partition, still_open.stable_end
            ) from still_open
        tail = read_tail(partition, ends, self.codec)
        fault_point(AFTER_TAIL_READ)
        if (fenced := self._fenced_by(tail)) is not None:
            raise fenced
        if tail is not None and ends.low == 0:
            self._check_beginning(partition)
        if tail is not None and tail.is_torn:
            log.warning(
                "the tail has a torn Kafka transaction",
                offset=tail.offset,
                seq=tail.progress.seq,
            )
        return ends, tail

    def _abort_if_ours(
        self, transactions: Transactions, partition: Partition, stable_end: int
    ) -> MillraceError:
        """Abort the transaction open since ``stable_end`` if it may be our own. Returns the error to raise.

        No abort is needed if the broker names another writer. If it names none, its behavior decides: our abort moves
        the stable end only if the open transaction was our own.
        """
        writer = find_open_writer(self.config.brokers, self.config.topic, offset=stable_end)
        ours = self.config.transactional_id
        if writer not in ("", ours):
            return _blocked_by(writer, stable_end)
        abort_left_open(transactions)
        deadline = time.monotonic() + self.config.limits.stable_timeout_s
        while writer != ours and partition.stable_end() == stable_end:
            if time.monotonic() > deadline:
                return _blocked_by("unknown", stable_end)
            time.sleep(_LOOK_AGAIN_S)
        return Retryable(
            "MR-3001",
            f"the broker lost the end marker of our transaction at offset {stable_end}",
            fix="Nothing to do: the transaction is aborted, and its records, which no reader saw, are sent again.",
        )

    def _check_beginning(self, partition: Partition) -> None:
        """Check that a topic with its first record begins with a run; otherwise it was recreated under its owner."""
        first = partition.next_record(0, timeout_s=self.config.limits.stable_timeout_s)
        if first is None:
            raise Retryable("MR-3016", "the first record of the topic cannot be read")
        if not self.codec.opens_run(first.value):
            raise Fatal(
                "MR-3017",
                "the topic was deleted and created again during a run: it does not begin with a run",
                offset=first.offset,
            )

    def find_successor(self, partition: Partition) -> Fenced | None:
        """The error to raise if a newer owner has written to the topic."""
        return self._fenced_by(read_tail(partition, partition.all_ends(), self.codec))

    def find_blocking_writer(self, stable_end: int) -> MillraceError | None:
        """The error to raise if an open transaction holds the stable end; None if the broker names none.

        Fatal MR-3013 for another writer's. Retryable MR-3002 for our own: the broker has not written the marker of the
        commit yet. The next start waits for it, and finds in the topic whether the commit is there.
        """
        writer = find_open_writer(self.config.brokers, self.config.topic, offset=stable_end)
        if not writer:
            return None
        if writer == self.config.transactional_id:
            return Retryable(
                "MR-3002",
                f"a commit returned OK, and the broker has not ended its transaction at offset {stable_end} yet",
            )
        return _blocked_by(writer, stable_end)

    def _fenced_by(self, tail: Tail | None) -> Fenced | None:
        if tail is None or tail.epoch <= self.config.epoch:
            return None
        return Fenced(
            "MR-3010",
            f"epoch {tail.epoch} has written to {self.config.topic}; this owner has epoch {self.config.epoch}",
            epoch=self.config.epoch,
            found=tail.epoch,
        )

    def _is_due(
        self, decision: Decision, progress: Progress, partition: Partition, ends: Ends
    ) -> bool:
        """Whether ``decision`` is to be executed now; Fatal MR-3022."""
        return must_execute(
            decision,
            replace(progress, snapshot=None),
            last_decision=lambda: last_decision(partition, ends, self.codec),
        )

    def _first_values(self, progress: Progress, decision: Decision | None) -> Sequence[bytes]:
        """The records of step 6."""
        gap = self.codec.gap(decision, _result(decision, progress)) if decision is not None else ()
        return [*self.codec.run_start(progress), *gap]

    def _commit_first(
        self, transactions: Transactions, partition: Partition, values: Sequence[bytes], end: int
    ) -> tuple[int, float]:
        """Steps 6 and 7. Returns the stable end after ``values``, and the seconds that their commit took."""
        transactions.begin()
        if transactions.add((None, value) for value in values) is not None:
            raise Fatal(
                "MR-3009",
                "the topic's max.message.bytes is too small for the records that begin a run",
            )
        transactions.flush()
        fault_point(BEFORE_FENCE)
        commit_s = transactions.commit()
        fault_point(AFTER_FENCE)
        return self._read_back(partition, values, end), commit_s

    def _read_back(self, partition: Partition, values: Sequence[bytes], start: int) -> int:
        """Step 7: check that readers see only these values after ``start``; the stable end after them.

        The marker is written milliseconds after the commit returned. There may be more than one: see ``audit``.
        """
        deadline = time.monotonic() + self.config.limits.stable_timeout_s
        end = start + len(values) + 1
        while (stable := partition.stable_end()) < end and time.monotonic() < deadline:
            time.sleep(_LOOK_AGAIN_S)
        found = partition.read(start, stable)
        kept = list(values)
        if partition.low_end() > start:  # retention removed some meanwhile
            kept = kept[len(kept) - len(found) :]
        if [record.value for record in found] != kept:
            raise Fatal(
                "MR-3014",
                f"the first records of this run do not end at offset {end - 2}",
                found=found[-1].offset if found else "nothing",
                stable_end=stable,
            )
        return stable


def _result(decision: Decision, progress: Progress) -> Progress:
    """The progress after ``decision``. A snapshot continues: an operator decides about changes only."""
    return replace(decision.result, snapshot=progress.snapshot)


def ensure_topic(
    admin: TopicAdmin, config: PublisherConfig, hint: TailHint | None
) -> TopicSettings:
    """Step 2: the topic's settings. A topic that once had records is not created again."""
    settings = admin.settings()
    if settings is None:
        if hint is None:
            admin.create(config.limits.record_bytes_max)
        deadline = time.monotonic() + config.limits.stable_timeout_s
        while (settings := admin.settings()) is None:
            if time.monotonic() > deadline and hint is not None:
                raise Fatal(
                    "MR-3017",
                    f"the topic {config.topic} no longer exists",
                    remembered_end=hint.end_offset,
                    remembered_gtid_set=hint.progress.gtid_set,
                )
            if time.monotonic() > deadline:
                raise Fatal("MR-3009", f"the topic {config.topic} was created but does not appear")
            time.sleep(_LOOK_AGAIN_S)
    check_topic(settings, config)
    return settings


def wait_until_stable(partition: Partition, config: PublisherConfig) -> Ends:
    """Step 4: the ends once no transaction is open. The abort for the previous owner takes milliseconds."""
    deadline = time.monotonic() + config.limits.stable_timeout_s
    while (ends := partition.all_ends()).stable != ends.high:
        if time.monotonic() > deadline:
            raise _StillOpenError(ends.stable)
        time.sleep(_LOOK_AGAIN_S)
    return ends


def abort_left_open(transactions: Transactions) -> None:
    """Abort a transaction of our transactional ID that lost its marker, by beginning and aborting another.

    The broker adds the new one to the open one, and the abort ends both; no reader could see either. The instance is
    then discarded (rule 3). A broker that was only slow ends the old transaction before it accepts a record with a
    greater producer epoch: then only the new record is aborted.
    """
    transactions.begin()
    transactions.add([(None, b"")])
    transactions.flush()
    transactions.abort()


def _blocked_by(writer: str, stable_end: int) -> Fatal:
    return Fatal(
        "MR-3013",
        f"another writer holds a Kafka transaction open since offset {stable_end}",
        transactional_id=writer,
        stable_end=stable_end,
    )


def progress_without_tail(ends: Ends, start: Progress, hint: TailHint | None) -> Progress:
    """Rule 6: progress when the partition holds no committed record; never "latest".

    If nothing was removed (low 0) and nothing committed, the first start died before its fence was committed.
    """
    if hint is not None:
        if hint.end_offset == ends.stable:
            return hint.progress
        raise Fatal(
            "MR-3017",
            "the topic has no records left, and it ended at another offset when it last had some",
            end=ends.stable,
            remembered_end=hint.end_offset,
            remembered_gtid_set=hint.progress.gtid_set,
        )
    if ends.low > 0:
        raise Fatal("MR-3017", "the topic had records and has none left", end=ends.stable)
    return start


def warn_of_lost_tail(tail: Tail | None, hint: TailHint | None) -> None:
    """Warn if the topic lost records. It remains the truth: they are published again."""
    if tail is not None and hint is not None and hint.progress.seq > tail.progress.seq:
        log.warning(
            "the topic lost committed records; they are published again",
            remembered_seq=hint.progress.seq,
            seq=tail.progress.seq,
        )
