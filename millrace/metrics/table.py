"""Every metric of Millrace. Its entries are the rows of ``docs/metrics.md``.

The unit ends the name (``_seconds``, ``_bytes``, ``_rows``); a counter ends in ``_total``. A series of a task ends when
its worker no longer runs the task. A value that is unknown has no series.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from millrace.pages import page_tables

PAGE = "metrics.md"


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


def _metrics() -> Mapping[str, Metric]:
    """By name; a page that has a metric twice fails the import."""
    metrics: dict[str, Metric] = {}
    for rows in page_tables(PAGE).values():
        for quoted, kind, labels, meaning in rows:
            name = quoted.strip("`")
            assert name not in metrics, f"{name} is in the table twice"
            metrics[name] = Metric(name, Kind(kind), meaning, tuple(labels.split("`")[1::2]))
    return MappingProxyType(metrics)


METRICS: Mapping[str, Metric] = _metrics()
