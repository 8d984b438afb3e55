"""A test that hangs ends the run: red, with what every thread was doing, and long before whoever waits gives up."""

import faulthandler
import os
from collections.abc import Callable

import pytest

TEST_S_MAX = 1800.0  # the slowest of `make test` takes a few minutes, or asks for its time again
CHAOS_S_MAX = 4 * TEST_S_MAX  # and as long as a soak was asked to take

_stderr = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Keep the standard error that is captured while tests run."""
    config.stash[_stderr] = os.dup(2)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """For the test and what it is given."""
    _end_after(item)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """For what it leaves; pytest itself takes the bound away from a test that failed."""
    _end_after(item)


@pytest.fixture
def whole_time_again(request: pytest.FixtureRequest) -> Callable[[], None]:
    """Each call gives the test its whole time from then on: one that does many things, each as long as a test's."""
    return lambda: _end_after(request.node)


def _end_after(item: pytest.Item) -> None:
    limit_s = TEST_S_MAX
    if item.get_closest_marker("chaos"):
        limit_s = CHAOS_S_MAX + 60 * item.config.getoption("soak_minutes", 0.0)
    faulthandler.dump_traceback_later(limit_s, exit=True, file=item.config.stash[_stderr])
