"""Tasks that report RUNNING and do not move: a thread that hangs, a member that has stopped replicating."""

import threading
from pathlib import Path

import pytest

from millrace.deploy.servers import DatabaseSet
from millrace.producer.source.set_stream import Site
from millrace.producer.source.set_streams import Upstreams
from millrace.schemas import stall
from millrace.schemas.documents import (
    Account,
    Directives,
    SecretPlace,
    SecretReference,
    SetDocument,
    Work,
)
from millrace.schemas.gtid import Flavour
from millrace.schemas.stall import with_stall
from millrace.schemas.status import TaskReport, TaskState
from millrace.zk.run.runner import HeldLease
from millrace.zk.tree import reports
from tests.kit.control.control import ScriptedRunner, a_capture
from tests.kit.control.stage import Stage
from tests.kit.relay.relay import UNVERIFIED, member_of
from tests.kit.waiting import eventually


def _hang(_task: Work, _lease: HeldLease, stop: threading.Event) -> None:
    stop.wait()


def test_task_whose_thread_hangs_is_shown_as_stalled(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last report says RUNNING, and its worker repeats that. The worker adds how old it is."""
    monkeypatch.setattr(reports, "REPEAT_S", 0.2)
    monkeypatch.setattr(stall, "STALL_S", 1.0)
    stage.scheduler()
    stage.worker(ScriptedRunner(_hang))
    stage.store.create_task(a_capture())
    report = stage.reaches("shop-capture", TaskState.STALLED, "has not reported")
    assert report.gtid_set == "0-1-7"


def test_task_that_reads_a_stopped_replica_is_stalled(
    source_set: DatabaseSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other member may be read, so the stream stays. The stall ends when the replica applies."""
    monkeypatch.setattr(stall, "STALL_S", 2.0)
    secret = tmp_path / "password"
    secret.write_text(source_set.password)
    primary, replica = source_set.primary, source_set.replicas[0]
    document = SetDocument(
        name="shop",
        members=(member_of(primary), member_of(replica)),
        account=Account(source_set.user, SecretReference(SecretPlace.FILE, str(secret))),
        tls=UNVERIFIED,
    )
    wishes = Directives(drained=frozenset({member_of(primary)}))
    word = "SLAVE" if source_set.flavour is Flavour.MARIADB else "REPLICA"
    source_set.wait_for_replicas()
    streams = Upstreams(Site(root=tmp_path / "relay", directives=lambda _: wishes))
    with streams.attach("a", document, wanted=None) as stream:

        def reason() -> str:
            return with_stall(TaskReport(TaskState.RUNNING, captured=stream.captured())).why

        eventually(lambda: stream.captured().source.missing == 0, what="the member is watched")
        assert reason() == ""
        replica.execute(f"STOP {word} SQL_THREAD")
        try:
            source_set.execute("CREATE DATABASE IF NOT EXISTS stalled")
            eventually(reason, what="stalled")
            assert f":{replica.port} misses 1 transaction of the set" in reason()
        finally:
            replica.execute(f"START {word} SQL_THREAD")
        eventually(lambda: reason() == "", what="the replica applies")
        replica.execute(f"STOP {word} SQL_THREAD")
        source_set.execute("DROP DATABASE stalled")
    try:  # the stream starts again, and begins to watch a replica that is late already
        with streams.attach("a", document, wanted=None) as stream:
            eventually(lambda: stream.captured().source.missing == 1, what="the watch begins")
            assert stream.captured().source.lag_s is None
    finally:
        replica.execute(f"START {word} SQL_THREAD")
