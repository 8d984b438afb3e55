"""Why no worker may take a unit, in words for an operator. Pure."""

from collections.abc import Collection, Mapping
from typing import Protocol

from schemas.documents import TaskKind

NAMES_MAX = 3  # workers named in a reason; the others are counted

UNITS = {TaskKind.CAPTURE: "sets", TaskKind.APPLY: "tasks"}  # what a capacity counts


class Taker(Protocol):
    """A live worker (``zk.placement.assignment.Candidate``)."""

    @property
    def kind(self) -> TaskKind:
        """The kind of tasks that it runs."""

    @property
    def labels(self) -> frozenset[str]:
        """Its labels."""

    @property
    def capacity(self) -> int | None:
        """How many units it takes."""

    @property
    def is_drained(self) -> bool:
        """Whether it takes none."""


def why_no_worker(
    labels: frozenset[str], workers: Mapping[str, Taker], load: Mapping[str, int]
) -> str:
    """Names the missing label, or the workers that are full or drained. ``workers``: those of the unit's kind."""
    kind = next(iter(workers.values())).kind
    missing = sorted(labels - {label for its in workers.values() for label in its.labels})
    if missing:
        return f"no {kind} worker has the label {' or '.join(missing)}"
    fitting = {name: its for name, its in workers.items() if labels <= its.labels}
    if not fitting:
        return f"no {kind} worker has all the labels {', '.join(sorted(labels))}"
    states = [
        f"{name} is drained"
        if its.is_drained
        else f"{name} is full ({load[name]} of {its.capacity} {UNITS[kind]})"
        for name, its in sorted(fitting.items())
    ]
    having = f" with {', '.join(sorted(labels))}" if labels else ""
    return f"no {kind} worker{having} has room: {listed(states, separator='; ')}"


def listed(names: Collection[str], *, separator: str = ", ") -> str:
    """The first ``NAMES_MAX`` names and the number of the others."""
    shown = list(names)[:NAMES_MAX]
    hidden = len(names) - len(shown)
    return separator.join(shown) + (f" and {hidden} more" if hidden else "")
