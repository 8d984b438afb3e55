"""Sessions that the ensemble declares over: full starts under new epochs, leases known to be lost, another leader."""

import pytest
from kazoo.client import KazooClient

from tests.kit.control.control import (
    ScriptedRunner,
    a_capture,
    end_session,
    scheduled,
    supervised,
)
from tests.kit.waiting import eventually
from zk.client.session import Session, SessionState
from zk.ensemble import Ensemble
from zk.lease.lease import acquire
from zk.tree.store import Store


def test_expired_session_restarts_the_task_under_a_new_epoch(
    session: Session, ensemble: Ensemble
) -> None:
    """The runner is stopped and joined first; then the task is taken anew, here, where it is assigned."""
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
    """Who ends it is slow: its connection is taken away before it closes the session."""
    states: list[SessionState] = []
    stop = KazooClient.stop

    def slow_at_first(twin: KazooClient) -> None:
        monkeypatch.undo()
        eventually(lambda: SessionState.CONNECTED in states, what="joined again")
        stop(twin)

    with ensemble.session() as own:
        own.on_state(states.append)
        monkeypatch.setattr(KazooClient, "stop", slow_at_first)
        end_session(ensemble.hosts, own.id)
        eventually(lambda: own.incarnation == 1, what="it is over")


def test_lease_is_known_lost_after_its_session_expired(
    session: Session, ensemble: Ensemble
) -> None:
    """Also after the client has a new session and is connected again."""
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
    """Two candidates; the leader's session is ended: tasks created afterwards are assigned."""
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
