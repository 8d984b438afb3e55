"""Session, store, lease, election and mirror against a real ZooKeeper."""

import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pytest

from millrace import __version__
from millrace.errors import Fatal, Fenced, Retryable
from millrace.schemas.documents import CaptureTask, TaskDocument, TaskKind
from millrace.schemas.status import TaskReport, TaskState
from millrace.zk.client.mirror import Mirror
from millrace.zk.client.session import Check, Create, Delete, Put, Session, SessionState
from millrace.zk.ensemble import Ensemble
from millrace.zk.lease.election import leader_of, leader_version, try_to_lead
from millrace.zk.lease.epoch import generation_of, raise_generation
from millrace.zk.lease.lease import acquire
from millrace.zk.lease.membership import RELAYS_S, Membership, WorkerIdentity, registered
from millrace.zk.tree.entries import TaskEntry, UnreadableEntry
from millrace.zk.tree.paths import Tree, create_tree
from millrace.zk.tree.reports import Offered, StatusWriter, read_status
from millrace.zk.tree.store import Outcome, Store
from tests.kit.control.control import a_capture, a_set, an_apply
from tests.kit.control.line import Line
from tests.kit.faults.starved import no_descriptor_left
from tests.kit.sockets import connections_to, duplicate
from tests.kit.waiting import answered, eventually

REQUEST_TIMEOUT_S = (
    2.0  # also asked for as session timeout, but the ensemble grants a longer session
)


@pytest.fixture
def session(ensemble: Ensemble) -> Iterator[Session]:
    """A session with the tree created."""
    with ensemble.session() as session:
        yield session


@pytest.fixture
def other(ensemble: Ensemble) -> Iterator[Session]:
    """Another session."""
    with ensemble.session() as session:
        yield session


