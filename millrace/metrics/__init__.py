"""The metrics of every process, for Prometheus.

    table         every metric: name, kind, labels, meaning; `docs/metrics.md` is made from it
    exposition    values that are read at a scrape, such as the tasks' reports, as text
    instruments   counters and gauges that a process keeps itself
    page          the table as Markdown

Guarantees: a metric that is not in the table can't be exposed. Labels have few values: names of tasks, members, states
and codes, never of tables. Not done here: the HTTP server (``millrace.http``), and the values of tasks
(``zk.run.task_metrics``).
"""

from millrace.metrics.exposition import Exposition
from millrace.metrics.instruments import PROCESS, counter, gauge, histogram
from millrace.metrics.table import METRICS, SECTIONS, Kind, Metric

__all__ = [
    "METRICS",
    "PROCESS",
    "SECTIONS",
    "Exposition",
    "Kind",
    "Metric",
    "counter",
    "gauge",
    "histogram",
]
