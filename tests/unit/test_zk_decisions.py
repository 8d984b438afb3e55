"""The pure parts of control: epochs, next steps, a worker's actions, and status."""

import errno
import os
import threading
from dataclasses import replace

import pytest

from millrace.errors import Fatal, Fenced, MillraceError, Retryable
from millrace.schemas.documents import Brokers, SetDocument, TaskDocument, TaskKind, TopicAddress
from millrace.schemas.status import TaskReport, TaskState
from millrace.zk.client.session import Create, Delete, Node, Put
from millrace.zk.lease.epoch import epoch_of
from millrace.zk.lease.membership import Registered, registered
from millrace.zk.placement.assignment import Assignment
from millrace.zk.placement.nodes import assignment_content, assignments_of, wishes_of
from millrace.zk.placement.scheduler import Snapshot, plan, runnable
from millrace.zk.run.backoff import Failures, Pace, after, wait_s_after
from millrace.zk.run.slot import AssignedTask
from millrace.zk.run.supervisor import Action, SlotState, decide
from millrace.zk.tree.entries import Desired, TaskEntry, UnreadableEntry
from millrace.zk.tree.paths import Tree, encode
from millrace.zk.tree.reports import SavedReport
from millrace.zk.view import Cluster, status_of, views
from tests.kit.control.control import a_capture, a_set
from tests.kit.faults.starved import no_thread_left

S = TaskState


def an_entry(
    revision: int = 5, *, task: TaskDocument | None = None, paused_by: str = "", created: int = 1
) -> TaskEntry:
    """Return a task node."""
    return TaskEntry(Desired(task or a_capture(), paused_by), 0, revision, created)


def a_node(content: bytes, *, version: int = 0) -> Node:
    """Return a node with this content."""
    return Node(content, version, czxid=1, mzxid=1, modified_ms=0, ephemeral_owner=0)


REFUSED = UnreadableEntry(Fatal("MR-4101", "set: found nothing, wanted a name"), 0, 6)


# ---- epochs ------------------------------------------------------------------------------------


def test_epoch_combines_generation_and_czxid() -> None:
    """The layout is the module's: 11 + 20 + 32 bits, positive in 64."""
    assert epoch_of(0x5_0000_0007, generation=1) == (1 << 52) | (5 << 32) | 7
    assert epoch_of(((2**20 - 1) << 32) | (2**32 - 1), generation=2047) == 2**63 - 1


def test_epochs_rise_with_generation_then_leader_then_counter() -> None:
    """A raised generation is greater, whatever a rebuilt ensemble counts."""
    ordered = [
        epoch_of(9, generation=1),
        epoch_of(10, generation=1),
        epoch_of(1 << 32, generation=1),
        epoch_of(((2**20 - 1) << 32) | 9, generation=1),
        epoch_of(1, generation=2),
    ]
    assert ordered == sorted(set(ordered))


@pytest.mark.parametrize(
    ("czxid", "generation"), [(1 << 52, 1), (1, 0), (1, 2048), (0, 1), (-1, 1)]
)
def test_epoch_overflow_is_refused_not_truncated(czxid: int, generation: int) -> None:
    """A truncated epoch could be smaller than an earlier one."""
    with pytest.raises(Fatal) as caught:
        epoch_of(czxid, generation=generation)
    assert caught.value.code == "MR-4005"


# ---- the next step -----------------------------------------------------------------------------

PACE = Pace()


