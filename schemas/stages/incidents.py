"""The incidents of an apply task on its target: errors that it retried, and conflicts. Part of the stage ``applied``.

retries     by the server's error number, such as "1213" (deadlock) or "2013" (lost connection)
conflicts   by kind, such as "update-missing": the operation, and whether the row is missing or exists
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from schemas.plain import Wire

CONFLICT_KINDS = (
    *("insert-exists", "update-missing", "update-exists", "delete-missing"),
    "foreign-key",
)
NO_NUMBER = "0"  # of an error without one, such as a broken socket


@dataclass(frozen=True, slots=True)
class Incidents:
    """Counts; a key without one is absent."""

    # a worker of an earlier version reports neither
    retries: Annotated[Mapping[str, int], Wire(pair=("errno", "count"), is_added_later=True)] = (
        field(default_factory=dict)
    )
    conflicts: Annotated[Mapping[str, int], Wire(pair=("kind", "count"), is_added_later=True)] = (
        field(default_factory=dict)
    )

    def __add__(self, other: "Incidents") -> "Incidents":
        """The sums."""
        return Incidents(_sum(self.retries, other.retries), _sum(self.conflicts, other.conflicts))


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return dict(Counter(one) + Counter(other))
