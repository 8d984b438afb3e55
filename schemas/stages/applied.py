"""The stage of an apply task in its report: how far behind its source the target is, how fast it catches up, and how.

It is the key ``applied`` of an apply task in ``millrace status --json``, with ``seq`` and ``gtid_set``.
"""

from dataclasses import dataclass, field, replace

from schemas.stages.incidents import Incidents, incidents_of
from schemas.stages.plain import count_of, integer_of, number_of, object_of, rounded
from schemas.stages.rates import Rates, rates_of


@dataclass(frozen=True, slots=True)
class Backlog:
    """The records that wait in the topic after the mark.

    ``records``  offsets, with control records and Kafka's own markers. 0 if only the control record and the marker that
                 end the topic wait.
    ``rows``     rows and DDL statements, by the ``seq`` at the topic's end
    ``bytes``    the records by the mean size of those that this run has read: an estimate
    """

    records: int | None = None
    rows: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedCounts:
    """The work since the start of the run, of the turns that have ended.

    A turn ends 1 s after the last record, under a constant load after 30 s. ``left_out``: DDL statements that were
    written to the target's table ``left_out``. ``incidents`` are counted since the start of the driver's process: an
    error that is retried may end the run.
    """

    rows: int = 0
    statements: int = 0
    ddl: int = 0
    left_out: int = 0
    turns: int = 0
    incidents: Incidents = field(default_factory=Incidents)


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The stage. A task that does not run has only ``commit_ms``, ``counts`` and how it applies in its report.

    `millrace status` adds the rows that wait, and the lag since ``commit_ms`` (``zk.view``).

    ``lag_s``      from the source's commit of the last applied row to the target's commit. 0 if no row and no
                   statement waits in the topic. It grows with the clock while some wait and none is applied.
    ``waits_s``    how long records have waited since the mark moved; 0 if none waits
    ``commit_ms``  the source's commit of that row (Unix time); 0 before the first row
    ``rates``      rows and statements of the topic, also those that the task skips
    ``eta_s``      the backlog at the current pace
    ``in_order``   tables that one lane applies, and why
    ``safe_mode``  the text of its range; "" if the task has none
    ``executes``   a DDL statement that the target executes now, with its progress if the server reports it
    """

    lag_s: float | None = None
    waits_s: float = 0.0
    commit_ms: int = 0
    backlog: Backlog = field(default_factory=Backlog)
    rates: Rates = field(default_factory=Rates)
    eta_s: float | None = None
    counts: AppliedCounts = field(default_factory=AppliedCounts)
    in_order: str = ""
    consistency: str = ""
    safe_mode: str = ""
    executes: str = ""

    def to_plain(self) -> dict[str, object]:
        """Its JSON object."""
        backlog, counts = self.backlog, self.counts
        return {
            "lag_s": rounded(self.lag_s, 3),
            "waits_s": round(self.waits_s, 1),
            "commit_ms": self.commit_ms or None,
            "backlog": {"records": backlog.records, "rows": backlog.rows, "bytes": backlog.bytes},
            "rows_s": self.rates.to_plain(),
            "eta_s": rounded(self.eta_s, 1),
            "rows": counts.rows,
            "statements": counts.statements,
            "ddl": counts.ddl,
            "left_out": counts.left_out,
            "turns": counts.turns,
            "retries": counts.incidents.retries_to_plain(),
            "conflicts": counts.incidents.conflicts_to_plain(),
            "in_order": self.in_order,
            "consistency": self.consistency,
            "safe_mode": self.safe_mode,
            "executes": self.executes,
        }

    def at_rest(self) -> "Applied":
        """The values that stay true when the task does not run."""
        return replace(
            self, lag_s=None, waits_s=0.0, backlog=Backlog(), rates=Rates(), eta_s=None, executes=""
        )


def applied_of(plain: object) -> Applied | None:
    """The stage from its JSON object; None for null. TypeError, ValueError or KeyError if it is another value."""
    if plain is None:
        return None
    stage = object_of(plain)
    backlog = object_of(stage["backlog"])
    return Applied(
        lag_s=number_of(stage["lag_s"]),
        waits_s=number_of(stage["waits_s"]) or 0.0,
        commit_ms=integer_of(stage["commit_ms"] or 0),
        backlog=Backlog(
            count_of(backlog["records"]), count_of(backlog["rows"]), count_of(backlog["bytes"])
        ),
        rates=rates_of(stage["rows_s"]),
        eta_s=number_of(stage["eta_s"]),
        counts=AppliedCounts(
            rows=integer_of(stage["rows"]),
            statements=integer_of(stage["statements"]),
            ddl=integer_of(stage["ddl"]),
            left_out=integer_of(stage["left_out"]),
            turns=integer_of(stage["turns"]),
            # a worker of an earlier version does not report them
            incidents=incidents_of(stage.get("retries", []), stage.get("conflicts", [])),
        ),
        in_order=str(stage["in_order"]),
        consistency=str(stage["consistency"]),
        safe_mode=str(stage["safe_mode"]),
        executes=str(
            stage.get("executes", "")
        ),  # a worker of an earlier version does not report it
    )