@pytest.mark.parametrize(
    ("error", "tries", "state", "code", "wait_s"),
    [
        (Retryable("MR-4001", "x"), Failures(), S.DEGRADED, "MR-4001", 0.5),
        (Retryable("MR-4001", "x"), Failures(total=3), S.DEGRADED, "MR-4001", 4.0),
        (Retryable("MR-4001", "x"), Failures(total=99), S.DEGRADED, "MR-4001", 30.0),
        (Fenced("MR-4003", "x"), Failures(), S.DEGRADED, "MR-4003", 0.5),
        (Fenced("MR-4003", "x"), Failures(total=4, fenced=4), S.BLOCKED, "MR-4006", 0.0),
        (Fatal("MR-4106", "x"), Failures(), S.BLOCKED, "MR-4106", 0.0),
        (MillraceError("MR-4106", "x"), Failures(), S.BLOCKED, "MR-4106", 0.0),
        (Fatal("MR-1002", "x"), Failures(has_run=True), S.DEGRADED, "MR-1002", 0.5),
        (Fatal("MR-5002", "x"), Failures(has_run=True, total=3), S.DEGRADED, "MR-5002", 4.0),
        (Fatal("MR-4106", "x"), Failures(has_run=True, refused=11), S.DEGRADED, "MR-4106", 0.5),
        (Fatal("MR-4106", "x"), Failures(has_run=True, refused=12), S.BLOCKED, "MR-4106", 0.0),
        (Fatal("MR-1031", "x"), Failures(has_run=True), S.BLOCKED, "MR-1031", 0.0),
        (None, Failures(), S.DEGRADED, "MR-4010", 0.5),
        (MemoryError(), Failures(total=1), S.DEGRADED, "MR-4014", 1.0),
        (ZeroDivisionError("x"), Failures(), S.BLOCKED, "MR-9001", 0.0),
    ],
)
def test_every_end_of_a_run_has_a_next_step(
    error: Exception | None, tries: Failures, state: TaskState, code: str, wait_s: float
) -> None:
    """Each row of the module's table is tested."""
    step = after(error, tries, PACE)
    assert (step.state, step.error.code, step.wait_s) == (state, code, wait_s)
    assert step.error.fix


def test_refused_login_is_retried_for_minutes_and_not_forever() -> None:
    """Long enough to change a password on the server and in its file; another failure begins a new count."""
    failures, waited_s = Failures(has_run=True), 0.0
    while (step := after(Fatal("MR-1002", "x"), failures, PACE)).state is S.DEGRADED:
        failures, waited_s = step.failures, waited_s + step.wait_s
    assert 180 < waited_s < 600
    other = after(Retryable("MR-1001", "x"), failures, PACE).failures
    assert after(Fatal("MR-1002", "x"), other, PACE).state is S.DEGRADED


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        *(
            OSError(number, os.strerror(number))
            for number in (errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOSPC)
        ),
        OSError(errno.EMFILE, "Too many open files", "a file"),
    ],
)
def test_temporary_resource_shortage_blocks_no_task(error: Exception) -> None:
    """Retryable MR-4014 names the error: no operator resumes a task that another process starved."""
    step = after(error, Failures(total=2), PACE)
    assert (step.state, step.error.code, step.failures) == (
        S.DEGRADED,
        "MR-4014",
        Failures(total=3),
    )
    assert isinstance(step.error, Retryable)
    assert type(error).__name__ in step.error.message


def test_refused_thread_blocks_no_task() -> None:
    """Python has no separate class for it: the interpreter's own words identify it."""
    with no_thread_left(), pytest.raises(RuntimeError) as caught:
        threading.Thread(target=print).start()
    step = after(caught.value, Failures(), PACE)
    assert (step.state, step.error.code) == (S.DEGRADED, "MR-4014")


@pytest.mark.parametrize(
    "error", [RuntimeError("x"), OSError(errno.EBADF, "x"), OSError("x"), FileNotFoundError(2, "x")]
)
def test_permanent_error_blocks_the_task(error: Exception) -> None:
    """A missing file, a closed descriptor and a rule of the interpreter are defects."""
    assert after(error, Failures(), PACE).error.code == "MR-9001"


def test_text_of_a_defect_is_not_in_the_status() -> None:
    """It can hold a value of a row; its class and its place lead to the log."""
    rows: dict[str, str] = {}
    with pytest.raises(KeyError) as caught:
        rows["4000 1234 5678 9010"]
    for error in (caught.value, ValueError("canary 4000 1234 5678 9010")):
        message = after(error, Failures(), PACE).error.full_message
        assert "4000" not in message
        assert type(error).__name__ in message
    assert "tests/unit/test_zk_decisions.py:" in after(caught.value, Failures(), PACE).error.message


