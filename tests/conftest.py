"""Give every test a marker by its folder, real servers as fixtures, and a clear report of what could not run."""

import gc
import signal
from binascii import crc32
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

from millrace.deploy.servers.programs import MYSQL_HINT, mysql_programs
from millrace.schemas.gtid import Flavour
from tests.kit.economy import economize
from tests.kit.examples import PART
from tests.kit.plain_logs import log_plainly

pytest_plugins = [
    "tests.fixtures.control",
    "tests.fixtures.disk",
    "tests.fixtures.dump",
    "tests.fixtures.own",
    "tests.fixtures.publisher",
    "tests.fixtures.secure_kafka",
    "tests.fixtures.servers",
    "tests.fixtures.shell",
    "tests.fixtures.spark",
    "tests.fixtures.stack",
    "tests.fixtures.sweep",
    "tests.fixtures.failover_stack",
    "tests.fixtures.provocations",
]

_HERE = Path(__file__).parent
_MARKERS = ("unit", "property", "integration", "fault", "stack", "chaos")
FLAVOUR_FIXTURES = frozenset({"source_set", "target_server", "single_server", "server", "ledger"})
GC_THRESHOLDS = (50_000, 20, 50)  # objects, and looks at younger ones; Python's are 700, 10, 10
CHAOS_S_MAX = 7200.0  # per test; a soak adds the time it was asked for
MYSQL_FIXTURES = {"mysql_server", "small_mysql", "mysqlbinlog"}
_NO_MYSQL = (
    "MySQL's half of the tests was NOT RUN: there is no MySQL in the cache. On Debian amd64 `make setup` fetches one; "
    f"elsewhere {MYSQL_HINT} (`make test MYSQLD=PATH`)."
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--chaos`` also runs the long campaigns (``make chaos``)."""
    parser.addoption("--chaos", action="store_true", help="also run the long fault campaigns")
    parser.addoption("--soak-seed", type=int, help="replay a soak; without it a seed is drawn")
    parser.addoption(
        "--soak-minutes", type=float, default=30.0, help="how long a soak kills, over all flavours"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Every run uses the same examples, except ``make chaos``, which looks for new ones. `make test` uses a part.

    Examples have no time limit, also while they are generated: the machine may be slow. Python looks for circles of
    garbage less often: tests keep large trees, and each look walks through them.
    """
    economize()
    gc.set_threshold(*GC_THRESHOLDS)
    log_plainly()
    # a shell makes its background jobs ignore Ctrl-C, and every process started from here would inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)
    slow = [HealthCheck.too_slow]
    settings.register_profile("any", deadline=None, suppress_health_check=slow)
    settings.register_profile("same", settings.get_profile("any"), derandomize=True)
    settings.register_profile("part", settings.get_profile("same"), max_examples=PART)
    # a mutant must fail by the same examples each time, and may need all
    usual = "same" if hasattr(config.option, "mutant") else "part"
    settings.load_profile("any" if config.option.chaos else usual)


def pytest_report_header() -> Sequence[str]:
    """The first lines of the report name the flavours that run."""
    programs = mysql_programs()
    return [
        f"millrace: MariaDB and MySQL ({programs.mysqld})" if programs else f"millrace: {_NO_MYSQL}"
    ]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The last lines of the report name the flavour that did not run."""
    if mysql_programs() is None:
        terminalreporter.section("flavour not run", sep="!", red=True)
        terminalreporter.line(_NO_MYSQL)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by folder; leave out tests that were not requested, and those of MySQL if there is no MySQL."""
    for item in items:
        folder = item.path.relative_to(_HERE).parts[0] if item.path.is_relative_to(_HERE) else ""
        if folder in _MARKERS:
            item.add_marker(folder)
        if _is_other_flavour(item) and not item.get_closest_marker("both_flavours"):
            item.add_marker("chaos")
        if config.option.chaos and _runs_a_part(item):
            item.add_marker(pytest.mark.chaos("the whole"))
        if item.get_closest_marker("chaos"):
            item.add_marker(pytest.mark.timeout(CHAOS_S_MAX + 60 * config.option.soak_minutes))
    left_out = [
        item for item in items if item.get_closest_marker("chaos") and not config.option.chaos
    ]
    if mysql_programs() is None:
        left_out += [
            item for item in items if MYSQL_FIXTURES & set(getattr(item, "fixturenames", ()))
        ]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def _runs_a_part(item: pytest.Item) -> bool:
    """Whether `make test` runs a part of the test's cases: examples of Hypothesis, or of a sweep."""
    is_sweep = "sweep" in getattr(item, "fixturenames", ())
    return is_sweep or is_hypothesis_test(getattr(item, "obj", None))


def _is_other_flavour(item: pytest.Item) -> bool:
    """Whether the test uses a shared server of the flavour whose turn it is not.

    The turn comes from the test's ID, without the flavour. All tests of a file that share a module's fixture on such a
    server have the same turn: the fixture is then set up once.
    """
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return False
    params: Mapping[str, object] = item.callspec.params
    names = [name for name in sorted(FLAVOUR_FIXTURES) if isinstance(params.get(name), Flavour)]
    turn = item.path.name
    if not _shares_a_module_fixture(item):
        cases = [each for each in item.callspec.id.split("-") if each not in list(Flavour)]
        turn = "-".join([turn, item.originalname, *cases])
    return any(params[name] is not _flavour_of_turn(f"{name} of {turn}") for name in names)


def _flavour_of_turn(turn: str) -> Flavour:
    is_mysql = crc32(turn.encode()) % 2 == 1 and mysql_programs() is not None
    return Flavour.MYSQL if is_mysql else Flavour.MARIADB


def _shares_a_module_fixture(item: pytest.Function) -> bool:
    """Whether a fixture of the module uses a server of a flavour, directly or by another fixture."""
    fixtures = item._fixtureinfo.name2fixturedefs
    waiting = [name for name, (*_, used) in fixtures.items() if used.scope == "module"]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in FLAVOUR_FIXTURES:
            return True
        if name not in seen:
            seen.add(name)
            waiting.extend(asked for each in fixtures.get(name, ()) for asked in each.argnames)
    return False
