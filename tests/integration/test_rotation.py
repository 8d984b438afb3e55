"""A password changes while tasks run, on a real server: they continue by themselves."""

import threading
from pathlib import Path

import pytest

from millrace.deploy.servers import DatabaseServer
from millrace.drivers.mysql.primary import primary_member
from millrace.producer.source.set_stream import Site
from millrace.producer.source.set_streams import Upstreams
from millrace.schemas.documents import (
    Account,
    SecretPlace,
    SecretReference,
    SetDocument,
    UpstreamRules,
    Work,
)
from millrace.schemas.gtid import Flavour
from millrace.schemas.status import TaskState
from millrace.zk.run.runner import HeldLease
from tests.fixtures.servers import NewServer
from tests.kit.control.control import ScriptedRunner, a_capture
from tests.kit.control.stage import Stage
from tests.kit.relay.relay import UNVERIFIED, kill_dumps, member_of, position_of
from tests.kit.waiting import eventually

NEW = "another-secret"


@pytest.fixture
def server(new_server: NewServer) -> DatabaseServer:
    """A separate server: its account changes."""
    return new_server(Flavour.MARIADB)


@pytest.fixture
def secret(server: DatabaseServer, tmp_path: Path) -> Path:
    """The file of the password."""
    path = tmp_path / "secret"
    path.write_text(server.password)
    return path


def _set_of(server: DatabaseServer, secret: Path) -> SetDocument:
    return SetDocument(
        name="shop",
        members=(member_of(server),),
        account=Account(server.user, SecretReference(SecretPlace.FILE, str(secret))),
        tls=UNVERIFIED,
        upstream=UpstreamRules(silence_s=60.0),
    )


def _change_password(server: DatabaseServer) -> None:
    server.execute(f"ALTER USER '{server.user}'@'%' IDENTIFIED BY '{NEW}'")


@pytest.mark.guarantee("secret")
def test_stream_uses_a_changed_password_at_its_next_connection(
    server: DatabaseServer, secret: Path, tmp_path: Path
) -> None:
    """The connection is lost after the change: the same stream continues, without a new run of its task."""
    streams = Upstreams(Site(root=tmp_path / "relay"))
    with streams.attach("a", _set_of(server, secret), wanted=None) as stream:
        eventually(lambda: stream.is_verified)
        _change_password(server)
        replaced = tmp_path / "new"
        replaced.write_text(NEW)
        replaced.rename(secret)
        before = stream.figures.connects
        kill_dumps(server)
        eventually(lambda: stream.figures.connects > before, what="it connects again")
        server.execute("CREATE DATABASE after_the_change")
        wanted = position_of(server)
        eventually(lambda: stream.relay.position().includes(wanted), what="the next transaction")
        stream.check()


@pytest.mark.guarantee("secret")
def test_running_task_waits_for_the_file_of_a_changed_password(
    server: DatabaseServer, secret: Path, stage: Stage
) -> None:
    """The server changes first: the task is degraded with the code, and resumes when the file follows."""
    document = _set_of(server, secret)

    def look_for_the_primary(_task: Work, _lease: HeldLease, stop: threading.Event) -> None:
        while not stop.wait(0.05):
            primary_member(document, for_writing=False)

    runner = ScriptedRunner(look_for_the_primary)
    stage.store.create_task(a_capture())
    stage.worker(runner)
    stage.scheduler()
    stage.reaches("shop-capture", TaskState.RUNNING)
    _change_password(server)
    report = stage.reaches("shop-capture", TaskState.DEGRADED)
    assert report.code == "MR-5002"
    secret.write_text(NEW)
    stage.reaches("shop-capture", TaskState.RUNNING)
    assert stage.report("shop-capture").code == ""
