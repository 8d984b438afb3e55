"""Lag, waiting time and rates of a capture task."""

from dataclasses import replace

import pytest

from millrace.producer.task.lag import Pace, reader_lag_s
from tests.kit.control.reports import FULL_CAPTURE

COMMIT_MS = 1_764_000_000_000
assert FULL_CAPTURE.captured is not None
SOURCE = FULL_CAPTURE.captured.source


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


def test_batch_that_waits_for_kafka_makes_the_lag_grow() -> None:
    """An idle task had none; of a backlog, the time since the last row counts."""
    pace = Pace(at_s=0.0)
    pace.idle(at_s=10.0)
    pace.begins(at_s=20.0)
    pace.begins(at_s=25.0)
    stage = pace.stage(at_s=32.0)
    assert (stage.lag_s, stage.waits_s) == (12.0, 12.0)


@pytest.mark.parametrize(
    ("relay_s", "member_s", "is_paused", "lag_s"),
    [
        (0.0, 0.0, False, 0.0),
        (0.0, 40.0, False, 40.0),  # the member is late: its changes are not in the topic
        (60.0, 40.0, False, 60.0),
        (0.0, None, False, None),
        (3.0, None, False, 3.0),
        (0.0, 0.0, True, None),  # nothing is received
        (None, 40.0, False, None),  # no row yet
    ],
)
def test_reader_is_never_ahead_of_the_member(
    relay_s: float | None, member_s: float | None, is_paused: bool, lag_s: float | None
) -> None:
    """A lag of 0 would be wrong while the member is stopped."""
    assert reader_lag_s(relay_s, replace(SOURCE, lag_s=member_s), is_paused=is_paused) == lag_s
