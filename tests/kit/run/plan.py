"""Which test file a lane runs next, and how long the rest takes: pure.

The longest file comes first, so that the lanes end together. A file that needs a shared database server runs in the
lane that has one: a second copy would cost memory, and its tests look at the whole server (binlog, locks, variables).
"""

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.kit.paths import ROOT

DURATIONS = ROOT / "tests" / "durations.json"
UNKNOWN_S = 10.0  # of a file without a stored duration
# names of fixtures (tests/fixtures/servers.py) that one lane has and the other leaves alone
EXCLUSIVE = re.compile(
    r"\b(source_set|target_server|mariadb_server|mysql_server|single_server|spark)\b"
)


@dataclass(frozen=True, slots=True)
class TestFile:
    """``needs`` names what only one lane may have."""

    __test__ = False  # it is no test class

    path: str
    expected_s: float
    needs: frozenset[str]

    @classmethod
    def of(cls, path: Path, durations: Mapping[str, float]) -> "TestFile":
        """By its text and its stored duration."""
        name, text = os.path.relpath(path, ROOT), path.read_text()
        needs = {"servers"} if EXCLUSIVE.search(text) else set()
        # whole stacks: one at a time, and not where the shared servers are
        needs |= {"stack"} if path.parent.name in ("stack", "chaos") else set()
        return cls(name, durations.get(name, UNKNOWN_S), frozenset(needs))


@dataclass(slots=True)
class Plan:
    """Files that wait, the longest first. ``owners``: which lane has what only one may have."""

    waiting: list[TestFile]
    owners: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, files: Iterable[TestFile]) -> "Plan":
        """Longest first."""
        return cls(sorted(files, key=lambda file: (-file.expected_s, file.path)))

    def take(self, lane: int) -> TestFile | None:
        """The next file of this lane: first of what it alone can run, then of what any can; None at its end."""
        allowed = [file for file in self.waiting if self._may(lane, file)]
        if not allowed:
            return None
        chosen = min(allowed, key=lambda file: not file.needs)  # stable: the longest of its kind
        self.waiting.remove(chosen)
        self.owners.update(dict.fromkeys(chosen.needs, lane))
        return chosen

    def _may(self, lane: int, file: TestFile) -> bool:
        if any(self.owners.get(need, lane) != lane for need in file.needs):
            return False
        # a lane that has the servers leaves a stack to the others, as long as they have no owner
        fresh = file.needs - self.owners.keys()
        return not fresh or lane not in self.owners.values()

    def left_s(self) -> float:
        """Of the files that wait, all together."""
        return sum(file.expected_s for file in self.waiting)


def stored_durations() -> dict[str, float]:
    """File → seconds; empty before they were stored."""
    return json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}


def store_durations(measured: Mapping[str, float]) -> None:
    """Replace those of the files that ran; files that are gone go."""
    kept = {**stored_durations(), **{path: round(s, 1) for path, s in measured.items()}}
    found = {path: s for path, s in sorted(kept.items()) if (ROOT / path).exists()}
    DURATIONS.write_text(json.dumps(found, indent=1) + "\n")
