"""A worker dies by SIGKILL while a snapshot runs: the next one continues, and a subscriber has the source's rows."""

import signal
from collections.abc import Iterator

import pytest

from millrace.deploy.servers import DatabaseServer
from millrace.producer.publish import publisher
from millrace.producer.snapshot import reader, requests
from millrace.schemas.documents import Snapshot
from millrace.schemas.gtid import Flavour
from millrace.schemas.requests.snapshot_request import SnapshotRequest
from millrace.zk.client.session import Session
from millrace.zk.ensemble import Ensemble
from millrace.zk.tree.store import Store
from tests.fixtures.servers import mostly
from tests.kit.capture.cluster import CaptureCluster
from tests.kit.capture.snapshot_scene import assert_equal, begin, create, verified
from tests.kit.capture.topic_copy import TopicCopy
from tests.kit.control.control import end_session_at, scheduled
from tests.kit.waiting import eventually

# a later pass of a point is in the middle of the snapshot
POINTS = {
    Flavour.MYSQL: (f"{reader.BEFORE_READ}:kill@2", f"{publisher.BEFORE_COMMIT}:kill@3"),
    Flavour.MARIADB: (f"{reader.AFTER_READ}:kill@2", f"{publisher.AFTER_COMMIT}:kill@3"),
}
REMOVALS = {
    Flavour.MYSQL: requests.BEFORE_REMOVAL,
    Flavour.MARIADB: requests.AFTER_REMOVAL,
}


@pytest.fixture
def session(ensemble: Ensemble) -> Iterator[Session]:
    """The test's own session."""
    with ensemble.session() as session:
        yield session


@mostly(Flavour.MYSQL)
@pytest.mark.guarantee("loaded")
def test_killed_worker_neither_loses_nor_repeats_snapshot_rows(
    cluster: CaptureCluster,
    session: Session,
    flavour: Flavour,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the middle of an initial snapshot, and around the removal of a request, which runs exactly once."""
    server = request.getfixturevalue(f"{flavour}_server")
    assert isinstance(server, DatabaseServer)
    source, restless = begin(cluster, server, 2000)
    ensemble, owner = cluster.ensemble, cluster.ensemble.tree.owner(source.name)
    store = Store(session, ensemble.tree)
    create(cluster, store, source, Snapshot.INITIAL)
    copy = TopicCopy(cluster.kafka.bootstrap, source.name)
    restless.start()

    def kill_at(point: str, name: str) -> None:
        monkeypatch.setenv("MILLRACE_FAULT", point)
        with cluster.worker_process(name) as doomed:
            assert doomed.wait(120) == -signal.SIGKILL
        monkeypatch.delenv("MILLRACE_FAULT")
        end_session_at(ensemble, session, owner)
        eventually(lambda: session.get(owner) is None, what="the dead worker's lease is gone")

    try:
        with ensemble.session() as of_scheduler, scheduled(of_scheduler, ensemble.tree):
            for number, point in enumerate(POINTS[flavour]):
                kill_at(point, f"k{number}")
            assert copy.look().state is not None, "the snapshot has not ended"
            asked = SnapshotRequest("s1", (f"{source.name}.items",))
            store.change_snapshots(source.name, lambda found: found.added(asked))
            kill_at(f"{REMOVALS[flavour]}:kill", "k9")
            store.resume(source.name)  # three processes have ended under it (MR-4015)
            with ensemble.session() as own, cluster.worker(own, "last"):
                eventually(
                    lambda: ("s1", "items") in copy.look().ended, every_s=0.2, what="the end"
                )
                assert_equal(copy, restless)
        assert copy.ended == [("initial", name) for name in ("items", "t", "words")] + [
            ("s1", "items")
        ]
        assert copy.begun == copy.ended
        assert store.snapshot_requests(source.name).requests == ()
        assert verified(cluster.kafka.bootstrap, source.name).violations == []
    finally:
        restless.stop()
        copy.close()