def test_retry_resets_the_count_of_fences() -> None:
    """Only consecutive fences point to a rebuilt ensemble."""
    fenced = after(Fenced("MR-4003", "x"), Failures(), PACE).failures
    assert after(Retryable("MR-4001", "x"), fenced, PACE).failures == Failures(total=2, fenced=0)


def test_retry_pauses_double_up_to_a_limit() -> None:
    """The pauses are 0.5, 1, 2, … 16, 30, 30."""
    assert [wait_s_after(n, PACE) for n in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]


# ---- what a worker does with a task ------------------------------------------------------------


def held(
    wanted: AssignedTask, *, alive: bool = True, ending: bool = False, state: TaskState = S.RUNNING
) -> SlotState:
    """Return a slot."""
    return SlotState(task=wanted, is_alive=alive, is_ending=ending, state=state)


NOW = AssignedTask(an_entry(), a_set())
RESUMED = AssignedTask(an_entry(6), a_set())
ANEW = AssignedTask(an_entry(6, created=6), a_set())  # deleted and created again
CHANGED = AssignedTask(an_entry(6, task=a_capture(topic="other")), a_set())
MOVED_SET = AssignedTask(an_entry(), replace(a_set(), members=()))
PAUSED = AssignedTask(an_entry(6, paused_by="ann"), a_set())
SETLESS = AssignedTask(an_entry(), None)  # the set's node is missing or garbage


@pytest.mark.parametrize(
    ("assigned", "slot", "blocked", "action"),
    [
        (NOW, None, None, Action.START),
        (NOW, None, 5, Action.LEAVE),  # blocked, possibly by another worker
        (RESUMED, None, 5, Action.START),
        (None, None, None, Action.LEAVE),
        (PAUSED, None, None, Action.LEAVE),
        (REFUSED, None, None, Action.LEAVE),
        (NOW, held(NOW), None, Action.LEAVE),
        (RESUMED, held(NOW), None, Action.LEAVE),  # a running task is not disturbed
        (RESUMED, held(NOW, state=S.DEGRADED), None, Action.END),  # try now
        (CHANGED, held(NOW), None, Action.END),
        (ANEW, held(NOW), None, Action.END),
        (MOVED_SET, held(NOW), None, Action.END),
        (SETLESS, held(NOW), None, Action.LEAVE),  # nor by an unreadable set
        (replace(CHANGED, set_document=None), held(NOW), None, Action.END),
        (NOW, held(SETLESS, state=S.DEGRADED), None, Action.END),  # fixed: try now
        (SETLESS, None, None, Action.START),  # it reports that itself
        (PAUSED, held(NOW), None, Action.END),
        (None, held(NOW), None, Action.END),
        (REFUSED, held(NOW), None, Action.LEAVE),  # the last valid document stays
        (CHANGED, held(NOW, ending=True), None, Action.LEAVE),  # not before it is joined
        (NOW, held(NOW, alive=False), None, Action.START),
        (NOW, held(NOW, alive=False, state=S.BLOCKED), 5, Action.LEAVE),
        (RESUMED, held(NOW, alive=False, state=S.BLOCKED), 5, Action.START),
        (PAUSED, held(NOW, alive=False), None, Action.DROP),
        (None, held(NOW, alive=False), None, Action.DROP),
    ],
)
def test_worker_decides_by_desired_and_running_state(
    assigned: AssignedTask | UnreadableEntry | None,
    slot: SlotState | None,
    blocked: int | None,
    action: Action,
) -> None:
    """Each row is start, end, drop or leave."""
    assert decide(assigned, slot, blocked_revision=blocked) is action


# ---- the scheduler's plan ----------------------------------------------------------------------

TREE = Tree("c")


