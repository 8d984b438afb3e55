"""A worker dies by SIGKILL while it executes an operator's decision: the topic gets exactly one gap record."""

import signal
from collections.abc import Iterator
from itertools import pairwise

import pytest

from millrace.client import Subscriber
from millrace.deploy.servers import DatabaseServer
from millrace.producer.publish import opening
from millrace.producer.task import capture
from millrace.schemas.gtid import parse_gtid_set
from millrace.schemas.requests.decision import Approval, Decision, DecisionKind
from millrace.zk.client.session import Session
from millrace.zk.ensemble import Ensemble
from millrace.zk.tree.store import Store
from tests.kit.capture.cluster import CaptureCluster, Source
from tests.kit.control.control import end_session_at, scheduled
from tests.kit.waiting import eventually

POINTS = (
    opening.BEFORE_GAP,
    opening.AFTER_GAP,
    capture.BEFORE_DECISION_ENDS,
    capture.AFTER_DECISION_ENDED,
)


@pytest.fixture
def session(ensemble: Ensemble) -> Iterator[Session]:
    """The test's own session."""
    with ensemble.session() as session:
        yield session


def decide(cluster: CaptureCluster, store: Store, source: Source, number: int) -> Decision:
    """Leave out every transaction between the topic's end and the source's position now."""
    with Subscriber(cluster.kafka.bootstrap, source.name) as subscriber:
        for _ in subscriber.read_to_end():
            pass
        resolved = subscriber.resolved
    assert resolved is not None
    position = source.server.gtid_position()
    before = resolved.progress
    decision = Decision(
        id=f"d{number}",
        kind=DecisionKind.RESET_POSITION,
        task=source.name,
        before=before,
        after=parse_gtid_set(before.gtid_set.flavour, position),
        approval=Approval("test@host", "kills", 0),
    )
    assert str(decision.after) != str(before.gtid_set)
    store.decide(store.task_entry(source.name), decision)
    return decision


def test_killed_worker_leaves_exactly_one_gap_record(
    cluster: CaptureCluster,
    session: Session,
    mariadb_server: DatabaseServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At each point around the execution; the next worker continues. No row is missing outside the gaps or repeated."""
    source = cluster.add_source(mariadb_server)
    cluster.create(session)
    ensemble, owner = cluster.ensemble, cluster.ensemble.tree.owner(source.name)
    store = Store(session, ensemble.tree)
    with ensemble.session() as of_scheduler, scheduled(of_scheduler, ensemble.tree):
        for number, point in enumerate(POINTS):
            run_for_a_while(cluster, source, f"w{number}")
            store.pause(source.name, by="test")
            decide(cluster, store, source, number)
            store.resume(source.name)
            monkeypatch.setenv("MILLRACE_FAULT", f"{point}:kill")
            with cluster.worker_process(f"k{number}") as doomed:
                assert doomed.wait(120) == -signal.SIGKILL
            monkeypatch.delenv("MILLRACE_FAULT")
            waits = store.task_entry(source.name).desired.decision is not None
            assert waits == (point != capture.AFTER_DECISION_ENDED)
            end_session_at(ensemble, session, owner)
            eventually(lambda: session.get(owner) is None, what="the dead worker's lease is gone")
        run_for_a_while(cluster, source, "last")
    found = source.followed.look()
    assert found.violations == []
    assert store.task_entry(source.name).desired.decision is None
    gaps = found.gaps
    assert [gap.decision for gap in gaps] == [f"d{number}" for number in range(len(POINTS))]
    assert found.ids == sorted(set(found.ids))
    assert sum(after != before + 1 for before, after in pairwise(found.ids)) <= len(gaps)


def run_for_a_while(cluster: CaptureCluster, source: Source, name: str) -> None:
    """A worker in this process publishes rows, and ends in order."""
    with cluster.ensemble.session() as own, cluster.worker(own, name):
        source.wait_for_rows()
