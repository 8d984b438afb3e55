"""The stage of an apply task in its report: how far behind its source the target is, how fast it catches up, and how.

It is the key ``applied`` of an apply task in ``millrace status --json``, with ``seq`` and ``gtid_set``.
"""

from dataclasses import dataclass, field, replace
from typing import Annotated

from schemas.plain import MaybeTenths, MaybeThousandths, Tenths, Wire
from schemas.stages.incidents import Incidents
from schemas.stages.rates import Rates


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
    incidents: Annotated[Incidents, Wire(is_inline=True)] = field(default_factory=Incidents)


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

    lag_s: MaybeThousandths = None
    waits_s: Tenths = 0.0
    commit_ms: Annotated[int, Wire(is_zero_null=True)] = 0
    backlog: Backlog = field(default_factory=Backlog)
    rates: Annotated[Rates, Wire(key="rows_s")] = field(default_factory=Rates)
    eta_s: MaybeTenths = None
    counts: Annotated[AppliedCounts, Wire(is_inline=True)] = field(default_factory=AppliedCounts)
    in_order: str = ""
    consistency: str = ""
    safe_mode: str = ""
    executes: Annotated[str, Wire(is_added_later=True)] = ""

    def at_rest(self) -> "Applied":
        """The values that stay true when the task does not run."""
        return replace(
            self, lag_s=None, waits_s=0.0, backlog=Backlog(), rates=Rates(), eta_s=None, executes=""
        )