def test_plan_moves_whole_units_and_clears_deleted_tasks() -> None:
    """Tasks of one set move in one commit; a deleted task loses assignment, status and wish."""
    tasks: dict[str, TaskEntry | UnreadableEntry] = {
        name: an_entry(task=a_capture(name, of=of))
        for name, of in (("a", "s"), ("b", "s"), ("c", "t"))
    }
    snapshot = Snapshot(
        tasks,
        {
            "sets": {"s": a_node(b"")},
            "assignments": {
                "a": a_node(encode({"worker": "w0"}), version=3),
                "c": a_node(encode({"worker": "w1"})),
                "gone": a_node(b"hostile", version=4),
            },
            "wishes": {"set:s": a_node(b""), "task:a": a_node(b""), "task:x": a_node(b"")},
        },
        ("/millrace/c/status/gone",),
    )
    to_w1 = encode({"worker": "w1"})
    wanted = dict.fromkeys("abc", Assignment("w1", "w1"))
    assert plan(snapshot, wanted, TREE) == [
        [
            Put("/millrace/c/assignments/a", to_w1, 3),
            Create("/millrace/c/assignments/b", to_w1),
        ],
        [Delete("/millrace/c/assignments/gone", 4)],
        [Delete("/millrace/c/wishes/task:x", 0)],
        [Delete("/millrace/c/status/gone", -1)],
    ]


@pytest.mark.parametrize(
    ("assignment", "plain"),
    [
        (Assignment("w1", "w1"), {"worker": "w1"}),
        (Assignment("w2", "w1"), {"worker": "w2", "home": "w1"}),
        (Assignment("", "w1", "full"), {"worker": "", "home": "w1", "why": "full"}),
    ],
)
def test_assignment_comes_back_as_it_was_written(
    assignment: Assignment, plain: dict[str, object]
) -> None:
    """One at home has the bytes of an older Millrace, so an upgrade rewrites nothing."""
    assert assignment_content(assignment) == encode(plain)
    nodes = {"a": a_node(encode(plain)), "b": a_node(b"hostile")}
    assert assignments_of(nodes) == {"a": assignment}
    assert wishes_of(nodes) == {"a": assignment.worker}


def test_worker_node_names_relays_labels_and_capacity() -> None:
    """A node of an older Millrace has no labels and any capacity; an unreadable one is no worker."""
    capture = Registered(kind=TaskKind.CAPTURE)
    nodes = {
        "w1": a_node(encode({"kind": "capture", "relays": ["shop", "crm"], "capacity": 20})),
        "w2": a_node(encode({"kind": "capture", "labels": ["zone=a"], "host": "h", "since_ms": 7})),
        "w3": a_node(encode({"kind": "capture", "version": "0.2.0"})),
        "w4": a_node(encode({"kind": "capture", "relays": 7, "capacity": "x", "since_ms": True})),
        "w5": a_node(b"hostile"),
        "w6": a_node(encode({"kind": "dancing"})),
    }
    assert registered(nodes) == {
        "w1": replace(capture, relays=frozenset({"shop", "crm"}), capacity=20),
        "w2": replace(capture, labels=frozenset({"zone=a"}), host="h", since_ms=7),
        "w3": replace(capture, version="0.2.0"),
        "w4": capture,
    }


def test_older_of_two_writers_of_a_topic_runs() -> None:
    """A task with an unreadable document is not placed."""
    tasks: dict[str, TaskEntry | UnreadableEntry] = {
        "a": an_entry(task=a_capture("a", topic="shop"), created=9),
        "b": an_entry(task=a_capture("b", topic="shop"), created=8),
        "c": REFUSED,
    }
    assert list(runnable(tasks)) == ["b"]


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("k1:9092", "k1:9092", True),
        ("k1:9092,k2:9092", "k2:9092, k3:9092", True),
        ("K1:9092", "k1:9092", True),
        ("localhost:9092", "127.0.0.1:9092", True),
        ("k1:9092", "k1:9093", False),
        ("k1:9092", "k2:9092", False),
    ],
)
def test_one_common_broker_address_identifies_a_topic(one: str, other: str, is_same: bool) -> None:
    """The decision needs no request to Kafka; the topic's name counts too."""
    assert _at("shop", one).is_same_topic(_at("shop", other)) == is_same
    assert not _at("shop", one).is_same_topic(_at("stock", other))


