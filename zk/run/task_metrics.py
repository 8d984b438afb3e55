"""The metrics of a worker's tasks: a pure function of their reports, the values of `millrace status`.

Nothing is counted here. A value that a report does not have gives no series.
"""

from collections.abc import Mapping

from millrace.metrics import Exposition
from millrace.schemas.stages import (
    CONFLICT_KINDS,
    Applied,
    Captured,
    Compared,
    Delivered,
    Loaded,
    Published,
    Relayed,
    SubscriberStage,
)
from millrace.schemas.stall import with_stall
from millrace.schemas.status import TaskReport, TaskState


def add_tasks(found: Exposition, reports: Mapping[str, TaskReport]) -> None:
    """Add the metrics of these tasks. A task that should move rows and does not is shown as stalled."""
    for task, report in sorted(reports.items()):
        _add_task(found, task, with_stall(report))


def _add_task(found: Exposition, task: str, report: TaskReport) -> None:
    found.add("millrace_state", 1, task, report.state.value)
    if report.code:
        found.add("millrace_task_code", 1, task, report.code)
    if report.state is TaskState.BLOCKED:
        found.add("millrace_blocked", 1, task, report.code)
    found.add("millrace_warnings", len(report.warnings), task)
    if report.state in (TaskState.RUNNING, TaskState.STALLED):  # others report only changes
        found.add("millrace_report_age_seconds", report.silent_s, task)
    found.add("millrace_epoch", report.epoch or None, task)
    found.add("millrace_seq", report.seq, task)
    moving = report.published or report.applied or report.delivered or report.loaded
    if moving is not None:
        found.add("millrace_rows_per_second", moving.rates.over_10_s, task)
    if report.captured is not None:
        _add_captured(found, task, report.captured)
    if report.relayed is not None:
        _add_relayed(found, task, report.relayed)
    if report.published is not None:
        _add_published(found, task, report.published)
    if report.applied is not None:
        _add_applied(found, task, report.applied)
    if report.delivered is not None:
        _add_delivered(found, task, report.delivered)
    for subscriber in report.subscribers:
        _add_subscriber(found, task, subscriber)
    if report.loaded is not None:
        _add_loaded(found, task, report.loaded)
    ending = report.applied or report.delivered or report.loaded
    found.add("millrace_remaining_seconds", ending.eta_s if ending is not None else None, task)
    if report.compared is not None:
        _add_compared(found, task, report.compared)
    if report.snapshot is not None:
        found.add("millrace_snapshot_tables", report.snapshot.tables, task)
        found.add("millrace_snapshot_tables_done", report.snapshot.done, task)
        found.add("millrace_snapshot_table_rows", report.snapshot.rows, task)


def _add_captured(found: Exposition, task: str, stage: Captured) -> None:
    source = stage.source
    found.add("millrace_source_lag_seconds", source.lag_s, task)
    found.add("millrace_source_gtid_behind", source.missing, task)
    found.add("millrace_source_still_seconds", source.still_s, task)
    for member in stage.members:
        replica = f"{member.host}:{member.port}"
        found.add("millrace_replica_candidate_lag_seconds", member.lag_s, task, replica)
        found.add("millrace_replica_candidate_admissible", member.admissible, task, replica)


def _add_relayed(found: Exposition, task: str, stage: Relayed) -> None:
    found.add("millrace_relay_bytes", stage.stored_bytes, task, "used")
    found.add("millrace_relay_bytes", stage.disk_left_bytes, task, "free")
    found.add("millrace_relay_behind_bytes", stage.behind_bytes, task)
    found.add("millrace_relay_received_bytes_total", stage.received_bytes, task)
    found.add("millrace_relay_connects_total", stage.connects, task)
    found.add("millrace_relay_time_to_loss_seconds", stage.time_to_loss_s, task)


def _add_published(found: Exposition, task: str, stage: Published) -> None:
    found.add("millrace_publish_lag_seconds", stage.lag_s, task)
    found.add("millrace_publish_waits_seconds", stage.waits_s, task)
    found.add("millrace_published_rows_total", stage.rows, task)
    found.add("millrace_publish_slow_path", bool(stage.slow_path), task)
    found.add("millrace_kafka_commit_seconds", stage.commit_s, task)
    found.add("millrace_kafka_producers_replaced_total", stage.renewed, task)


