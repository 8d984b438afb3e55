"""The figures of a load, its pauses, and the size of its chunks."""

from dataclasses import replace

import pytest

from millrace.consumer.backfill.steps import Loads
from millrace.consumer.load.copies import ROWS_FIRST, ChunkSize
from millrace.consumer.load.copy_order import BYTES_MAX
from millrace.consumer.load.progress import Progress
from millrace.consumer.target.loads import COPIED, COPIES, WAITS, Amount, LoadTable, Reach
from millrace.consumer.target.progress import Mark
from millrace.consumer.task.report import loading_report, running_report
from millrace.consumer.turn.driver import Figures
from millrace.schemas.documents import LoadRules
from millrace.schemas.stages import Applied
from millrace.schemas.status import TaskState
from millrace.schemas.throttle import SILENT, Measured, why_paused

TABLE = LoadTable(("shop", "t"), COPIES, Reach("0-1-1"), "PRIMARY", "", expected=1000)


def test_progress_has_rates_and_what_is_left() -> None:
    """They are those of each table and of all; a copied table counts with the rows it has."""
    progress = Progress()
    done = replace(TABLE, key=("shop", "d"), state=COPIED, expected=10, done=Amount(60, 600))
    progress.saw([done, replace(TABLE, done=Amount(100, 900))], at_s=0.0)
    shown = progress.saw([done, replace(TABLE, done=Amount(300, 2900))], at_s=2.0)
    assert (shown.rows, shown.bytes, shown.expected) == (360, 3500, 1060)
    assert (shown.done, shown.count, shown.rates.over_10_s) == (1, 2, 100.0)
    assert shown.eta_s == 7.0
    table = shown.tables[0]
    assert (table.name, table.rows_s, table.eta_s) == ("shop.t", 100.0, 7.0)
    over = progress.saw([done, replace(TABLE, state=COPIED, done=Amount(1300, 9))], at_s=3.0)
    assert (over.eta_s, over.expected, over.done) == (0.0, 1360, 2)


def test_table_that_waits_for_another_load_is_not_counted() -> None:
    """Its rest would make an ETA that never ends. It is listed with its reason."""
    waits = replace(TABLE, state=WAITS, done=Amount(100, 900), detail="it was altered")
    done = replace(TABLE, key=("shop", "d"), state=COPIED, done=Amount(60, 600))
    shown = Progress().saw([waits, done], at_s=0.0)
    assert (shown.rows, shown.bytes, shown.expected) == (60, 600, 60)
    assert (shown.done, shown.count, shown.eta_s) == (1, 1, 0.0)
    assert [(table.name, table.state) for table in shown.tables] == [
        ("shop.d", COPIED),
        ("shop.t", WAITS),
    ]
    report = loading_report(shown)
    assert report.why.endswith("; loaded again after this load: shop.t (it was altered)")


@pytest.mark.parametrize(
    ("measured", "why"),
    [
        (Measured(0.0, 5), ""),
        (Measured(31.0, 5), "a lag of 31 s, max_lag_s is 30"),
        (Measured(None, 5), SILENT),
        (Measured(1.0, 33), "is 33, max_threads_running is 32"),
    ],
)
def test_load_pauses_above_its_limits(measured: Measured, why: str) -> None:
    """With the figure and the field that sets its limit."""
    found = why_paused(measured, LoadRules(), busy="target")
    assert bool(found) == bool(why)
    assert why in found


def test_paused_load_is_reported_with_its_reason() -> None:
    """It runs; the code explains how it continues."""
    shown = Progress().saw([TABLE], at_s=0.0)
    report = loading_report(replace(shown, paused="a lag"))
    assert (report.state, report.code) == (TaskState.RUNNING, "MR-5097")
    assert report.why == "loads: 0 of 1 tables copied; pauses: a lag"
    assert loading_report(shown).code == ""


def test_later_load_is_reported_beside_the_changes() -> None:
    """The stage is there, and the reason of a pause in the text."""
    loaded = replace(Progress().saw([TABLE], at_s=0.0), paused="a lag")
    loads = Loads("shop.t being copied", loaded=loaded)
    report = running_report(Mark(7, 8), Figures(), Applied(), loads=loads)
    assert (report.state, report.loaded) == (TaskState.RUNNING, loaded)
    assert report.why == "applied up to offset 8; shop.t being copied; the load pauses: a lag"
    assert running_report(Mark(7, 8), Figures(), Applied()).loaded is None


def test_size_of_chunks_follows_the_rows() -> None:
    """It grows step by step, shrinks at once, and stays below the limits."""
    size = ChunkSize.first(1_000_000, mean_bytes=0)
    assert size.rows == ROWS_FIRST
    size.note(Amount(10_000, 10_000 * 20))
    assert size.rows == 40_000
    size.note(Amount(40_000, 40_000 * 20))
    assert size.rows == 160_000
    size.note(Amount(160_000, 160_000 * 1000))
    assert size.rows == BYTES_MAX // 1000
    size.note(Amount(1, 100 * BYTES_MAX))
    assert size.rows == 1
    size.note(Amount())
    assert size.rows == 1
    assert ChunkSize.first(50, mean_bytes=10).rows == 50
    assert ChunkSize.first(1_000_000, mean_bytes=BYTES_MAX).rows == 1
