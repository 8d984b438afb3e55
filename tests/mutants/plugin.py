"""Runs mutants: each test that a mutant names must fail with the named error when the guard is removed.

    python -m pytest -p tests.mutants.plugin [--level unit] [--mutant PART_OF_A_NAME]

One process runs all mutants of a level on shared servers. Fixtures are set up with the guard; it is removed only during
the test's own call.
"""

import re
from collections.abc import Generator
from contextlib import suppress

import pymysql
import pytest

from millrace.deploy.servers import DatabaseServer
from tests.mutants.catalogue import LEVELS
from tests.mutants.mutant import Mutant

_TAKEN_AWAY = pytest.StashKey[tuple[Mutant, str]]()
_OPEN = "SELECT trx_mysql_thread_id FROM information_schema.INNODB_TRX"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The choice of mutants."""
    parser.addoption("--level", action="append", choices=LEVELS, help="all levels without it")
    parser.addoption("--mutant", default="", help="a part of the names of those that run")


def pytest_configure(config: pytest.Config) -> None:
    """Collect the files of the named tests, including those of chaos."""
    config.option.chaos = True
    paths = {str(config.rootpath / mutant.file) for mutant in _wanted(config)}
    config.args = sorted(paths)


def _wanted(config: pytest.Config) -> list[Mutant]:
    levels = config.option.level or LEVELS
    part: str = config.option.mutant
    return [mutant for level in levels for mutant in LEVELS[level] if part in mutant.name]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Replace the items by a copy of the named tests for each mutant. `make test` must run one of them."""
    mutated: list[pytest.Item] = []
    wrong: list[str] = []
    for mutant in _wanted(config):
        is_soon = False
        for test, harm in mutant.shows.items():
            node = f"{mutant.file}::{test}"
            named = [item for item in items if _is(item.nodeid, node)]
            if not named:
                wrong.append(f"mutant {mutant.name!r}: there is no test {node}")
            is_soon |= any(map(_runs_in_make_test, named))
            mutated += [_copy(item, mutant, harm) for item in named]
        if not is_soon:
            wrong.append(f"mutant {mutant.name!r}: all its tests run only in make chaos")
    if wrong:
        raise pytest.UsageError(*wrong)
    items[:] = mutated


def _is(nodeid: str, node: str) -> bool:
    return nodeid == node or nodeid.startswith(f"{node}[")


def _runs_in_make_test(item: pytest.Item) -> bool:
    """Whether `make test` runs it, or a part of its cases (``tests/conftest.py``)."""
    return all(mark.args for mark in item.iter_markers("chaos"))


def _copy(item: pytest.Item, mutant: Mutant, harm: str) -> pytest.Function:
    assert isinstance(item, pytest.Function)
    copied = pytest.Function.from_parent(
        item.parent,
        name=f"{item.name} without: {mutant.name}",
        callspec=getattr(item, "callspec", None),
        callobj=item.obj,
        fixtureinfo=item._fixtureinfo,
        originalname=item.originalname,
    )
    copied.stash[_TAKEN_AWAY] = (mutant, harm)
    return copied


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Pass if the test fails with the named error."""
    mutant, harm = pyfuncitem.stash[_TAKEN_AWAY]
    with pytest.MonkeyPatch.context() as patch:
        mutant.off(patch)
        try:
            yield
        except (Exception, pytest.fail.Exception) as seen:
            if re.search(harm, _words(seen)):
                return True
            raise AssertionError(f"red without {mutant.name!r}, but not by {harm!r}") from seen
    raise AssertionError(f"green without {mutant.name!r}")


def _words(seen: BaseException) -> str:
    """The text of an error, or of each error in a group (of Hypothesis)."""
    parts = seen.exceptions if isinstance(seen, BaseExceptionGroup) else ()
    return "\n".join([str(seen), *map(_words, parts)])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """End the server sessions that a removed guard left open: their locks would block the DROP DATABASE."""
    for server in getattr(item, "funcargs", {}).values():
        if isinstance(server, DatabaseServer) and server.is_alive():
            for (session,) in server.execute(_OPEN):
                with suppress(pymysql.Error):  # it has ended already
                    server.execute(f"KILL {session}")
