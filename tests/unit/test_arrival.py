"""Which capture task an apply task reads from, and when a task has reached the primary's position."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from millrace.cli.control import Control
from millrace.cli.task import wait
from millrace.cli.task.wait import capture_task_of, source_set_of, wait_until_arrived
from millrace.errors import Fatal, MillraceError
from millrace.schemas.documents import (
    ApplyTask,
    Brokers,
    CaptureTask,
    Directives,
    TaskKind,
    TopicAddress,
)
from millrace.schemas.gtid import Flavour, History, parse_binlog_state, parse_gtid_set
from millrace.schemas.status import TaskReport, TaskState
from millrace.zk.tree.entries import Desired, TaskEntry
from millrace.zk.tree.reports import SavedReport
from millrace.zk.view import Cluster


def _capture(name: str, bootstrap: str) -> CaptureTask:
    return CaptureTask(
        name=name,
        set_name=f"set-of-{name}",
        output=TopicAddress(topic="shop", brokers=Brokers(bootstrap)),
    )


def _control(*tasks: CaptureTask) -> Control:
    entries = {task.name: TaskEntry(Desired(task), 0, 0, 1) for task in tasks}
    return cast(Control, SimpleNamespace(store=SimpleNamespace(tasks=lambda: entries)))


@pytest.mark.parametrize(
    "bootstrap",
    ["kafka1:9092", "KAFKA1:9092", "kafka2:9092,kafka1:9092", "kafka0:9092, kafka1:9092"],
)
def test_topic_is_found_under_any_names_of_its_brokers(bootstrap: str) -> None:
    """A topic of the same name on other brokers is another topic."""
    now = _control(_capture("elsewhere", "other:9092"), _capture("ours", "kafka1:9092,kafka3:9092"))
    task = ApplyTask(
        name="apply",
        source=TopicAddress(topic="shop", brokers=Brokers(bootstrap)),
        target="warehouse",
    )
    assert capture_task_of(now, task).name == "ours"
    assert source_set_of(now, task) == "set-of-ours"


def test_same_topic_name_on_other_brokers_is_refused() -> None:
    """It is refused, not compared."""
    task = ApplyTask(
        name="apply",
        source=TopicAddress(topic="shop", brokers=Brokers("kafka1:9092")),
        target="warehouse",
    )
    with pytest.raises(Fatal) as caught:
        capture_task_of(_control(_capture("elsewhere", "other:9092")), task)
    assert caught.value.code == "MR-4203"


WORKER = "w1"


def _history(position: str, state: str = "") -> History:
    wanted = parse_gtid_set(Flavour.MARIADB, position)
    return History(wanted, parse_binlog_state(state or position))


def _cluster(reports: Mapping[str, TaskReport], entries: Mapping[str, TaskEntry]) -> Cluster:
    """Return the tree's state after each owner reported this."""
    return Cluster(
        tasks=entries,
        workers={WORKER: TaskKind.CAPTURE},
        assigned=dict.fromkeys(entries, WORKER),
        owners=dict.fromkeys(entries, WORKER),
        saved_reports={
            name: SavedReport(replace(report, worker=WORKER, epoch=1), entries[name].revision, 0)
            for name, report in reports.items()
        },
        leader="s1",
    )


def _wait(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    reports: Mapping[str, TaskReport],
    histories: Iterable[History],
    *,
    timeout_s: float = 0.0,
    gtid_set: str | None = None,
    relay_paused_by: str = "",
    read: tuple[Callable[..., Cluster], dict[str, TaskEntry]] | None = None,
) -> str:
    """Return the code that ends a wait for ``name``, "" for success.

    The primary reports ``histories``, then the last.
    """
    capture = _capture("shop", "kafka1:9092")
    apply = ApplyTask(name="warehouse", source=capture.output, target="warehouse")
    entries: dict[str, TaskEntry] = {} if read is None else read[1]
    for task in (capture, apply):
        paused_by = "ann" if reports[task.name].state is TaskState.PAUSED else ""
        entries[task.name] = TaskEntry(Desired(task, paused_by), 0, 5, 1)
    store = SimpleNamespace(
        tasks=lambda: entries,
        task_entry=lambda name: entries[name],
        set_entry=lambda name: SimpleNamespace(document=SimpleNamespace(name=name)),
        directives=lambda _name: Directives(relay_paused_by=relay_paused_by),
    )
    answers = list(histories)
    monkeypatch.setattr(
        wait, "primary_history", lambda _set: answers.pop(0) if answers[1:] else answers[0]
    )
    monkeypatch.setattr(wait, "halted_replicas", lambda *_: ())
    model = (lambda *_arguments, **_named: _cluster(reports, entries)) if read is None else read[0]
    monkeypatch.setattr(wait, "read_tasks", model)
    now = cast(Control, SimpleNamespace(store=store, session=None, tree=None))
    try:
        wait_until_arrived(now, name, timeout_s=timeout_s, gtid_set=gtid_set)
    except MillraceError as error:
        return f"{error.code} {error.message}"
    return ""


