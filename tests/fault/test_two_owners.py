"""Two owners of one capture task: the former owner writes nothing, even if it can't reach ZooKeeper.

Real capture with a real source, broker and ensemble under load; a subscriber reads every topic back.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka import KafkaException

from millrace.consumer.topic.verify import Check
from millrace.deploy.servers import DatabaseServer, KafkaServer, ZooKeeperServer
from millrace.drivers.kafka.names import transactional_id
from millrace.errors import Fenced, MillraceError, Retryable
from millrace.producer.publish.config import PublisherConfig, publisher_config
from millrace.producer.task import capture
from millrace.schemas.documents import Brokers
from millrace.schemas.status import TaskState
from millrace.zk.client.session import Session, SessionState
from millrace.zk.ensemble import Ensemble
from millrace.zk.lease.epoch import raise_generation
from millrace.zk.tree.store import Store
from tests.kit.capture.cluster import CaptureCluster, Fence, Source
from tests.kit.control.control import BRIEF_S, QUICK, end_session, end_session_at, scheduled
from tests.kit.control.line import Line
from tests.kit.waiting import eventually


@pytest.fixture
def session(ensemble: Ensemble) -> Iterator[Session]:
    """The test's own session."""
    with ensemble.session() as session:
        yield session


@pytest.fixture
def source(cluster: CaptureCluster, single_server: DatabaseServer) -> Source:
    """One source under load."""
    return cluster.add_source(single_server)


# a slow commit would end it too: a new instance needs the lease
@pytest.mark.usefixtures("trusting")
@pytest.mark.parametrize("how", ["cut", pytest.param("swallowed", marks=pytest.mark.chaos)])
def test_kafka_fences_a_worker_cut_off_from_zookeeper(
    cluster: CaptureCluster, session: Session, source: Source, how: str
) -> None:
    """Rows continue until another worker has the task; then Kafka fences the former owner, whose lease still seems
    valid. When its connection recovers it is a worker again and writes nothing more."""
    ensemble = cluster.ensemble
    cluster.create(session)
    with (
        Line(int(ensemble.hosts.rpartition(":")[2])) as line,
        replace(ensemble, hosts=line.hosts).session() as cut_off,
        ensemble.session() as of_second,
        ensemble.session() as of_scheduler,
        scheduled(of_scheduler, ensemble.tree),
        cluster.worker(cut_off, "first") as first,
    ):
        before = cluster.run_all(session)[source.name]
        source.wait_for_rows()
        line.cut() if how == "cut" else line.swallow()
        eventually(lambda: first.supervisor.reports()[source.name].state is TaskState.DEGRADED)
        end_session_at(ensemble, session, ensemble.tree.owner(source.name))
        eventually(lambda: session.get(ensemble.tree.owner(source.name)) is None)
        source.wait_for_rows()
        assert first.witness.ends == []

        with cluster.worker(of_second, "second") as second:
            eventually(lambda: len(first.witness.ends) == 1, what="the first is fenced")
            after = cluster.run_all(session)[source.name]
            assert after.worker == "second"
            assert after.epoch > before.epoch
            (fenced,) = first.witness.ends
            causes = _causes(fenced.error)
            assert causes[0] in ("MR-3003", "MR-3010") or (
                causes == ["MR-4001", "MR-3002", "UNKNOWN"]
                and _was_fenced_during_commit(cluster.kafka, source, "first")
            ), causes
            assert (fenced.is_held, fenced.session) == (True, SessionState.SUSPENDED)
            eventually(lambda: "waits for its lease" in first.supervisor.reports()[source.name].why)

            line.heal()
            eventually(lambda: session.get(ensemble.tree.worker("first")) is not None)
            eventually(lambda: first.supervisor.reports() == {})
            source.wait_for_rows()
            assert first.witness.starts == [(source.name, before.epoch)]
            assert second.witness.starts == [(source.name, after.epoch)]
            cluster.assert_whole()
    assert source.fences() == [Fence(before.epoch, "first"), Fence(after.epoch, "second")]


