"""Commands that place tasks (`millrace worker`, `millrace task move`), on a real ZooKeeper, without rows."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import pytest

from millrace import __version__
from millrace.cli.exits import ExitCode
from millrace.schemas.documents import TaskKind, parse_set, plain_from_yaml
from millrace.schemas.status import TaskState
from millrace.zk.client.session import Session
from millrace.zk.lease.lease import holder_of
from millrace.zk.lease.membership import WorkerIdentity
from millrace.zk.tree.paths import Tree
from millrace.zk.tree.store import Store
from millrace.zk.view import read_cluster, status_of
from tests.fixtures.shell import SHOP, Shell
from tests.kit.control.control import ScriptedRunner, a_capture, an_apply, scheduled, supervised
from tests.kit.waiting import eventually


@dataclass
class Crew:
    """A cluster with sets, and the workers and the scheduler that a test starts in it."""

    shell: Shell
    stack: ExitStack
    session: Session
    store: Store
    workers: dict[str, ExitStack] = field(default_factory=dict)

    def sets(self, *names: str, zone: str = "") -> None:
        """Create sets, each with a capture task of its name."""
        for name in names:
            text = SHOP.replace("set: shop", f"set: {name}")
            text += f"placement: {{labels: {{zone: {zone}}}}}\n" if zone else ""
            self.store.create_set(parse_set(plain_from_yaml(text)))
            self.store.create_task(a_capture(f"{name}-capture", of=name))

    def start(self, name: str, *, zone: str = "", capacity: int | None = None) -> None:
        """Start a capture worker and wait until it is registered."""
        labels = frozenset({f"zone={zone}"} if zone else ())
        worker = WorkerIdentity(name=name, kind=TaskKind.CAPTURE, labels=labels, capacity=capacity)
        self.workers[name] = stack = self.stack.enter_context(ExitStack())
        session = stack.enter_context(self.shell.ensemble.session())
        running = supervised(session, self.tree, ScriptedRunner(), identity=worker)
        stack.enter_context(running)
        eventually(lambda: self.session.get(self.tree.worker(name)), what=f"{name} is registered")

    def stop(self, name: str) -> None:
        """Stop a worker in order."""
        self.workers.pop(name).close()

    @property
    def tree(self) -> Tree:
        """The cluster's paths."""
        return self.shell.ensemble.tree

    def schedule(self) -> None:
        """Start a scheduler that takes every worker for settled."""
        session = self.stack.enter_context(self.shell.ensemble.session())
        self.stack.enter_context(scheduled(session, self.tree))

    def owners(self) -> dict[str, str]:
        """Task → its owner."""
        return dict(read_cluster(self.session, self.tree).owners)

    def state(self, task: str) -> tuple[TaskState, str]:
        """The task's state and its reason."""
        cluster = read_cluster(self.session, self.tree)
        report = status_of(task, cluster.tasks[task], cluster)
        return report.state, report.why

    def listed(self) -> dict[str, dict[str, object]]:
        """`millrace worker list --json` by name."""
        rows = json.loads(self.shell("worker", "list", "--json"))
        return {row["worker"]: row for row in rows}


@pytest.fixture
def crew(shell: Shell) -> Iterator[Crew]:
    """A cluster without workers."""
    with ExitStack() as stack:
        session = stack.enter_context(shell.ensemble.session())
        yield Crew(shell, stack, session, Store(session, shell.ensemble.tree))


def test_pending_task_names_the_missing_label_and_the_full_worker(crew: Crew) -> None:
    """It runs as soon as a worker with the label has room."""
    crew.sets("s1", "s2", zone="a")
    crew.schedule()
    crew.start("w1")
    why = "no capture worker has the label zone=a"
    eventually(lambda: crew.state("s1-capture") == (TaskState.PENDING, why))
    crew.start("w2", zone="a", capacity=1)
    eventually(lambda: crew.owners() == {"s1-capture": "w2"})
    full = "no capture worker with zone=a has room: w2 is full (1 of 1 sets)"
    eventually(lambda: crew.state("s2-capture") == (TaskState.PENDING, full))
    crew.start("w3", zone="a")
    eventually(lambda: crew.owners() == {"s1-capture": "w2", "s2-capture": "w3"})
    rows = crew.listed()
    assert (rows["w2"]["labels"], rows["w2"]["capacity"]) == (["zone=a"], 1)
    assert rows["w2"]["version"] == __version__
    assert (rows["w1"]["units"], rows["w3"]["units"], rows["w3"]["tasks"]) == (0, 1, 1)
    assert "no: full" in crew.shell("worker", "list")


def test_drained_worker_stays_empty_across_its_restart(crew: Crew) -> None:
    """Its units move away and return after undrain. The last worker of its kind is not drained."""
    crew.sets("s1", "s2", "s3", "s4")
    crew.schedule()
    crew.start("w1")
    assert crew.shell("worker", "drain", "w1", exit_code=ExitCode.OPERATOR).startswith("MR-4122 ")
    assert "the workers are: w1" in crew.shell("worker", "drain", "w2", exit_code=ExitCode.OPERATOR)
    crew.start("w2")
    eventually(lambda: sorted(crew.owners().values()) == ["w1", "w1", "w2", "w2"])
    before = crew.owners()
    assert "runs no task" in crew.shell("worker", "drain", "w1")
    assert set(crew.owners().values()) == {"w2"}
    assert crew.shell("worker", "drain", "w2", exit_code=ExitCode.OPERATOR).startswith("MR-4122 ")
    crew.stop("w1")
    assert "no: drained, not running" in crew.shell("worker", "list")
    crew.start("w1")
    eventually(lambda: crew.listed()["w1"]["kind"] == "capture")
    assert (crew.listed()["w1"]["units"], crew.listed()["w1"]["drained"]) == (0, True)
    assert "gets tasks again" in crew.shell("worker", "undrain", "w1")
    assert "is not drained" in crew.shell("worker", "undrain", "w1")
    eventually(lambda: crew.owners() == before)
    assert crew.shell("worker", "undrain", "w9", exit_code=ExitCode.OPERATOR).startswith("MR-4121 ")


