"""Checks the guarantees of a published topic, partition by partition, from the headers of its records.

    check     holds for every committed record of a partition in offset order
    foreign   it has the headers task, epoch, seq, part and n, as decimal numbers
    task      all records are of one task
    n         grows by exactly one, from 1 if the partition still has its first record
    order     seq never falls, and (seq, part) grows
    owner     the epoch never falls: no record of an older owner follows one of a newer owner

Compaction removes records, so in a compacted topic n may jump. Such jumps are counted and are no violation, but then n
proves nothing about what is missing.

Memory does not grow with the partition. Not done here: keys, values, and what the source had.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from millrace.consumer.publish.outgoing import headers_of
from millrace.wording import counted

VIOLATIONS_KEPT_MAX = 100  # of a partition; the rest is counted
EPOCHS_KEPT_MAX = 1000
FIRST_N = 1


class Check(StrEnum):
    """The violated guarantee; the module's docstring describes each."""

    FOREIGN = "foreign"
    TASK = "task"
    N = "n"
    ORDER = "order"
    OWNER = "owner"
    TAIL = "tail"


@dataclass(frozen=True, slots=True)
class Violation:
    """A violated guarantee, at the record that shows it."""

    offset: int
    check: Check
    what: str


@dataclass(slots=True)
class PartitionSummary:
    """The result so far. The partition keeps its guarantees if ``violation_count`` is 0.

    ``removed``: records that compaction may have removed, by the jumps of n. ``epochs``: each with the offset of its
    first record.
    """

    records: int = 0
    first_n: int | None = None
    last_n: int | None = None
    first_seq: int | None = None
    last_seq: int | None = None
    task: str = ""
    epochs: list[tuple[int, int]] = field(default_factory=list)
    removed: int = 0
    violation_count: int = 0
    violations: list[Violation] = field(default_factory=list)


class PartitionVerifier:
    """Checks one partition. ``task``: the expected one, "" for that of the first record."""

    def __init__(self, *, task: str = "", from_beginning: bool, is_compacted: bool) -> None:
        self.summary = PartitionSummary(task=task)
        self._task = task.encode()
        self._is_compacted = is_compacted
        # n of the record before; -1: the next may have any
        self._n = FIRST_N - 1 if from_beginning and not is_compacted else -1
        self._seq = self._part = self._epoch = -1

    def feed(self, offset: int, headers: Mapping[str, bytes]) -> None:
        """The next committed record."""
        summary = self.summary
        own = headers_of(headers)
        if own is None:
            names = ", ".join(headers) or "no headers"
            self._violated(offset, Check.FOREIGN, f"a record that no publish task wrote ({names})")
            return
        task, epoch, seq, part, n = own
        summary.records += 1
        if summary.first_n is None:
            summary.first_n, summary.first_seq = n, seq
        if task != self._task:
            self._other_task(offset, task)
        if n != self._n + 1 and self._n >= 0:
            self._jumped(offset, n)
        if seq <= self._seq and (seq, part) <= (self._seq, self._part):
            before = f"seq {self._seq} part {self._part}"
            self._violated(offset, Check.ORDER, f"seq {seq} part {part} follows {before}")
        if epoch != self._epoch:
            self._other_epoch(offset, epoch)
        self._n, self._seq, self._part = n, seq, part

    def finish(self, *, n_at_least: int = 0) -> PartitionSummary:
        """The result. ``n_at_least``: that of the last record by the task's progress."""
        summary = self.summary
        if summary.first_n is not None:
            summary.last_n, summary.last_seq = self._n, self._seq
        if self._n < n_at_least and summary.records and not self._is_compacted:
            self._violated(
                -1, Check.TAIL, f"ends with n {self._n}; the task has written n {n_at_least}"
            )
        return summary

    def _other_task(self, offset: int, task: bytes) -> None:
        name = task.decode(errors="replace")
        if not self._task:
            self._task, self.summary.task = task, name
        else:
            expected = self._task.decode(errors="replace")
            self._violated(offset, Check.TASK, f"a record of task {name}, not of {expected}")

    def _jumped(self, offset: int, n: int) -> None:
        missing = n - self._n - 1
        if missing < 0:
            self._violated(offset, Check.N, f"n {n} follows n {self._n}")
        elif self._is_compacted:
            self.summary.removed += missing
        else:
            what = f"n {n} follows n {self._n}" if self._n >= FIRST_N else f"n begins at {n}"
            self._violated(offset, Check.N, f"{what}: {counted(missing, 'record')} missing")

    def _other_epoch(self, offset: int, epoch: int) -> None:
        epochs = self.summary.epochs
        if epoch < self._epoch:
            what = f"a record of epoch {epoch} follows epoch {self._epoch}"
            self._violated(offset, Check.OWNER, what)
            return
        self._epoch = epoch
        if len(epochs) < EPOCHS_KEPT_MAX:
            epochs.append((epoch, offset))

    def _violated(self, offset: int, check: Check, what: str) -> None:
        self.summary.violation_count += 1
        if len(self.summary.violations) < VIOLATIONS_KEPT_MAX:
            self.summary.violations.append(Violation(offset, check, what))
