"""One lane of the runner: a pytest process that is given one test file after another and keeps its servers between.

    python -m pytest -p tests.kit.run.lane --lane-fd N

A file is collected when it is its turn, so that only one lane imports it. After a file everything of it is torn down;
what has session scope stays until the lane ends.
"""

from itertools import pairwise
from multiprocessing.connection import Connection

import pytest

from tests.kit.run.messages import Begun, Collected, Ended, FileDone, Message


def pytest_addoption(parser: pytest.Parser) -> None:
    """The pipe to the runner."""
    parser.addoption("--lane-fd", type=int, required=True)


def pytest_configure(config: pytest.Config) -> None:
    """Talk to the runner."""
    config.pluginmanager.register(Lane(Connection(config.option.lane_fd)))


class Between(pytest.Item):
    """Stands after each file's last test: pytest keeps for it what the session has, and nothing else."""

    def runtest(self) -> None:
        raise AssertionError("it is no test")


class Lane:
    """Runs files as they come; reports each test when it has ended."""

    def __init__(self, line: "Connection[Message, str | None]") -> None:
        self._line = line
        self._failures: list[str] = []
        self._skipped = ""

    def pytest_collection(self, session: pytest.Session) -> bool:
        """Nothing yet."""
        session.items = []
        return True

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Until there is no file left."""
        between = Between.from_parent(session, name="between files")
        self._line.send(FileDone())
        while (path := self._line.recv()) is not None:
            items = list(session.perform_collect([path]))
            self._line.send(Collected(len(items)))
            self._end_test(path)  # what failed of the collection
            for item, following in pairwise([*items, between]):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            self._line.send(FileDone())
        return True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that can't be imported is one failure."""
        if report.failed:
            self._failures.append(report.longreprtext)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """So that the runner knows what a lane was at when it died."""
        self._line.send(Begun(nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what failed with what it printed."""
        if report.failed:
            sections = [f"---- {title} ----\n{text}" for title, text in report.sections]
            self._failures.append("\n".join([f"in {report.when}", report.longreprtext, *sections]))
        elif report.skipped:
            self._skipped = report.longreprtext

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """All phases are over."""
        self._line.send(Ended(nodeid, tuple(self._failures), self._skipped))
        self._failures, self._skipped = [], ""

    def _end_test(self, path: str) -> None:
        if self._failures:
            self.pytest_runtest_logfinish(path)
