"""The outcome of a comparison with another product: how many fields were compared, and which differ."""

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

D = TypeVar("D", bound=Hashable)  # a kind of difference

EXAMPLES_MAX = 3


@dataclass
class Result(Generic[D]):
    """How many fields were compared, and which differ, how often, with examples."""

    fields: int = 0
    records: int = 0
    counts: Counter[D] = field(default_factory=Counter)
    examples: dict[D, list[str]] = field(default_factory=dict)

    def add(self, difference: D, example: str) -> None:
        """Count one."""
        self.counts[difference] += 1
        shown = self.examples.setdefault(difference, [])
        if len(shown) < EXAMPLES_MAX and example not in shown:
            shown.append(example)

    def merge(self, other: "Result[D]") -> None:
        """Add what another comparison has."""
        self.fields += other.fields
        self.records += other.records
        self.counts.update(other.counts)
        for difference, examples in other.examples.items():
            shown = self.examples.setdefault(difference, [])
            shown.extend(examples[: EXAMPLES_MAX - len(shown)])
