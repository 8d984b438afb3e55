"""Measures the lag of members in seconds, with one clock: the time since a member had all that the primary had.

The primary's position is sampled. A member whose position includes the newest sample has no lag. Otherwise its lag is
the age of the oldest sample that it does not include. No server's clock takes part, and a replica whose threads are
stopped lags as soon as the primary commits. While no primary answers, the union of all positions is the sample.

A replica that was late already when the watch began is at least as late as the watch is old. The replica's own
``Seconds_Behind_Source`` raises the value then, but never lowers it. If its threads are stopped, it has none, and the
lag is unknown until the replica reaches the first sample.

Guarantees: never below the true lag by more than one interval of samples, except before the first sample. Pure: the
caller gives the times.
"""

from bisect import bisect_left
from collections.abc import Iterable
from functools import reduce

from millrace.producer.source.choose.probe import Pulse
from millrace.schemas.gtid import GtidPosition, unite

# at one a second, a quarter of an hour; beyond it, every second sample is dropped
SAMPLES_MAX = 900


class LagMeter:
    """The samples of one set."""

    def __init__(self) -> None:
        self._times_s: list[float] = []
        self._positions: list[GtidPosition] = []
        self._primary = ""

    def sample(self, pulses: Iterable[Pulse], *, at_s: float) -> None:
        """Note what the primary has at ``at_s``, a time before it was asked."""
        known = [pulse for pulse in pulses if pulse.position is not None]
        primaries = [pulse for pulse in known if pulse.is_primary]
        if len(primaries) == 1:
            if self._primary not in ("", primaries[0].server):
                self._times_s, self._positions = [], []  # what the former primary lost is no lag
            self._primary = primaries[0].server
            known = primaries
        if not known:
            return
        newest = reduce(unite, (pulse.position for pulse in known if pulse.position is not None))
        if self._positions and self._positions[-1].includes(newest):
            return
        self._times_s.append(at_s)
        self._positions.append(newest)
        if len(self._positions) > SAMPLES_MAX:
            # the oldest samples become coarse: a lag of many minutes needs no second. ``is_known`` needs the first one
            del self._times_s[1 : SAMPLES_MAX // 2 : 2]
            del self._positions[1 : SAMPLES_MAX // 2 : 2]

    def newest(self) -> GtidPosition | None:
        return self._positions[-1] if self._positions else None

    def lag_s(self, pulse: Pulse, *, at_s: float) -> float | None:
        """The lag of a member at ``at_s``, or a lower bound (``is_known``); None while neither is known."""
        if pulse.position is None or not self._positions:
            return None
        held = pulse.position
        late = bisect_left(self._positions, True, key=lambda sample: not held.includes(sample))
        if late == len(self._positions):
            return 0.0
        lag_s = max(0.0, at_s - self._times_s[late])
        if late == 0:  # perhaps late before the first sample
            lag_s = max(lag_s, pulse.seconds_behind or 0.0)
        return lag_s

    def is_known(self, pulse: Pulse) -> bool:
        """Whether ``lag_s`` is the lag. Otherwise it is only as old as the watch, and the true lag may be days.

        So it is if the member was late before the first sample and its threads are stopped, so that it reports none.
        """
        if pulse.position is None or not self._positions:
            return False
        return pulse.seconds_behind is not None or pulse.position.includes(self._positions[0])


class Still:
    """How long one member has applied nothing although transactions of the set are missing."""

    def __init__(self) -> None:
        self._position: GtidPosition | None = None
        self._since_s = 0.0

    def since(
        self, position: GtidPosition | None, *, missing: int | None, at_s: float
    ) -> float | None:
        """The seconds, as far as it was watched; 0 while nothing is missing, None while the member does not answer."""
        if position is None:
            return None
        if position != self._position or not missing:
            self._position, self._since_s = position, at_s
        return at_s - self._since_s
