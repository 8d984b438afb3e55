"""Which test file a lane runs next, and the expected time of the rest.

The longest file comes first, so the lanes end together. Files that need the shared database servers run in one lane,
because each further copy costs memory and time. While they take longer than a lane's share, another lane starts a copy,
and helps, except with files that need a Spark session or the source sets: these have no copy.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from millrace.home_folder import home
from tests.kit.paths import ROOT
from tests.kit.run.uses import shared_fixtures

# of a test, by its folder: for files that have not run on this machine
TEST_S = {
    "unit": 0.2,
    "property": 1.3,
    "contracts": 2.0,
    "fault": 11.0,
    "stack": 45.0,
    "chaos": 60.0,
}
OTHER_TEST_S = 4.5
# of waiting files for each copy of the servers: less than that is done before another copy has paid
HELP_S = 60.0
SERVERS = "servers"
# fixtures (tests/fixtures/servers.py, spark.py) that only one lane may use
SETS, SPARK = "source_set", "spark"
SHARED = frozenset({"pool", SPARK, SETS})
_TEST = re.compile(r"^ *def test_", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Cost:
    """The time of a file: ``cpu_s`` with all its processes, ``wall_s`` in its lane."""

    cpu_s: float
    wall_s: float

    def lane_s(self, lanes_per_core: float) -> float:
        """How long it keeps a lane: for its CPU time, or for what it waits for."""
        return max(self.cpu_s * lanes_per_core, self.wall_s / lanes_per_core)


@dataclass(frozen=True, slots=True)
class TestFile:
    """``needs`` names resources that only one lane may have. The source sets are six servers: they are freed early."""

    __test__ = False  # not a test class

    path: str
    expected_s: float
    needs: frozenset[str]
    uses_sets: bool = False

    @classmethod
    def of(cls, path: Path, stored: Mapping[str, Cost], *, lanes_per_core: float) -> "TestFile":
        """Its time is that of an earlier run here, or estimated."""
        name = os.path.relpath(path, ROOT)
        uses = shared_fixtures(path, SHARED)
        cost = stored.get(name)
        expected_s = _estimate(path) if cost is None else cost.lane_s(lanes_per_core)
        # whole stacks: one at a time, and not in the lane of the shared servers, so no file may need both
        if path.parent.name in ("stack", "chaos"):
            needs = {"stack"}
        else:
            needs = {SERVERS, *({SPARK} & uses)} if uses else set()
        return cls(name, expected_s, frozenset(needs), SETS in uses)


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

        First come files that only it can run: of these first the files with source sets, then those with Spark.
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
        chosen = min(
            allowed, key=lambda file: (not file.needs, not file.uses_sets, SPARK not in file.needs)
        )
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
        # the lane with the servers leaves stacks without an owner to other lanes; its Spark session is not another need
        fresh = file.needs - self.owners.keys() - {SPARK}
        return not fresh or lane not in self.owners.values()

    def needs_sets(self) -> bool:
        """Whether a waiting file uses the source sets."""
        return any(file.uses_sets for file in self.waiting)

    def left_s(self) -> float:
        """The sum for all waiting files."""
        return sum(file.expected_s for file in self.waiting)


def _estimate(path: Path) -> float:
    tests = len(_TEST.findall(path.read_text()))
    return 1.0 + tests * TEST_S.get(path.parent.name, OTHER_TEST_S)


def stored_costs(run: str = "test") -> dict[str, Cost]:
    """The cost of each file in earlier runs on this machine. `make chaos` runs other tests of a file: ``chaos``."""
    try:
        stored = json.loads(_costs_path(run).read_text())
    except FileNotFoundError:
        return {}
    return {path: Cost(*seconds) for path, seconds in stored.items()}


def store_costs(costs: Mapping[str, Cost], run: str) -> None:
    """Replace the costs of the files that ran; drop files that no longer exist."""
    kept = {**stored_costs(run), **costs}
    plain = {
        path: [round(cost.cpu_s, 1), round(cost.wall_s, 1)]
        for path, cost in sorted(kept.items())
        if (ROOT / path).exists()
    }
    _costs_path(run).write_text(json.dumps(plain, indent=1))


def _costs_path(run: str) -> Path:
    return home() / f"{run}-costs.json"
