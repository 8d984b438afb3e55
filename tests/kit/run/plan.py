"""Which test file a lane runs next, and the expected time of the rest. No I/O.

The longest file comes first, so the lanes end together. Files that need the shared database servers run in one lane: a
second copy would cost memory, and their tests check the whole server (binlog, locks, variables).
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
# fixtures (tests/fixtures/servers.py) that only one lane may use
EXCLUSIVE = re.compile(
    r"\b(source_set|target_server|mariadb_server|mysql_server|single_server|spark)\b"
)


@dataclass(frozen=True, slots=True)
class TestFile:
    """``needs`` names resources that only one lane may have."""

    __test__ = False  # not a test class

    path: str
    expected_s: float
    needs: frozenset[str]

    @classmethod
    def of(cls, path: Path, durations: Mapping[str, float]) -> "TestFile":
        """From the file's text and its stored duration."""
        name, text = os.path.relpath(path, ROOT), path.read_text()
        needs = {"servers"} if EXCLUSIVE.search(text) else set()
        # whole stacks: one at a time, and not in the lane of the shared servers
        needs |= {"stack"} if path.parent.name in ("stack", "chaos") else set()
        return cls(name, durations.get(name, UNKNOWN_S), frozenset(needs))


@dataclass(slots=True)
class Plan:
    """Waiting files, the longest first. ``owners``: the lane of each exclusive resource."""

    waiting: list[TestFile]
    owners: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, files: Iterable[TestFile]) -> "Plan":
        """Sorted by duration, the longest first."""
        return cls(sorted(files, key=lambda file: (-file.expected_s, file.path)))

    def take(self, lane: int) -> TestFile | None:
        """The next file of this lane: first files that only it can run, then others; None when there is none."""
        allowed = [file for file in self.waiting if self._may(lane, file)]
        if not allowed:
            return None
        chosen = min(
            allowed, key=lambda file: not file.needs
        )  # min is stable: the longest of its kind
        self.waiting.remove(chosen)
        self.owners.update(dict.fromkeys(chosen.needs, lane))
        return chosen

    def _may(self, lane: int, file: TestFile) -> bool:
        if any(self.owners.get(need, lane) != lane for need in file.needs):
            return False
        # the lane with the servers leaves stacks without an owner to other lanes
        fresh = file.needs - self.owners.keys()
        return not fresh or lane not in self.owners.values()

    def left_s(self) -> float:
        """The sum for all waiting files."""
        return sum(file.expected_s for file in self.waiting)


def stored_durations() -> dict[str, float]:
    """File → seconds; empty if none are stored."""
    return json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}


def store_durations(measured: Mapping[str, float]) -> None:
    """Replace the durations of files that ran; drops files that no longer exist."""
    kept = {**stored_durations(), **{path: round(s, 1) for path, s in measured.items()}}
    found = {path: s for path, s in sorted(kept.items()) if (ROOT / path).exists()}
    DURATIONS.write_text(json.dumps(found, indent=1) + "\n")
