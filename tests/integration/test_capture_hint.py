"""A task's status remembers its topic: from the publisher through ZooKeeper to the next owner's publisher.

Scheduler, workers and capture run in this process, on a real source, broker and ZooKeeper. Schema ids come from memory.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from millrace.deploy.servers import DatabaseServer, KafkaServer
from millrace.errors import Fatal, Retryable
from millrace.producer.publish.positions import ChangeRecord, progress_after
from millrace.producer.publish.publisher import Publisher, RecordBatchLike
from millrace.producer.task import capture
from millrace.schemas.documents import (
    HeartbeatRules,
)
from millrace.schemas.gtid import Flavour, parse_gtid_set
from millrace.schemas.record.control import RecordKind
from millrace.schemas.record.framing import peek_kind
from millrace.schemas.record.row_end import read_row_end
from millrace.schemas.status import TaskReport, TaskState
from millrace.zk.client.session import Session
from millrace.zk.ensemble import Ensemble
from millrace.zk.tree.paths import Tree
from millrace.zk.tree.reports import read_status
from millrace.zk.tree.store import Outcome
from tests.kit.capture.task_stage import TASK, TaskStage, use_memory_registry
from tests.kit.capture.topic_rows import Batch
from tests.kit.publisher.rig import Rig, topic_named
from tests.kit.waiting import eventually


@pytest.fixture
def stage(
    mariadb_server: DatabaseServer,
    kafka: KafkaServer,
    ensemble: Ensemble,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[TaskStage]:
    """No worker is running yet."""
    use_memory_registry(monkeypatch)
    rig = Rig(kafka.bootstrap, topic_named("hint", request.node.name))
    with ExitStack() as stack:
        yield TaskStage(mariadb_server, ensemble, rig, tmp_path, stack)


def test_capture_resumes_from_status_after_retention_removed_everything(
    stage: TaskStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """End to end: publisher, last report, ZooKeeper, a second worker whose first tries fail, its publisher."""
    monkeypatch.setattr(capture, "REPORT_S", 1000.0)  # no report between the first and the last
    left = stage.run_once("w1", 5)
    assert left.topic == stage.rig.topic
    low = stage.rig.remove_before()
    assert (left.seq, left.topic_end) == (5, low)
    stage.write(3)
    with stage.worker("w2", is_away=True) as away:
        stage.wait(lambda report: report.state is TaskState.DEGRADED, "degraded")
        eventually(lambda: away.failures >= 2, what="two tries")
        away.is_away = False
        stage.rig.wait_seq(8)
    found = stage.rig.verdict()
    assert (found.violations, found.first_seq, found.last_seq) == ([], 6, 8)


def test_heartbeats_move_the_reported_progress_and_publish_no_row(stage: TaskStage) -> None:
    """The task publishes every table, and the heartbeat table is none of the application's."""
    document = stage.store.set_document("shop")
    heartbeat = HeartbeatRules(database=stage.database, interval_s=1)
    stage.store.create_set(replace(document, heartbeat=heartbeat), replace=True)
    with stage.worker("w1"):
        stage.write(1)
        stage.rig.wait_seq(1)
        query = f"SELECT sequence FROM {heartbeat.table}"
        eventually(lambda: stage.server.execute(query) >= [(3,)], what="three heartbeats")
        reached = parse_gtid_set(Flavour.MARIADB, stage.server.gtid_position())

        def has_passed(report: TaskReport) -> bool:
            return parse_gtid_set(Flavour.MARIADB, report.gtid_set).includes(reached)

        report = stage.wait(has_passed, "past three heartbeats")
        assert not [warning for warning in report.warnings if "MR-1047" in warning]
    found = stage.rig.verdict()
    assert (found.violations, found.last_seq, report.seq) == ([], 1, 1)


def test_deleted_topic_blocks_until_the_task_names_a_new_one(stage: TaskStage) -> None:
    """MR-3017, and no topic is created; with a new topic in its document the task starts there."""
    stage.run_once("w1", 5)
    stage.rig.delete()
    with stage.worker("w2"):
        report = stage.wait(lambda report: report.state is TaskState.BLOCKED, "blocked")
        assert report.code == "MR-3017"
        assert (report.seq, report.topic) == (5, stage.rig.topic)
        assert not stage.rig.exists()
        stage.rig.topic += "-2"
        elsewhere = replace(stage.task.output, topic=stage.rig.topic)
        done = stage.store.create_task(replace(stage.task, output=elsewhere), replace=True)
        assert done is Outcome.REPLACED
        stage.wait(
            lambda report: report.topic == stage.rig.topic and report.seq >= 5,
            "the new topic is written",
        )
    stage.rig.assert_whole(5)


def test_topic_emptied_mid_transaction_is_not_restarted(
    stage: TaskStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status shows that records existed but not where they ended: the task blocks and does not start at seq 1."""
    add = Publisher.add

    def publish_a_part(publisher: Publisher, batch: RecordBatchLike) -> None:
        octets = batch.buffer.tobytes()
        values = [octets[start:stop] for _, _, start, stop in batch.bounds.tolist()]
        rows = [at for at, value in enumerate(values) if peek_kind(value) is RecordKind.ROW]
        if not rows:  # only the position moves
            add(publisher, batch)
            return
        second = rows[1]
        row = read_row_end(values[second])
        step = ChangeRecord(row.gtid, row.total_order, row.last, row.seq)
        part = batch.bounds[: second + 1]
        add(publisher, Batch(batch.buffer, part, progress_after(publisher.progress, step)))
        publisher.commit()
        raise Fatal("MR-3009", "enough of it")

    monkeypatch.setattr(Publisher, "add", publish_a_part)
    stage.server.execute(f"INSERT INTO {stage.database}.t VALUES (1), (2), (3)")
    with stage.worker("w1"):
        left = stage.wait(lambda report: report.code == "MR-3009", "a part is published")
    assert (left.topic_end, left.seq) == (0, 2)
    stage.rig.delete()
    stage.rig.recreate()
    stage.store.resume(TASK)
    with stage.worker("w2"):
        stage.wait(lambda report: report.code == "MR-3017", "blocked")
    assert stage.rig.verdict().counts.records == 0


def test_unreadable_status_is_not_overwritten(
    stage: TaskStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ZooKeeper fails between lease and status read; the run is retried and the remembered status stays."""
    left = stage.run_once("w1", 5)
    tries: list[bool] = []

    def away_at_first(session: Session, tree: Tree, task: str) -> object:
        tries.append(True)
        if len(tries) <= 2:
            raise Retryable("MR-4001", "ZooKeeper can't be asked")
        return read_status(session, tree, task)

    monkeypatch.setattr("millrace.zk.run.slot.read_status", away_at_first)
    with stage.worker("w2", is_away=True):
        report = stage.wait(lambda report: report.code == "MR-1001", "its runner is tried")
    assert len(tries) == 3
    assert (report.seq, report.topic_end) == (left.seq, left.topic_end)
