"""How many rows a second a task moved, over two spans of time. Part of a stage."""

from dataclasses import dataclass

from schemas.stages.plain import number_of, object_of, rounded


@dataclass(frozen=True, slots=True)
class Rates:
    """Rows and DDL statements a second; None: unknown, because the task has run for less than a second."""

    over_10_s: float | None = None
    over_60_s: float | None = None

    def to_plain(self) -> dict[str, object]:
        """Its JSON object."""
        return {"over_10_s": rounded(self.over_10_s, 1), "over_60_s": rounded(self.over_60_s, 1)}


def rates_of(plain: object) -> Rates:
    """The rates from their JSON object. TypeError or KeyError if it is another value."""
    rates = object_of(plain)
    return Rates(number_of(rates["over_10_s"]), number_of(rates["over_60_s"]))
