"""Reads each commit back after it returned, without delaying the next one.

    commit n returns OK ──► submit ──► [queue] ──► the record at the offset of its last record is read with
    read_committed and compared byte for byte; if nothing follows for ``IDLE_S``, the stable end must be exactly after
    its marker

A commit of k records (its resolved record included) that began at offset e ends at e + k + 1: the records and the
marker. So the resolved record is at e + k − 1. Exactly this record at that offset proves that no record is missing,
repeated or foreign before it, and that the transaction is committed for all readers. After a late abort the offsets are
the same, but no record is readable.

Markers may be written twice: a new transaction coordinator sends those again that the previous one did not note as
sent. So a wrong offset alone is no failure. Then the records that readers see since the last audited commit must be
exactly those k records, the resolved record last. All later offsets are shifted by the difference (``shift``).

Guarantees: ``check`` raises the first failure, or any other error that ends the audit, in the publisher's thread:
MR-3014, MR-3015, or MR-3013 if another writer's open transaction hides our records. No commit after it is audited.
A marker of our own that the broker has not written in time is Retryable MR-3002.
Records of a newer owner are no failure: that is Fenced. Records that were removed before they could be read (by
retention or an operator) are no failure either. At most ``audit_commits_max`` commits wait, then ``submit`` blocks.
While the broker is unavailable there is no verdict: that is Retryable.
Not done here: records before the last of a transaction are not compared (`millrace topic verify` reads all).
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from millrace.errors import Fatal, MillraceError, Retryable
from millrace.log import get_logger
from millrace.producer.publish.config import PublisherLimits
from millrace.producer.publish.driver import Partition

log = get_logger("producer.publish")

IDLE_S = 0.02  # a commit that is followed sooner needs no request for the stable end
_LOOK_AGAIN_S = 0.005  # between two reads of a stable end that has not reached the expected one
_MARKERS_MAX = 64  # repeated markers since the last commit: one for each change of the coordinator
LOOK_S = 0.5  # one wait for a record; then it is checked that the record is still kept
# How long after its timeout a commit is judged: one wait, and the search for an open transaction (3 s per broker).
VERDICT_S = 5.0


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit that returned OK: the stable end after it, its last record, and its number of records."""

    end: int
    last_record: bytes
    count: int

    @property
    def last_offset(self) -> int:
        """The last offset before the marker."""
        return self.end - 2


