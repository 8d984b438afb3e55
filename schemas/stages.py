"""The stages of a task in its report: typed values for ``millrace status``, dashboards and metrics.

    applied    an apply task: how far behind its source the target is, and how fast it catches up

Each stage is one object under its name in ``millrace status --json``. Its keys are stable; new ones may be added. A
value is null while it is unknown. Pure values; nothing here measures.
"""

from dataclasses import dataclass

from schemas.plain import number_of, object_of


@dataclass(frozen=True, slots=True)
class Applied:
    """The pace of an apply task. A task that does not run has only ``commit_ms``.

    ``lag_s``           from the source's commit of the last applied row to the target's commit. 0 if no row and no
                        statement waits in the topic. It grows with the clock while some wait and none is applied.
    ``commit_ms``       the source's commit of that row (Unix time); 0 before the first row.
    ``backlog_records`` in the topic after the mark, with control records and Kafka's own markers. 0 if only the control
                        record and the marker that end the topic wait.
    ``rows_10_s``, ``rows_60_s``  rows and statements of the topic a second over the last 10 and 60 seconds, also those
                        that the task skips.
    ``eta_s``           the backlog at the current pace.
    """

    lag_s: float | None = None
    commit_ms: int = 0
    backlog_records: int | None = None
    rows_10_s: float | None = None
    rows_60_s: float | None = None
    eta_s: float | None = None

    def to_plain(self) -> dict[str, object]:
        """Its JSON object."""
        return {
            "lag_s": _rounded(self.lag_s, 3),
            "commit_ms": self.commit_ms or None,
            "backlog": {"records": self.backlog_records},
            "rows_s": {
                "over_10_s": _rounded(self.rows_10_s, 1),
                "over_60_s": _rounded(self.rows_60_s, 1),
            },
            "eta_s": _rounded(self.eta_s, 1),
        }

    def at_rest(self) -> "Applied":
        """The values that stay true when the task does not run."""
        return Applied(commit_ms=self.commit_ms)


def applied_of(plain: object) -> Applied | None:
    """The stage from its JSON object; None for null. TypeError, ValueError or KeyError if it is another value."""
    if plain is None:
        return None
    stage = object_of(plain)
    rates, backlog = object_of(stage["rows_s"]), object_of(stage["backlog"])
    commit_ms, records = stage["commit_ms"], backlog["records"]
    return Applied(
        lag_s=number_of(stage["lag_s"]),
        commit_ms=int(number_of(commit_ms) or 0),
        backlog_records=None if records is None else int(number_of(records) or 0),
        rows_10_s=number_of(rates["over_10_s"]),
        rows_60_s=number_of(rates["over_60_s"]),
        eta_s=number_of(stage["eta_s"]),
    )


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
