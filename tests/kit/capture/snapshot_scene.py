"""A capture task with snapshots over restless tables, and the comparison of a subscriber's copy with the source."""

from dataclasses import replace

from millrace.consumer.topic.verify import Summary, TopicVerifier
from millrace.deploy.servers import DatabaseServer
from millrace.drivers.kafka.reader import TopicReader
from millrace.schemas.documents import Brokers, Snapshot
from millrace.zk.tree.store import Store
from tests.kit.capture.cluster import CaptureCluster, Source
from tests.kit.capture.restless import TABLES, Restless
from tests.kit.capture.topic_copy import TopicCopy
from tests.kit.waiting import eventually


def begin(cluster: CaptureCluster, server: DatabaseServer, rows: int) -> tuple[Source, Restless]:
    """Tables with rows that are older than the task's start."""
    source = cluster.add_source(server, every_s=0.2)
    restless = Restless(server, source.name, rows)
    restless.fill()
    server.execute(f"CREATE TABLE {source.name}.keyless (v INT)")
    server.execute(f"INSERT INTO {source.name}.keyless VALUES (1)")
    source.start = server.gtid_position()
    return source, restless


def create(cluster: CaptureCluster, store: Store, source: Source, snapshot: Snapshot) -> None:
    """The set, and a task that takes a snapshot or none."""
    document, task = cluster.documents(source)
    store.create_set(document)
    store.create_task(replace(task, snapshot=snapshot))


def verified(bootstrap: str, topic: str) -> Summary:
    """The verifier's findings about the whole topic."""
    verifier = TopicVerifier(from_beginning=True)
    reader = TopicReader(Brokers(bootstrap), topic)
    try:
        for chunk in reader.chunks(0, reader.ends().stable):
            for record in chunk:
                verifier.feed(record.offset, record.key, record.value)
    finally:
        reader.close()
    return verifier.finish()


def assert_equal(copy: TopicCopy, restless: Restless) -> None:
    """The copy has exactly the source's rows, once it has read everything."""
    restless.stop()
    wanted = restless.tables()
    try:
        eventually(
            lambda: {name: copy.look().table(name) for name in TABLES} == wanted,
            every_s=0.2,
            what="the copy equals the source",
        )
    except AssertionError:
        for name in TABLES:
            have = copy.table(name)
            print(name, "missing", sorted(set(wanted[name]) - set(have))[:5])
            print(name, "too many", sorted(set(have) - set(wanted[name]))[:5])
            both = set(have) & set(wanted[name])
            print(
                name, [(have[k], wanted[name][k]) for k in both if have[k] != wanted[name][k]][:3]
            )
        raise
