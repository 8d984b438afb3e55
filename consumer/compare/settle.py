"""Decides whether a row differs under writes: the bracket rule. Pure.

A look reads the state of a row on the source, then on the target after this has applied what the source had, then on
the source again, after this shows all that the target may have applied:

    s₁ (at h₁)     the target waits for h₁ and reads t     the source waits for what t may have, and reads s₂

    t = s₁ or t = s₂     equal: the target has a state of the source from this time
    s₁ = s₂ ≠ t          the source did not change, and the target has had time: different, if the look before found the
                         same s and t
    otherwise            the row is being written: look again. s₂ is the next s₁

A row that changes at each look is unsettled: nothing is known about it. What remains is ABA: a row that the source
changes and changes back between two reads, while the target is in the middle, at two looks in succession.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millrace.consumer.compare.table import Name

LOOKS_MAX = 8

States = Mapping[Name, str]  # without a row that does not exist


@dataclass(frozen=True, slots=True)
class Suspect:
    """A row that may differ, and the states of the last look."""

    name: Name
    source: str | None = None
    target: str | None = None


@dataclass(frozen=True, slots=True)
class Looked:
    """After a look: rows that differ, and rows to look at again."""

    different: tuple[Suspect, ...]
    again: tuple[Suspect, ...]


def look(suspects: Sequence[Suspect], before: States, there: States, after: States) -> Looked:
    """The bracket rule for each row. ``before``, ``after``: of the source; ``there``: of the target."""
    different, again = [], []
    for suspect in suspects:
        name = suspect.name
        s1, t, s2 = before.get(name), there.get(name), after.get(name)
        if t in (s1, s2):
            continue
        found = Suspect(name, s2, t)
        if s1 == s2 and (suspect.source, suspect.target) == (s2, t):
            different.append(found)
        else:
            again.append(found)
    return Looked(tuple(different), tuple(again))


def unmatched(
    left: Sequence[tuple[bytes, Name]], right: Sequence[tuple[bytes, Name]]
) -> list[Suspect]:
    """The rows by name that only one side has in this form, with the digests of both."""
    source = {name: digest.hex().upper() for digest, name in left}
    target = {name: digest.hex().upper() for digest, name in right}
    names = {**dict.fromkeys(source), **dict.fromkeys(target)}
    return [Suspect(name, source.get(name), target.get(name)) for name in names]
