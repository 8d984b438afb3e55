"""A cluster in ZooKeeper of each test's own, and a session in it."""

from collections.abc import Iterator

import pytest

from deploy.servers import ZooKeeperServer
from tests.control import a_capture, a_set, ensemble_of
from zk.ensemble import Ensemble
from zk.session import Session
from zk.store import Store


@pytest.fixture
def ensemble(request: pytest.FixtureRequest) -> Ensemble:
    """In the ZooKeeper that all share, or in one that the test may break, if it asks for ``new_zookeeper``."""
    name = "new_zookeeper" if "new_zookeeper" in request.fixturenames else "zookeeper"
    server: ZooKeeperServer = request.getfixturevalue(name)
    return ensemble_of(server.hosts)


@pytest.fixture
def session(ensemble: Ensemble) -> Iterator[Session]:
    """With a set and a capture task."""
    with ensemble.session() as session:
        store = Store(session, ensemble.tree)
        store.create_set(a_set())
        store.create_task(a_capture())
        yield session
