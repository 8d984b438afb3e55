"""The status of publish tasks: the stage, its lines, its metrics, and a task that does not run."""

import json
from dataclasses import replace

from millrace.cli.status.detail import detail_of
from millrace.cli.status.line import lines_of
from millrace.metrics import Exposition
from millrace.schemas.documents import TaskKind, address_of
from millrace.schemas.stages import Applied, Backlog, Delivered, Rates, SlotPlace
from millrace.schemas.stall import with_stall
from millrace.schemas.status import TaskReport, TaskState, report_from_json, report_to_plain
from millrace.zk.run.task_metrics import add_tasks
from millrace.zk.tree.entries import Desired, TaskEntry
from millrace.zk.tree.reports import SavedReport, work_of
from millrace.zk.view import Cluster, TaskView, views
from tests.kit.control.control import a_capture, a_publish
from tests.kit.control.reports import DELIVERED, FULL_PUBLISH

VIEW = TaskView(
    name="shop-public",
    kind="publish",
    route="topic shop → topics shop-public.{database}.{table}",
    report=FULL_PUBLISH,
    assigned="a1",
    age_s=0,
)


def test_stage_is_made_from_the_slots_and_their_pace() -> None:
    """Lag and backlog are those of the slot that is the furthest behind."""
    pace = Applied(lag_s=1.5, backlog=Backlog(9, 8, 7), rates=Rates(3.0, 2.0), eta_s=4.0)
    slots = [SlotPlace(slot=number, seq=5 + number, offset=6, records=10) for number in range(2)]
    stage = Delivered.of(pace, slots, record_rates=Rates(5.0), topics=3, definition=(2, 4))
    assert (stage.lag_s, stage.backlog, stage.eta_s) == (1.5, Backlog(9, 8, 7), 4.0)
    assert (stage.records, stage.topics, stage.definition, stage.from_seq) == (20, 3, 2, 4)
    assert [place.seq for place in stage.slots] == [5, 6]


def test_report_of_a_publish_task_comes_back_as_written() -> None:
    """To ZooKeeper and back. An earlier version reports no such stage."""
    plain = report_to_plain(FULL_PUBLISH)
    assert report_from_json(json.dumps(plain).encode(), origin="status/t") == FULL_PUBLISH
    del plain["delivered"]
    earlier = report_from_json(json.dumps(plain).encode(), origin="status/t")
    assert earlier == replace(FULL_PUBLISH, delivered=None)


def test_publish_task_shows_its_stage_in_one_line() -> None:
    """As an apply task does."""
    (line,) = lines_of(VIEW, name_width=11, width=150)
    assert line == (
        "shop-public RUNNING  lag 1.5 s | backlog 237 rows, 234.4 KiB | 4,321 rows/s | ETA 4 s"
        " | seq 912,101 | published up to offset 70"
    )


def test_detail_lists_topics_definition_and_slots() -> None:
    """One slot needs no separate line."""
    text = "\n".join(detail_of(VIEW, width=200))
    assert "  topics    2,000,000 records in 12 topics" in text
    assert "  document  the change number 2, from seq 900,001 on" in text
    assert "  slot      1: seq 912,300, offset 99, 500,000 records" in text
    one = replace(DELIVERED, slots=DELIVERED.slots[:1], definition=1)
    alone = "\n".join(
        detail_of(replace(VIEW, report=replace(FULL_PUBLISH, delivered=one)), width=200)
    )
    assert "slot " not in alone
    assert "document" not in alone


def test_publish_task_that_does_not_move_is_stalled() -> None:
    """Records wait, and none was delivered for half a minute."""
    stuck = replace(FULL_PUBLISH, delivered=replace(DELIVERED, waits_s=31.0))
    found = with_stall(stuck)
    assert (found.state, found.code) == (TaskState.STALLED, "MR-4016")
    assert "nothing was delivered for 31 s" in found.why
    assert with_stall(FULL_PUBLISH).state is TaskState.RUNNING


def test_metrics_of_a_publish_task_are_its_values() -> None:
    """One series for each slot."""
    found = Exposition()
    add_tasks(found, {"p": FULL_PUBLISH})
    text = found.text()
    for line in (
        'millrace_deliver_lag_seconds{task="p"} 1.5',
        'millrace_delivered_records_total{task="p"} 2000000',
        'millrace_slot_seq{task="p",slot="1"} 912300',
        'millrace_rows_per_second{task="p"} 4321',
        'millrace_remaining_seconds{task="p"} 3.5',
    ):
        assert line in text


def test_paused_publish_task_falls_behind_visibly() -> None:
    """The rows that the set topic has more, and the time since the last delivered row's commit."""
    capture, task = a_capture(topic="shop"), a_publish()
    stopped = replace(
        FULL_PUBLISH, delivered=replace(DELIVERED, commit_ms=1_000_000), seq=40
    ).at_rest()
    captured = TaskReport(TaskState.RUNNING, seq=100, epoch=1, worker="w1")
    cluster = Cluster(
        tasks={
            capture.name: TaskEntry(Desired(capture), 0, 5, 1),
            task.name: TaskEntry(Desired(task, paused_by="ann"), 0, 5, 1),
        },
        workers={"a1": TaskKind.APPLY, "w1": TaskKind.CAPTURE},
        assigned={task.name: "a1", capture.name: "w1"},
        owners={capture.name: "w1"},
        saved_reports={
            each.name: SavedReport(
                report=report,
                revision=5,
                modified_ms=1_001_000,
                work=work_of(each),
                brokers=address_of(each).brokers.bootstrap,
            )
            for each, report in ((capture, captured), (task, stopped))
        },
        leader="s1",
    )
    found = {view.name: view for view in views(cluster, now_ms=1_090_000)}[task.name]
    stage = found.report.delivered
    assert found.kind == "publish"
    assert found.route == "topic shop → topics shop-public.{database}.{table}"
    assert stage is not None
    assert (stage.lag_s, stage.backlog, stage.records) == (
        90.0,
        Backlog(rows=60),
        DELIVERED.records,
    )
