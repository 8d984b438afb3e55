"""The stage of a capture task in its report: what it has published, how fast, and how late.

It is the key ``published`` of a capture task in ``millrace status --json``, with ``seq`` and ``gtid_set``.
"""

from dataclasses import dataclass, field

from schemas.stages.plain import integer_of, number_of, object_of, rounded
from schemas.stages.rates import Rates, rates_of


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

    lag_s: float | None = None
    waits_s: float = 0.0
    commit_ms: int = 0  # the source's commit of that row (Unix time); 0 before the first row
    rows: int = 0
    rates: Rates = field(default_factory=Rates)
    at: str = ""
    commit_s: float = 0.0
    renewed: int = 0
    slow_path: str = ""

    def to_plain(self) -> dict[str, object]:
        """Its JSON object."""
        return {
            "lag_s": rounded(self.lag_s, 3),
            "waits_s": round(self.waits_s, 1),
            "commit_ms": self.commit_ms or None,
            "rows": self.rows,
            "rows_s": self.rates.to_plain(),
            "at": self.at,
            "commit_s": round(self.commit_s, 4),
            "renewed": self.renewed,
            "slow_path": self.slow_path,
        }

    def at_rest(self) -> "Published":
        """The values that stay true when the task does not run."""
        return Published(commit_ms=self.commit_ms, rows=self.rows, at=self.at)


def published_of(plain: object) -> Published | None:
    """The stage from its JSON object; None for null. TypeError, ValueError or KeyError if it is another value."""
    if plain is None:
        return None
    stage = object_of(plain)
    return Published(
        lag_s=number_of(stage["lag_s"]),
        waits_s=number_of(stage["waits_s"]) or 0.0,
        commit_ms=integer_of(stage["commit_ms"] or 0),
        rows=integer_of(stage["rows"]),
        rates=rates_of(stage["rows_s"]),
        at=str(stage["at"]),
        commit_s=number_of(stage["commit_s"]) or 0.0,
        renewed=integer_of(stage["renewed"]),
        slow_path=str(stage["slow_path"]),
    )