@pytest.mark.parametrize("text", ["zone", "zone=", "=a", "zone=a b", "zone=a=b"])
def test_malformed_worker_label_is_refused(shell: Shell, text: str) -> None:
    """Before the worker starts; the documents' labels have the same rule."""
    output = shell(
        "worker", "--relay-dir", str(shell.folder), "--label", text, exit_code=ExitCode.OPERATOR
    )
    assert output.startswith(f"MR-4120 --label: found {text!r}, wanted NAME=VALUE")


def test_unit_without_another_worker_stays_on_a_drained_one(crew: Crew) -> None:
    """A drain stops nothing: the command names the tasks that stay."""
    crew.sets("s1", zone="a")
    crew.sets("s2")
    crew.schedule()
    crew.start("w1", zone="a")
    eventually(lambda: len(crew.owners()) == 2)
    crew.start("w2")
    output = crew.shell("worker", "drain", "w1", "--timeout", "1", exit_code=ExitCode.RETRY)
    assert output.startswith("MR-4124 ")
    eventually(lambda: crew.owners() == {"s1-capture": "w1", "s2-capture": "w2"})


def test_moved_task_takes_its_set_along_and_stays(crew: Crew) -> None:
    """The wish wins over balance, outlives its worker, and ends with --anywhere."""
    crew.sets("s1", "s2")
    crew.store.create_task(a_capture("s1-more", of="s1"))
    crew.schedule()
    crew.start("w1")
    crew.start("w2")
    eventually(lambda: sorted(set(crew.owners().values())) == ["w1", "w2"])
    to = crew.owners()["s2-capture"]
    output = crew.shell("task", "move", "s1-capture", to)
    assert output == f"task s1-capture runs on {to}, with s1-more\n"
    other = ({"w1", "w2"} - {to}).pop()
    wanted = {"s1-capture": to, "s1-more": to, "s2-capture": other}
    eventually(lambda: crew.owners() == wanted, what="the other set moves for balance")
    crew.stop(to)
    eventually(lambda: crew.owners() == dict.fromkeys(wanted, other))
    crew.start(to)
    eventually(lambda: crew.owners() == wanted)
    assert "set s1 may run on any worker" in crew.shell("task", "move", "s1-capture", "--anywhere")


def test_task_is_not_moved_to_an_unfit_worker(crew: Crew) -> None:
    """The reason is named, and no wish is left."""
    crew.sets("s1", zone="a")
    crew.store.create_task(an_apply("s1-apply", to="s1", topic="elsewhere"))
    crew.schedule()
    for name, zone in (("w1", "a"), ("w2", "b"), ("w3", "a"), ("w4", "a")):
        crew.start(name, zone=zone, capacity=1 if name == "w4" else None)
    eventually(lambda: len(crew.owners()) == 1)
    crew.shell("task", "move", "s1-capture", "w1")
    crew.shell("worker", "drain", "w3")
    crew.sets("s5", zone="a")
    crew.shell("task", "move", "s5-capture", "w4")
    for task, worker, reason in (
        ("s1-capture", "w2", "MR-4123 w2 does not have the label zone=a"),
        ("s1-capture", "w3", "MR-4123 w3 is drained"),
        ("s1-capture", "w4", "MR-4123 w4 is full (1 of 1 sets)"),
        ("s1-apply", "w1", "MR-4123 w1 runs capture tasks, s1-apply is one of kind apply"),
        ("s1-capture", "w", "MR-4121 there is no worker 'w'"),
    ):
        assert crew.shell("task", "move", task, worker, exit_code=ExitCode.OPERATOR).startswith(
            reason
        )
    crew.shell("task", "move", "s1-capture", exit_code=ExitCode.USAGE)
    assert crew.owners() == {"s1-capture": "w1", "s5-capture": "w4"}


def test_moved_task_has_an_owner_again_within_a_second(crew: Crew) -> None:
    """The best of five moves between two live workers: a busy machine delays some."""
    crew.sets("s1")
    crew.schedule()
    crew.start("w1")
    crew.start("w2")
    eventually(lambda: "s1-capture" in crew.owners())
    pauses_s = []
    for _ in range(5):
        to = ({"w1", "w2"} - {crew.owners()["s1-capture"]}).pop()
        with _pauses(crew, "s1-capture", to) as pauses:
            crew.shell("task", "move", "s1-capture", to)
        pauses_s += pauses
    assert len(pauses_s) == 5
    print("pauses of a move", [round(s, 3) for s in pauses_s])
    assert min(pauses_s) < 1


@contextmanager
def _pauses(crew: Crew, task: str, to: str) -> Iterator[list[float]]:
    """Look at the owner every few milliseconds, and give the time from its last sight to that of the next."""
    pauses: list[float] = []
    path = crew.tree.owner(task)
    watching = threading.Event()

    def watch() -> None:
        with crew.shell.ensemble.session() as session:
            last_s = time.monotonic()
            while True:
                node = session.get(path)
                holder = "" if node is None else holder_of(node, path)
                if holder == to:
                    pauses.append(time.monotonic() - last_s)
                    return
                if holder:
                    last_s = time.monotonic()
                watching.set()

    thread = threading.Thread(target=watch)
    thread.start()
    assert watching.wait(60)
    yield pauses
    thread.join(60)
