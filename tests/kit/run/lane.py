"""One lane of the runner: a pytest process that runs one assigned test file after another and keeps its servers.

    python -m pytest -p tests.kit.run.lane --lane-fd N

A file is collected only when it is assigned, so only one lane imports it. After each file its fixtures are torn down;
session fixtures live until the lane ends.
"""

from itertools import pairwise
from multiprocessing.connection import Connection

import pytest

from tests.kit.run.cpu import LaneCpu
from tests.kit.run.messages import Assigned, Begun, Collected, Ended, FileDone, Message


def pytest_addoption(parser: pytest.Parser) -> None:
    """The pipe to the runner."""
    parser.addoption("--lane-fd", type=int, required=True)


def pytest_configure(config: pytest.Config) -> None:
    """Connect to the runner."""
    config.pluginmanager.register(Lane(Connection(config.option.lane_fd)))


class Between(pytest.Item):
    """Follows each file's last test: for it, pytest keeps only session fixtures."""

    def runtest(self) -> None:
        raise AssertionError("not a test")


class Lane:
    """Runs the assigned files; reports each test when it ends."""

    def __init__(self, line: "Connection[Message, Assigned | None]") -> None:
        self._line = line
        self._cpu = LaneCpu()
        self._failures: list[str] = []
        self._skipped = ""

    def pytest_collection(self, session: pytest.Session) -> bool:
        """Collect nothing at the start."""
        session.items = []
        return True

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run files until the runner sends None."""
        between = Between.from_parent(session, name="between files")
        self._line.send(FileDone(self._cpu.since_last()))
        while (file := self._line.recv()) is not None:
            if not file.needs_sets:
                self._free_sets(session.config)
            items = list(session.perform_collect([file.path]))
            self._line.send(Collected(len(items)))
            self._end_test(file.path)  # reports a failed collection
            for item, following in pairwise([*items, between]):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            self._line.send(FileDone(self._cpu.since_last()))
        return True

    def _free_sets(self, config: pytest.Config) -> None:
        """``tests/fixtures/servers.py`` may not be loaded, in a run of other folders."""
        plugin = config.pluginmanager.get_plugin("tests.fixtures.servers")
        if plugin is not None:
            plugin.free_source_sets()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that can't be imported counts as one failure."""
        if report.failed:
            self._failures.append(report.longreprtext)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Report the current test to the runner, in case the lane dies."""
        self._line.send(Begun(nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep failures with their output."""
        if report.failed:
            sections = [f"---- {title} ----\n{text}" for title, text in report.sections]
            self._failures.append("\n".join([f"in {report.when}", report.longreprtext, *sections]))
        elif report.skipped:
            self._skipped = report.longreprtext

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Report the test after all its phases."""
        self._line.send(Ended(nodeid, tuple(self._failures), self._skipped))
        self._failures, self._skipped = [], ""

    def _end_test(self, path: str) -> None:
        if self._failures:
            self.pytest_runtest_logfinish(path)
