"""Lag, waiting time and rates of a capture task."""

from producer.pace import Pace

COMMIT_MS = 1_764_000_000_000


def test_lag_of_last_row_ends_when_nothing_waits() -> None:
    """An idle task has no lag, however late its last row was."""
    pace = Pace(at_s=0.0)
    assert pace.stage(at_s=0.1).lag_s is None
    pace.published(10, COMMIT_MS, at_s=1.0, at_ms=COMMIT_MS + 250)
    stage = pace.stage(at_s=1.0)
    assert (stage.lag_s, stage.waits_s, stage.commit_ms, stage.rows) == (0.25, 0.0, COMMIT_MS, 10)
    pace.idle(at_s=2.0)
    stage = pace.stage(at_s=300.0)
    assert (stage.lag_s, stage.waits_s, stage.commit_ms) == (0.0, 0.0, COMMIT_MS)


def test_lag_grows_while_no_row_is_published() -> None:
    """From the lag of the last row; the waiting time counts from it."""
    pace = Pace(at_s=0.0)
    pace.published(1, COMMIT_MS, at_s=1.0, at_ms=COMMIT_MS + 500)
    stage = pace.stage(at_s=41.0)
    assert (stage.lag_s, stage.waits_s) == (40.5, 40.0)


def test_clock_of_the_source_ahead_gives_no_negative_lag() -> None:
    """The two clocks differ."""
    pace = Pace(at_s=0.0)
    pace.published(1, COMMIT_MS, at_s=1.0, at_ms=COMMIT_MS - 3000)
    assert pace.stage(at_s=1.0).lag_s == 0.0


def test_batch_without_rows_keeps_the_lag() -> None:
    """Such as one with a DDL statement, or with the progress of excluded tables."""
    pace = Pace(at_s=0.0)
    pace.published(1, COMMIT_MS, at_s=1.0, at_ms=COMMIT_MS + 100)
    pace.published(0, 0, at_s=50.0, at_ms=COMMIT_MS + 60_000)
    stage = pace.stage(at_s=50.0)
    assert (stage.lag_s, stage.waits_s, stage.rows) == (0.1, 0.0, 1)
