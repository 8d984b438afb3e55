"""Counters, gauges and histograms that a process keeps itself. Apart: the only state.

They are for events that no report has.

    REPLACED = counter("millrace_fenced_total")     # at the top of a module
    REPLACED.inc()

They are in ``PROCESS``, the registry of this process, with CPU time, memory and open files as Prometheus's client
measures them.
"""

from collections.abc import Sequence

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)

from millrace import __version__
from millrace.metrics.table import METRICS, Kind, Metric

# from a commit on a near broker to one that waits for its timeouts
SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)

# no second series with the time at which a counter began
disable_created_metrics()  # type: ignore[no-untyped-call]
PROCESS = CollectorRegistry()
ProcessCollector(registry=PROCESS)
PlatformCollector(registry=PROCESS)


def counter(name: str) -> Counter:
    """The counter of the table. It has no series before its first use if it has labels."""
    metric = _declared(name, Kind.COUNTER)
    return Counter(name, metric.help, metric.labels, registry=PROCESS)


def gauge(name: str) -> Gauge:
    metric = _declared(name, Kind.GAUGE)
    return Gauge(name, metric.help, metric.labels, registry=PROCESS)


def histogram(name: str, buckets: Sequence[float] = SECONDS) -> Histogram:
    metric = _declared(name, Kind.HISTOGRAM)
    return Histogram(name, metric.help, metric.labels, registry=PROCESS, buckets=buckets)


def _declared(name: str, kind: Kind) -> Metric:
    metric = METRICS[name]
    assert metric.kind is kind, f"{name} is a {metric.kind}"
    return metric


gauge("millrace_build_info").labels(version=__version__).set(1)
