"""Source and target are compared beside a task: on Spark by itself, and until the task ends."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from millrace.consumer.checks import compare
from millrace.consumer.checks.compare import check_compare
from millrace.consumer.checks.load import RowsUse
from millrace.consumer.compare import task_comparison
from millrace.consumer.compare.single_run import TaskComparer
from millrace.consumer.compare.task_comparison import Comparisons
from millrace.consumer.load.load import RowSource
from millrace.consumer.spark.session import SparkDriver
from millrace.deploy.servers import DatabaseServer, DatabaseSet, KafkaServer
from millrace.drivers.mysql.connection import connect
from millrace.schemas.documents import (
    ApplyRules,
    Brokers,
    CaptureTask,
    CompareRules,
    Directives,
    TableFilter,
    TopicAddress,
)
from millrace.schemas.stages import ComparedResult
from tests.fixtures.load import load_rig
from tests.fixtures.servers import Pool
from tests.fixtures.spark import OneSet, RunningTask
from tests.kit.apply.follower import following
from tests.kit.apply.loaded_topic import LoadedTopic
from tests.kit.apply.loading import LOADER, LoadRig, source_document
from tests.kit.apply.local import apply_task, endpoint_of
from tests.kit.waiting import eventually

pytestmark = pytest.mark.usefixtures("target_password")

ROWS = 300
EVERY_HOUR = CompareRules(every_h=1)


@pytest.fixture
def rig(source_set: DatabaseSet, pool: Pool, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoadRig]:
    """A source with one table, and a target of its flavour without it."""
    monkeypatch.setattr(task_comparison, "LOOK_S", 0.5)
    with load_rig(pool, source_set, f"beside{source_set.flavour}") as made:
        rows = ", ".join(f"({number}, 'v')" for number in range(ROWS))
        source_set.execute(f"CREATE TABLE {made.name}.t (id INT PRIMARY KEY, v CHAR(1))")
        source_set.execute(f"INSERT INTO {made.name}.t VALUES {rows}")
        yield made


def test_task_compares_by_itself_when_it_is_due(
    rig: LoadRig, spark: SparkDriver, kafka: KafkaServer, registry: str, tmp_path: Path
) -> None:
    """After its load, an hour later, and after a restart, which also lets it repair. The task runs on."""
    topic = LoadedTopic(rig.source, rig.target, rig.name, kafka.bootstrap, registry, tmp_path)
    with topic.capturing() as documents:
        with topic.applying(spark, documents, ApplyRules(compare=EVERY_HOUR)) as task:
            first = _next_result(task, 0)
            assert (first.counts.tables, first.counts.rows, first.left) == (1, ROWS, 0)
            rig.target.execute(f"DELETE FROM {rig.name}.t WHERE id < 2")
            _pass_an_hour(rig)
            second = _next_result(task, first.ended_ms)
            assert (second.left, second.by_table) == (2, ((f"{rig.name}.t", 2),))
            warnings = task.reported.warnings if task.reported else ()
            assert [f"2 differences ({rig.name}.t 2)" in text for text in warnings] == [True]
        repairing = ApplyRules(compare=replace(EVERY_HOUR, repair=True))
        with topic.applying(spark, documents, repairing) as again:
            again.epoch = 2
            eventually(lambda: _result(again) == second, what="the result after a restart")
            _pass_an_hour(rig)
            third = _next_result(again, second.ended_ms)
            assert (third.counts.differences, third.counts.repaired) == (2, 2)
            assert rig.target.execute(f"SELECT COUNT(*) FROM {rig.name}.t") == [(ROWS,)]
            assert again.reported is not None
            assert again.reported.warnings == ()
            assert again.failure is None


def test_check_finds_what_a_comparison_needs(rig: LoadRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The GRANT of the finding is the fix. A small packet of either server is found."""
    task = replace(apply_task(rig.name), rules=ApplyRules(compare=EVERY_HOUR))
    captured = CaptureTask(
        name="c",
        set_name="source",
        output=TopicAddress(topic="t", brokers=Brokers("")),
        tables=TableFilter((f"{rig.name}.*",)),
    )
    documents = (
        source_document("source", rig.source.members),
        OneSet(rig.target).set_document("target"),
    )

    def findings() -> list[tuple[str, str]]:
        found = check_compare(RowsUse(task, captured, *documents, Directives()))
        return [(each.code, each.fix) for each in found if each.code]

    rig.owner()
    assert findings() == []
    account = f"`{LOADER.user}`@`%`"
    rig.source.execute(f"REVOKE SELECT ON `{rig.name}`.* FROM {account}")
    ((code, fix),) = findings()
    assert (code, fix) == ("MR-5007", f"GRANT SELECT ON `{rig.name}`.* TO {account};")
    rig.source.execute(fix.rstrip(";"))
    monkeypatch.setattr(compare, "PACKET_BYTES_MIN", 1 << 40)
    assert [code for code, _ in findings()] == ["MR-5121", "MR-5121"]


