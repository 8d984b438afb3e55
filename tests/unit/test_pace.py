"""Lag, backlog, rates and ETA of an apply task, from a sequence of looks."""

import pytest

from millrace.consumer.target.progress import Mark
from millrace.consumer.task.lag import End, Look, Pace
from millrace.metrics.rates import LONG_S
from millrace.schemas.stages import Backlog, Rates


def _look(
    at_s: float, seq: int, *, end: int | None, lag_s: float | None = None, read_to: int = -1
) -> Look:
    """A look at a topic with two records of 100 bytes for each row."""
    return Look(
        at_s=at_s,
        mark=Mark(seq, 2 * seq, commit_ms=1000 + seq),
        lag_s=lag_s,
        end=None if end is None else End(end, lambda: end // 2),
        read_to=read_to,
        record_bytes=100.0,
    )


def test_task_that_catches_up_shows_rate_and_eta() -> None:
    """400 rows a second in steps of one look; half of 20,000 records remain after 12.5 s."""
    pace = Pace()
    for tick in range(26):
        applied = pace.saw(_look(tick / 2, 200 * tick, end=20_000, lag_s=100.0 - tick))
    assert applied.backlog.records == 10_000
    assert applied.lag_s == 75.0
    assert (applied.rates.over_10_s, applied.rates.over_60_s) == (400.0, 400.0)
    assert applied.eta_s == 12.5
    assert applied.commit_ms == 6000


def test_rates_are_those_of_their_windows() -> None:
    """60 s at 100 rows a second, then 10 s at 700; earlier looks count in neither."""
    pace, seq = Pace(), 0
    for tick in range(101):
        seq += 0 if tick <= 30 else 100 if tick <= 90 else 700
        applied = pace.saw(_look(tick, seq, end=0))
    assert applied.rates.over_10_s == 700.0
    assert applied.rates.over_60_s == (50 * 100 + 10 * 700) / LONG_S


def test_rate_bridges_marks_that_move_seldom() -> None:
    """A mark that moves once in 20 s: the rate over 10 s is 0 in between, and the ETA uses the last minute."""
    pace = Pace()
    for tick in range(61):
        applied = pace.saw(_look(tick, 1000 * (tick // 20), end=12_000))
    assert applied.rates.over_10_s == 100.0
    for tick in range(61, 75):
        applied = pace.saw(_look(tick, 3000, end=12_000))
    assert (applied.rates.over_10_s, applied.rates.over_60_s) == (0.0, 50.0)
    assert applied.eta_s == 60.0


def test_caught_up_task_has_no_lag_and_no_eta() -> None:
    """Also if its last row was late and is long ago."""
    pace = Pace()
    pace.saw(_look(0, 5, end=13, lag_s=300.0))
    assert pace.saw(_look(1, 6, end=12, lag_s=300.0)).lag_s == 300.0, "of the row just applied"
    applied = pace.saw(_look(2, 6, end=12, lag_s=300.0))
    assert (applied.lag_s, applied.backlog.records, applied.eta_s) == (0.0, 0, 0.0)
    assert pace.saw(_look(100, 6, end=12, lag_s=300.0)).rates.over_60_s == 0.0


def test_lag_grows_while_records_wait() -> None:
    """From 0 after a caught-up look, from the last row's lag after a move."""
    pace = Pace()
    pace.saw(_look(0, 5, end=10))
    assert pace.saw(_look(3, 5, end=16)).lag_s == 3.0
    assert pace.saw(_look(4, 6, end=16, lag_s=3.5)).lag_s == 3.5
    assert pace.saw(_look(6, 6, end=16, lag_s=3.5)).lag_s == 5.5


@pytest.mark.parametrize(("waiting", "backlog"), [(0, 0), (1, 0), (2, 0), (3, 3)])
def test_resolved_and_its_marker_are_no_backlog(waiting: int, backlog: int) -> None:
    """They end each Kafka transaction, so two waiting offsets hold no row. Three may be one row with them."""
    pace = Pace()
    pace.saw(_look(0, 5, end=10))
    applied = pace.saw(_look(1, 5, end=10 + waiting))
    lag_s = 1.0 if backlog else 0.0
    assert (applied.backlog.records, applied.lag_s) == (backlog, lag_s)
    assert (applied.eta_s == 0.0) is (backlog == 0)


def test_records_that_a_turn_did_not_find_are_no_backlog() -> None:
    """The mark is after the last record; the topic ends after several markers, which a turn has passed."""
    pace = Pace()
    assert pace.saw(_look(0, 5, end=14)).backlog.records == 4
    applied = pace.saw(_look(1, 5, end=14, read_to=14))
    assert (applied.backlog.records, applied.lag_s) == (0, 0.0)


@pytest.mark.parametrize("end", [None, 13])
def test_unknown_values_are_absent(end: int | None) -> None:
    """At the first look nothing is known but the backlog, and without the broker's answer not even that."""
    stage = Pace().saw(_look(0, 5, end=end, lag_s=9.0))
    backlog = None if end is None else 3
    assert (stage.lag_s, stage.eta_s, stage.rates) == (None, None, Rates())
    assert (stage.commit_ms, stage.backlog.records) == (1005, backlog)
    silent = Pace()
    silent.saw(_look(0, 5, end=10))
    after = silent.saw(_look(1, 6, end=None, lag_s=0.1))
    assert (after.lag_s, after.backlog, after.eta_s) == (None, Backlog(), None)
    assert after.rates.over_10_s == 1.0


def test_proof_of_a_start_is_no_row() -> None:
    """The seq jumps from -1 to that of the topic's first record."""
    pace = Pace()
    pace.saw(Look(at_s=0, mark=Mark(-1, 0), lag_s=None, end=End(50, lambda: 25)))
    pace.saw(_look(1, 1_000_000, end=3_000_000))
    applied = pace.saw(_look(2, 1_000_010, end=3_000_000))
    assert applied.rates.over_10_s == 10.0


def test_backlog_counts_rows_and_estimates_bytes() -> None:
    """Rows by the seq at the topic's end, bytes by the mean size of the records that were read."""
    pace = Pace()
    assert pace.saw(_look(0, 5, end=30)).backlog == Backlog(20, 10, 2000)
    unread = Look(at_s=1, mark=Mark(5, 10), lag_s=None, end=End(30, lambda: None))
    assert pace.saw(unread).backlog == Backlog(20, None, None)
    assert pace.saw(_look(2, 15, end=30)).backlog == Backlog(0, 0, 0)


def test_waiting_time_counts_from_the_last_move() -> None:
    """It ends when the mark moves or nothing waits; the stall rule uses it."""
    pace = Pace()
    pace.saw(_look(0, 5, end=10))
    assert pace.saw(_look(40, 5, end=16)).waits_s == 40.0
    assert pace.saw(_look(41, 6, end=16)).waits_s == 0.0
    assert pace.saw(_look(45, 6, end=16)).waits_s == 4.0
    assert pace.saw(_look(46, 6, end=12)).waits_s == 0.0


def test_task_that_does_not_move_has_no_eta() -> None:
    """The pace of before would promise an end, later and later."""
    pace = Pace()
    for tick in range(20):
        pace.saw(_look(tick, 100 * tick, end=20_000))
    assert pace.saw(_look(40, 1900, end=20_000)).eta_s is not None
    assert pace.saw(_look(50, 1900, end=20_000)).eta_s is None


def test_rows_of_tables_that_wait_are_no_pace() -> None:
    """Turns of 5 s apply a tenth of the rows that the mark passes; backlog and ETA are those of the topic."""
    pace = Pace()
    pace.saw(_look(0, 0, end=40_000))
    for tick in range(1, 21):
        done = 500 * (tick // 5)
        applied = pace.saw(_look(tick, 1000 * tick, end=80_000), applied=done)
    assert applied.rates == Rates(100.0, 2000 / 19), "from the first look with waiting tables"
    assert (applied.backlog.records, applied.backlog.rows) == (40_000, 20_000)
    assert applied.eta_s == 20.0
    for tick in range(21, 32):
        applied = pace.saw(_look(tick, 40_000, end=80_000), applied=2000)
    assert applied.rates.over_10_s == 0.0, "nothing waits"
    for tick in range(32, 35):
        applied = pace.saw(_look(tick, 40_000 + 700 * (tick - 31), end=90_000))
    assert applied.rates.over_10_s == 700.0, "all tables have joined"
