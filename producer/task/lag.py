"""The pace of a capture task: lag, waiting time and rates, from what its loop does. Pure: the caller passes the times.

    lag      of the last published row: from the source's commit to the moment when a reader of the topic can see it.
             0 once nothing waits in the relay log. While rows wait and none is published, it grows with the clock.
    waiting  since rows wait in the relay log and none was published

The source's commit is by its clock, the rest by the worker's.
"""

from millrace.metrics.rates import LONG_S, SHORT_S, Meter
from millrace.schemas.stages import Published, Rates, SourceView


def reader_lag_s(lag_s: float | None, source: SourceView, *, is_paused: bool) -> float | None:
    """The lag of a reader of the topic, from ``lag_s``, that of the relay log: never less than the member's.

    None instead of 0 while nothing is received (``is_paused``) or the member's lag is unknown: changes may wait there.
    """
    if is_paused or source.lag_s is None:
        return lag_s or None
    return None if lag_s is None else max(lag_s, source.lag_s)


class Pace:
    """The pace since the start of a run."""

    def __init__(self, *, at_s: float) -> None:
        self._rows = 0
        self._commit_ms = 0
        self._lag_s: float | None = None
        self._moved_s = at_s
        self._is_waiting = True  # until the converter has read the relay log to its end
        self._meter = Meter()
        self._meter.note(0, at_s=at_s)

    def published(self, rows: int, commit_ms: int, *, at_s: float, at_ms: int) -> None:
        """``rows`` rows are readable now, the last of them committed at ``commit_ms`` (0: none of them is a row)."""
        self._rows += rows
        self._moved_s, self._is_waiting = at_s, True
        if commit_ms:
            self._commit_ms = commit_ms
            self._lag_s = max(0.0, (at_ms - commit_ms) / 1000)

    def begins(self, *, at_s: float) -> None:
        """Rows are to be published now. If none waited before, they wait from now on."""
        if not self._is_waiting:
            self._moved_s, self._is_waiting = at_s, True

    def idle(self, *, at_s: float) -> None:
        """Nothing waits in the relay log."""
        self._lag_s, self._moved_s, self._is_waiting = 0.0, at_s, False

    def stage(self, *, at_s: float) -> Published:
        """The stage now, with what is measured here."""
        self._meter.note(self._rows, at_s=at_s)
        waits_s = max(0.0, at_s - self._moved_s) if self._is_waiting else 0.0
        return Published(
            lag_s=None if self._lag_s is None else self._lag_s + waits_s,
            waits_s=waits_s,
            commit_ms=self._commit_ms,
            rows=self._rows,
            rates=Rates(self._meter.over(SHORT_S), self._meter.over(LONG_S)),
        )
