"""A task's metrics are the values of its report, in a format that Prometheus's own parser reads."""

from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from millrace.metrics import METRICS, Exposition
from millrace.schemas.stages import (
    CONFLICT_KINDS,
    Applied,
    AppliedCounts,
    Backlog,
    Compared,
    ComparedCounts,
    ComparedResult,
    GroupState,
    Incidents,
    Loaded,
    Published,
    Rates,
    SubscriberStage,
)
from millrace.schemas.stall import STALL_S
from millrace.schemas.status import TaskReport, TaskState
from millrace.zk.run.probes import HUNG_S_MIN, hung
from millrace.zk.run.task_metrics import add_tasks
from tests.kit.control.reports import FULL_CAPTURE, FULL_PUBLISH

FULL_APPLY = TaskReport(
    TaskState.BLOCKED,
    code="MR-5018",
    seq=77,
    epoch=3,
    applied=Applied(
        lag_s=1.5,
        waits_s=0.25,
        backlog=Backlog(10, 8, 4096),
        rates=Rates(120.5, 80.0),
        eta_s=12.5,
        counts=AppliedCounts(
            rows=100,
            statements=9,
            ddl=2,
            left_out=1,
            turns=4,
            incidents=Incidents({"1213": 5}, {"insert-exists": 6}),
        ),
    ),
    compared=Compared(
        every_h=24,
        running_rows=5,
        result=ComparedResult(
            began_ms=1_000_000,
            ended_ms=1_007_500,
            counts=ComparedCounts(tables=2, rows=900, differences=7, unsettled=3, repaired=4),
        ),
    ),
)
LOADING = TaskReport(
    TaskState.RUNNING,
    loaded=Loaded(rows=70, bytes=7000, expected=100, done=2, count=5, paused="a lag", eta_s=3.0),
)
LOADING_LATER = replace(FULL_APPLY, state=TaskState.RUNNING, loaded=Loaded(eta_s=9.0))
HOSTILE = 'a"b\\c\nd{e="f"} 7'

Samples = dict[tuple[str, tuple[str, ...]], float]


