"""Every commit is read back, behind the stream and not in its way.

    commit n returns OK ──► submit ──► [queue] ──► the record at the place where its last one must stand is read with
    read_committed and compared byte for byte; when nothing follows, the stable end must be exactly behind its marker

A commit of k records (its resolved included) that began at offset e ends at e + k + 1: the records and the marker. So
the resolved stands at e + k − 1, and reading exactly it there proves that no record is missing, repeated or foreign up
to there, and that the transaction is committed to every reader. A late abort has the same offsets, but no readable
record.

Markers may come twice: a new transaction coordinator sends again what the one before did not note as sent. So a place
that is off is no disagreement yet; then what readers see since the last commit that was found must be those k records
and no other, the resolved last, and from there on all places are counted anew (``shift``).

Guarantees: the first disagreement is raised by ``check`` in the stream's thread (MR-3014, MR-3015; MR-3013 where
another writer's open transaction hides our records), and so is whatever else ends the audit; nothing is audited behind
it. Records of a newer owner are no disagreement: that is Fenced. Records that were removed before they could be read
(retention, an operator) are no disagreement either. At most ``audit_commits_max`` commits are outstanding, then
``submit`` waits. While the broker is away nothing is concluded: that is Retryable.
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
from producer.publish.config import PublisherLimits
from producer.publish.driver import Partition

log = get_logger("producer.publish")

_LOOK_AGAIN_S = 0.005  # between two looks at a stable end that lags behind its record
_MARKERS_MAX = 64  # that came again since the last commit: one for each change of the coordinator
_LOOK_S = 0.5  # one wait for a record, after which is asked whether it is still kept
# How long after its timeout a commit is judged: one look, and the question whose transaction is open (3 s a broker).
JUDGEMENT_S = 5.0


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit that returned OK: the stable end behind it, its last record, and how many it has."""

    end: int
    mark: bytes
    count: int

    @property
    def mark_offset(self) -> int:
        """The last offset before the marker."""
        return self.end - 2