def _result(task: RunningTask) -> ComparedResult | None:
    assert task.failure is None, task.failure
    stage = task.reported.compared if task.reported else None
    return stage.result if stage else None


def _next_result(task: RunningTask, after_ms: int) -> ComparedResult:
    """The result of the first comparison that ends after this time."""
    found: list[ComparedResult] = []

    def is_there() -> bool:
        result = _result(task)
        if result is not None and result.ended_ms > after_ms:
            found.append(result)
        return bool(found)

    eventually(is_there, what="the next comparison")
    return found[0]


def _pass_an_hour(rig: LoadRig) -> None:
    """Let the last comparison have ended an hour earlier, by the target's clock."""
    rig.target.execute(
        "UPDATE millrace.compare_run SET last_ended = last_ended - INTERVAL 1 HOUR WHERE task = %s",
        (rig.name,),
    )


def test_end_of_a_task_breaks_a_waiting_comparison(
    mariadb_server: DatabaseServer, target_server: DatabaseServer, name: str
) -> None:
    """It waits for a table that another session has locked. The next run continues it."""
    for server in (mariadb_server, target_server):
        server.execute(f"CREATE DATABASE IF NOT EXISTS {name}")
        server.execute("CREATE TABLE t (id INT PRIMARY KEY)", db=name)
        server.execute("INSERT INTO t VALUES (1), (2)", db=name)
    task = replace(apply_task(name), rules=ApplyRules(compare=EVERY_HOUR))
    captured = CaptureTask(
        name="c",
        set_name="source",
        output=TopicAddress(topic="t", brokers=Brokers("")),
        tables=TableFilter((f"{name}.*",)),
    )
    origin = RowSource(OneSet(mariadb_server).set_document("source"), captured, Directives)

    def comparisons() -> Comparisons:
        comparer = TaskComparer(task, lambda: origin, lambda: endpoint_of(target_server))
        return Comparisons(comparer, name, EVERY_HOUR)

    with following(mariadb_server, target_server, name):
        first = comparisons()
        with closing(connect(endpoint_of(mariadb_server), database=name)) as session:
            session.query("LOCK TABLES t WRITE")
            first.start()
            eventually(lambda: _waits_for_a_lock(mariadb_server), what="the comparison waits")
            first.end()
            assert not first.is_alive()
            assert first.comparing.trouble is None
        second = comparisons()
        second.start()
        eventually(lambda: (stage := second.comparing.stage) and stage.result, what="the result")
        second.end()
        stage = second.comparing.stage
    assert stage is not None
    assert stage.result is not None
    assert (stage.result.counts.rows, stage.result.counts.differences) == (2, 0)
    mariadb_server.execute(f"DROP DATABASE {name}")


def _waits_for_a_lock(server: DatabaseServer) -> bool:
    waiting = "SELECT 1 FROM information_schema.PROCESSLIST WHERE STATE LIKE 'Waiting for table metadata lock'"
    return bool(server.execute(waiting))
