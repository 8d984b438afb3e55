"""Three brokers with each partition on all of them: a leader fails under load; no record is lost or repeated."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin._metadata import PartitionMetadata

from millrace.deploy.servers import KafkaCluster, KafkaServer
from millrace.schemas.documents.model import TopicOptions
from tests.kit.publisher.rig import Load, Rig, topic_named
from tests.kit.waiting import answered, eventually

TRANSACTION_STATE = "__transaction_state"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """Three brokers; a test restarts what it stops."""
    made = KafkaCluster(tmp_path_factory.mktemp("cluster"))
    try:
        made.start()
        yield made
    finally:
        made.discard()


@pytest.fixture
def rig(cluster: KafkaCluster, request: pytest.FixtureRequest) -> Rig:
    """A topic for this test, on all brokers."""
    rig = Rig(cluster.bootstrap, topic_named("cluster", request.node.name))
    rig.options = TopicOptions()  # the brokers' own settings
    rig.open(7).close()
    rig.limits = replace(rig.limits, publish_timeout_s=8.0, stable_timeout_s=8.0)
    eventually(lambda: _insync(rig, rig.topic, 0) == 3, what="three replicas")
    return rig


def _partitions(rig: Rig, topic: str) -> dict[int, PartitionMetadata]:
    """The partitions as any running broker reports them."""
    return answered(
        lambda: rig.admin.list_topics(topic, timeout=3).topics[topic].partitions, KafkaException
    )


def _insync(rig: Rig, topic: str, partition: int) -> int:
    return len(_partitions(rig, topic)[partition].isrs)


def leader_of_the_partition(rig: Rig) -> int:
    """The node that stores the records."""
    return _partitions(rig, rig.topic)[0].leader


def transaction_coordinator(rig: Rig) -> int:
    """The node that ends the transactions: the leader of the partition that the id hashes to."""
    partitions = _partitions(rig, TRANSACTION_STATE)
    code = 0
    for letter in rig.config(7).transactional_id:
        code = (31 * code + ord(letter)) & 0xFFFFFFFF  # Java's String.hashCode
    return partitions[(code & 0x7FFFFFFF) % len(partitions)].leader


def killed(server: KafkaServer) -> None:
    """kill -9."""
    server.kill()


def stopped(server: KafkaServer) -> None:
    """A clean stop: the broker hands its partitions over first."""
    server.stop()


def paused(server: KafkaServer) -> None:
    """SIGSTOP: the cluster declares it dead, and it resumes later."""
    server.pause()


@pytest.mark.chaos
@pytest.mark.parametrize("goes", [killed, stopped, paused])
@pytest.mark.parametrize("which", [leader_of_the_partition, transaction_coordinator])
def test_rows_continue_when_a_leading_broker_leaves_and_returns(
    cluster: KafkaCluster,
    rig: Rig,
    which: Callable[[Rig], int],
    goes: Callable[[KafkaServer], None],
) -> None:
    """The partition's leader or the transaction coordinator fails; the others continue."""
    load = Load(rig)
    try:
        load.wait_rows(100)
        server = cluster.servers[which(rig)]
        goes(server)
        try:
            load.wait_rows(100)  # the old leader may have confirmed one of these …
            eventually(lambda: which(rig) != server.node_id, what="a new leader")
            load.wait_rows(100)  # … and none of these
        finally:
            if goes is paused:
                server.resume()
            else:
                server.start()
        eventually(lambda: _insync(rig, rig.topic, 0) == 3, what="the broker has caught up")
        load.wait_rows(100)
    finally:
        seq = load.finish()
    rig.assert_whole(seq)
