"""The pace of an apply task: lag, backlog, rows a second and ETA, from looks at the target's mark and the topic's end.

    look        the mark on the target, the lag that was stored with it, and the topic's end, about once a second
    rate        from the marks of two looks: seq counts the topic's rows and statements, also those that the task skips;
                the offset counts records
    backlog     offsets from the mark to the topic's end, or from where a turn found no record up to the end. 0 for the
                last ``TAIL_OFFSETS``, which are no row and no statement
    ETA         the backlog by the records a second over 10 s, or over 60 s if no mark moved for 10 s

The lag is the stored one if the mark has moved since the last look. Otherwise it is 0 if no record waits. If records
wait, it grows from the lag at the last move, or from 0 at the last look that found no record waiting. It is unknown
before the first of these.

Pure: the caller passes the time.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from consumer.target.progress import Mark
from schemas.stages import Applied

SHORT_S, LONG_S = 10.0, 60.0
SPAN_S_MIN = 0.5  # of closer marks no rate is computed
# A Kafka transaction ends with a `resolved` or `fence` record and Kafka's marker.
TAIL_OFFSETS = 2


@dataclass(frozen=True, slots=True)
class Look:
    """``lag_s``: stored with the mark; None: unknown. ``end``: of the topic; None if the broker did not answer.

    ``read_to``: a turn has found no record from the mark up to this offset.
    """

    at_s: float
    mark: Mark
    lag_s: float | None
    end: int | None
    read_to: int = -1


@dataclass(slots=True)
class Pace:
    """The looks of the last minute."""

    _looks: deque[Look] = field(default_factory=deque)
    _base_s: float | None = None  # the lag at ``_since_s``
    _since_s: float = 0.0

    def saw(self, look: Look) -> Applied:
        """Add a look; the stage as of it."""
        if self._looks and self._looks[-1].mark.is_unproven:
            self._looks.clear()  # the seq at which the task begins was not known then
        before = self._looks[-1].mark if self._looks else None
        backlog = _backlog(look)
        has_moved = before is not None and look.mark.seq > before.seq
        if backlog == 0 or has_moved:
            self._base_s, self._since_s = (0.0 if backlog == 0 else look.lag_s), look.at_s
        lag_s = look.lag_s if has_moved else self._lag_s(look.at_s)
        self._looks.append(look)
        while len(self._looks) > 2 and self._looks[1].at_s <= look.at_s - LONG_S:
            self._looks.popleft()
        return Applied(
            lag_s=None if backlog is None else lag_s,
            commit_ms=look.mark.commit_ms,
            backlog_records=backlog,
            rows_10_s=self._rate(SHORT_S, _seq),
            rows_60_s=self._rate(LONG_S, _seq),
            eta_s=self._eta(backlog),
        )

    def _lag_s(self, at_s: float) -> float | None:
        return None if self._base_s is None else self._base_s + at_s - self._since_s

    def _eta(self, backlog: int | None) -> float | None:
        if not backlog:
            return backlog
        records_s = self._rate(SHORT_S, _place) or self._rate(LONG_S, _place)
        return backlog / records_s if records_s else None

    def _rate(self, over_s: float, count: Callable[[Mark], int]) -> float | None:
        last, first = self._looks[-1], self._looks[0]
        for look in self._looks:
            if look.at_s > last.at_s - over_s:
                break
            first = look
        span_s = last.at_s - first.at_s
        if span_s < SPAN_S_MIN:
            return None
        return max(count(last.mark) - count(first.mark), 0) / span_s


def _backlog(look: Look) -> int | None:
    if look.end is None:
        return None
    waiting = look.end - max(look.mark.next_offset, look.read_to, 0)
    return waiting if waiting > TAIL_OFFSETS else 0


def _seq(mark: Mark) -> int:
    return mark.seq


def _place(mark: Mark) -> int:
    return max(mark.next_offset, 0)
