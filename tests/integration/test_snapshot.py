"""Snapshots in a topic: a subscriber that starts with nothing has the source's rows, while everything changes."""

from collections.abc import Iterator

import pytest

from millrace.deploy.servers import DatabaseServer
from millrace.schemas.documents import Snapshot
from millrace.schemas.requests.snapshot_request import SnapshotRequest
from millrace.zk.client.session import Session
from millrace.zk.ensemble import Ensemble
from millrace.zk.tree.store import Store
from tests.kit.capture.cluster import CaptureCluster
from tests.kit.capture.snapshot_scene import assert_equal, begin, create, verified
from tests.kit.capture.topic_copy import TopicCopy
from tests.kit.control.control import scheduled
from tests.kit.waiting import eventually


@pytest.fixture
def session(ensemble: Ensemble) -> Iterator[Session]:
    """The test's own session."""
    with ensemble.session() as session:
        yield session


@pytest.mark.guarantee("loaded")
def test_subscriber_that_starts_with_nothing_has_all_rows(
    cluster: CaptureCluster, session: Session, server: DatabaseServer
) -> None:
    """The initial snapshot, then one on demand, under inserts, deletes and key changes."""
    source, restless = begin(cluster, server, 1500)
    store = Store(session, cluster.ensemble.tree)
    create(cluster, store, source, Snapshot.INITIAL)
    copy = TopicCopy(cluster.kafka.bootstrap, source.name)
    restless.start()
    try:
        with (
            cluster.ensemble.session() as of_scheduler,
            scheduled(of_scheduler, cluster.ensemble.tree),
            cluster.ensemble.session() as own,
            cluster.worker(own, "w1"),
        ):
            eventually(
                lambda: len(copy.look().ended) == 3, every_s=0.2, what="three tables are read"
            )
            assert copy.ended == [("initial", name) for name in ("items", "t", "words")]
            eventually(
                lambda: any(
                    "keyless" in warning
                    for warning in cluster.reports(session)[source.name].warnings
                ),
                what="the report has the warning",
            )
            request = SnapshotRequest("s1", (f"{source.name}.words",), "n > 100")
            store.change_snapshots(source.name, lambda found: found.added(request))
            eventually(
                lambda: copy.look().ended[3:] == [("s1", "words")], what="the second snapshot"
            )
            assert_equal(copy, restless)
            assert store.snapshot_requests(source.name).requests == ()
            eventually(
                lambda: len(store.snapshot_requests(source.name).ended) == 2,
                what="both snapshots are listed as ended",
            )
            initial, second = store.snapshot_requests(source.name).ended
            assert (initial.id, second.id, initial.is_stopped) == ("initial", "s1", False)
            assert (initial.span.begun_ms, second.rows) != (None, None)
        assert copy.snapshot_rows["items"] > 1000
        found = verified(cluster.kafka.bootstrap, source.name)
        assert found.violations == []
        assert found.counts.snapshot_rows == sum(copy.snapshot_rows.values())
    finally:
        restless.stop()
        copy.close()
