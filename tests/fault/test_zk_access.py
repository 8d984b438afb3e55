"""Logins and ACLs of ZooKeeper across kills, restarts and new passwords."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from millrace.cli import run
from millrace.errors import Fatal, Retryable
from millrace.schemas.status import TaskState
from millrace.zk.client.session import Session, SessionState
from millrace.zk.ensemble import Ensemble
from millrace.zk.run.supervisor import Supervisor
from millrace.zk.tree.acls import BETWEEN_NODES
from millrace.zk.tree.store import Store
from tests.kit.certificates import Authority
from tests.kit.control.control import (
    ScriptedRunner,
    Ticking,
    a_capture,
    a_set,
    is_in_state,
    scheduled,
    supervised,
)
from tests.kit.control.secured import WRITER, SecuredZooKeeper, acls
from tests.kit.forked import fork
from tests.kit.waiting import PATIENCE_S, answered, eventually


@pytest.mark.guarantee("access")
def test_killed_secure_command_is_completed_by_the_next(
    own_secured: SecuredZooKeeper, tmp_path: Path
) -> None:
    """Whole ACLs only: each node has the old or the new one, and the tree is usable in between."""
    secured, log = own_secured, tmp_path / "log"
    cluster = secured.new_cluster()
    plain, environment = secured.plain(cluster), secured.environment(cluster)

    def secure(fault: str) -> int:
        given = {**environment, "MILLRACE_FAULT": fault}
        return fork(run, ["cluster", "secure"], environment=given, log=log).wait(PATIENCE_S)

    with plain.session() as session:
        store = Store(session, plain.tree)
        store.create_set(a_set())
        store.create_task(a_capture())
    assert secure(f"{BETWEEN_NODES}:kill@3") == -signal.SIGKILL
    with secured.raw(WRITER, cluster=cluster) as writer:
        before = acls(writer, "/millrace")
    open_nodes = [path for path, acl in before.items() if acl == ["world:anyone:31"]]
    assert len(before) - len(open_nodes) == 3
    with secured.ensemble(cluster).session() as session:
        assert list(Store(session, plain.tree).tasks()) == ["shop-capture"]
    assert secure("") == 0, log.read_text()
    assert f"{len(open_nodes)} nodes changed" in log.read_text()
    with secured.raw(WRITER, cluster=cluster) as writer:
        after = acls(writer, "/millrace")
    assert after.keys() == before.keys()
    assert not any("world" in one for acl in after.values() for one in acl)


@pytest.fixture(scope="module")
def own_secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredZooKeeper]:
    """A ZooKeeper for the tests of this file."""
    made = SecuredZooKeeper(tmp_path_factory.mktemp("own") / "rotating")
    made.server.start()
    yield made
    made.server.kill()


def _restart(secured: SecuredZooKeeper, **changes: Any) -> None:
    """Restart the ensemble with this protection."""
    secured.server.kill()
    secured.server.protection = replace(secured.protection, **changes)
    secured.server.start()


def test_sessions_return_after_a_foreign_certificate_and_a_new_password(
    own_secured: SecuredZooKeeper, tmp_path: Path
) -> None:
    """Each refusal is named until it is over, and no process is restarted.

    The ensemble returns with the certificate of another authority, then with its own and with a new password. The
    worker's file has that password before: its task keeps its run. The file of the other session follows later.
    """
    late_password = tmp_path / "password"
    late_password.write_text(own_secured.protection.users[WRITER])
    cluster = own_secured.new_cluster()
    ensemble = own_secured.ensemble(cluster)
    late = own_secured.ensemble(cluster, MILLRACE_ZOOKEEPER_PASSWORD=f"file:{late_password}")
    with late.session() as refused:
        tls = own_secured.protection.tls
        assert tls is not None
        foreign = Authority(tmp_path / "foreign").issue("server")
        _restart(own_secured, tls=replace(foreign, authority=tls.authority))
        eventually(lambda: _code(refused, late) == "MR-7021", what="the certificate is refused")
        _restart(own_secured)
        eventually(lambda: not _code(refused, late), what="the session is back")
        with _running(ensemble) as (supervisor, session, ticking, runner):
            own_secured.write_password(WRITER, "new-secret")
            users = {**own_secured.protection.users, WRITER: "new-secret"}
            _restart(own_secured, users=users)
            eventually(lambda: session.state is SessionState.CONNECTED)
            answered(lambda: session.children(ensemble.tree.root), Retryable)
            eventually(lambda: is_in_state(supervisor, TaskState.RUNNING))
            ticking.wait_for_more()
            assert len(runner.starts) == 1
        eventually(lambda: _code(refused, late) == "MR-7020", what="the login is refused")
        with pytest.raises(Fatal, match="MR-7020"):
            late.open()
        late_password.write_text("new-secret")
        eventually(lambda: not _code(refused, late), what="the session is back again")


@contextmanager
def _running(
    ensemble: Ensemble,
) -> Iterator[tuple[Supervisor, Session, Ticking, ScriptedRunner]]:
    """A worker whose task runs."""
    ticking = Ticking()
    runner = ScriptedRunner(ticking)
    with ensemble.session() as session, ensemble.session() as other:
        store = Store(session, ensemble.tree)
        store.create_set(a_set())
        store.create_task(a_capture())
        with (
            supervised(session, ensemble.tree, runner) as supervisor,
            scheduled(other, ensemble.tree),
        ):
            eventually(lambda: is_in_state(supervisor, TaskState.RUNNING))
            yield supervisor, session, ticking, runner


def _code(session: Session, ensemble: Ensemble) -> str:
    """Return the code of the error that a call ends with."""
    try:
        session.children(ensemble.tree.root)
    except Retryable as error:
        return error.code
    return ""