# ---- status ----------------------------------------------------------------------------------------

RUNS = SavedReport(TaskReport(S.RUNNING, worker="w1", epoch=3, gtid_set="0-1-7"), 5, 1000)
TRIES = SavedReport(TaskReport(S.DEGRADED, "away", next_try_s=1, worker="w1", epoch=3), 5, 1000)
BLOCKS = SavedReport(TaskReport(S.BLOCKED, "broken", "MR-4106", worker="w1", epoch=3), 5, 1000)
PAUSES = SavedReport(TaskReport(S.PAUSED, "paused by ann", worker="w1", epoch=3), 5, 1000)
READY = Cluster(
    tasks={},
    workers={"w1": TaskKind.CAPTURE},
    assigned={},
    owners={},
    saved_reports={},
    leader="s1",
)


@pytest.mark.parametrize(
    ("entry", "changes", "state", "why"),
    [
        (an_entry(), {"workers": {}}, S.PENDING, "no capture worker is running"),
        (
            an_entry(),
            {"workers": {}, "leader": ""},
            S.PENDING,
            "no capture worker is running; no scheduler is running either",
        ),
        (an_entry(), {"leader": ""}, S.PENDING, "no scheduler is running"),
        (an_entry(), {}, S.PENDING, "waits to be assigned"),
        (an_entry(), {"assigned": "", "unplaced": "w1 is full"}, S.PENDING, "w1 is full"),
        (
            an_entry(),
            {"assigned": "", "unplaced": "w1 is full", "owner": "w1"},
            S.PENDING,
            "w1 is full; w1 is still stopping it",
        ),
        (an_entry(), {"assigned": "w0"}, S.PENDING, "w0 is gone; waits to be assigned again"),
        (an_entry(), {"assigned": "w0", "workers": {}}, S.PENDING, "is running (w0 is gone)"),
        (an_entry(), {"assigned": "w1"}, S.ASSIGNED, "w1 is starting it"),
        (an_entry(), {"assigned": "w1", "owner": "w0"}, S.ASSIGNED, "moving from w0 to w1"),
        (an_entry(), {"assigned": "w1", "owner": "w1", "standing": RUNS}, S.RUNNING, ""),
        (an_entry(), {"assigned": "w1", "standing": RUNS}, S.ASSIGNED, "w1 is starting it"),
        (an_entry(), {"assigned": "w1", "standing": TRIES}, S.DEGRADED, "away"),
        (an_entry(), {"assigned": "w1", "standing": BLOCKS}, S.BLOCKED, "broken"),
        (an_entry(6), {"assigned": "w1", "standing": BLOCKS}, S.ASSIGNED, "w1 is starting it"),
        # resumed: its worker has the lease again and has not reported yet
        *(
            (
                an_entry(6),
                {"assigned": "w1", "owner": "w1", "standing": standing},
                S.ASSIGNED,
                "w1 is starting it",
            )
            for standing in (BLOCKS, PAUSES)
        ),
        (an_entry(paused_by="ann"), {"standing": RUNS}, S.PAUSED, "paused by ann"),
        (
            an_entry(paused_by="ann"),
            {"owner": "w1", "standing": RUNS},
            S.PAUSED,
            "paused by ann; w1 is still stopping it",
        ),
        (REFUSED, {}, S.BLOCKED, "wanted a name"),
        (REFUSED, {"owner": "w1", "standing": RUNS}, S.DEGRADED, "still runs its last good"),
    ],
)
def test_status_always_explains_a_wait(
    entry: TaskEntry | UnreadableEntry, changes: dict[str, object], state: TaskState, why: str
) -> None:
    """Each row of the module's table is tested; reported progress is never hidden."""
    name, parts = "shop-capture", {}
    for plural, single in (
        ("assigned", "assigned"),
        ("owners", "owner"),
        ("unplaced", "unplaced"),
        ("saved_reports", "standing"),
    ):
        if single in changes:
            parts[plural] = {name: changes[single]}
    rest = {key: value for key, value in changes.items() if key in ("workers", "leader")}
    cluster = replace(READY, tasks={name: entry}, **parts, **rest)  # type: ignore[arg-type]
    report = status_of(name, entry, cluster)
    assert report.state is state
    assert why in report.why
    assert bool(report.why) == (state is not S.RUNNING)
    if changes.get("standing") is RUNS:
        assert report.gtid_set == "0-1-7"


