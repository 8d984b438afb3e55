"""Logins and ACLs of ZooKeeper across kills, restarts and new passwords."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from millrace.errors import Fatal, Retryable
from schemas.status import TaskState
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
from tests.kit.waiting import answered, eventually
from zk.client.session import Session, SessionState
from zk.ensemble import Ensemble
from zk.tree.acls import BETWEEN_NODES
from zk.tree.store import Store


def _secure(environment: dict[str, str], fault: str) -> "subprocess.CompletedProcess[str]":
    command = (sys.executable, "-m", "millrace", "cluster", "secure")
    given = {**os.environ, **environment, "MILLRACE_FAULT": fault}
    return subprocess.run(command, env=given, capture_output=True, text=True, check=False)


@pytest.mark.guarantee("access")
def test_killed_secure_command_is_completed_by_the_next(secured: SecuredZooKeeper) -> None:
    """Whole ACLs only: each node has the old or the new one, and the tree is usable in between."""
    cluster = secured.new_cluster()
    plain, environment = secured.plain(cluster), secured.environment(cluster)
    with plain.session() as session:
        store = Store(session, plain.tree)
        store.create_set(a_set())
        store.create_task(a_capture())
    assert _secure(environment, f"{BETWEEN_NODES}:kill@3").returncode == -signal.SIGKILL
    with secured.raw(WRITER, cluster=cluster) as writer:
        before = acls(writer, "/millrace")
    open_nodes = [path for path, acl in before.items() if acl == ["world:anyone:31"]]
    assert len(before) - len(open_nodes) == 3
    with secured.ensemble(cluster).session() as session:
        assert list(Store(session, plain.tree).tasks()) == ["shop-capture"]
    done = _secure(environment, "")
    assert done.returncode == 0, done.stderr
    assert f"{len(open_nodes)} nodes changed" in done.stdout
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


@pytest.fixture
def rotating(own_secured: SecuredZooKeeper) -> SecuredZooKeeper:
    """It runs with its first certificate, and its users have the passwords in their files."""
    server, protection = own_secured.server, own_secured.protection
    own_secured.write_password(WRITER, protection.users[WRITER])
    if server.protection != protection or not server.is_alive():
        server.kill()
        server.protection = protection
        server.start()
    return own_secured


def test_worker_uses_a_new_password_without_a_restart(rotating: SecuredZooKeeper) -> None:
    """The file changes, then the ensemble restarts with the new password: the task keeps its run."""
    ticking = Ticking()
    runner = ScriptedRunner(ticking)
    ensemble = rotating.ensemble(rotating.new_cluster())
    with ensemble.session() as session, ensemble.session() as other:
        store = Store(session, ensemble.tree)
        store.create_set(a_set())
        store.create_task(a_capture())
        with (
            supervised(session, ensemble.tree, runner) as supervisor,
            scheduled(other, ensemble.tree),
        ):
            eventually(lambda: is_in_state(supervisor, TaskState.RUNNING))
            rotating.write_password(WRITER, "new-secret")
            rotating.server.kill()
            users = {**rotating.protection.users, WRITER: "new-secret"}
            rotating.server.protection = replace(rotating.protection, users=users)
            rotating.server.start()
            eventually(lambda: session.state is SessionState.CONNECTED)
            answered(lambda: session.children(ensemble.tree.root), Retryable)
            eventually(lambda: is_in_state(supervisor, TaskState.RUNNING))
            ticking.wait_for_more()
            assert len(runner.starts) == 1


def test_refused_certificate_is_named_until_it_is_replaced(
    rotating: SecuredZooKeeper, tmp_path: Path
) -> None:
    """The ensemble returns with the certificate of another authority: no call hides that behind "not reached"."""
    ensemble = rotating.ensemble(rotating.new_cluster())
    with ensemble.session() as session:
        protection = rotating.server.protection
        foreign = Authority(tmp_path / "foreign").issue("server")
        assert protection.tls is not None
        given = replace(foreign, authority=protection.tls.authority)
        for tls, code in ((given, "MR-7021"), (protection.tls, "")):
            rotating.server.kill()
            rotating.server.protection = replace(protection, tls=tls)
            rotating.server.start()
            eventually(partial(_has_code, session, ensemble, code), what=code)


def _has_code(session: Session, ensemble: Ensemble, code: str) -> bool:
    return _code(session, ensemble) == code


def _code(session: Session, ensemble: Ensemble) -> str:
    """Return the code of the error that a call ends with."""
    try:
        session.children(ensemble.tree.root)
    except Retryable as error:
        return error.code
    return ""


def test_refused_login_is_retried_until_the_password_fits(rotating: SecuredZooKeeper) -> None:
    """The ensemble has a new password first: calls say so, and the worker returns when its file follows."""
    ensemble = rotating.ensemble(rotating.new_cluster())
    with ensemble.session() as session:
        rotating.server.kill()
        users = {**rotating.protection.users, WRITER: "new-secret"}
        rotating.server.protection = replace(rotating.protection, users=users)
        rotating.server.start()

        eventually(lambda: _code(session, ensemble) == "MR-7020")
        with pytest.raises(Fatal, match="MR-7020"):
            ensemble.open()
        rotating.write_password(WRITER, "new-secret")
        eventually(lambda: not _code(session, ensemble), what="the session is back")
