"""A task's state from its nodes alone, on a real ZooKeeper, with runners that move no rows."""

import threading

from millrace.errors import Fatal
from millrace.schemas.documents import Work
from millrace.schemas.status import TaskState
from millrace.zk.run.runner import HeldLease
from millrace.zk.view import read_cluster, read_tasks, status_of
from tests.kit.control.control import ScriptedRunner, a_capture, an_apply
from tests.kit.control.stage import Stage


def test_few_nodes_show_a_task_as_the_whole_cluster_does(stage: Stage) -> None:
    """Running, paused, blocked, without a worker and deleted; a change of one of its nodes is noticed."""

    def script(task: Work, _lease: HeldLease, stop: threading.Event) -> None:
        if task.name == "broken":
            raise Fatal("MR-4106", "no such secret")
        stop.wait()

    for name in ("runs", "rests", "broken"):
        stage.store.create_task(a_capture(name))
    stage.store.create_task(an_apply("waits", topic="elsewhere"))
    stage.store.pause("rests", by="ann")
    stage.scheduler()
    stage.worker(ScriptedRunner(script))
    stage.reaches("runs", TaskState.RUNNING)
    stage.reaches("broken", TaskState.BLOCKED)
    whole = read_cluster(stage.session, stage.tree)
    for name, entry in whole.tasks.items():
        few = read_tasks(stage.session, stage.tree, [name])
        assert few.tasks[name] == entry
        one, other = status_of(name, entry, few), status_of(name, entry, whole)
        assert (one.state, one.why, one.code) == (other.state, other.why, other.code)
    changed = threading.Event()
    assert len(read_tasks(stage.session, stage.tree, ["runs"], watch=changed.set).tasks) == 1
    stage.store.delete("runs")
    assert changed.wait(60)
    assert "runs" not in read_tasks(stage.session, stage.tree, ["runs"]).tasks
