"""Comparison in threads and in executors of Spark: the same result, and a lost executor costs nothing."""

from collections.abc import Callable, Iterator

import pytest

from millrace.consumer.compare import (
    Comparison,
    Ends,
    Executors,
    Rules,
    Threads,
    Work,
    compare_sets,
    repair,
)
from millrace.consumer.compare.compare_order import CompareOrder
from millrace.consumer.compare.pool import Pool
from millrace.consumer.spark.session import SparkDriver
from millrace.deploy.servers import DatabaseServer
from millrace.errors import Retryable
from tests.fixtures.spark import armed
from tests.kit.apply.follower import Follower, following
from tests.kit.apply.local import endpoint_of
from tests.kit.waiting import PATIENCE_S

ROWS = 900
CHUNK_ROWS = 200
DAMAGE = (
    "UPDATE t SET v = 'damaged' WHERE id IN (5, 205, 899)",
    "DELETE FROM t WHERE id BETWEEN 300 AND 309",
    "INSERT INTO t VALUES (-1, 'extra'), (5000, 'extra')",
    "DELETE FROM bag WHERE v = 'v7' LIMIT 1",
)

MakePool = Callable[[Ends, SparkDriver], Pool]


def _threads(ends: Ends, _: SparkDriver) -> Pool:
    return Threads(ends, 2)


def _executors(ends: Ends, spark: SparkDriver) -> Pool:
    return Executors(spark.comparisons(ends.task), ends, 2)


@pytest.fixture
def follower(
    mariadb_server: DatabaseServer, target_server: DatabaseServer, name: str
) -> Iterator[Follower]:
    """Two servers with a damaged copy, and a task between them."""
    rows = ", ".join(f"({number}, 'v{number}')" for number in range(ROWS))
    for server in (mariadb_server, target_server):
        server.execute(f"CREATE DATABASE IF NOT EXISTS {name}")
        for table in ("t (id INT PRIMARY KEY, v VARCHAR(20))", "bag (id INT, v VARCHAR(20))"):
            server.execute(f"CREATE TABLE {table}", db=name)
            server.execute(f"INSERT INTO {table.split()[0]} VALUES {rows}", db=name)
    for statement in DAMAGE:
        target_server.execute(statement, db=name)
    with following(mariadb_server, target_server, name) as made:
        yield made
    mariadb_server.execute(f"DROP DATABASE {name}")


def _ends(follower: Follower) -> Ends:
    return Ends(
        endpoint_of(follower.source), endpoint_of(follower.target), follower.task, PATIENCE_S
    )


def _compared(follower: Follower, pool: Pool, *, repairs: bool = False) -> Comparison:
    rules = Rules(chunk_rows=CHUNK_ROWS, work=Work(repairs=repairs), pool=pool)
    return compare_sets(_ends(follower), lambda name, _: name == follower.task, rules=rules)


@pytest.mark.parametrize("make", [_threads, _executors])
def test_each_pool_finds_and_repairs_the_same(
    follower: Follower, spark: SparkDriver, make: MakePool
) -> None:
    """The differences and the counts do not depend on where chunks are compared."""
    found = _compared(follower, make(_ends(follower), spark))
    assert (found.tables, found.rows, found.difference_count) == (2, 2 * ROWS, 16)
    keys = {(one.table.rpartition(".")[2], one.what, one.key) for one in found.differences}
    assert keys == {
        *(("t", "different", str(key)) for key in (5, 205, 899)),
        *(("t", "missing", str(key)) for key in range(300, 310)),
        *(("t", "extra", str(key)) for key in (-1, 5000)),
        ("bag", "missing", "7,'v7'"),
    }
    repaired = _compared(follower, make(_ends(follower), spark), repairs=True)
    assert (repaired.difference_count, repaired.repaired) == (16, 16)
    assert _compared(follower, make(_ends(follower), spark)).has_equal_rows


@pytest.mark.chaos
def test_killed_executor_repeats_its_chunk(follower: Follower, spark: SparkDriver) -> None:
    """The Python worker dies by SIGKILL after it has committed a repair; the rest is found and repaired."""
    fault = f"{repair.AFTER_COMMIT}:kill"
    lost: list[str] = []

    class Dying:
        """The first order runs in a process that dies."""

        def __init__(self) -> None:
            self.orders = spark.comparisons(follower.task)

        def call(self, order: CompareOrder) -> object:
            """See ``Orders``."""
            if lost:
                return self.orders.call(order)
            try:
                with armed(spark, fault):
                    return self.orders.call(order)
            except Retryable as exc:
                lost.append(exc.code)
                raise

        def stop(self) -> None:
            """See ``Orders``."""
            self.orders.stop()

    found = _compared(follower, Executors(Dying(), _ends(follower), 1), repairs=True)
    assert lost == ["MR-5050"]
    recorded = f"SELECT COUNT(*) FROM millrace.repair WHERE task = '{follower.task}'"
    assert follower.target.execute(recorded) == [(16,)]
    assert 0 < found.repaired < 16
    assert _compared(follower, Threads(_ends(follower), 2)).has_equal_rows


@pytest.mark.chaos
def test_lost_executors_end_the_comparison_with_a_code(
    follower: Follower, spark: SparkDriver
) -> None:
    """A chunk that ends its executor each time is not repeated for ever."""
    pool = Executors(spark.comparisons(follower.task), _ends(follower), 1)
    with armed(spark, f"{repair.LOCKED}:kill"), pytest.raises(Retryable) as caught:
        _compared(follower, pool, repairs=True)
    assert caught.value.code == "MR-5050"