def test_session_is_reopened_after_the_driver_thread_died(
    ensemble: Ensemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a free descriptor it cannot resolve a name, and dies; the worker must reconnect later."""
    monkeypatch.setattr(threading, "excepthook", lambda _: None)  # pytest's opens files
    port = int(ensemble.hosts.rpartition(":")[2])
    before = connections_to(port)
    with replace(ensemble, hosts=f"localhost:{port}").session() as session:
        incarnation = session.incarnation
        (descriptor,) = connections_to(port) - before
        with duplicate(descriptor) as wire, no_descriptor_left():
            wire.shutdown(socket.SHUT_RDWR)
            eventually(lambda: session.state is SessionState.LOST)
        assert answered(lambda: session.children(ensemble.tree.root), Retryable)
        assert session.incarnation > incarnation


def test_node_is_created_read_written_and_deleted(session: Session, ensemble: Ensemble) -> None:
    """Every write compares versions; a second creation returns an outcome and raises nothing."""
    path = ensemble.tree.task("a")
    made = session.create(path, b"1")
    assert made is not None
    assert session.create(path, b"2") is None
    assert session.get(path) == made
    written = session.put(path, b"2", version=0)
    assert written == session.get(path)
    assert (written.version, written.content) == (1, b"2")
    with pytest.raises(Retryable) as caught:
        session.put(path, b"3", version=0)
    assert caught.value.code == "MR-4007"
    with pytest.raises(Retryable):
        session.delete(path, version=0)
    session.delete(path, version=1)
    session.delete(path, version=1)
    assert session.get(path) is None
    assert session.children(ensemble.tree.folder("tasks")) == ()


def test_many_nodes_are_read_at_once(session: Session, ensemble: Ensemble) -> None:
    """In the order asked for; a missing one is None, and its watch fires when it is created."""
    folder = ensemble.tree.folder("tasks")
    for number in range(0, 1200, 2):
        session.create(f"{folder}/t{number}", str(number).encode())
    paths = [f"{folder}/t{number}" for number in range(1200)]
    found = session.get_each(paths)
    assert [node.content if node else None for node in found] == [
        str(number).encode() if number % 2 == 0 else None for number in range(1200)
    ]
    assert len(session.folder(folder)) == 600
    fired: list[str] = []
    watches = [partial(fired.append, path) for path in paths[:2]]
    session.get_each(paths[:2], watches=watches)
    session.create(paths[1], b"1")
    session.put(paths[0], b"2", version=0)
    eventually(lambda: sorted(fired) == paths[:2])


def test_registered_worker_names_its_new_relay_logs(session: Session, ensemble: Ensemble) -> None:
    """The scheduler prefers it for their sets; without a change, nothing is written."""
    relays, now_s = ["shop"], 0.0
    worker = WorkerIdentity(name="w1", kind=TaskKind.CAPTURE, relays=lambda: relays)
    membership = Membership(session, ensemble.tree, worker, clock=lambda: now_s)

    def known() -> tuple[frozenset[str], int]:
        node = session.get(ensemble.tree.worker("w1"))
        assert node is not None
        return registered({"w1": node})["w1"].relays, node.version

    membership.ensure()
    relays.append("crm")
    membership.ensure()
    assert known() == (frozenset({"shop"}), 0)
    now_s = RELAYS_S
    membership.ensure()
    assert known() == (frozenset({"shop", "crm"}), 1)
    now_s = 2 * RELAYS_S
    membership.ensure()
    assert known() == (frozenset({"shop", "crm"}), 1)


def test_zookeeper_commit_is_all_or_nothing(session: Session, ensemble: Ensemble) -> None:
    """One wrong version prevents all changes."""
    a, b = ensemble.tree.task("a"), ensemble.tree.task("b")
    session.commit(Create(a, b"1"), Create(b, b"1"))
    with pytest.raises(Retryable) as caught:
        session.commit(Put(a, b"2", 0), Check(b, 5), Delete(b, 0))
    assert caught.value.code == "MR-4007"
    node = session.get(a)
    assert node is not None
    assert node.content == b"1"
    session.commit(Put(a, b"2", 0), Check(b, 0), Delete(b, 0))
    assert session.children(ensemble.tree.folder("tasks")) == ("a",)


def test_watch_fires_for_a_node_created_later(
    session: Session, other: Session, ensemble: Ensemble
) -> None:
    """Creation, change and deletion each wake the watcher."""
    path, fired = ensemble.tree.task("a"), threading.Event()
    assert session.get(path, watch=fired.set) is None
    other.create(path, b"")
    assert fired.wait(60)
    fired.clear()
    assert session.get(path, watch=fired.set) is not None
    other.delete(path, version=0)
    assert fired.wait(60)


def test_unreachable_ensemble_is_retryable() -> None:
    """Nothing listens on port 1: an error code in time, and no thread left."""
    with pytest.raises(Retryable) as caught:
        Session.open("127.0.0.1:1", connect_timeout_s=0.3)
    assert caught.value.code == "MR-4001"


def test_write_without_an_answer_has_an_unknown_outcome(ensemble: Ensemble) -> None:
    """The server has the write and its answer is lost: distinct from a read, which can simply be repeated."""
    path = ensemble.tree.task("a")
    with (
        ensemble.session() as near,
        Line(int(ensemble.hosts.rpartition(":")[2])) as line,
        replace(ensemble, hosts=line.hosts, session_timeout_s=REQUEST_TIMEOUT_S).session() as far,
    ):
        near.create(path, b"1")
        assert far.get(path) is not None
        line.swallow_answers()
        with pytest.raises(Retryable) as caught:
            far.put(path, b"2", version=0)
        assert caught.value.code == "MR-4002"

        def has_happened() -> bool:
            node = near.get(path)
            return node is not None and node.content == b"2"

        eventually(has_happened, what="the write that was not answered")
        line.heal()


def test_request_refused_by_zookeeper_is_fatal(session: Session, ensemble: Ensemble) -> None:
    """An ephemeral node has no children, so no retry could succeed."""
    parent = ensemble.tree.worker("w")
    assert session.create(parent, b"", ephemeral=True) is not None
    with pytest.raises(Fatal) as caught:
        session.create(f"{parent}/child", b"")
    assert caught.value.code == "MR-4012"


def test_mirror_follows_a_folder(session: Session, other: Session, ensemble: Ensemble) -> None:
    """Every change wakes it, and the next snapshot shows it."""
    woken = threading.Event()
    mirror = Mirror(session, ensemble.tree.folder("tasks"), woken.set)
    assert dict(mirror.snapshot()) == {}
    for change in (
        partial(other.create, ensemble.tree.task("a"), b"1"),
        partial(other.put, ensemble.tree.task("a"), b"2", version=0),
        partial(other.create, ensemble.tree.task("b"), b"3"),
        partial(other.delete, ensemble.tree.task("a"), version=1),
    ):
        woken.clear()
        change()
        assert woken.wait(60)
        eventually(lambda: _contents(mirror) == _truth(other, ensemble))
    assert _contents(mirror) == {"b": b"3"}


def _contents(mirror: Mirror) -> dict[str, bytes]:
    return {name: node.content for name, node in mirror.snapshot().items()}


def _truth(session: Session, ensemble: Ensemble) -> dict[str, bytes]:
    folder = ensemble.tree.folder("tasks")
    nodes = {name: session.get(f"{folder}/{name}") for name in session.children(folder)}
    return {name: node.content for name, node in nodes.items() if node is not None}


def test_every_lease_has_a_greater_epoch(session: Session, ensemble: Ensemble) -> None:
    """Also for a lease taken again in one session, after a release, or over a leftover node."""
    epochs = []
    for is_released in (True, False, True):
        lease = acquire(session, ensemble.tree, task="t", worker="w1")
        lease.verify()
        epochs.append(lease.epoch)
        if is_released:
            lease.release()
            assert not lease.is_held()
    assert epochs == sorted(set(epochs))
    raise_generation(session, ensemble.tree)
    assert generation_of(session, ensemble.tree) == 2
    later = acquire(session, ensemble.tree, task="t", worker="w1").epoch
    assert later > epochs[-1] + 2**50


def test_lease_excludes_others_and_reports_its_loss(
    session: Session, other: Session, ensemble: Ensemble
) -> None:
    """The second request fails and names the owner; after the node was replaced, a check fences the first."""
    mine = acquire(session, ensemble.tree, task="t", worker="w1")
    with pytest.raises(Retryable) as held:
        acquire(other, ensemble.tree, task="t", worker="w2")
    assert held.value.code == "MR-4004"
    assert "w1" in held.value.message
    owner = session.get(ensemble.tree.owner("t"))
    assert owner is not None
    other.delete(ensemble.tree.owner("t"), version=owner.version)
    theirs = acquire(other, ensemble.tree, task="t", worker="w2")
    with pytest.raises(Fenced) as lost:
        mine.verify()
    assert lost.value.code == "MR-4003"
    assert "w2" in lost.value.message
    mine.release()
    theirs.verify()


def test_one_scheduler_leads_and_an_older_one_cannot_write(
    session: Session, other: Session, ensemble: Ensemble
) -> None:
    """Every commit checks the reign: all changes of a superseded leader are refused."""
    tree, woken = ensemble.tree, threading.Event()
    first = try_to_lead(session, tree, name="s1", watch=woken.set)
    assert first is not None
    assert try_to_lead(other, tree, name="s2", watch=woken.set) is None
    first.commit([Create(tree.assignment("a"), b"")])
    with pytest.raises(Retryable):
        first.commit([Create(tree.assignment("a"), b"")])
    leader = session.get(tree.leader)
    assert leader is not None
    session.delete(tree.leader, version=leader.version)
    assert woken.wait(60)
    second = try_to_lead(other, tree, name="s2", watch=woken.set)
    assert second is not None
    assert leader_of(session, tree) == "s2"
    assert leader_version(session, tree) == ("s2", __version__)
    with pytest.raises(Fenced) as caught:
        first.commit([Create(tree.assignment("b"), b"")])
    assert caught.value.code == "MR-4008"
    assert session.get(tree.assignment("b")) is None
    first.resign()
    assert leader_of(session, tree) == "s2"
    second.resign()
    assert leader_of(session, tree) == ""
    assert leader_version(session, tree) is None


def test_worker_name_belongs_to_one_session(
    session: Session, other: Session, ensemble: Ensemble
) -> None:
    """The second session is refused; registering again in the same session has no effect."""
    worker = WorkerIdentity(name="w1", kind=TaskKind.CAPTURE)
    Membership(session, ensemble.tree, worker).ensure()
    Membership(session, ensemble.tree, worker).ensure()
    with pytest.raises(Retryable) as caught:
        Membership(other, ensemble.tree, worker).ensure()
    assert caught.value.code == "MR-4009"


def test_documents_are_created_replaced_paused_and_deleted(
    session: Session, ensemble: Ensemble
) -> None:
    """The whole life of a task document; each step has its own revision."""
    store = Store(session, ensemble.tree)
    with pytest.raises(Fatal) as no_set:
        store.create_task(a_capture())
    assert no_set.value.code == "MR-4104"
    assert store.create_set(a_set()) is Outcome.CREATED
    assert store.create_set(a_set()) is Outcome.UNCHANGED
    assert store.create_task(a_capture()) is Outcome.CREATED
    assert store.create_task(a_capture()) is Outcome.UNCHANGED
    changed = a_capture(topic="elsewhere")
    with pytest.raises(Fatal) as exists:
        store.create_task(changed)
    assert exists.value.code == "MR-4103"
    store.pause("shop-capture", by="ann")
    store.pause("shop-capture", by="bob")
    assert store.create_task(changed, replace=True) is Outcome.REPLACED
    entry = store.task_entry("shop-capture")
    assert entry.desired.paused_by == "ann"
    assert isinstance(entry.document, CaptureTask)
    assert entry.document.output.topic == "elsewhere"
    store.resume("shop-capture")
    resumed = store.task_entry("shop-capture")
    assert resumed.desired.paused_by == ""
    assert resumed.revision > entry.revision
    store.delete("shop-capture")
    with pytest.raises(Fatal) as gone:
        store.task_entry("shop-capture")
    assert gone.value.code == "MR-4104"
    store.create_task(a_capture())
    assert store.task_entry("shop-capture").revision > resumed.revision


def test_second_capture_task_for_a_topic_is_refused(session: Session, ensemble: Ensemble) -> None:
    """One topic has one writer."""
    store = Store(session, ensemble.tree)
    store.create_set(a_set())
    store.create_task(a_capture("one", topic="shop"))
    with pytest.raises(Fatal) as caught:
        store.create_task(a_capture("two", topic="shop"))
    assert caught.value.code == "MR-4105"


def test_apply_task_that_would_harm_its_target_is_refused(
    session: Session, ensemble: Ensemble
) -> None:
    """The same topic twice into one set, and a loop from either side."""
    store = Store(session, ensemble.tree)
    for name in ("shop", "warehouse"):
        store.create_set(a_set(name))
    store.create_task(a_capture("capture", topic="t"))
    store.create_task(an_apply("one", to="warehouse", topic="t"))
    store.create_task(an_apply("one", to="warehouse", topic="t"))
    store.create_task(an_apply("other", to="warehouse", topic="another"))
    with pytest.raises(Fatal, match="task one applies the topic t") as caught:
        store.create_task(an_apply("two", to="warehouse", topic="t"))
    assert caught.value.code == "MR-4108"
    with pytest.raises(Fatal, match="task capture captures it to the topic t") as caught:
        store.create_task(an_apply("loop", to="shop", topic="t"))
    assert caught.value.code == "MR-4109"
    with pytest.raises(Fatal, match="task other applies to it the topic another") as caught:
        store.create_task(a_capture("late", of="warehouse", topic="another"))
    assert caught.value.code == "MR-4109"


@pytest.mark.parametrize(
    ("mine", "rivals", "code"),
    [
        (
            an_apply("two", to="warehouse", topic="t"),
            an_apply("one", to="warehouse", topic="t"),
            "MR-4108",
        ),
        (a_capture("two", topic="t"), a_capture("one", topic="t"), "MR-4105"),
        (
            an_apply("loop", to="warehouse", topic="t"),
            a_capture("one", of="warehouse", topic="t"),
            "MR-4109",
        ),
        (
            an_apply("two", to="warehouse", topic="t"),
            an_apply("one", to="warehouse", topic="u"),
            "",
        ),
    ],
    ids=["applied twice", "captured twice", "a loop", "no conflict"],
)
def test_one_of_two_conflicting_concurrent_tasks_is_created(
    session: Session,
    other: Session,
    ensemble: Ensemble,
    monkeypatch: pytest.MonkeyPatch,
    mine: TaskDocument,
    rivals: TaskDocument,
    code: str,
) -> None:
    """The other task is written between the check and the write."""
    for name in ("shop", "warehouse"):
        Store(other, ensemble.tree).create_set(a_set(name))
    is_first = True

    def after_the_rival(write: Callable[..., object]) -> Callable[..., object]:
        def written(*arguments: object, **named: object) -> object:
            nonlocal is_first
            if is_first:
                is_first = False
                Store(other, ensemble.tree).create_task(rivals)
            return write(*arguments, **named)

        return written

    for name in ("create", "commit"):
        monkeypatch.setattr(session, name, after_the_rival(getattr(session, name)))
    store, found = Store(session, ensemble.tree), ""
    try:
        assert store.create_task(mine) is Outcome.CREATED
    except Fatal as error:
        found = error.code
    assert found == code
    assert set(store.tasks()) == {rivals.name} | ({mine.name} if not code else set())


def test_hostile_node_is_refused_alone(session: Session, ensemble: Ensemble) -> None:
    """Not JSON, wrong shape, another name, too new, too large: each is its own error, and other nodes are read."""
    store = Store(session, ensemble.tree)
    store.create_set(a_set())
    store.create_task(a_capture("good"))
    good = session.get(ensemble.tree.task("good"))
    assert good is not None
    for name, content in {
        "cut": good.content[:-5],
        "list": b"[]",
        "empty": b"",
        "renamed": good.content,
        "newer": good.content.replace(b'"format":1', b'"format":9'),
        "deep": b"[" * 100_000,
        "binary": b"\xff\x00",
        "large": b"x" * 600_000,
    }.items():
        session.create(ensemble.tree.task(name), content)
    tasks = store.tasks()
    assert isinstance(tasks.pop("good"), TaskEntry)  # type: ignore[attr-defined]
    assert len(tasks) == 8
    for entry in tasks.values():
        assert isinstance(entry, UnreadableEntry)
        assert entry.error.code in ("MR-4011", "MR-4101", "MR-4107")


def test_report_with_a_smaller_epoch_never_replaces_a_greater(
    session: Session, other: Session, ensemble: Ensemble
) -> None:
    """A stale owner's report is dropped; a report without a lease is not written at all."""
    new = StatusWriter(session, ensemble.tree, report_s=0.1)
    old = StatusWriter(other, ensemble.tree, report_s=0.1)
    old.offer("t", Offered(TaskReport(TaskState.RUNNING, worker="old"), 1))
    assert old.flush("t")
    assert read_status(session, ensemble.tree, "t") is None
    new.offer("t", Offered(TaskReport(TaskState.RUNNING, worker="new", epoch=9), 1))
    assert new.flush("t")
    old.offer("t", Offered(TaskReport(TaskState.BLOCKED, worker="old", epoch=8), 1))
    assert old.flush("t")
    standing = read_status(session, ensemble.tree, "t")
    assert standing is not None
    assert standing.report.worker == "new"


def test_calls_on_a_closed_session_are_retryable_at_once(ensemble: Ensemble) -> None:
    """After close every call raises Retryable MR-4001 at once."""
    with ensemble.session() as session:
        pass
    assert session.state is SessionState.LOST
    with pytest.raises(Retryable) as caught:
        session.get(ensemble.tree.root)
    assert caught.value.code == "MR-4001"


def test_every_installation_has_its_own_id(
    session: Session, other: Session, ensemble: Ensemble
) -> None:
    """All workers read the same ID; another cluster name has another ID."""
    mine = Store(session, ensemble.tree).installation()
    assert Store(other, ensemble.tree).installation() == mine
    elsewhere = Tree("elsewhere")
    create_tree(session, elsewhere)
    assert Store(session, elsewhere).installation() != mine