class Audit:
    """One thread over one partition reader, which it owns until ``stop`` returns.

    ``find_successor`` reads the tail with the same reader and gives the error if a newer owner wrote it, ``find_hider``
    that of another writer whose open transaction begins at a stable end, if the broker says so.
    """

    def __init__(
        self,
        partition: Partition,
        *,
        end: int,
        limits: PublisherLimits,
        find_successor: Callable[[], MillraceError | None],
        find_hider: Callable[[int], MillraceError | None],
    ) -> None:
        self._partition = partition
        self._limits = limits
        self._find_successor = find_successor
        self._find_hider = find_hider
        self._planned_end = (
            end  # behind the Kafka transaction under way; the last commit's when there is none
        )
        self._shift = 0  # markers more than expected, so far
        self._found_end: int | None = end  # what readers see was found up to here; None: not known
        self._commits: deque[Commit] = deque()
        self._is_reading = False
        self._is_stopped = False
        self._failure: BaseException | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="publisher-audit", daemon=True)
        self._thread.start()

    @property
    def shift(self) -> int:
        """By how much the partition is known to end further than records and markers of ours say."""
        return self._shift

    def check(self) -> None:
        """Raise the first disagreement found so far, or what else ended the audit."""
        if self._failure is not None:
            raise self._failure

    def plan(self, end: int) -> None:
        """A Kafka transaction begins that will end at ``end``: the stable end is not judged meanwhile."""
        self._planned_end = end

    def submit(self, commit: Commit) -> None:
        """Audit ``commit``; waits while too many are outstanding."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    len(self._commits) < self._limits.audit_commits_max or self._failure is not None
                )
            )
            self._commits.append(commit)
            self._changed.notify_all()
        self.check()

    def drain(self, timeout_s: float) -> bool:
        """Wait until everything submitted is audited; False in vain. Raises the first disagreement."""
        with self._changed:
            idle = self._changed.wait_for(
                lambda: self._failure is not None or not (self._commits or self._is_reading),
                timeout_s,
            )
        self.check()
        return idle

    def stop(self) -> None:
        """End the thread; what is outstanding stays unaudited. The partition reader is free again."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        try:
            while (commit := self._next()) is not None:
                self._read_back(commit)
        except BaseException as failure:  # noqa: BLE001 - comes out of `check`, in the thread that the supervisor watches
            with self._changed:
                self._failure = failure
                self._changed.notify_all()

    def _next(self) -> Commit | None:
        with self._changed:
            self._is_reading = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_stopped or self._commits)
            if self._is_stopped:
                return None
            self._is_reading = True
            commit = self._commits.popleft()
            self._changed.notify_all()
            return commit

    def _read_back(self, commit: Commit) -> None:
        deadline = time.monotonic() + self._limits.audit_timeout_s
        record = None
        while record is None and not self._is_stopped:
            is_late = time.monotonic() > deadline  # this process may have been stopped meanwhile
            expected = commit.mark_offset + self._shift
            record = self._partition.next_record(expected, timeout_s=_LOOK_S)
            if (record is None or record.offset > expected) and self._is_removed(expected):
                self._found_end = None
                self._compare_end(commit, deadline)
                return
            if record is None and is_late:
                self._explain_absence(commit)
        if record is None:
            return
        if record.offset != expected or record.value != commit.mark:
            self._look_further(commit)
        # somebody else's record may stand in front of the marker, which lands after the commit returned
        self._found_end = commit.mark_offset + self._shift + 1
        self._compare_end(commit, deadline)

    def _look_further(self, commit: Commit) -> None:
        """The mark is not in its place: it must be the last of so many records that readers see; or MR-3014."""
        expected = commit.mark_offset + self._shift
        stop = min(expected + _MARKERS_MAX + 1, self._partition.stable_end())
        start = expected if self._found_end is None else self._found_end
        seen = self._partition.read(start, stop)
        at = next((at for at, record in enumerate(seen) if record.value == commit.mark), None)
        if at is None or (self._found_end is not None and at + 1 != commit.count):
            raise Fatal(
                "MR-3014",
                f"another record than the one committed stands at offset {expected}",
                expected_offset=expected,
            )
        self._move(seen[at].offset - expected)

    def _move(self, offsets: int) -> None:
        self._shift += offsets
        log.info("a marker came once more", offsets=offsets)

    def _is_removed(self, offset: int) -> bool:
        """Whether this offset is no longer kept; False while the broker can't be asked."""
        with suppress(Retryable):
            low = self._partition.low_end()
            if low > offset:
                log.warning("a commit was removed before it was read back", offset=offset, low=low)
                return True
        return False

    def _compare_end(self, commit: Commit, deadline: float) -> None:
        """When nothing follows: the stable end is exactly behind the marker."""
        while self._planned_end == commit.end and not self._is_stopped:
            is_late = time.monotonic() > deadline
            stable = self._partition.stable_end()
            expected = commit.end + self._shift
            if stable == expected or self._planned_end != commit.end:
                return
            if stable > expected and not self._partition.read(expected - 1, stable):
                self._move(stable - expected)
                return
            if stable > expected or is_late:
                if (fenced := self._find_successor()) is not None:
                    raise fenced
                if stable < expected and (hidden := self._find_hider(stable)) is not None:
                    raise hidden
                raise Fatal(
                    "MR-3015",
                    f"the stable end is {stable} and must be {expected}",
                    expected=expected,
                    found=stable,
                )
            time.sleep(_LOOK_AGAIN_S)

    def _explain_absence(self, commit: Commit) -> None:
        stable = self._partition.stable_end()  # Retryable when the broker is away
        end = commit.end + self._shift
        if stable < end:
            if (hidden := self._find_hider(stable)) is not None:
                raise hidden
            raise Fatal(
                "MR-3015",
                f"the stable end stays at {stable}, before the end {end} of a commit that returned OK",
                expected=end,
                found=stable,
            )
        raise Fatal(
            "MR-3014",
            f"the record committed at offset {end - 2} can't be read with read_committed",
            expected_offset=end - 2,
        )
