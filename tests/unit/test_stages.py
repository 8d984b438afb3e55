"""A task's stages in its report: a stable shape, unknown values as null."""

import json

import pytest

from millrace.errors import Fatal
from schemas.stages import Applied
from schemas.status import TaskReport, TaskState, report_from_json, report_to_plain

FULL = Applied(1.23456, 1_700_000_000_000, 12_345, 4321.04, 99.96, 3.16)


def test_applied_has_these_keys() -> None:
    """Operators' scripts read them. New keys may be added; none is renamed."""
    assert FULL.to_plain() == {
        "lag_s": 1.235,
        "commit_ms": 1_700_000_000_000,
        "backlog": {"records": 12_345},
        "rows_s": {"over_10_s": 4321.0, "over_60_s": 100.0},
        "eta_s": 3.2,
    }
    unknown = Applied().to_plain()
    assert (unknown["lag_s"], unknown["commit_ms"], unknown["eta_s"]) == (None, None, None)


@pytest.mark.parametrize("stage", [None, Applied(), Applied(0.5, 7, 0, 1.5, 2.5, 0.0)])
def test_stage_in_a_report_comes_back(stage: Applied | None) -> None:
    """As the worker wrote it to ZooKeeper."""
    report = TaskReport(TaskState.RUNNING, applied=stage)
    content = json.dumps(report_to_plain(report)).encode()
    assert report_from_json(content, origin="status/t").applied == stage


def test_report_of_an_earlier_version_has_no_stage() -> None:
    """Its node has no such key."""
    plain = report_to_plain(TaskReport(TaskState.RUNNING))
    del plain["applied"]
    assert report_from_json(json.dumps(plain).encode(), origin="status/t").applied is None


@pytest.mark.parametrize("wrong", [7, {}, {"lag_s": 1}, FULL.to_plain() | {"eta_s": "soon"}])
def test_wrong_stage_makes_the_report_unreadable(wrong: object) -> None:
    """With a code; it stops no other task."""
    plain = report_to_plain(TaskReport(TaskState.RUNNING)) | {"applied": wrong}
    with pytest.raises(Fatal) as caught:
        report_from_json(json.dumps(plain).encode(), origin="status/t")
    assert caught.value.code == "MR-4011"