class Audit:
    """One thread with one partition reader, which it owns until ``stop`` returns.

    ``find_successor`` reads the tail with the same reader and returns the error if a newer owner wrote it.
    ``find_blocking_writer`` returns the error if the broker names another writer whose transaction is open since that
    stable end.
    """

    def __init__(
        self,
        partition: Partition,
        *,
        end: int,
        limits: PublisherLimits,
        find_successor: Callable[[], MillraceError | None],
        find_blocking_writer: Callable[[int], MillraceError | None],
    ) -> None:
        self._partition = partition
        self._limits = limits
        self._find_successor = find_successor
        self._find_blocking_writer = find_blocking_writer
        # after the Kafka transaction under way, else after the last commit
        self._expected_end = end
        self._shift = 0  # extra markers so far
        self._found_end: int | None = end  # the end of the audited records; None: not known
        self._commits: deque[Commit] = deque()
        self._is_reading = False
        self._is_visible = True  # the last submitted commit has been read, so its marker is written
        self._is_drained = False  # someone waits: the stable end is compared at once
        self._is_look_due = False
        self._is_stopped = False
        self._failure: BaseException | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="publisher-audit", daemon=True)
        self._thread.start()

    @property
    def shift(self) -> int:
        """How far the partition ends after the offset that our records and markers add up to: the extra markers."""
        return self._shift

    def check(self) -> None:
        """Raise the first failure so far, or the error that ended the audit."""
        if self._failure is not None:
            raise self._failure

    def expect(self, end: int) -> None:
        """Announce a Kafka transaction that will end at ``end``: the stable end is not judged meanwhile."""
        with self._changed:
            self._expected_end = end
            self._changed.notify_all()

    def submit(self, commit: Commit) -> None:
        """Audit ``commit``; blocks while too many commits wait."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    len(self._commits) < self._limits.audit_commits_max or self._failure is not None
                )
            )
            self._commits.append(commit)
            self._is_visible = False
            self._changed.notify_all()
        self.check()

    def wait_visible(self, timeout_s: float) -> bool:
        """Wait until the last submitted commit was readable, so that its marker is written; False if not in time.

        Failures are left to ``check``.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_visible or self._failure is not None, timeout_s)
            return self._is_visible

    def drain(self, timeout_s: float) -> bool:
        """Wait until all submitted commits are audited; False if that takes too long. Raises the first failure."""
        with self._changed:
            self._is_drained = True
            self._changed.notify_all()
            idle = self._changed.wait_for(
                lambda: self._failure is not None or not (self._commits or self._is_reading),
                timeout_s,
            )
            self._is_drained = False
        self.check()
        return idle

    def look(self) -> None:
        """Compare the stable end, if no commit waits. Call it while no Kafka transaction is open.

        A broker without an answer is asked again until ``publish_timeout_s``. Raises the first failure.
        """
        with self._changed:
            self._is_look_due = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._failure is not None or not self._is_look_due)
        self.check()

    def stop(self) -> None:
        """End the thread. Waiting commits are not audited. The partition reader is free again."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._is_stopped:
                commit = self._next()
                if commit is not None:
                    self._read_back(commit)
                elif not self._is_stopped:
                    self._look_at_end()
        except BaseException as failure:  # noqa: BLE001 - comes out of `check`, in the thread that the supervisor watches
            with self._changed:
                self._failure = failure
                self._changed.notify_all()

    def _next(self) -> Commit | None:
        """The next commit; None for a look, or to stop."""
        with self._changed:
            self._is_reading = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_stopped or self._commits or self._is_look_due)
            if self._is_stopped or not self._commits:
                return None
            self._is_reading = True
            commit = self._commits.popleft()
            self._changed.notify_all()
            return commit

    def _read_back(self, commit: Commit) -> None:
        deadline = time.monotonic() + self._limits.audit_timeout_s
        record = None
        while record is None and not self._is_stopped:
            is_late = time.monotonic() > deadline  # this process may have been suspended meanwhile
            expected = commit.last_offset + self._shift
            record = self._partition.next_record(expected, timeout_s=LOOK_S)
            if (record is None or record.offset > expected) and self._is_removed(expected):
                self._found_end = None
                self._compare_end(commit.end, deadline)
                return
            if record is None and is_late:
                self._explain_absence(commit)
        if record is None:
            return
        self._note_visible()
        if record.offset != expected or record.value != commit.last_record:
            self._search_last_record(commit)
        # another writer's record may precede the marker, which is written after the commit returned
        self._found_end = commit.last_offset + self._shift + 1
        self._compare_end(commit.end, deadline)

    def _note_visible(self) -> None:
        with self._changed:
            self._is_visible = not self._commits
            self._changed.notify_all()

    def _search_last_record(self, commit: Commit) -> None:
        """Search for a last record that is not at its offset: readers must see exactly the commit's records, else
        MR-3014."""
        expected = commit.last_offset + self._shift
        stop = min(expected + _MARKERS_MAX + 1, self._partition.stable_end())
        start = expected if self._found_end is None else self._found_end
        seen = self._partition.read(start, stop)
        at = next(
            (at for at, record in enumerate(seen) if record.value == commit.last_record), None
        )
        if at is None or (self._found_end is not None and at + 1 != commit.count):
            raise Fatal(
                "MR-3014",
                f"offset {expected} has another record than the committed one",
                expected_offset=expected,
            )
        self._add_shift(seen[at].offset - expected)

    def _add_shift(self, offsets: int) -> None:
        self._shift += offsets
        log.info("a marker was written again", offsets=offsets)

    def _is_removed(self, offset: int) -> bool:
        """Whether this offset is no longer kept; False while the broker is unavailable."""
        with suppress(Retryable):
            low = self._partition.low_end()
            if low > offset:
                log.warning("a commit was removed before it was read back", offset=offset, low=low)
                return True
        return False

    def _compare_end(self, end: int, deadline: float) -> None:
        """Check that the stable end is exactly at ``end``, after a marker, unless another commit follows."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._is_stopped
                    or self._is_drained
                    or self._is_look_due
                    or self._expected_end != end
                ),
                IDLE_S,
            )
        while self._expected_end == end and not self._is_stopped:
            is_late = time.monotonic() > deadline
            stable = self._partition.stable_end()
            expected = end + self._shift
            if stable == expected or self._expected_end != end:
                return
            if stable > expected and not self._partition.read(expected - 1, stable):
                self._add_shift(stable - expected)
                return
            if stable > expected or is_late:
                if (fenced := self._find_successor()) is not None:
                    raise fenced
                if (
                    stable < expected
                    and (blocked := self._find_blocking_writer(stable)) is not None
                ):
                    raise blocked
                raise Fatal(
                    "MR-3015",
                    f"the stable end is {stable} and must be {expected}",
                    expected=expected,
                    found=stable,
                )
            time.sleep(_LOOK_AGAIN_S)

    def _look_at_end(self) -> None:
        """Compare the stable end with that after the last commit; Retryable if no broker answers in time."""
        limits, began_s = self._limits, time.monotonic()
        while True:
            try:
                self._compare_end(self._expected_end, began_s + limits.audit_timeout_s)
                break
            except Retryable:
                if self._is_stopped or time.monotonic() - began_s > limits.publish_timeout_s:
                    raise
            with self._changed:
                self._changed.wait_for(lambda: self._is_stopped, LOOK_S)
        with self._changed:
            self._is_look_due = False
            self._changed.notify_all()

    def _explain_absence(self, commit: Commit) -> None:
        stable = self._partition.stable_end()  # Retryable if the broker is unavailable
        end = commit.end + self._shift
        if stable < end:
            if (blocked := self._find_blocking_writer(stable)) is not None:
                raise blocked
            raise Fatal(
                "MR-3015",
                f"the stable end remains at {stable}, before the end {end} of a commit that returned OK",
                expected=end,
                found=stable,
            )
        raise Fatal(
            "MR-3014",
            f"the record committed at offset {end - 2} cannot be read with read_committed",
            expected_offset=end - 2,
        )
