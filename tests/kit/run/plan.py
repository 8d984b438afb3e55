"""Which test file a lane runs next, and the expected time of the rest. No I/O.

The longest file comes first, so the lanes end together. Files that need the shared database servers run in one lane,
because each further copy costs memory and time. While they take longer than a lane's share, another lane starts a copy,
and helps.
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
# of waiting files for each copy of the servers: less than that is done before another copy has paid
HELP_S = 60.0
SERVERS = "servers"
# fixtures (tests/fixtures/servers.py, spark.py) that only one lane may use
SETS = "source_set"
SHARED = frozenset({"pool", "spark", SETS})
# what a file without a stored duration may say of them
_NAMES = re.compile(
    r"\b(source_set|target_server|mariadb_server|mysql_server|single_server|spark)\b"
)


@dataclass(frozen=True, slots=True)
class Measured:
    """A file's duration, and the fixtures of ``SHARED`` that its tests use, directly or through others."""

    seconds: float
    uses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TestFile:
    """``needs`` names resources that only one lane may have. The source sets are six servers: they are freed early."""

    __test__ = False  # not a test class

    path: str
    expected_s: float
    needs: frozenset[str]
    uses_sets: bool = False

    @classmethod
    def of(cls, path: Path, stored: Mapping[str, Measured]) -> "TestFile":
        """From an earlier run; otherwise from the file's text."""
        name = os.path.relpath(path, ROOT)
        measured = stored.get(name)
        if measured is None:
            measured = Measured(UNKNOWN_S, tuple(set(_NAMES.findall(path.read_text()))))
        # whole stacks: one at a time, and not in the lane of the shared servers, so no file may need both
        if path.parent.name in ("stack", "chaos"):
            needs = {"stack"}
        else:
            needs = {SERVERS} if measured.uses else set()
        return cls(name, measured.seconds, frozenset(needs), SETS in measured.uses)


@dataclass(slots=True)
class Plan:
    """Waiting files, the longest first. ``owners``: the lane of each exclusive resource.

    ``helpers``: the lanes with further copies of the servers.
    """

    waiting: list[TestFile]
    lane_count: int
    owners: dict[str, int] = field(default_factory=dict)
    helpers: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, files: Iterable[TestFile], *, lane_count: int) -> "Plan":
        """Sorted by duration, the longest first."""
        return cls(sorted(files, key=lambda file: (-file.expected_s, file.path)), lane_count)

    def take(self, lane: int) -> TestFile | None:
        """The next file of this lane; None when there is none.

        First come files that only it can run, and of these the files with source sets.
        """
        helps = self._helps(lane)
        allowed = [
            file
            for file in self.waiting
            if self._may(lane, file) or (helps and file.needs == {SERVERS} and not file.uses_sets)
        ]
        if not allowed:
            return None
        # min is stable: it returns the longest of its kind
        chosen = min(allowed, key=lambda file: (not file.needs, not file.uses_sets))
        self.waiting.remove(chosen)
        for need in chosen.needs:
            if self.owners.setdefault(need, lane) != lane:
                self.helpers.add(lane)
        return chosen

    def _helps(self, lane: int) -> bool:
        """Whether this lane has, or should start, a copy of the servers."""
        if lane in self.helpers or lane in self.owners.values() or SERVERS not in self.owners:
            return lane in self.helpers
        servers_s = sum(file.expected_s for file in self.waiting if SERVERS in file.needs)
        copies_s = servers_s / (1 + len(self.helpers))
        return copies_s > max(HELP_S, self.left_s() / self.lane_count)

    def _may(self, lane: int, file: TestFile) -> bool:
        if any(self.owners.get(need, lane) != lane for need in file.needs):
            return False
        # the lane with the servers leaves stacks without an owner to other lanes
        fresh = file.needs - self.owners.keys()
        return not fresh or lane not in self.owners.values()

    def needs_sets(self) -> bool:
        """Whether a waiting file uses the source sets."""
        return any(file.uses_sets for file in self.waiting)

    def left_s(self) -> float:
        """The sum for all waiting files."""
        return sum(file.expected_s for file in self.waiting)


def stored_durations() -> dict[str, Measured]:
    """Return the results of an earlier run by file; empty if none are stored."""
    if not DURATIONS.exists():
        return {}
    stored = json.loads(DURATIONS.read_text())
    return {path: Measured(seconds, tuple(uses)) for path, (seconds, *uses) in stored.items()}


def store_durations(measured: Mapping[str, Measured]) -> None:
    """Replace the results of the files that ran; drops files that no longer exist."""
    kept = {**stored_durations(), **measured}
    lines = [
        f" {json.dumps(path)}: {json.dumps([round(kept[path].seconds, 1), *kept[path].uses])}"
        for path in sorted(kept)
        if (ROOT / path).exists()
    ]
    DURATIONS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
