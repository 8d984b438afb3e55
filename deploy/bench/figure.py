"""Shared by all benchmarks: size, figures, groups of them, and the folder.

A figure is a JSON line:

    {"name": "capture.bulk", "value": 310000.0, "unit": "rows/s", "peer": "python-mysql-replication 1.0.17",
     "peer_value": 40000.0, "ratio": 7.75}

``ratio`` is value divided by peer value, null without a peer. Machines differ: compare ratios, not values. A line that
could not be measured has an error instead, and the lines after it are measured:

    {"name": "apply.ddl", "error": "MR-8004 there are 16 tables, not 20"}
"""

import json
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from millrace.errors import Fatal
from millrace.home_folder import home
from millrace.schemas.gtid import Flavour
from millrace.wording import counted


@dataclass(frozen=True, slots=True)
class Size:
    """The servers' flavour, the factor of every number of changes and seconds, and how many rounds are counted.

    ``only``: the lines that are asked for, none for all.
    """

    flavour: Flavour
    scale: float = 1.0
    rounds: int = 3
    only: Sequence[str] = ()

    def wants(self, *lines: str) -> bool:
        """Whether one of the lines is asked for."""
        return not self.only or bool(set(lines) & set(self.only))


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value, and the peer's value from the same run if there is a peer."""

    name: str
    value: float
    unit: str
    peer: str | None = None
    peer_value: float | None = None

    def as_line(self) -> str:
        ratio = None if not self.peer_value else round(self.value / self.peer_value, 3)
        return json.dumps(
            {
                "name": self.name,
                "value": round(self.value, 2),
                "unit": self.unit,
                "peer": self.peer,
                "peer_value": None if self.peer_value is None else round(self.peer_value, 2),
                "ratio": ratio,
            }
        )


@dataclass(frozen=True, slots=True)
class Group:
    """Lines that are measured together. A long group runs only when one of its lines is named."""

    lines: Sequence[str]
    measure: Callable[[Size], Iterator[Figure]]
    is_long: bool = False


def run_groups(groups: Sequence[Group], size: Size) -> None:
    """Measure the groups in turn and print their lines. Fatal MR-8004, before anything starts, for an unknown line.

    A group that fails loses no line of another. Its missing lines get the error; its traceback goes to standard error.
    At the end Fatal MR-8004 names them.
    """
    names = {line for group in groups for line in group.lines}
    if unknown := sorted(set(size.only) - names):
        raise Fatal("MR-8004", f"no such line: {', '.join(unknown)}; there are {sorted(names)}")
    failed: list[str] = []
    for group in groups:
        missing = [line for line in group.lines if size.wants(line)]
        if not missing or (group.is_long and not size.only):
            continue
        say(", ".join(group.lines))
        try:
            for figure in group.measure(size):
                if size.wants(figure.name):
                    print(figure.as_line(), flush=True)
                    missing = [line for line in missing if line != figure.name]
        except Exception as error:  # noqa: BLE001 - servers and peers fail in their own ways; the other lines count
            traceback.print_exc(file=sys.stderr)
            for line in missing:
                print(json.dumps({"name": line, "error": str(error) or repr(error)}), flush=True)
            failed += missing or group.lines
    if failed:
        what = counted(len(failed), "line could not be measured", "lines could not be measured")
        raise Fatal("MR-8004", f"{what}: {', '.join(failed)}")


@contextmanager
def bench_folder() -> Iterator[Path]:
    """An empty folder, which is removed at the end of the block."""
    root = home() / "run"
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=root) as name:
        yield Path(name)


def announced_rounds(size: Size) -> Iterator[int]:
    """The number of each round, announced; round 0 is the warm-up, which does not count."""
    for number in range(size.rounds + 1):
        say(f"  round {number} of {size.rounds}" if number else "  warm-up")
        yield number


def say(text: str) -> None:
    """Progress, on standard error."""
    print(text, file=sys.stderr, flush=True)
