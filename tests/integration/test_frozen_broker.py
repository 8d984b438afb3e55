"""A broker that freezes: the status of a task names it, and shows no lag of 0."""

from contextlib import ExitStack

import pytest

from millrace.deploy.servers import DatabaseServer, KafkaServer
from millrace.drivers.kafka.reader import TopicIdentity
from millrace.errors import Retryable
from millrace.schemas.documents import Brokers
from millrace.schemas.status import TaskReport
from tests.fixtures.shell import Shell
from tests.kit.capture.task_stage import TaskStage, use_memory_registry
from tests.kit.publisher.rig import Rig


def _waits_s(report: TaskReport) -> float:
    return report.published.waits_s if report.published is not None else 0.0


def test_frozen_broker_is_named_long_before_the_timeout(
    mariadb_server: DatabaseServer,
    new_kafka: KafkaServer,
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A commit waits up to 20 s. Nothing is lost or repeated when the broker answers again."""
    use_memory_registry(monkeypatch)
    with ExitStack() as stack:
        rig = Rig(new_kafka.bootstrap, "frozen")
        scene = TaskStage(mariadb_server, shell.ensemble, rig, shell.folder, stack)
        with scene.worker("w1"):
            scene.write(2)
            rig.wait_seq(2)
            scene.wait(lambda report: report.why == "waits for changes", "caught up")
            new_kafka.pause()
            try:
                scene.write(1)
                report = scene.wait(
                    lambda report: "waits for Kafka" in report.why and _waits_s(report) > 1.0,
                    "waits for Kafka",
                )
            finally:
                new_kafka.resume()
            assert report.published is not None
            assert report.published.lag_s is not None
            assert report.published.lag_s > 1.0
            rig.wait_seq(3)
            new_kafka.pause()  # the task has nothing to send, and asks for the end of the topic
            try:
                scene.wait(lambda report: "waits for Kafka" in report.why, "waits for Kafka")
            finally:
                new_kafka.resume()
            scene.wait(lambda report: report.why == "waits for changes", "caught up")
        assert rig.verdict().violations == []


def test_end_of_a_frozen_topic_is_unknown(new_kafka: KafkaServer) -> None:
    """The client returns a negative offset after its timeout; an apply task took it for an empty backlog."""
    rig = Rig(new_kafka.bootstrap, "frozen-end")
    rig.recreate()
    topic = TopicIdentity(Brokers(new_kafka.bootstrap), "frozen-end")
    try:
        assert topic.end() == 0
        new_kafka.pause()
        with pytest.raises(Retryable) as caught:
            topic.end()
    finally:
        new_kafka.resume()
        topic.close()
    assert caught.value.code == "MR-3501"
    assert "_TIMED_OUT" in caught.value.message
