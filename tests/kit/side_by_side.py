"""The outcome of a comparison with another product: how many fields were compared, and which differ.

The expected differences are a list, which ``judge`` holds both ways.
"""

from collections import Counter
from collections.abc import Collection, Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from millrace.schemas.gtid import Flavour

D = TypeVar("D", bound=Hashable)  # a kind of difference
D_contra = TypeVar("D_contra", contravariant=True)

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


class Expected(Protocol[D_contra]):
    """An entry of a list of differences."""

    @property
    def flavours(self) -> Collection[Flavour]:
        """Those that it holds for."""

    def matches(self, difference: D_contra) -> bool:
        """Whether it is this difference."""


E = TypeVar("E", bound=Expected[Any])


@dataclass(frozen=True, slots=True)
class Verdict(Generic[D, E]):
    """Both are empty if all is as expected. ``gone``: entries without a difference."""

    unexpected: tuple[D, ...]
    gone: tuple[E, ...]


def judge(differences: Collection[D], entries: Collection[E], flavour: Flavour) -> Verdict[D, E]:
    """Compare the differences of a flavour, of all variants together, with a list."""
    own = [entry for entry in entries if flavour in entry.flavours]
    unexpected = sorted(
        (each for each in differences if not any(entry.matches(each) for entry in own)), key=str
    )
    gone = [entry for entry in own if not any(map(entry.matches, differences))]
    return Verdict(tuple(unexpected), tuple(gone))
