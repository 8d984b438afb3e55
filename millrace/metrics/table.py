"""Every metric of Millrace, in the sections of `docs/metrics.md`.

The unit ends the name (``_seconds``, ``_bytes``, ``_rows``); a counter ends in ``_total``. A series of a task ends when
its worker no longer runs the task. A value that is unknown has no series.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Kind(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()

    @property
    def series(self) -> tuple[str, ...]:
        """The names in queries."""
        if self.kind is Kind.HISTOGRAM:
            return tuple(f"{self.name}_{part}" for part in ("bucket", "sum", "count"))
        return (self.name,)


_GAUGE, _COUNTER, _HISTOGRAM = Kind.GAUGE, Kind.COUNTER, Kind.HISTOGRAM
_TASK = ("task",)

SECTIONS: Mapping[str, tuple[Metric, ...]] = MappingProxyType(
    {
        "Every process": (
            Metric("millrace_build_info", _GAUGE, "1, with the version of Millrace", ("version",)),
            Metric("millrace_ready", _GAUGE, "1 if /readyz answers 200"),
            Metric("millrace_live", _GAUGE, "1 if /livez answers 200"),
            Metric(
                "millrace_zookeeper_connected",
                _GAUGE,
                "1 while ZooKeeper answers; of workers, apply drivers and schedulers",
            ),
        ),
        "Every task of a worker or apply driver": (
            Metric(
                "millrace_state",
                _GAUGE,
                "1, with the current state; stalled if the task should move rows and does not",
                ("task", "state"),
            ),
            Metric("millrace_blocked", _GAUGE, "1 while the task is blocked", ("task", "code")),
            Metric(
                "millrace_task_code",
                _GAUGE,
                "1 while the task's report has an error code, also that of a warning",
                ("task", "code"),
            ),
            Metric("millrace_warnings", _GAUGE, "warnings in the task's report", _TASK),
            Metric(
                "millrace_report_age_seconds",
                _GAUGE,
                "time since the task's thread last reported to its worker",
                _TASK,
            ),
            Metric(
                "millrace_epoch",
                _GAUGE,
                "the fencing number; it grows with each run of the task",
                _TASK,
            ),
            Metric(
                "millrace_seq",
                _GAUGE,
                "the number of the last row or statement that was published or applied",
                _TASK,
            ),
            Metric(
                "millrace_rows_per_second",
                _GAUGE,
                "rows and DDL statements that the task moved in a second, over 10 s",
                _TASK,
            ),
        ),
        "The source of capture tasks and relays": (
            Metric("millrace_source_lag_seconds", _GAUGE, "lag of the member that is read", _TASK),
            Metric(
                "millrace_source_gtid_behind",
                _GAUGE,
                "transactions of the set that the member that is read does not have",
                _TASK,
            ),
            Metric(
                "millrace_source_still_seconds",
                _GAUGE,
                "how long the member that is read has applied nothing although it misses transactions",
                _TASK,
            ),
            Metric(
                "millrace_replica_candidate_lag_seconds",
                _GAUGE,
                "lag of each member of the set",
                ("task", "replica"),
            ),
            Metric(
                "millrace_replica_candidate_admissible",
                _GAUGE,
                "1 if the member may be read, else 0",
                ("task", "replica"),
            ),
        ),
        "The relay log": (
            Metric(
                "millrace_relay_bytes",
                _GAUGE,
                "stored bytes (used), and what is left on the disk (free)",
                ("task", "state"),
            ),
            Metric(
                "millrace_relay_behind_bytes",
                _GAUGE,
                "bytes of the source's current file that are not received yet",
                _TASK,
            ),
            Metric(
                "millrace_relay_received_bytes_total",
                _COUNTER,
                "bytes received since the stream began",
                _TASK,
            ),
            Metric(
                "millrace_relay_connects_total",
                _COUNTER,
                "connections to members since the stream began",
                _TASK,
            ),
            Metric(
                "millrace_relay_time_to_loss_seconds",
                _GAUGE,
                "time until the source may purge what the relay log does not have",
                _TASK,
            ),
            Metric(
                "millrace_relay_corruption_total",
                _COUNTER,
                "damaged relay files that were set aside (disk), and damaged packets of members (stream)",
                ("where",),
            ),
        ),
        "Publishing": (
            Metric(
                "millrace_publish_lag_seconds",
                _GAUGE,
                "time from the source's commit of the last row until a reader of the topic could see it",
                _TASK,
            ),
            Metric(
                "millrace_publish_waits_seconds",
                _GAUGE,
                "how long rows have waited in the relay log since one was published",
                _TASK,
            ),
            Metric(
                "millrace_published_rows_total",
                _COUNTER,
                "rows published since the start of the run",
                _TASK,
            ),
            Metric(
                "millrace_publish_slow_path",
                _GAUGE,
                "1 while records are sent one by one, which is much slower",
                _TASK,
            ),
            Metric(
                "millrace_snapshot_tables",
                _GAUGE,
                "tables of the snapshot that runs",
                _TASK,
            ),
            Metric(
                "millrace_snapshot_tables_done",
                _GAUGE,
                "tables of the snapshot that runs of which all rows are published",
                _TASK,
            ),
            Metric(
                "millrace_snapshot_table_rows",
                _GAUGE,
                "published rows of the table that the snapshot reads now",
                _TASK,
            ),
            Metric(
                "millrace_kafka_commit_seconds",
                _GAUGE,
                "how long the last Kafka transaction took to commit",
                _TASK,
            ),
            Metric(
                "millrace_kafka_producers_replaced_total",
                _COUNTER,
                "replaced Kafka producers since the start of the run",
                _TASK,
            ),
            Metric(
                "millrace_kafka_txn_seconds",
                _HISTOGRAM,
                "commits of Kafka transactions, of all tasks of the process",
            ),
            Metric(
                "millrace_kafka_txn_total",
                _COUNTER,
                "Kafka transactions that ended in commit or discard; the reason is the error's code, if there was one",
                ("result", "reason"),
            ),
        ),
        "Applying": (
            Metric(
                "millrace_apply_lag_seconds",
                _GAUGE,
                "time from the source's commit of the last row to the target's",
                _TASK,
            ),
            Metric(
                "millrace_apply_waits_seconds",
                _GAUGE,
                "how long records have waited in the topic since the task moved",
                _TASK,
            ),
            Metric(
                "millrace_apply_backlog_records",
                _GAUGE,
                "offsets that wait in the topic",
                _TASK,
            ),
            Metric(
                "millrace_apply_backlog_rows",
                _GAUGE,
                "rows and DDL statements that wait in the topic",
                _TASK,
            ),
            Metric(
                "millrace_apply_backlog_bytes",
                _GAUGE,
                "bytes that wait in the topic, an estimate",
                _TASK,
            ),
            Metric(
                "millrace_remaining_seconds",
                _GAUGE,
                "time until the backlog is applied, or the tables of the first load are copied, at the current pace",
                _TASK,
            ),
            Metric(
                "millrace_applied_rows_total",
                _COUNTER,
                "rows applied since the start of the run, as of the last turn",
                _TASK,
            ),
            Metric(
                "millrace_applied_statements_total",
                _COUNTER,
                "statements on the target since the start of the run, as of the last turn",
                _TASK,
            ),
            Metric(
                "millrace_applied_ddl_total",
                _COUNTER,
                "DDL statements executed since the start of the run, as of the last turn",
                _TASK,
            ),
            Metric(
                "millrace_applied_left_out_total",
                _COUNTER,
                "DDL statements that were not executed since the start of the run",
                _TASK,
            ),
            Metric(
                "millrace_applied_turns_total", _COUNTER, "turns since the start of the run", _TASK
            ),
            Metric(
                "millrace_apply_retries_total",
                _COUNTER,
                "target transactions and runs that were repeated after an error of the target, by its number",
                ("task", "errno"),
            ),
            Metric(
                "millrace_apply_conflicts_total",
                _COUNTER,
                "conflicts with the target's rows, by kind: resolved by the policy, or the reason of a block",
                ("task", "kind"),
            ),
        ),
        "Loading existing rows": (
            Metric(
                "millrace_loaded_rows_total",
                _COUNTER,
                "rows that a load has copied, also those of earlier runs",
                _TASK,
            ),
            Metric(
                "millrace_loaded_bytes_total",
                _COUNTER,
                "bytes on the source of the rows that a load has copied",
                _TASK,
            ),
            Metric(
                "millrace_load_expected_rows",
                _GAUGE,
                "rows that the load will have copied at its end, as the source estimates them",
                _TASK,
            ),
            Metric(
                "millrace_load_tables",
                _GAUGE,
                "tables of the load that are copied, and those that are left",
                ("task", "state"),
            ),
            Metric(
                "millrace_load_paused",
                _GAUGE,
                "1 while the load pauses for a replica's lag or a busy target",
                _TASK,
            ),
            Metric(
                "millrace_load_remaining_seconds",
                _GAUGE,
                "time until the tables of the load are copied, at the current pace",
                _TASK,
            ),
        ),
        "Comparing both sides": (
            Metric(
                "millrace_compare_running",
                _GAUGE,
                "1 while source and target are compared beside the task",
                _TASK,
            ),
            Metric(
                "millrace_compare_interval_seconds",
                _GAUGE,
                "time from the end of a comparison to the beginning of the next, as the task document says",
                _TASK,
            ),
            Metric(
                "millrace_compare_end_timestamp_seconds",
                _GAUGE,
                "when the last comparison ended, in Unix time",
                _TASK,
            ),
            Metric(
                "millrace_compare_duration_seconds",
                _GAUGE,
                "how long the last comparison took, with interruptions",
                _TASK,
            ),
            Metric(
                "millrace_compare_rows", _GAUGE, "rows that the last comparison compared", _TASK
            ),
            Metric(
                "millrace_compare_differences",
                _GAUGE,
                "rows that differed in the last comparison: those that are left, and those that it repaired",
                ("task", "state"),
            ),
            Metric(
                "millrace_compare_unsettled_rows",
                _GAUGE,
                "rows that changed at each look of the last comparison, so that nothing is known about them",
                _TASK,
            ),
            Metric(
                "millrace_compare_structure_differences",
                _GAUGE,
                "places in which the definitions of tables differed in the last comparison",
                _TASK,
            ),
        ),
        "Owners and errors": (
            Metric(
                "millrace_task_failures_total",
                _COUNTER,
                "runs of tasks that ended with an error, by its code",
                ("code",),
            ),
            Metric(
                "millrace_fenced_total",
                _COUNTER,
                "runs of tasks that ended because another owner has taken over",
            ),
        ),
        "The scheduler": (
            Metric("millrace_scheduler_leading", _GAUGE, "1 while this scheduler leads"),
            Metric(
                "millrace_scheduler_rounds_total",
                _COUNTER,
                "rounds by their end: done, delayed (retried), fenced (no longer the leader)",
                ("result",),
            ),
            Metric(
                "millrace_scheduler_assignments_total",
                _COUNTER,
                "tasks that were assigned to a worker for the first time, or moved",
            ),
            Metric(
                "millrace_scheduler_tasks",
                _GAUGE,
                "tasks and relays that the leader may place",
            ),
            Metric(
                "millrace_scheduler_pending_tasks",
                _GAUGE,
                "tasks and relays that the leader may place and that have no live worker",
            ),
            Metric(
                "millrace_scheduler_workers", _GAUGE, "live workers that the leader sees", ("kind",)
            ),
        ),
        "The built-in registry": (
            Metric(
                "millrace_registry_requests_total",
                _COUNTER,
                "requests by method and status",
                ("method", "status"),
            ),
            Metric("millrace_registry_request_seconds", _HISTOGRAM, "time to answer a request"),
        ),
        "Serving a relay log (`millrace relay serve`)": (
            Metric("millrace_serve_clients", _GAUGE, "connected clients"),
        ),
    }
)

METRICS: Mapping[str, Metric] = MappingProxyType(
    {metric.name: metric for section in SECTIONS.values() for metric in section}
)
assert len(METRICS) == sum(map(len, SECTIONS.values())), "a metric is in the table twice"