@pytest.mark.chaos
@pytest.mark.usefixtures("trusting")
def test_separate_transactional_ids_would_let_both_owners_write(
    cluster: CaptureCluster,
    session: Session,
    source: Source,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a transactional id for each owner, Kafka lets both write, and a subscriber detects it in the topic."""

    def by_epoch(*task: Any, **given: Any) -> PublisherConfig:
        config = publisher_config(*task, **given)
        return replace(config, transactional_id=f"{config.transactional_id}/{config.epoch}")

    monkeypatch.setattr(capture, "publisher_config", by_epoch)
    ensemble = cluster.ensemble
    cluster.create(session)
    with (
        Line(int(ensemble.hosts.rpartition(":")[2])) as line,
        replace(ensemble, hosts=line.hosts).session() as cut_off,
        ensemble.session() as of_second,
        ensemble.session() as of_scheduler,
        scheduled(of_scheduler, ensemble.tree),
        cluster.worker(cut_off, "first"),
    ):
        cluster.run_all(session)
        source.wait_for_rows()
        line.cut()
        end_session_at(ensemble, session, ensemble.tree.owner(source.name))
        eventually(lambda: session.get(ensemble.tree.owner(source.name)) is None)
        with cluster.worker(of_second, "second"):
            eventually(lambda: _harms(source) & {Check.OWNER, Check.SEQ, Check.ONCE})


@pytest.mark.guarantee("fenced")
def test_two_tasks_on_one_topic_fence_each_other(
    cluster: CaptureCluster, session: Session, source: Source
) -> None:
    """The second task names the broker by another address, so no check can find the clash. Each owner fences the one
    before, the topic stays whole, and after one task is deleted the other continues."""
    ensemble = cluster.ensemble
    cluster.create(session)
    tireless = replace(QUICK, fenced_max=10_000)  # neither is blocked before the test has checked
    _, task = cluster.documents(source)
    bootstrap = task.output.brokers.bootstrap.replace("127.0.0.1", "127.1")
    assert bootstrap != task.output.brokers.bootstrap
    twin = replace(
        task, name=f"{task.name}-twin", output=replace(task.output, brokers=Brokers(bootstrap))
    )
    with (
        ensemble.session() as own,
        ensemble.session() as of_scheduler,
        scheduled(of_scheduler, ensemble.tree),
        cluster.worker(own, "only", pace=tireless) as worker,
    ):
        cluster.run_all(session)
        source.wait_for_rows()
        Store(session, ensemble.tree).create_task(twin)
        eventually(lambda: len(source.fences()) >= 3, what="each has owned the topic")
        assert {name for name, _ in worker.witness.starts} == {task.name, twin.name}
        Store(session, ensemble.tree).delete(twin.name)
        source.wait_for_rows()
        cluster.assert_whole()
    errors = [ending.error for ending in worker.witness.ends]
    # Retryable: a run that is told to end while it opens the topic
    assert all(isinstance(error, Fenced | Retryable | None) for error in errors), errors
    epochs = [fence.epoch for fence in source.fences()]
    assert epochs == sorted(set(epochs))


def test_killed_session_restarts_capture_under_a_new_epoch(
    cluster: CaptureCluster, session: Session, source: Source
) -> None:
    """In the middle of the stream: the run ends, the next one has a greater epoch, fences and reads the tail."""
    ensemble = cluster.ensemble
    cluster.create(session)
    with (
        ensemble.session() as own,
        ensemble.session() as of_scheduler,
        scheduled(of_scheduler, ensemble.tree),
        cluster.worker(own, "only") as worker,
    ):
        starts = worker.witness.starts
        for count in (1, 2, 3):
            eventually(partial(_runs, cluster, session, source, starts, count))
            source.wait_for_rows()
            if count < 3:
                end_session(ensemble.hosts, own.id)
        assert len(starts) == 3
        epochs = [epoch for _, epoch in starts]
        assert epochs == sorted(set(epochs))
        assert [ending.epoch for ending in worker.witness.ends] == epochs[:-1]
        cluster.assert_whole()
    assert source.fences() == [Fence(epoch, "only") for epoch in epochs]


@pytest.mark.chaos
@pytest.mark.usefixtures("trusting")
def test_older_epoch_never_wins_after_ensemble_data_loss(
    cluster: CaptureCluster, session: Session, source: Source, new_zookeeper: ZooKeeperServer
) -> None:
    """Rows continue without the ensemble. A new ensemble counts epochs from the beginning, and the topic has a greater
    one: the task is blocked with a fix, and runs after it; no row is lost, repeated or out of order."""
    ensemble = cluster.ensemble
    raise_generation(session, ensemble.tree)
    cluster.create(session)
    brief = replace(ensemble, session_timeout_s=BRIEF_S)
    with (
        ensemble.session() as own,  # it lasts until all data is lost: each new session would add a fence
        brief.session() as of_scheduler,
        scheduled(of_scheduler, ensemble.tree),
        cluster.worker(own, "only"),
    ):
        before = cluster.run_all(session)[source.name]
        source.wait_for_rows()
        new_zookeeper.lose_everything()
        source.wait_for_rows()
        new_zookeeper.start()
        with ensemble.session() as fresh:
            # the new ensemble reports the lost session only after a session timeout
            eventually(
                lambda: fresh.get(ensemble.tree.worker("only")) is not None,
                what="the worker joins the new ensemble",
            )
            cluster.create(fresh)
            eventually(lambda: cluster.reports(fresh)[source.name].state is TaskState.BLOCKED)
            blocked = cluster.reports(fresh)[source.name]
            assert blocked.code == "MR-4006"
            assert blocked.epoch < before.epoch
            assert source.fences() == [Fence(before.epoch, "only")]
            raise_generation(fresh, ensemble.tree)
            assert raise_generation(fresh, ensemble.tree) == 3
            Store(fresh, ensemble.tree).resume(source.name)
            after = cluster.run_all(fresh)[source.name]
            source.wait_for_rows()
        cluster.assert_whole()
    assert source.fences() == [Fence(before.epoch, "only"), Fence(after.epoch, "only")]
    assert after.epoch > before.epoch


def _was_fenced_during_commit(kafka: KafkaServer, source: Source, worker: str) -> bool:
    """Whether the broker failed a commit while it fenced the producer: only its log shows this. A new instance would
    report it, but none is made while the lease can't be verified."""
    request = f"clientId=millrace-{worker},", f"transactionalId='{transactional_id(source.name)}'"
    logged = (kafka.folder / "log").read_text(errors="replace").splitlines()
    return any(
        "apiKey=END_TXN" in line
        and all(word in line for word in request)
        and "PREPARE_EPOCH_FENCE" in failure
        for line, failure in pairwise(logged)
    )


def _causes(error: BaseException | None) -> list[str]:
    """The codes of the error and of its causes; Kafka's error name comes last."""
    found: list[str] = []
    while error is not None and len(found) < 9:
        if isinstance(error, MillraceError):
            found.append(error.code)
        elif isinstance(error, KafkaException):
            found.append(error.args[0].name())
        error = error.__cause__ or error.__context__
    return found


def _harms(source: Source) -> set[Check]:
    """The checks that a subscriber has found violated so far."""
    return {violation.check for violation in source.followed.look().violations}


def _runs(
    cluster: CaptureCluster,
    session: Session,
    source: Source,
    starts: list[tuple[str, int]],
    count: int,
) -> bool:
    """Whether the task was started ``count`` times, and its status shows the last start as running."""
    report = cluster.reports(session)[source.name]
    return len(starts) == count and (report.state, report.epoch) == (
        TaskState.RUNNING,
        starts[-1][1],
    )
