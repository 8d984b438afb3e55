"""The outcome of each client, as a table: `make clients` prints it."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.kit.clients.client import Client
from tests.kit.clients.scene import Rows

WITHOUT = "MILLRACE_CLIENTS_WITHOUT"  # programs that this machine cannot have, with blanks between
DIFFERENCES_MAX = 5
_TITLES = ("client", "format", "rows/s", "differences", "versions")


@dataclass
class Outcome:
    """``rate``: records a second over 300,000, with the start of the client."""

    client: Client
    differences: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    rate: float = 0.0

    def cells(self) -> tuple[str, ...]:
        """A line of the table."""
        rate = f"{self.rate:,.0f}" if self.rate else "–"
        shown = "; ".join([*self.differences, *self.notes]) or "none"
        return self.client.name, self.client.format.value, rate, shown, self.client.versions()


@dataclass
class Outcomes:
    """The outcomes of all clients that ran."""

    by_name: dict[str, Outcome] = field(default_factory=dict)

    def of(self, client: Client) -> Outcome:
        """The outcome of a client, which begins empty."""
        return self.by_name.setdefault(client.name, Outcome(client))

    def can_run(self, client: Client) -> bool:
        """False for a client that this machine cannot have; the table lists it. AssertionError if only ours is missing.

        The operator names such programs in ``MILLRACE_CLIENTS_WITHOUT``.
        """
        if not (program := client.missing()):
            client.prepare()
            return True
        assert program in os.environ.get(WITHOUT, "").split(), (
            f"{client.name}: no {program}; install it, or run with {WITHOUT}={program} if this machine cannot have it"
        )
        self.of(client).notes[:] = [f"not run: no {program}"]
        return False

    @contextmanager
    def recorded(self, client: Client) -> Iterator[None]:
        """Write the first line of the block's error into the table."""
        try:
            yield
        except Exception as error:
            first = str(error).partition("\n")[0]
            self.of(client).notes.append(f"failed: {type(error).__name__}: {first}")
            raise

    def table(self) -> str:
        """All outcomes, aligned."""
        lines = [_TITLES, *(each.cells() for each in self.by_name.values())]
        widths = [max(len(line[place]) for line in lines) for place in range(len(_TITLES) - 1)]
        return "\n".join(
            " | ".join(
                [*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1]]
            )
            for line in lines
        )


def differences(wanted: Rows, rows: Iterable[Mapping[str, object]]) -> list[str]:
    """The first differences between a client's rows and those of the source."""
    read = {str(row.get("id")): {name: _text(value) for name, value in row.items()} for row in rows}
    differing = [
        f"row {key}: {read.get(key, 'missing')} instead of {wanted.get(key, 'none')}"
        for key in sorted(wanted.keys() | read.keys())
        if read.get(key) != wanted.get(key)
    ]
    return differing[:DIFFERENCES_MAX]


def _text(value: object) -> str | None:
    return None if value is None else str(value)
