"""The pace of an apply task: lag, backlog, rows a second and ETA, from looks at the target's mark and the topic's end.

    look        the mark on the target, the lag that was stored with it, and the topic's end, about once a second
    rate        from the marks of two looks: seq counts the topic's rows and statements, also those that the filter of
                the task skips; the offset counts records. While tables are loaded, from the rows and statements that
                the turns have applied: seq counts those of the tables that wait, too
    backlog     records: offsets from the mark to the topic's end, or from where a turn found no record up to the end.
                0 for the last ``TAIL_OFFSETS``, which are no row and no statement. rows: the ``seq`` of the topic's
                last record less that of the mark. bytes: the records by the mean size of those that were read
    waiting     since the mark moved while records wait
    ETA         the backlog by the records a second over 10 s, or over 60 s if no mark moved for 10 s

The lag is the stored one if the mark has moved since the last look. Otherwise it is 0 if no record waits. If records
wait, it grows from the lag at the last move, or from 0 at the last look that found no record waiting. It is unknown
before the first of these.

Pure: the caller passes the time.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from millrace.consumer.target.progress import Mark
from millrace.metrics.rates import LONG_S, SHORT_S, Meter
from millrace.schemas.stages import Applied, Backlog, Rates

# A Kafka transaction ends with a `resolved` or `fence` record and Kafka's marker.
TAIL_OFFSETS = 2
STILL_S = 30.0  # if the mark has not moved for so long, the pace of the last minute no longer holds


@dataclass(frozen=True, slots=True)
class End:
    """The topic's end: the offset, and a function that reads the ``seq`` of its last record (None: not known)."""

    offset: int
    read_seq: Callable[[], int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """``lag_s``: stored with the mark; None: unknown. ``end``: of the topic; None if the broker did not answer.

    ``read_to``: a turn has found no record from the mark up to this offset. ``record_bytes``: the mean size of a
    record; None while no turn has ended.
    """

    at_s: float
    mark: Mark
    lag_s: float | None
    end: End | None
    read_to: int = -1
    record_bytes: float | None = None


@dataclass(slots=True)
class Pace:
    """The looks of the last minute."""

    _rows: Meter = field(default_factory=Meter)
    _records: Meter = field(default_factory=Meter)
    _last: Mark | None = None
    _base_s: float | None = None  # the lag at ``_since_s``
    _since_s: float = 0.0
    _turned: int | None = None  # ``applied`` of the last look

    def saw(self, look: Look, *, applied: int | None = None) -> Applied:
        """Add a look; the stage as of it.

        ``applied``: while tables are loaded, the rows and statements that the ended turns of this run have applied.
        """
        before = self._last
        if before is not None and before.is_unproven:
            before = None  # the seq at which the task begins was not known then
            self._rows.clear()
            self._records.clear()
        waiting = _count_waiting(look)
        has_moved = before is not None and look.mark.seq > before.seq
        if waiting == 0 or has_moved or self._last is None:
            self._since_s = look.at_s
            if waiting == 0:
                self._base_s = 0.0
            elif has_moved:
                self._base_s = look.lag_s
        lag_s = look.lag_s if has_moved else self._lag_s(look.at_s)
        self._last = look.mark
        self._note_rows(look, applied, is_idle=not waiting)
        self._records.note(max(look.mark.next_offset, 0), at_s=look.at_s)
        return Applied(
            lag_s=None if waiting is None else lag_s,
            waits_s=look.at_s - self._since_s if waiting else 0.0,
            commit_ms=look.mark.commit_ms,
            backlog=_backlog(look, waiting),
            rates=Rates(self._rows.over(SHORT_S), self._rows.over(LONG_S)),
            eta_s=self._eta(waiting) if look.at_s - self._since_s < STILL_S else None,
        )

    def _note_rows(self, look: Look, applied: int | None, *, is_idle: bool) -> None:
        """Turns end every few seconds while tables are loaded. In between, the count does not move."""
        if (applied is None) != (self._turned is None):
            self._rows.clear()
        is_old = look.at_s - self._since_s > STILL_S
        if applied is None or applied != self._turned or is_idle or is_old:
            self._rows.note(look.mark.seq if applied is None else applied, at_s=look.at_s)
        self._turned = applied

    def _lag_s(self, at_s: float) -> float | None:
        return None if self._base_s is None else self._base_s + at_s - self._since_s

    def _eta(self, waiting: int | None) -> float | None:
        if not waiting:
            return waiting
        records_s = self._records.over(SHORT_S) or self._records.over(LONG_S)
        return waiting / records_s if records_s else None


def _count_waiting(look: Look) -> int | None:
    """The offsets from the mark to the topic's end; see the module."""
    if look.end is None:
        return None
    waiting = look.end.offset - max(look.mark.next_offset, look.read_to, 0)
    return waiting if waiting > TAIL_OFFSETS else 0


def _backlog(look: Look, waiting: int | None) -> Backlog:
    if not waiting or look.end is None:
        return Backlog(waiting, waiting, waiting)
    seq = look.end.read_seq()
    size = None if look.record_bytes is None else round(waiting * look.record_bytes)
    return Backlog(waiting, None if seq is None else max(0, seq - max(look.mark.seq, 0)), size)