@pytest.mark.parametrize(
    ("state", "has", "code"),
    [
        (TaskState.RUNNING, "0-1-7", ""),
        (TaskState.RUNNING, "0-1-6", "MR-4201"),
        (TaskState.PAUSED, "0-1-7", ""),  # it is paused at that position
        (TaskState.PAUSED, "0-1-6", "MR-4202"),
        (TaskState.BLOCKED, "0-1-6", "MR-4202"),
        (TaskState.BLOCKED, "0-1-7", "MR-4202"),  # a lost topic no longer has it
    ],
)
def test_hopeless_wait_ends_at_once(
    monkeypatch: pytest.MonkeyPatch, state: TaskState, has: str, code: str
) -> None:
    """A blocked task always ends the wait, a paused one unless it has arrived; others are awaited."""
    reports = {
        "shop": TaskReport(state, gtid_set=has),
        "warehouse": TaskReport(TaskState.RUNNING),
    }
    timeout_s = 0.0 if code in ("", "MR-4201") else 5.0
    assert _wait(monkeypatch, "shop", reports, [_history("0-1-7")], timeout_s=timeout_s)[:7] == code


@pytest.mark.parametrize(
    ("state", "captured", "applied", "code"),
    [
        (TaskState.BLOCKED, "0-1-6", "0-1-6", "MR-4202"),
        (TaskState.PAUSED, "0-1-6", "0-1-6", "MR-4202"),
        (TaskState.BLOCKED, "0-2-8", "0-2-8", "MR-4202"),  # a transaction that only the replica has
        (
            TaskState.BLOCKED,
            "0-1-7",
            "0-1-6",
            "MR-4201",
        ),  # captured earlier: it may still be applied
        (TaskState.PAUSED, "0-1-7", "0-1-6", "MR-4201"),
        (TaskState.BLOCKED, "0-1-7", "0-1-7", ""),
        (TaskState.RUNNING, "0-1-6", "0-1-6", "MR-4201"),
    ],
)
def test_wait_for_apply_ends_when_its_capture_task_stopped(
    monkeypatch: pytest.MonkeyPatch, state: TaskState, captured: str, applied: str, code: str
) -> None:
    """The wait continues if the records it needs are already in the topic."""
    reports = {
        "shop": TaskReport(state, "no such member", "MR-1033", gtid_set=captured),
        "warehouse": TaskReport(TaskState.RUNNING, gtid_set=applied),
    }
    timeout_s = 5.0 if code == "MR-4202" else 0.0
    message = _wait(monkeypatch, "warehouse", reports, [_history("0-1-7")], timeout_s=timeout_s)
    assert message[:7] == code
    if code == "MR-4202":
        assert "warehouse waits for its capture task: shop is " in message


@pytest.mark.parametrize(
    ("has", "state_now", "code"),
    [
        ("0-2-35890", "0-1-35889", "MR-4201"),  # only a replica has it
        ("0-1-35890", "0-1-35891", ""),  # the primary continued
        ("0-2-35890", "0-1-35889,0-2-35890", ""),  # a failover without a loss
        # a failover that lost the awaited transaction
        ("0-2-35890", "0-1-35880,0-2-35890", "MR-4201"),
    ],
)
def test_greater_gtid_number_counts_only_if_the_primary_logged_it(
    monkeypatch: pytest.MonkeyPatch, has: str, state_now: str, code: str
) -> None:
    """The primary is asked again: a replica's local transaction may have a greater number too."""
    reports = {
        "shop": TaskReport(TaskState.RUNNING, gtid_set=has),
        "warehouse": TaskReport(TaskState.RUNNING, gtid_set=has),
    }
    histories = [_history("0-1-35889"), _history("0-1-35889", state_now)]
    for name in reports:
        message = _wait(monkeypatch, name, reports, histories)
        assert message[:7] == code
        if code:
            assert f"it has {has}, which is not proven to contain 0-1-35889" in message


@pytest.mark.parametrize(
    ("gtid_set", "code"),
    [
        ("0-1-5", ""),
        ("0-1-7", ""),
        ("0-1-8", "MR-4201"),
        ("0-2-7", "MR-4201"),
        ("no", "MR-6001"),
        ("", "MR-6001"),
    ],
)
def test_wait_for_a_given_gtid_set_ignores_later_changes(
    monkeypatch: pytest.MonkeyPatch, gtid_set: str, code: str
) -> None:
    """The primary is at 9, the apply task at 7; a number of another server is no proof."""
    reports = dict.fromkeys(("shop", "warehouse"), TaskReport(TaskState.RUNNING, gtid_set="0-1-7"))
    found = _wait(monkeypatch, "warehouse", reports, [_history("0-1-9")], gtid_set=gtid_set)
    assert found.partition(" ")[0] == code


def test_wait_reads_again_only_after_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """It read the whole tree ten times a second before."""
    reads: list[object] = []

    def read(_session: object, _tree: object, names: list[str], watch: object) -> Cluster:
        reads.append(names)
        return _cluster(reports, entries)

    reports = dict.fromkeys(("shop", "warehouse"), TaskReport(TaskState.RUNNING, gtid_set="0-1-6"))
    entries: dict[str, TaskEntry] = {}
    monkeypatch.setattr(wait, "ROUND_S", 60.0)
    message = _wait(
        monkeypatch, "warehouse", reports, [_history("0-1-7")], timeout_s=0.2, read=(read, entries)
    )
    assert message.startswith("MR-4201 ")
    assert reads == [["warehouse", "shop"]] * 2, "at the start and at the end"


def test_timeout_names_the_operator_who_pauses_the_relay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replicas that stopped are not the cause then: the set receives nothing."""
    reports = {
        "shop": TaskReport(TaskState.RUNNING, gtid_set="0-1-6"),
        "warehouse": TaskReport(TaskState.RUNNING, gtid_set="0-1-6"),
    }
    said = _wait(monkeypatch, "shop", reports, [_history("0-1-7")], relay_paused_by="ann")
    assert said.startswith("MR-4201 ")
    assert "the relay of set set-of-shop is paused by ann" in said
