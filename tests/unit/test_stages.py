"""A task's stages in its report: a stable shape, unknown values as null."""

import json
from dataclasses import replace
from typing import Any

import pytest

from millrace.errors import Fatal
from schemas.stages.applied import Applied, AppliedCounts, Backlog
from schemas.stages.published import Published
from schemas.stages.rates import Rates
from schemas.status import TaskReport, TaskState, report_from_json, report_to_plain
from tests.kit.control.reports import FULL_CAPTURE

APPLIED = Applied(
    lag_s=1.2345,
    waits_s=2.5,
    commit_ms=1_700_000_000_000,
    backlog=Backlog(12_345, 6000, 2_000_000),
    rates=Rates(4321.0, 100.0),
    eta_s=3.2,
    counts=AppliedCounts(rows=9, statements=4, ddl=1, left_out=2, turns=3),
    in_order="shop.log: no usable key",
    consistency="causal",
    safe_mode="until 0-1-5",
)
FULL_APPLY = TaskReport(TaskState.RUNNING, warnings=("no table",), applied=APPLIED)


def _again(report: TaskReport, **changed: object) -> TaskReport:
    content = json.dumps(report_to_plain(report) | changed).encode()
    return report_from_json(content, origin="status/t")


def test_applied_has_these_keys() -> None:
    """Operators' scripts read them. New keys may be added; none is renamed."""
    plain: Any = APPLIED.to_plain()
    assert (plain["lag_s"], plain["backlog"]["rows"]) == (1.234, 6000)
    assert plain["rows_s"] == {"over_10_s": 4321.0, "over_60_s": 100.0}
    unknown = Applied().to_plain()
    assert (unknown["lag_s"], unknown["commit_ms"], unknown["eta_s"]) == (None, None, None)


@pytest.mark.parametrize("report", [FULL_CAPTURE, FULL_APPLY, TaskReport(TaskState.RUNNING)])
def test_report_comes_back_as_it_was_written(report: TaskReport) -> None:
    """To ZooKeeper and back, with every stage; times are rounded."""
    known = _again(report)
    assert known == replace(report, applied=report.applied and replace(report.applied, lag_s=1.234))


def test_report_of_an_earlier_version_has_progress_without_stages() -> None:
    """The progress serves as a hint if retention has emptied the topic."""
    plain = report_to_plain(replace(FULL_CAPTURE, gtid_set="0-1-7", seq=7))
    for key in ("published", "warnings", "silent_s"):
        del plain[key]
    plain |= {"format": 1, "figures": {"rows": 1}, "relayed": {"stage": "receives"}}
    known = report_from_json(json.dumps(plain).encode(), origin="status/t")
    assert (known.gtid_set, known.seq) == ("0-1-7", 7)
    assert (known.captured, known.relayed, known.published) == (None, None, None)


@pytest.mark.parametrize("stage", ["captured", "relayed", "published", "applied"])
@pytest.mark.parametrize("wrong", [7, {}, {"lag_s": 1}])
def test_wrong_stage_makes_the_report_unreadable(stage: str, wrong: object) -> None:
    """With a code; it stops no other task."""
    with pytest.raises(Fatal) as caught:
        _again(FULL_CAPTURE, **{stage: wrong})
    assert caught.value.code == "MR-4011"


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
