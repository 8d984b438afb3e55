"""Loads under a view by processes that are killed: the target has the rows of the view, each once.

The judge computes the view in Python from the source's rows, and reads the target with SELECTs. A table without a key
shows a row that was copied twice.
"""

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from millrace.consumer.load import prepare
from millrace.consumer.target import loads
from millrace.deploy.servers import DatabaseServer
from millrace.schemas.documents import LoadRules
from millrace.schemas.gtid import Flavour
from millrace.schemas.view.view import TableRule, View
from tests.fixtures.load import load_rig, source_of_one
from tests.fixtures.servers import FLAVOURS, Pool
from tests.kit.apply.live import (
    JOIN_STEPS,
    LiveTask,
    Source,
    kill_a_later_load,
    rows_on,
    rows_wanted,
)
from tests.kit.apply.loading import LoadRig
from tests.kit.apply.loads import waiting
from tests.kit.apply.topic import RecordStream
from tests.kit.forked import killed_at

NAME, HOUSE = "killedview", "killedview_house"
RULES = LoadRules(chunk_rows=40, parallel=1)
ROWS = 400
# with the passages at which a process can die, in an order in which none ends the load before its point
POINTS = (
    (loads.AFTER_PLAN, 1),
    (prepare.AFTER_CREATE, 1),
    (prepare.AFTER_CREATE, 1),
    (loads.BEFORE_CHUNK_COMMIT, 3),
    (loads.AFTER_CHUNK_COMMIT, 2),
    (loads.AFTER_FOUND, 2),
    (loads.BEFORE_CHUNK_COMMIT, 1),
    (loads.AFTER_TABLE, 1),
    (loads.BEFORE_STREAM, 1),
    (loads.AFTER_STREAM, 1),
)


@pytest.fixture
def rig(request: pytest.FixtureRequest, pool: Pool) -> Iterator[LoadRig]:
    """A source with a table of each kind; flavours in turn."""
    with load_rig(pool, source_of_one(pool, request.param), NAME) as made:
        made.target.execute(f"DROP DATABASE IF EXISTS {HOUSE}")
        users = TableRule(
            f"{NAME}.users",
            f"{HOUSE}.people",
            where="n % 3 <> 1",
            drop=("note",),
            rename=(("n", "number"),),
            add=(("shard", "{table}"),),
        )
        made.view = View((users, TableRule(f"{NAME}.bag", f"{HOUSE}.sack", where="n % 5 <> 2")))
        made.source.execute(f"CREATE TABLE {NAME}.users (id INT PRIMARY KEY, n INT, note TEXT)")
        made.source.execute(f"CREATE TABLE {NAME}.bag (n INT)")
        rows = ", ".join(f"({number}, {number * 7}, 'x')" for number in range(ROWS))
        made.source.execute(f"INSERT INTO {NAME}.users VALUES {rows}")
        rows = ", ".join(f"({number % 9})" for number in range(ROWS))
        made.source.execute(f"INSERT INTO {NAME}.bag VALUES {rows}")
        yield made
        made.target.execute(f"DROP DATABASE IF EXISTS {HOUSE}")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rig", FLAVOURS, indirect=True)
def test_killed_load_copies_each_row_of_the_view_once(rig: LoadRig, seed: int) -> None:
    """SIGKILL at every fault point of a load, at any passage; the next run continues."""
    chance = random.Random(seed)
    for point, passages in POINTS:
        fault = f"{point}:kill@{chance.randint(1, passages)}"
        killed_at(fault, lambda: rig.run(rules=RULES))
    rig.run(rules=RULES)
    found = rig.target.execute(f"SELECT id, number, shard FROM {HOUSE}.people ORDER BY id")
    assert found == [(n, n * 7, "users") for n in range(ROWS) if n * 7 % 3 != 1]
    bag = Counter(n for (n,) in rig.target.execute(f"SELECT n FROM {HOUSE}.sack"))
    assert bag == Counter(n % 9 for n in range(ROWS) if n % 9 % 5 != 2)


@pytest.mark.parametrize("point", JOIN_STEPS)
@pytest.mark.parametrize("flavour", Flavour)
def test_killed_driver_continues_a_later_load_under_a_view(
    request: pytest.FixtureRequest, flavour: Flavour, name: str, point: str
) -> None:
    """Rows cross the border of the view during the load; the next run finds each step made or not made."""
    server: DatabaseServer = request.getfixturevalue(f"{flavour}_server")
    source = Source(name, RecordStream(flavour), house=f"{name}_house")
    server.execute(f"CREATE DATABASE {source.house}")
    source.create(server, "t", "kept", "bag")
    source.transactions(20)
    live = LiveTask.of(server, source)
    live.run()
    kill_a_later_load(live, point, changes=20)
    assert rows_on(server, source) == rows_wanted(source)
    assert waiting(server, name) == set()
    server.execute(f"DROP DATABASE {source.house}")
