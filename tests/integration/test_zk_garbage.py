"""Garbage nodes in ZooKeeper, in any folder: scheduler, worker and `status` continue with all other nodes."""

import json
import threading
from collections.abc import Iterator

import pytest

from millrace.cli.status.json_form import as_plain
from millrace.cli.status.status import text_of
from millrace.errors import Retryable
from millrace.schemas.documents import CaptureTask, Work
from millrace.schemas.status import TaskState
from millrace.zk.lease.lease import acquire
from millrace.zk.run.runner import HeldLease
from millrace.zk.tree.paths import FOLDERS
from millrace.zk.view import read_cluster, views
from tests.kit.control.control import ScriptedRunner, a_capture, a_set
from tests.kit.control.stage import Stage
from tests.kit.waiting import eventually

CONTENTS = {
    "empty": b"",
    "cut": b'{"format":1,"docu',
    "binary": b"\xff\x00\xfe",
    "text": b"hello",
    "list": b"[]",
    "deep": b"[" * 50_000,
    "newer": b'{"format":99}',
    "bare": b'{"format":1}',
    "numbers": b'{"format":1,"seq":Infinity,"worker":7,"kind":[],"document":3,"revision":1e999}',
    "large": b"x" * 900_000,
    "[red]": b"null",
    "a b é": b'"\\ud800"',
    "%s{0}..": b'{"format":1,"worker":"\\ud800[/red]","kind":"capture"}',
}


def _garbage(stage: Stage) -> Iterator[str]:
    """Create every content in every folder, and a child where none belongs."""
    for folder in FOLDERS:
        for name, content in CONTENTS.items():
            path = f"{stage.tree.folder(folder)}/{name}"
            stage.session.create(path, content)
            yield path
    for folder in ("assignments", "status"):  # the scheduler would remove these, but cannot
        path = f"{stage.tree.folder(folder)}/an-orphan"
        stage.session.create(path, b"")
        stage.session.create(f"{path}/child", b"")


@pytest.mark.guarantee("robust")
def test_garbage_in_every_zookeeper_folder_disturbs_no_task(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    """Running tasks continue, new tasks start, deleted tasks end; each unreadable task reports its own error."""
    runner = ScriptedRunner()
    stage.scheduler()
    stage.worker(runner)
    stage.store.create_task(a_capture("old"))
    stage.store.create_task(a_capture("going"))
    for task in ("old", "going"):
        stage.reaches(task, TaskState.RUNNING)
    assert len(list(_garbage(stage))) == len(FOLDERS) * len(CONTENTS)
    standing = stage.session.get(stage.tree.leader)
    assert standing is not None
    stage.session.put(stage.tree.leader, b"\xff", version=standing.version)

    stage.store.create_task(a_capture("new"))
    stage.reaches("new", TaskState.RUNNING)
    stage.store.delete("going")
    eventually(lambda: stage.session.get(stage.tree.status("going")) is None, what="cleared")
    assert runner.alive == {"old", "new"}
    assert runner.starts[0][0] in ("old", "going")
    assert len(runner.epochs("old")) == 1

    cluster = read_cluster(stage.session, stage.tree)
    found = {view.name: view.report for view in views(cluster)}
    assert set(found) == {"old", "new"} | set(CONTENTS)
    for name in CONTENTS:
        assert found[name].state in (TaskState.BLOCKED, TaskState.DEGRADED)
        assert found[name].code in ("MR-4011", "MR-4101", "MR-4107"), name
        assert found[name].fix
    json.dumps(as_plain("x", cluster, views(cluster)))
    assert "[red]" in "\n".join(text_of("x", cluster, views(cluster)))


@pytest.mark.parametrize("damage", ["garbage", "gone"])
def test_unreadable_set_stops_no_running_task(stage: Stage, damage: str) -> None:
    """Running tasks keep the set that they read; a starting task reports the error and starts after the repair."""

    def script(task: Work, _lease: HeldLease, stop: threading.Event) -> None:
        assert isinstance(task, CaptureTask)
        stage.store.set_document(task.set_name)
        stop.wait()

    runner = ScriptedRunner(script)
    stage.scheduler()
    stage.worker(runner)
    stage.store.create_task(a_capture("runs"))
    stage.reaches("runs", TaskState.RUNNING)
    stage.store.create_task(a_capture("waits"))
    stage.reaches("waits", TaskState.RUNNING)
    stage.pause("waits")
    stage.reaches("waits", TaskState.PAUSED)

    path = stage.tree.set("shop")
    if damage == "gone":
        stage.session.delete(path, version=-1)
    else:
        node = stage.session.get(path)
        assert node is not None
        stage.session.put(path, b'{"name":"sh', version=node.version)
    stage.store.resume("waits")
    report = stage.reaches("waits", TaskState.DEGRADED, "shop")
    assert report.code == ("MR-4104" if damage == "gone" else "MR-4011")
    assert report.fix
    assert stage.report("runs").state is TaskState.RUNNING

    stage.store.create_set(a_set(), replace=True)
    stage.reaches("waits", TaskState.RUNNING)
    assert len(runner.epochs("runs")) == 1


def test_unreadable_owner_node_counts_as_a_held_lease(stage: Stage) -> None:
    """Retryable, like any other owner: an operator removes the node, and the task resumes by itself."""
    stage.session.create(stage.tree.owner("shop-capture"), b"\xff")
    with pytest.raises(Retryable) as caught:
        acquire(stage.new_session(), stage.tree, task="shop-capture", worker="w1")
    assert caught.value.code == "MR-4004"
    assert "unreadable" in caught.value.message
