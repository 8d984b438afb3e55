"""A load on Spark is stopped and resumed, as `millrace task pause` and `resume` do: a first load, then a later one."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from millrace.consumer.spark.session import SparkDriver
from millrace.consumer.target.loads import set_waiting
from millrace.deploy.servers import DatabaseSet, KafkaServer, sql
from millrace.drivers.mysql.connection import connect
from millrace.schemas.documents import ApplyRules, LoadRules
from tests.fixtures.load import load_rig
from tests.fixtures.servers import Pool
from tests.fixtures.spark import RunningTask
from tests.kit.apply.load_tables import COUNT, create_filled, definitions
from tests.kit.apply.loaded_topic import LoadedTopic
from tests.kit.apply.loading import LoadRig, busy
from tests.kit.apply.local import endpoint_of
from tests.kit.waiting import eventually

pytestmark = [pytest.mark.usefixtures("target_password"), pytest.mark.chaos]

RULES = ApplyRules(load=LoadRules(chunk_rows=40, parallel=2))
PROMPT_S = 30.0  # far less than the lock that a copy waits for, on a machine that does much else
HELD_S = 600


@pytest.fixture
def rig(source_set: DatabaseSet, pool: Pool) -> Iterator[LoadRig]:
    """A source with tables of each kind, and a target without them. Each flavour has its own topic."""
    with load_rig(pool, source_set, f"stopped_{source_set.flavour}") as made:
        create_filled(source_set, made.name)
        yield made


def test_stopped_loads_end_soon_and_continue_at_their_chunks(
    rig: LoadRig, spark: SparkDriver, kafka: KafkaServer, registry: str, tmp_path: Path
) -> None:
    """A copy of the first load waits for a lock of the target; the later load pauses because the target is busy."""
    name, target = rig.name, rig.target
    target.execute(f"CREATE DATABASE {name} DEFAULT CHARSET utf8mb4")
    target.execute(f"CREATE TABLE {name}.vacant ({definitions(name)['vacant']})")
    rig.source.execute(f"INSERT INTO {name}.vacant SELECT id FROM {name}.uniques")
    rig.source.execute(f"INSERT INTO {name}.uniques VALUES (9000, 9000)")
    topic = LoadedTopic(rig.source, target, name, kafka.bootstrap, registry, tmp_path)
    with topic.capturing() as documents:
        rig.source.execute(f"DELETE FROM {name}.uniques WHERE id = 9000")
        with sql.root_connection(target.socket, database=name) as lock:
            lock.cursor().execute(f"SET SESSION wait_timeout = {HELD_S}")
            lock.cursor().execute("BEGIN")
            lock.cursor().execute(f"INSERT INTO vacant VALUES ({COUNT // 2})")
            with topic.applying(spark, documents, RULES) as task:
                eventually(lambda: _done(task) > COUNT, what="chunks are copied")
                stopped_s = time.monotonic()
            assert time.monotonic() - stopped_s < PROMPT_S
            lock.cursor().execute("ROLLBACK")
        copied = sum(table.done.rows for table in rig.tables().values())
        assert copied > COUNT
        strict = ApplyRules(load=LoadRules(chunk_rows=40, parallel=2, max_threads_running=1))
        with ExitStack() as held:
            with topic.applying(spark, documents, strict) as task:
                topic.wait_until_applied(task)
                held.enter_context(busy(target))
                _let_wait(rig, "texts")
                eventually(lambda: _pauses(task), what="the later load pauses")
                stopped_s = time.monotonic()
            assert time.monotonic() - stopped_s < PROMPT_S
        with topic.applying(spark, documents, RULES) as task:
            eventually(
                lambda: task.failure is not None or not rig.tables(),
                what="the table has joined",
            )
            topic.wait_until_applied(task)
    for table in definitions(name):
        rows = [
            sorted(side.execute(f"SELECT * FROM {name}.{table}"), key=repr)
            for side in (rig.source.primary, target)
        ]
        assert rows[0] == rows[1], table


def _done(task: RunningTask) -> int:
    """Rows that the first load has copied."""
    assert task.failure is None, task.failure
    report = task.reported
    return 0 if report is None or report.loaded is None else report.loaded.rows


def _pauses(task: RunningTask) -> bool:
    """Whether a later load pauses, beside the changes that are applied."""
    assert task.failure is None, task.failure
    report = task.reported
    if report is None or report.loaded is None or not report.loaded.paused:
        return False
    assert report.applied is not None
    assert "max_threads_running is 1" in report.why
    return True


def _let_wait(rig: LoadRig, table: str) -> None:
    session = connect(endpoint_of(rig.target))
    set_waiting(session, rig.name, [(rig.name, table)], detail="again")
    session.commit()
    session.close()