def _add_applied(found: Exposition, task: str, stage: Applied) -> None:
    backlog, counts = stage.backlog, stage.counts
    found.add("millrace_apply_lag_seconds", stage.lag_s, task)
    found.add("millrace_apply_waits_seconds", stage.waits_s, task)
    found.add("millrace_apply_backlog_records", backlog.records, task)
    found.add("millrace_apply_backlog_rows", backlog.rows, task)
    found.add("millrace_apply_backlog_bytes", backlog.bytes, task)
    found.add("millrace_applied_rows_total", counts.rows, task)
    found.add("millrace_applied_statements_total", counts.statements, task)
    found.add("millrace_applied_ddl_total", counts.ddl, task)
    found.add("millrace_applied_left_out_total", counts.left_out, task)
    found.add("millrace_applied_turns_total", counts.turns, task)
    found.add("millrace_apply_kept_rows", stage.kept_rows, task)
    _add_loss(found, task, stage)
    incidents = counts.incidents
    for errno, count in incidents.retries.items():
        found.add("millrace_apply_retries_total", count, task, errno)
    # from 0 on: a series that begins at 1 is no increase for Prometheus
    for kind in dict.fromkeys((*CONFLICT_KINDS, *incidents.conflicts)):
        found.add("millrace_apply_conflicts_total", incidents.conflicts.get(kind, 0), task, kind)


def _add_delivered(found: Exposition, task: str, stage: Delivered) -> None:
    found.add("millrace_deliver_lag_seconds", stage.lag_s, task)
    found.add("millrace_deliver_waits_seconds", stage.waits_s, task)
    found.add("millrace_deliver_backlog_records", stage.backlog.records, task)
    found.add("millrace_deliver_backlog_rows", stage.backlog.rows, task)
    _add_loss(found, task, stage)
    found.add("millrace_delivered_records_total", stage.records, task)
    found.add("millrace_delivered_topics", stage.topics, task)
    found.add("millrace_delivered_definition", stage.definition, task)
    for place in stage.slots:
        found.add("millrace_slot_seq", place.seq, task, str(place.slot))


def _add_loss(found: Exposition, task: str, stage: Applied | Delivered) -> None:
    at_s = stage.loss_at_ms / 1000 if stage.loss_at_ms else None
    found.add("millrace_topic_loss_timestamp_seconds", at_s, task)


def _add_subscriber(found: Exposition, task: str, stage: SubscriberStage) -> None:
    labels = (task, stage.name)
    found.add("millrace_subscriber_state", 1, *labels, stage.state.value)
    found.add("millrace_subscriber_lag_records", stage.lag, *labels)
    if stage.lag is not None:
        found.add("millrace_subscriber_lost_records", stage.lost, *labels)
    oldest_s = stage.oldest_ms / 1000 if stage.oldest_ms else None
    found.add("millrace_subscriber_oldest_timestamp_seconds", oldest_s, *labels)
    loss_s = stage.loss_at_ms / 1000 if stage.loss_at_ms else None
    found.add("millrace_subscriber_loss_timestamp_seconds", loss_s, *labels)


def _add_loaded(found: Exposition, task: str, stage: Loaded) -> None:
    found.add("millrace_loaded_rows_total", stage.rows, task)
    found.add("millrace_loaded_bytes_total", stage.bytes, task)
    found.add("millrace_load_expected_rows", stage.expected, task)
    found.add("millrace_load_tables", stage.done, task, "copied")
    found.add("millrace_load_tables", stage.count - stage.done, task, "left")
    found.add("millrace_load_paused", bool(stage.paused), task)
    found.add("millrace_load_remaining_seconds", stage.eta_s, task)


def _add_compared(found: Exposition, task: str, stage: Compared) -> None:
    found.add("millrace_compare_running", stage.running_rows is not None, task)
    found.add("millrace_compare_interval_seconds", stage.every_h * 3600, task)
    result = stage.result
    if result is None:
        return
    found.add("millrace_compare_end_timestamp_seconds", result.ended_ms / 1000, task)
    found.add("millrace_compare_duration_seconds", (result.ended_ms - result.began_ms) / 1000, task)
    found.add("millrace_compare_rows", result.counts.rows, task)
    found.add("millrace_compare_differences", result.left, task, "left")
    found.add("millrace_compare_differences", result.counts.repaired, task, "repaired")
    found.add("millrace_compare_unsettled_rows", result.counts.unsettled, task)
    found.add("millrace_compare_structure_differences", result.counts.structure, task)