@pytest.mark.parametrize(
    ("entry", "work", "is_shown"),
    [
        (an_entry(9), "capture shop shop-capture", True),  # resumed, or with other rules
        (an_entry(9, paused_by="ann"), "capture shop shop-capture", True),
        (an_entry(9), "", True),  # written before reports named their work
        (an_entry(9), "capture shop other", False),
        (an_entry(9), "capture crm shop-capture", False),
        (an_entry(9), "apply shop shop-capture", False),
        (an_entry(9, created=9), "capture shop shop-capture", False),
        (an_entry(9, created=9), "", False),
    ],
)
def test_progress_is_shown_only_for_its_own_work(
    entry: TaskEntry, work: str, is_shown: bool
) -> None:
    """Progress of a deleted task of this name, or of one with another topic or set, is not shown."""
    name = "shop-capture"
    standing = replace(RUNS, work=work)
    placed = replace(
        READY, tasks={name: entry}, assigned={name: "w1"}, saved_reports={name: standing}
    )
    for cluster in (placed, replace(placed, owners={name: "w1"}), replace(placed, workers={})):
        assert (status_of(name, entry, cluster).gtid_set == "0-1-7") == is_shown


@pytest.mark.parametrize(
    ("brokers", "is_shown"),
    [
        ("127.0.0.1:9092", True),
        ("k2:9092,127.0.0.1:9092", True),  # in another order, one more
        ("", True),  # written before reports named them
        ("127.0.0.1:9093", False),
        ("k2:9092", False),
    ],
)
def test_progress_on_other_brokers_is_hidden(brokers: str, is_shown: bool) -> None:
    """A topic of the same name elsewhere has no such progress; state and reason are shown."""
    name, entry = "shop-capture", an_entry()
    for standing in (replace(RUNS, brokers=brokers), replace(BLOCKS, brokers=brokers)):
        cluster = replace(
            READY, assigned={name: "w1"}, owners={name: "w1"}, saved_reports={name: standing}
        )
        report = status_of(name, entry, cluster)
        expected = standing.report if is_shown else replace(standing.report, gtid_set="")
        assert report == expected


def test_owner_without_reports_is_shown_as_silent() -> None:
    """A hung worker looks running in the tree; the age of its report shows it."""
    name = "shop-capture"
    cluster = replace(
        READY,
        tasks={name: an_entry()},
        assigned={name: "w1"},
        owners={name: "w1"},
        saved_reports={name: RUNS},
    )
    fresh, late = (views(cluster, now_ms=now_ms)[0].report for now_ms in (1000, 41_000))
    assert (fresh.state, fresh.why) == (S.RUNNING, "")
    assert (late.state, late.code) == (S.STALLED, "MR-4016")
    assert late.why == "no report for 40 s: w1 is silent"


def test_set_document_is_part_of_the_running_state() -> None:
    """The type requires it: a task restarts when its servers change."""
    document: SetDocument | None = NOW.set_document
    assert document == a_set()
    assert not NOW.is_same_work(MOVED_SET)


def _at(topic: str, bootstrap: str) -> TopicAddress:
    return TopicAddress(topic=topic, brokers=Brokers(bootstrap))
