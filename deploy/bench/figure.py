"""One figure of the benchmark, and its JSON line.

    {"name": "capture.bulk", "value": 310000.0, "unit": "rows/s", "peer": "python-mysql-replication 1.0.17",
     "peer_value": 40000.0, "ratio": 7.75}

``ratio`` is value divided by peer value, null without a peer. Machines differ: compare ratios, not values. A line that
could not be measured has an error instead, and the lines after it are measured:

    {"name": "apply.ddl", "error": "MR-8004 there are 16 tables, not 20"}
"""

import json
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from millrace.errors import Fatal
from millrace.wording import counted


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
class Part:
    lines: Sequence[str]
    measure: Callable[[], Iterator[Figure]]


def check_lines(only: Collection[str], known: Collection[str]) -> None:
    if unknown := sorted(set(only) - set(known)):
        raise Fatal("MR-8004", f"no such line: {', '.join(unknown)}; there are {sorted(known)}")


def print_parts(parts: Iterable[Part], only: Collection[str]) -> None:
    """Measure the parts in turn and print their lines, or those in ``only``.

    A part that fails loses no line of another. Its missing lines get the error; its traceback goes to standard error.
    At the end Fatal MR-8004 names them.
    """
    failed: list[str] = []
    for part in parts:
        missing = [line for line in part.lines if not only or line in only]
        try:
            for figure in part.measure():
                if not only or figure.name in only:
                    print(figure.as_line(), flush=True)
                    missing = [line for line in missing if line != figure.name]
        except Exception as error:  # noqa: BLE001 - servers and peers fail in their own ways; the other lines count
            traceback.print_exc(file=sys.stderr)
            for line in missing:
                print(json.dumps({"name": line, "error": str(error) or repr(error)}), flush=True)
            failed += missing or part.lines
    if failed:
        what = counted(len(failed), "line could not be measured", "lines could not be measured")
        raise Fatal("MR-8004", f"{what}: {', '.join(failed)}")
