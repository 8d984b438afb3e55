"""How fast a count grows."""

from millrace.metrics.rates import LONG_S, SAMPLES_PER_S_MAX, SHORT_S, Meter


def test_rate_is_that_of_the_span() -> None:
    """Older samples do not count; the first one may be younger than the span."""
    meter = Meter()
    assert meter.over(SHORT_S) is None
    meter.note(0, at_s=0.0)
    assert meter.over(SHORT_S) is None
    meter.note(100, at_s=1.0)
    assert meter.over(SHORT_S) == 100.0
    for second in range(2, 121):
        meter.note(100 + 10 * second, at_s=second)
    assert (meter.over(SHORT_S), meter.over(LONG_S)) == (10.0, 10.0)


def test_count_that_starts_again_is_no_negative_rate() -> None:
    """Such as the seq of a topic that was created again."""
    meter = Meter()
    meter.note(500, at_s=0.0)
    meter.note(3, at_s=5.0)
    assert meter.over(SHORT_S) == 0.0


def test_memory_is_bounded_however_often_it_is_noted() -> None:
    """Close samples are replaced, and the last one always counts."""
    meter = Meter()
    for tick in range(200_000):
        meter.note(tick, at_s=tick / 1000)
    assert len(meter) <= LONG_S * SAMPLES_PER_S_MAX + 3
    rate = meter.over(SHORT_S)
    assert rate is not None
    assert abs(rate - 1000) < 1
