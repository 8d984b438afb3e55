"""How fast a count grows, over the last seconds. Pure: the caller passes the time."""

from collections import deque

SHORT_S, LONG_S = 10.0, 60.0
SPAN_S_MIN = 0.5  # closer samples give no rate
SAMPLES_PER_S_MAX = 4


class Meter:
    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()  # time, count

    def __len__(self) -> int:
        return len(self._samples)

    def note(self, count: int, *, at_s: float) -> None:
        """Add a sample. A sample soon after another replaces it, so the memory is bounded."""
        samples = self._samples
        if len(samples) > 1 and at_s - samples[-2][0] < 1 / SAMPLES_PER_S_MAX:
            samples.pop()
        samples.append((at_s, count))
        while len(samples) > 2 and samples[1][0] <= at_s - LONG_S:
            samples.popleft()

    def clear(self) -> None:
        self._samples.clear()

    def over(self, span_s: float) -> float | None:
        """The growth a second over the last ``span_s``, or over less if it was noted for less; None: unknown."""
        if not self._samples:
            return None
        last_s, last = self._samples[-1]
        first_s, first = self._samples[0]
        for at_s, count in self._samples:
            if at_s > last_s - span_s:
                break
            first_s, first = at_s, count
        if last_s - first_s < SPAN_S_MIN:
            return None
        return max(last - first, 0) / (last_s - first_s)
