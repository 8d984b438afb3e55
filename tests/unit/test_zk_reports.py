"""When a report is written and when it can be read; the states that a task can go through."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import cast
from uuid import UUID

import pytest

from millrace.errors import Fatal
from millrace.schemas.stages import Compared
from millrace.schemas.status import ALLOWED, TaskReport, TaskState, report_from_json
from millrace.zk.client.session import (
    REQUEST_BYTES_MAX,
    Create,
    Delete,
    Node,
    Put,
    Session,
    check_size,
)
from millrace.zk.tree.paths import Tree
from millrace.zk.tree.reports import (
    PROGRESS_S,
    REPEAT_S,
    REST_S,
    Ages,
    Offered,
    StatusWriter,
    is_due,
    read_status,
)

LAST = Offered(TaskReport(TaskState.RUNNING, gtid_set="0-1-7", seq=7, worker="w1", epoch=3), 5)
EVERY = (0.5, PROGRESS_S)


def _with(**changes: object) -> Offered:
    return replace(LAST, report=replace(LAST.report, **changes))  # type: ignore[arg-type]


MOVED = _with(gtid_set="0-1-8", seq=8)


@pytest.mark.parametrize(
    ("now", "written_s", "early_s", "moved_s", "wanted"),
    [
        (LAST, REPEAT_S - 0.1, 99, 99, False),
        (LAST, REPEAT_S, 99, 99, True),  # repeated
        (_with(state=TaskState.DEGRADED), 0.5, 0, 0, True),
        (_with(state=TaskState.DEGRADED), 0.4, 0, 0, False),
        (_with(code="MR-3021"), 0.5, 0, 0, True),
        (_with(worker="w2", epoch=4), 0.5, 0, 0, True),
        (replace(LAST, revision=6), 0.5, 0, 0, True),
        (_with(topic_end=9), 0.5, 99, 99, False),  # what is no progress waits
        (_with(topic_end=9), PROGRESS_S, 99, 99, True),
        (MOVED, 0.5, 99, 0.1, False),  # it still moves
        (MOVED, PROGRESS_S, 99, 0.1, True),
        (MOVED, 0.5, 99, 0.5, True),  # at rest
        (MOVED, 0.5, REST_S, 0.5, True),
        (MOVED, 0.5, REST_S - 0.1, 0.5, False),  # a task that often comes to rest
        (_with(why="caught up"), 0.5, 99, 0.5, True),
    ],
)
def test_report_is_written_when_it_is_due(
    now: Offered, written_s: float, early_s: float, moved_s: float, wanted: bool
) -> None:
    """Each row of the rule; ages in seconds since the last write, the last early one, and the last move."""
    ages = Ages(written_s=written_s, early_s=early_s, moved_s=moved_s)
    assert is_due(now, LAST, ages, every=EVERY) is wanted
    assert is_due(now, None, ages, every=EVERY)


def test_degraded_task_writes_its_new_reason_at_once() -> None:
    """An operator reads why it waits now."""
    before = _with(state=TaskState.DEGRADED, why="a is away")
    after = _with(state=TaskState.DEGRADED, why="b is away")
    ages = Ages(written_s=0.5, early_s=0, moved_s=0)
    assert is_due(after, before, ages, every=EVERY)


def test_task_states_change_only_as_documented() -> None:
    """Every state can be left; blocked and paused only by an operator. Stalled is only derived from reports."""
    assert not ALLOWED[TaskState.STALLED]
    for state in set(TaskState) - {TaskState.STALLED}:
        assert ALLOWED[state]
        assert TaskState.STALLED not in ALLOWED[state]
        assert state.to(state) is state
    assert TaskState.RUNNING not in ALLOWED[TaskState.BLOCKED] | ALLOWED[TaskState.PAUSED]
    with pytest.raises(ValueError, match="cannot go from blocked to running"):
        TaskState.BLOCKED.to(TaskState.RUNNING)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"format":9}', b'{"format":1,"state":"dancing"}', b"[" * 9999]
)
def test_unreadable_report_is_reported_not_guessed(content: bytes) -> None:
    """Hostile or newer status nodes raise one code."""
    with pytest.raises(Fatal) as caught:
        report_from_json(content, origin="status/x")
    assert caught.value.code == "MR-4011"


class _Nodes:
    """A session that keeps the nodes in memory."""

    incarnation = 1

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}

    def get(self, path: str) -> Node | None:
        content = self.contents.get(path)
        return None if content is None else Node(content, 0, 0, 0, 0, 0)

    def create(self, path: str, content: bytes) -> Node:
        check_size(Create(path, content))
        self.contents[path] = content
        return Node(content, 0, 0, 0, 0, 0)


@pytest.mark.parametrize("intervals", [1, 20_000, 150_000])
def test_report_with_many_intervals_is_written_and_read_back(intervals: int) -> None:
    """ZooKeeper ends the session that sends more than 1 MiB, again and again."""
    parts = ":".join(f"{7 * number}-{7 * number + 2}" for number in range(1, intervals + 1))
    report = TaskReport(TaskState.RUNNING, gtid_set=f"{UUID(int=7)}:{parts}", epoch=1)
    nodes, tree = _Nodes(), Tree("default")
    writer = StatusWriter(cast(Session, nodes), tree, report_s=1)
    writer.offer("t", Offered(report, 5, "work", "brokers"))
    assert writer.flush("t")
    (content,) = nodes.contents.values()
    assert len(content) < REQUEST_BYTES_MAX
    saved = read_status(cast(Session, nodes), tree, "t")
    assert saved is not None
    assert replace(saved.report, silent_s=0) == replace(report, silent_s=0)
    assert (saved.revision, saved.work) == (5, "work")


def test_report_beyond_the_limit_is_written_without_its_largest_fields() -> None:
    """A GTID set that no compression makes small enough. The state, its reason and the fix are shown, with a note."""
    random = Random(7)
    starts = sorted(random.sample(range(1, 1 << 60, 2), 300_000))
    report = TaskReport(
        TaskState.BLOCKED,
        why="a row is missing",
        code="MR-5010",
        gtid_set=f"{UUID(int=7)}:{':'.join(map(str, starts))}",
        seq=9,
        topic="a topic",
        topic_end=7,
        epoch=1,
        warnings=("a warning",),
        compared=Compared(every_h=24),
    )
    nodes, tree = _Nodes(), Tree("default")
    writer = StatusWriter(cast(Session, nodes), tree, report_s=1)
    writer.offer("t", Offered(report, 5, "work", "brokers"))
    assert writer.flush("t")
    saved = read_status(cast(Session, nodes), tree, "t")
    assert saved is not None
    note, *others = saved.report.warnings
    assert "gtid_set" in note
    assert others == ["a warning"]
    rest = replace(report, gtid_set="", seq=0, topic="", topic_end=0)
    assert replace(saved.report, warnings=report.warnings, silent_s=0) == rest
    assert (saved.revision, saved.work) == (5, "work")


def test_report_of_a_lost_session_never_reaches_a_rebuilt_ensemble() -> None:
    """Epochs are small again there: the former, greater one would hide all reports of the next owner."""
    nodes, tree = _Nodes(), Tree("default")
    writer = StatusWriter(cast(Session, nodes), tree, report_s=1)
    writer.offer("t", replace(LAST, incarnation=1))
    nodes.incarnation = 2
    assert writer.flush("t")
    assert nodes.contents == {}
    writer.offer("t", replace(_with(epoch=1), incarnation=2))
    assert writer.flush("t")
    saved = read_status(cast(Session, nodes), tree, "t")
    assert saved is not None
    assert saved.report.epoch == 1


def test_request_beyond_the_limit_is_not_sent() -> None:
    """Every write of a node or of several."""
    check_size(Put("/a", b"x" * 900_000, 1))
    half = b"x" * (REQUEST_BYTES_MAX // 2)
    for changes in (
        [Create("/a", b"x" * REQUEST_BYTES_MAX)],
        [Put("/a", half, 1), Delete("/c", 1), Create("/b", half)],
        [Delete("/" + "c" * 1000, 1)] * 1000,
    ):
        with pytest.raises(Fatal) as caught:
            check_size(*changes)
        assert caught.value.code == "MR-4145"


TOO_LARGE = b"x" * REQUEST_BYTES_MAX


@pytest.mark.parametrize(
    "write",
    [
        lambda session: session.create("/a", TOO_LARGE),
        lambda session: session.put("/a", TOO_LARGE, version=1),
        lambda session: session.commit(Put("/a", TOO_LARGE, 1)),
    ],
)
def test_session_refuses_a_large_write_before_it_sends(write: Callable[[Session], object]) -> None:
    """Without an ensemble, so a request would end with another code."""
    session = Session("127.0.0.1:1")
    with pytest.raises(Fatal) as caught:
        write(session)
    assert caught.value.code == "MR-4145"
