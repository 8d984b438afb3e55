"""A task's stages in its report: a stable shape, unknown values as null."""

import json
from dataclasses import replace
from typing import Any

import pytest

from millrace.errors import Fatal
from millrace.schemas.plain import to_plain
from millrace.schemas.stages import (
    Applied,
    AppliedCounts,
    Backlog,
    Compared,
    ComparedCounts,
    ComparedResult,
    Incidents,
    Loaded,
    LoadedTable,
    Published,
    Rates,
)
from millrace.schemas.status import TaskReport, TaskState, report_from_json, report_to_plain
from tests.kit.control.reports import FULL_CAPTURE

APPLIED = Applied(
    lag_s=1.2345,
    waits_s=2.5,
    commit_ms=1_700_000_000_000,
    backlog=Backlog(12_345, 6000, 2_000_000),
    rates=Rates(4321.0, 100.0),
    eta_s=3.2,
    counts=AppliedCounts(
        rows=9,
        statements=4,
        ddl=1,
        left_out=2,
        turns=3,
        incidents=Incidents({"1213": 2, "2013": 1}, {"update-missing": 4}),
    ),
    in_order="shop.log: no usable key",
    consistency="causal",
    executes="session 7 executes ALTER TABLE t",
    safe_mode="until 0-1-5",
)
LOADED = Loaded(
    source="db2:3306",
    rows=900,
    bytes=9000,
    expected=2000,
    rates=Rates(100.0, 90.0),
    eta_s=11.0,
    done=1,
    count=3,
    paused="a lag",
    tables=(LoadedTable(name="shop.log", state="copies", rows=9, bytes=90, snapshot="no key"),),
)
COMPARED = Compared(
    every_h=24,
    repair=True,
    running_rows=1_000,
    result=ComparedResult(
        began_ms=1_795_662_000_000,
        ended_ms=1_795_662_600_000,
        counts=ComparedCounts(
            tables=12, rows=9_000, differences=5, unsettled=1, repaired=4, structure=2
        ),
        by_table=(("shop.t", 3), ("shop.u", 2)),
    ),
)
FULL_APPLY = TaskReport(
    TaskState.RUNNING, warnings=("no table",), applied=APPLIED, compared=COMPARED
)
FULL_LOAD = TaskReport(TaskState.RUNNING, loaded=LOADED)


def _again(report: TaskReport, **changed: object) -> TaskReport:
    content = json.dumps(report_to_plain(report) | changed).encode()
    return report_from_json(content, origin="status/t")


def test_applied_has_these_keys() -> None:
    """Operators' scripts read them. New keys may be added; none is renamed."""
    plain: Any = to_plain(APPLIED)
    assert (plain["lag_s"], plain["backlog"]["rows"]) == (1.234, 6000)
    assert plain["rows_s"] == {"over_10_s": 4321.0, "over_60_s": 100.0}
    assert plain["retries"] == [{"errno": "1213", "count": 2}, {"errno": "2013", "count": 1}]
    assert plain["conflicts"] == [{"kind": "update-missing", "count": 4}]
    unknown = to_plain(Applied())
    assert (unknown["lag_s"], unknown["commit_ms"], unknown["eta_s"]) == (None, None, None)


@pytest.mark.parametrize(
    "report", [FULL_CAPTURE, FULL_APPLY, FULL_LOAD, TaskReport(TaskState.RUNNING)]
)
def test_report_comes_back_as_it_was_written(report: TaskReport) -> None:
    """To ZooKeeper and back, with every stage; times are rounded."""
    known = _again(report)
    assert known == replace(report, applied=report.applied and replace(report.applied, lag_s=1.234))


def test_report_of_an_earlier_version_has_no_incidents() -> None:
    """Its worker still runs during an upgrade: its lag and its rows must be shown."""
    plain: Any = report_to_plain(FULL_APPLY)
    for key in ("retries", "conflicts"):
        del plain["applied"][key]
    applied = report_from_json(json.dumps(plain).encode(), origin="status/t").applied
    assert applied is not None
    assert applied.counts == replace(APPLIED.counts, incidents=Incidents())


def test_report_of_an_earlier_version_has_progress_without_stages() -> None:
    """The progress serves as a hint if retention has emptied the topic."""
    plain = report_to_plain(replace(FULL_CAPTURE, gtid_set="0-1-7", seq=7))
    for key in ("published", "warnings", "silent_s"):
        del plain[key]
    plain |= {"format": 1, "figures": {"rows": 1}, "relayed": {"stage": "receives"}}
    known = report_from_json(json.dumps(plain).encode(), origin="status/t")
    assert (known.gtid_set, known.seq) == ("0-1-7", 7)
    assert (known.captured, known.relayed, known.published) == (None, None, None)


@pytest.mark.parametrize(
    "stage", ["captured", "relayed", "published", "applied", "snapshot", "compared"]
)
@pytest.mark.parametrize("wrong", [7, {}, {"lag_s": 1}])
def test_wrong_stage_makes_the_report_unreadable(stage: str, wrong: object) -> None:
    """With a code; it stops no other task."""
    with pytest.raises(Fatal) as caught:
        _again(FULL_CAPTURE, **{stage: wrong})
    assert caught.value.code == "MR-4011"


def test_compared_has_these_keys() -> None:
    """A result that is unknown is null. A task that does not run keeps its last one."""
    plain = to_plain(COMPARED)
    assert (plain["running"], plain["running_rows"], plain["rows"]) == (True, 1_000, 9_000)
    assert plain["by_table"] == [
        {"name": "shop.t", "differences": 3},
        {"name": "shop.u", "differences": 2},
    ]
    unknown = to_plain(Compared(every_h=24))
    assert (unknown["ended_ms"], unknown["differences"], unknown["running"]) == (None, None, False)
    assert FULL_APPLY.at_rest().compared == replace(COMPARED, running_rows=None)


def test_task_at_rest_keeps_only_what_stays_true() -> None:
    """A lag or a backlog from before the pause would look like one of now."""
    rest = FULL_APPLY.at_rest().applied
    assert rest is not None
    assert (rest.lag_s, rest.waits_s, rest.backlog, rest.rates) == (None, 0.0, Backlog(), Rates())
    assert (rest.commit_ms, rest.counts) == (APPLIED.commit_ms, APPLIED.counts)
    published = FULL_CAPTURE.at_rest().published
    assert published is not None
    assert FULL_CAPTURE.published is not None
    known = FULL_CAPTURE.published
    assert published == Published(commit_ms=known.commit_ms, rows=known.rows, at=known.at)


def test_load_at_rest_keeps_only_what_is_copied() -> None:
    """Rates and ETA are true only while the task runs."""
    rest = FULL_LOAD.at_rest().loaded
    assert rest is not None
    assert (rest.rows, rest.done, rest.count) == (900, 1, 3)
    assert (rest.eta_s, rest.paused, rest.tables, rest.rates) == (None, "", (), Rates())


@pytest.mark.parametrize("number", ["Infinity", "-Infinity", "NaN", "1e999"])
def test_report_with_a_number_outside_json_is_refused(number: str) -> None:
    """Python reads it. One such node ended `millrace status` for the whole cluster."""
    plain = json.dumps(report_to_plain(FULL_CAPTURE))
    lag = '"lag_s": '
    before, _, rest = plain.partition(lag)
    content = f"{before}{lag}{number}{rest[len(rest.split(',')[0]) :]}".encode()
    with pytest.raises(Fatal, match="status/t") as caught:
        report_from_json(content, origin="status/t")
    assert caught.value.code == "MR-4011"
