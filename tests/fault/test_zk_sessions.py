"""Sessions that the ensemble ends: tasks restart under new epochs, lost leases are known, another leader takes over."""

import pytest
from kazoo.client import KazooClient

from millrace.zk.client.session import Session, SessionState
from millrace.zk.ensemble import Ensemble
from millrace.zk.lease.lease import acquire
from millrace.zk.tree.store import Store
from tests.kit.control.control import (
    ScriptedRunner,
    a_capture,
    end_session,
    scheduled,
    supervised,
)
from tests.kit.waiting import eventually


def test_expired_session_restarts_the_task_under_a_new_epoch(
    session: Session, ensemble: Ensemble
) -> None:
    """The runner is stopped and joined first; then its worker, to which the task is assigned, acquires it again."""
    assert session.children(ensemble.tree.folder("tasks")) == ("shop-capture",)
    runner = ScriptedRunner()
    with (
        ensemble.session() as own,
        ensemble.session() as of_scheduler,
        supervised(own, ensemble.tree, runner),
        scheduled(of_scheduler, ensemble.tree),
    ):
        eventually(lambda: len(runner.starts) == 1)
        end_session(ensemble.hosts, own.id)
        eventually(lambda: len(runner.starts) == 2)
        first, second = runner.epochs("shop-capture")
        assert second > first
        assert runner.ends == [("shop-capture", first)]
        assert runner.overlaps == []


def test_session_ends_although_its_owner_reconnects(
    ensemble: Ensemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client that ends the session is slow: the owner takes the session back before it is closed."""
    states: list[SessionState] = []
    stop = KazooClient.stop

    def slow_at_first(twin: KazooClient) -> None:
        monkeypatch.undo()
        eventually(lambda: SessionState.CONNECTED in states, what="the owner is connected again")
        stop(twin)

    with ensemble.session() as own:
        own.on_state(states.append)
        monkeypatch.setattr(KazooClient, "stop", slow_at_first)
        end_session(ensemble.hosts, own.id)
        eventually(lambda: own.incarnation == 1, what="the session is over")


def test_lease_is_known_lost_after_its_session_expired(
    session: Session, ensemble: Ensemble
) -> None:
    """Even after the client is connected again with a new session."""
    with ensemble.session() as own:
        lease = acquire(own, ensemble.tree, task="t", worker="w1")
        incarnation = own.incarnation
        end_session(ensemble.hosts, own.id)
        eventually(lambda: own.incarnation > incarnation and own.state is SessionState.CONNECTED)
        assert not lease.is_held()
        assert session.get(ensemble.tree.owner("t")) is None


def test_tasks_are_assigned_after_the_schedulers_session_expired(
    session: Session, ensemble: Ensemble
) -> None:
    """Two candidates; after the leader's session ended, new tasks are still assigned."""
    runner = ScriptedRunner()
    store = Store(session, ensemble.tree)
    with (
        ensemble.session() as own,
        ensemble.session() as first,
        ensemble.session() as second,
        supervised(own, ensemble.tree, runner),
        scheduled(first, ensemble.tree, name="s1"),
    ):
        eventually(lambda: len(runner.starts) == 1)
        with scheduled(second, ensemble.tree, name="s2"):
            end_session(ensemble.hosts, first.id)
            store.create_task(a_capture("later"))
            eventually(lambda: len(runner.starts) == 2)
            assert [name for name, _ in runner.starts] == ["shop-capture", "later"]
