"""The metrics of every process, for Prometheus.

    table         every metric: name, kind, labels, meaning; a row of `docs/metrics.md`
    exposition    values that are read at a scrape, such as the tasks' reports, as text
    instruments   counters and gauges that a process keeps itself

Guarantees: a metric that is not in the table can't be exposed. Labels have few values: names of tasks, members, states
and codes, never of tables. Not done here: the HTTP server (``millrace.http``), and the values of tasks
(``zk.run.task_metrics``).
"""

from millrace.metrics.exposition import Exposition
from millrace.metrics.instruments import PROCESS, counter, gauge, histogram
from millrace.metrics.table import METRICS, Kind, Metric