def _parsed(text: str) -> Samples:
    """Return the value of each series, by name and the values of its labels in the table's order."""
    return {
        (sample.name, tuple(sample.labels[label] for label in METRICS[sample.name].labels)): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def _of(reports: dict[str, TaskReport]) -> Samples:
    found = Exposition()
    add_tasks(found, reports)
    return _parsed(found.text())


def test_metrics_of_tasks_are_their_reports_values() -> None:
    """A capture task and a blocked apply task have every value."""
    found = _of({"c": FULL_CAPTURE, "a": FULL_APPLY, "l": LOADING})
    assert found[("millrace_state", ("c", "running"))] == 1
    assert found[("millrace_seq", ("c",))] == 912_338
    assert found[("millrace_source_lag_seconds", ("c",))] == 0.2
    assert found[("millrace_replica_candidate_lag_seconds", ("c", "db2:3306"))] == 0.2
    assert found[("millrace_relay_bytes", ("c", "used"))] == 2_254_857_830
    assert found[("millrace_relay_bytes", ("c", "free"))] == 100 << 30
    assert found[("millrace_publish_lag_seconds", ("c",))] == 0.03
    assert found[("millrace_rows_per_second", ("c",))] == 120
    assert found[("millrace_published_rows_total", ("c",))] == 4000
    assert found[("millrace_state", ("a", "blocked"))] == 1
    assert found[("millrace_blocked", ("a", "MR-5018"))] == 1
    assert found[("millrace_apply_lag_seconds", ("a",))] == 1.5
    assert found[("millrace_apply_backlog_bytes", ("a",))] == 4096
    assert found[("millrace_remaining_seconds", ("a",))] == 12.5
    assert found[("millrace_applied_ddl_total", ("a",))] == 2
    assert found[("millrace_apply_retries_total", ("a", "1213"))] == 5
    assert found[("millrace_apply_conflicts_total", ("a", "insert-exists"))] == 6
    assert found[("millrace_loaded_rows_total", ("l",))] == 70
    assert found[("millrace_load_tables", ("l", "copied"))] == 2
    assert found[("millrace_load_tables", ("l", "left"))] == 3
    assert found[("millrace_load_paused", ("l",))] == 1
    assert found[("millrace_compare_running", ("a",))] == 1
    assert found[("millrace_compare_interval_seconds", ("a",))] == 24 * 3600
    assert found[("millrace_compare_end_timestamp_seconds", ("a",))] == 1007.5
    assert found[("millrace_compare_duration_seconds", ("a",))] == 7.5
    assert found[("millrace_compare_rows", ("a",))] == 900
    assert found[("millrace_compare_differences", ("a", "left"))] == 3
    assert found[("millrace_compare_differences", ("a", "repaired"))] == 4
    assert found[("millrace_compare_unsettled_rows", ("a",))] == 3
    assert ("millrace_blocked", ("c", "")) not in found


def test_later_load_has_its_own_rest() -> None:
    """Pace and rest of the changes stay what they are."""
    found = _of({"l": LOADING_LATER, "first": LOADING})
    assert found[("millrace_rows_per_second", ("l",))] == 120.5
    assert found[("millrace_remaining_seconds", ("l",))] == 12.5
    assert found[("millrace_load_remaining_seconds", ("l",))] == 9
    assert found[("millrace_remaining_seconds", ("first",))] == 3


def test_subscribers_of_a_task_have_their_series() -> None:
    """Times in seconds. An unknown lag has none, but the state has."""
    found = _of({"p": FULL_PUBLISH})
    assert found[("millrace_subscriber_state", ("p", "reports", "active"))] == 1
    assert found[("millrace_subscriber_lag_records", ("p", "reports"))] == 1204
    assert found[("millrace_subscriber_lost_records", ("p", "reports"))] == 3
    assert (
        found[("millrace_subscriber_oldest_timestamp_seconds", ("p", "reports"))] == 1_764_000_000
    )
    assert found[("millrace_subscriber_loss_timestamp_seconds", ("p", "reports"))] == 1_764_600_000
    unknown = SubscriberStage(name="u", group="g", state=GroupState.UNKNOWN)
    names = {name for name, _ in _of({"p": replace(FULL_PUBLISH, subscribers=(unknown,))})}
    assert {name for name in names if "subscriber" in name} == {"millrace_subscriber_state"}


def test_full_reports_give_every_task_metric_of_the_table() -> None:
    """A metric of the table that no report feeds would be a fake."""
    shown = {
        name
        for name, _ in _of({"c": FULL_CAPTURE, "a": FULL_APPLY, "l": LOADING, "p": FULL_PUBLISH})
    }
    assert shown == {name for name, metric in METRICS.items() if "task" in metric.labels}


def test_task_that_does_not_move_is_stalled_in_metrics() -> None:
    """Its runner reports RUNNING, or nothing more at all."""
    silent = replace(FULL_CAPTURE, silent_s=STALL_S + 1)
    stuck = replace(FULL_CAPTURE, published=Published(waits_s=STALL_S + 1))
    found = _of({"silent": silent, "stuck": stuck})
    assert found[("millrace_state", ("silent", "stalled"))] == 1
    assert found[("millrace_report_age_seconds", ("silent",))] == STALL_S + 1
    assert found[("millrace_state", ("stuck", "stalled"))] == 1
    assert found[("millrace_task_code", ("stuck", "MR-4016"))] == 1
    assert ("millrace_state", ("stuck", "running")) not in found


def test_unknown_value_has_no_series() -> None:
    """A 0 would look like no lag."""
    found = _of({"a": TaskReport(TaskState.RUNNING, applied=Applied())})
    names = {name for name, _ in found}
    assert "millrace_applied_rows_total" in names
    unknown = {"millrace_apply_lag_seconds", "millrace_remaining_seconds", "millrace_epoch"}
    assert names & (unknown | {"millrace_apply_backlog_rows", "millrace_rows_per_second"}) == set()


def test_hostile_label_is_escaped() -> None:
    """Prometheus's parser reads the same characters."""
    assert _of({HOSTILE: TaskReport(TaskState.PAUSED)})[("millrace_seq", (HOSTILE,))] == 0


@pytest.mark.parametrize("value", [0, 7, 0.25, 1e-9, 123456789012345678, float("inf")])
def test_values_are_read_back_exactly(value: float) -> None:
    """Also large counts and infinity."""
    found = Exposition()
    found.add("millrace_seq", value, "t")
    assert _parsed(found.text()) == {("millrace_seq", ("t",)): value}


def test_metric_outside_the_table_is_refused() -> None:
    """So the page of metrics is complete."""
    with pytest.raises(KeyError):
        Exposition().add("millrace_unknown", 1)


def test_loop_without_new_rounds_counts_as_hung() -> None:
    """A round may wait for a few session timeouts."""
    ages = {"supervisor": HUNG_S_MIN + 1, "status writer": 0.5}
    assert hung(ages, session_timeout_s=10) == (
        "the loop of the supervisor has not begun a round for 61 s"
    )
    assert hung(ages, session_timeout_s=30) == ""


def test_conflict_series_begin_at_zero() -> None:
    """Prometheus sees no increase in a series that begins at 1, so the alert would miss the first conflict."""
    found = _of({"a": replace(FULL_APPLY, applied=Applied())})
    for kind in CONFLICT_KINDS:
        assert found[("millrace_apply_conflicts_total", ("a", kind))] == 0
