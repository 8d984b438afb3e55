"""The incidents of an apply task on its target: errors that it retried, and conflicts. Part of the stage ``applied``.

retries     by the server's error number, such as "1213" (deadlock) or "2013" (lost connection)
conflicts   by kind, such as "update-missing": the operation, and whether the row is missing or exists
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas.stages.plain import integer_of, list_of, object_of

CONFLICT_KINDS = (
    *("insert-exists", "update-missing", "update-exists", "delete-missing"),
    "foreign-key",
)
NO_NUMBER = "0"  # of an error without one, such as a broken socket


@dataclass(frozen=True, slots=True)
class Incidents:
    """Counts; a key without one is absent."""

    retries: Mapping[str, int] = field(default_factory=dict)
    conflicts: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: "Incidents") -> "Incidents":
        """The sums."""
        return Incidents(_sum(self.retries, other.retries), _sum(self.conflicts, other.conflicts))

    def retries_to_plain(self) -> list[dict[str, object]]:
        """For JSON."""
        return _to_plain("errno", self.retries)

    def conflicts_to_plain(self) -> list[dict[str, object]]:
        """For JSON."""
        return _to_plain("kind", self.conflicts)


def incidents_of(retries: object, conflicts: object) -> Incidents:
    """From the two lists of the JSON object. TypeError, ValueError or KeyError if they are others."""
    return Incidents(_counts_of("errno", retries), _counts_of("kind", conflicts))


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return dict(Counter(one) + Counter(other))


def _to_plain(name: str, counts: Mapping[str, int]) -> list[dict[str, object]]:
    return [{name: key, "count": count} for key, count in sorted(counts.items())]


def _counts_of(name: str, plain: object) -> dict[str, int]:
    found = map(object_of, list_of(plain))
    return {str(entry[name]): integer_of(entry["count"]) for entry in found}
