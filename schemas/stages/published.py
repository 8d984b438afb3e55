"""The stage of a capture task in its report: what it has published, how fast, and how late.

It is the key ``published`` of a capture task in ``millrace status --json``, with ``seq`` and ``gtid_set``.
"""

from dataclasses import dataclass, field
from typing import Annotated

from schemas.plain import MaybeThousandths, Tenths, Wire
from schemas.stages.rates import Rates


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The stage. ``rows``, ``renewed`` count since the start of the run.

    ``lag_s``    from the source's commit of the last published row to the moment when a reader of the topic can see it,
                 by the clocks of source and worker. 0 if no row waits in the relay log, but never less than the lag of
                 the member that is read; None while that is unknown. It grows with the clock while rows wait and none
                 is published. MariaDB logs whole seconds, so there it is up to 1 s too long.
    ``waits_s``  how long rows have waited in the relay log since one was published; 0 if none waits
    ``at``       the place in the relay log up to which all is published
    ``commit_s`` the duration of the last Kafka transaction's commit
    ``renewed``  how often the Kafka producer was replaced
    ``slow_path`` why records are sent one by one, which is much slower; "" if they are not
    """

    lag_s: MaybeThousandths = None
    waits_s: Tenths = 0.0
    # the source's commit of that row (Unix time); 0 before the first row
    commit_ms: Annotated[int, Wire(is_zero_null=True)] = 0
    rows: int = 0
    rates: Annotated[Rates, Wire(key="rows_s")] = field(default_factory=Rates)
    at: str = ""
    commit_s: Annotated[float, Wire(digits=4)] = 0.0
    renewed: int = 0
    slow_path: str = ""

    def at_rest(self) -> "Published":
        """The values that stay true when the task does not run."""
        return Published(commit_ms=self.commit_ms, rows=self.rows, at=self.at)
