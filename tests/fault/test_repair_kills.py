"""`millrace compare --repair` dies by SIGKILL at each of its fault points: batches are whole, and apply continues."""

import pytest

from millrace.consumer.compare import Ends, Rules, Threads, Work, compare_sets, repair
from millrace.deploy.servers import DatabaseServer
from tests.kit.apply.follower import following
from tests.kit.apply.local import endpoint_of
from tests.kit.forked import killed_at
from tests.kit.waiting import PATIENCE_S

POINTS = (repair.LOCKED, repair.BEFORE_COMMIT, repair.AFTER_COMMIT)


@pytest.mark.parametrize("point", POINTS)
def test_killed_repair_leaves_whole_batches_and_no_lock(
    mariadb_server: DatabaseServer, target_server: DatabaseServer, name: str, point: str
) -> None:
    """250 missing rows are three batches. The second comparison repairs what the killed one left."""
    rows = ", ".join(f"({number}, 'v')" for number in range(250))
    for server in (mariadb_server, target_server):
        server.execute(f"CREATE DATABASE IF NOT EXISTS {name}")
        server.execute("CREATE TABLE t (id INT PRIMARY KEY, v CHAR(1))", db=name)
    mariadb_server.execute(f"INSERT INTO t VALUES {rows}", db=name)

    def count() -> object:
        return target_server.execute("SELECT COUNT(*) FROM t", db=name)[0][0]

    ends = Ends(endpoint_of(mariadb_server), endpoint_of(target_server), name, PATIENCE_S)
    rules = Rules(work=Work(repairs=True), pool=Threads(ends, 1))

    def run() -> object:
        return compare_sets(ends, lambda database, _: database == name, rules=rules)

    with following(mariadb_server, target_server, name):
        killed_at(f"{point}:kill@2", run)
        assert count() == (200 if point == repair.AFTER_COMMIT else 100)
        lock = f"SELECT run FROM millrace.fence WHERE task = '{name}' FOR UPDATE NOWAIT"
        assert len(target_server.execute(lock)) == 1
        run()
        assert count() == 250
    recorded = f"SELECT COUNT(*) FROM millrace.repair WHERE task = '{name}'"
    assert target_server.execute(recorded) == [(250,)]
    mariadb_server.execute(f"DROP DATABASE {name}")
