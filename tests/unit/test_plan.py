"""The plan from documents to wanted documents: restarts, replays and problems."""

from dataclasses import replace

import pytest

from millrace.cli.documents.plan import lines_of
from millrace.schemas.documents import (
    ApplyRules,
    Brokers,
    CaptureRules,
    CompareRules,
    ConflictPolicy,
    LoadRules,
    Member,
    OnChange,
    PublishTask,
    RelayMode,
    RelayRules,
    SafeMode,
    SnapshotLimits,
    Start,
    TableFilter,
    TopicCompression,
)
from millrace.schemas.status import TaskReport, TaskState
from millrace.schemas.view.view import TableRule, View, view_of_filter
from millrace.zk.changes.changes import Action, Plan, Problem, make_plan
from millrace.zk.tree.documents import Document
from tests.kit.control.control import a_capture, a_set, an_apply
from tests.kit.control.tree import documents_of, wanted_of

SHOP, WAREHOUSE = a_set(), a_set("warehouse")
CAPTURE = a_capture(topic="shop")
APPLY = an_apply(to="warehouse")
NOT_LOADING = ApplyRules(load=LoadRules(new_tables=False))
CLUSTER: tuple[Document, ...] = (SHOP, WAREHOUSE, CAPTURE, APPLY)
RUNNING = TaskReport(TaskState.RUNNING, gtid_set="0-1-7", seq=7)


def _plan(*changed: Document, report: TaskReport = RUNNING, prune: bool = False) -> Plan:
    """The plan for a cluster of two sets and two tasks in which these documents are wanted instead."""
    names = {document.name for document in changed}
    wanted = [*changed, *(document for document in CLUSTER if document.name not in names)]
    reports = {CAPTURE.name: report, APPLY.name: report}
    return make_plan(documents_of(*CLUSTER), wanted_of(*wanted, prune=prune), reports)


def _effects(plan: Plan, name: str) -> str:
    return "; ".join(next(step.effects for step in plan.steps if step.key.name == name))


def test_equal_documents_need_no_change() -> None:
    """Nothing restarts."""
    plan = _plan()
    assert {step.action for step in plan.steps} == {Action.KEEP}
    assert (plan.edits, plan.restarts, plan.problems) == ([], (), ())


@pytest.mark.parametrize(
    ("state", "is_restarted"),
    [
        (TaskState.RUNNING, True),
        (TaskState.DEGRADED, True),
        (TaskState.STALLED, True),
        (TaskState.ASSIGNED, True),
        (TaskState.PENDING, False),
        (TaskState.PAUSED, False),
        (TaskState.BLOCKED, False),
    ],
)
def test_only_a_task_with_an_owner_restarts(state: TaskState, is_restarted: bool) -> None:
    """A paused task stays paused, a blocked one is tried again."""
    plan = _plan(replace(APPLY, rules=ApplyRules(lanes=8)), report=TaskReport(state))
    assert [each.because for each in plan.restarts] == ([("lanes",)] if is_restarted else [])
    effect = _effects(plan, APPLY.name)
    assert ("is paused and stays so" in effect) is (state is TaskState.PAUSED)
    assert ("is tried again" in effect) is (state is TaskState.BLOCKED)


def test_set_restarts_its_tasks_unless_only_the_relay_mode_changes() -> None:
    """The capture task of the source, the apply task of the target; each with the field of its own set."""
    elsewhere = (Member("db2", 3306),)
    plan = _plan(replace(SHOP, members=elsewhere), replace(WAREHOUSE, members=elsewhere))
    assert [(each.task, each.because) for each in plan.restarts] == [
        (APPLY.name, ("set warehouse: members",)),
        (CAPTURE.name, ("set shop: members",)),
    ]
    always = replace(SHOP, relay=RelayRules(mode=RelayMode.ALWAYS, start="0-1-5"))
    assert _plan(always).restarts == ()
    assert "no task restarts" in _effects(_plan(always), "shop")
    off = replace(SHOP, relay=RelayRules(mode=RelayMode.OFF))
    assert _plan(off).restarts[0].because == ("set shop: relay.mode",)


def test_blocked_task_of_a_changed_set_stays_blocked() -> None:
    """Its own document decides when it is tried again."""
    report = TaskReport(TaskState.BLOCKED)
    moved = replace(SHOP, members=(Member("db2", 3306),))
    effect = f"task {CAPTURE.name} is blocked and stays so until"
    assert effect in _effects(_plan(moved, report=report), "shop")
    assert effect not in _effects(_plan(moved, a_capture(topic="new"), report=report), "shop")
    assert effect not in _effects(_plan(moved), "shop")


@pytest.mark.parametrize(
    ("changed", "effect"),
    [
        (
            replace(CAPTURE, start=Start("0-1-3")),
            "`start` changed from first to 0-1-3 and has no effect",
        ),
        (
            a_capture(topic="new"),
            "`topic`: replay: the task begins at the oldest binlog if the topic new has no record",
        ),
        (
            replace(CAPTURE, tables=TableFilter(exclude=("shop.t",))),
            "`exclude`: rows of a table that is left out are skipped and not kept; a table that is admitted again"
            " misses them",
        ),
        (
            replace(APPLY, view=view_of_filter(TableFilter(exclude=("shop.t",)))),
            "`exclude`: rows of a table that is left out are skipped and not kept; a table that is admitted and not"
            " on the target is loaded, and with it all that foreign keys relate to it: readers miss their rows"
            " meanwhile. Any other one that is there misses the skipped rows",
        ),
        (
            replace(CAPTURE, snapshot_limits=SnapshotLimits(max_lag_s=9.0)),
            "`snapshot_limits.max_lag_s`: holds for the chunks that are not read yet",
        ),
        (
            replace(CAPTURE, rules=CaptureRules(compression=TopicCompression.GZIP)),
            "`compression`: holds for the records that are not published yet; the others stay as they are",
        ),
        (
            replace(CAPTURE, rules=CaptureRules(resolved_idle_s=300.0)),
            "`resolved_idle_s`: while nothing changes, a resolved record is written every 300 s at least",
        ),
        (
            replace(
                APPLY, view=view_of_filter(TableFilter(exclude=("shop.t",))), rules=NOT_LOADING
            ),
            "no table that is admitted now is loaded (`load.new_tables`)",
        ),
        (
            replace(APPLY, rules=NOT_LOADING),
            "`load.new_tables`: tables that `include` and `exclude` admit with this change or later are not loaded",
        ),
        (
            replace(APPLY, start=Start("0-1-3")),
            "`start` changed from first to 0-1-3 and has no effect",
        ),
        (
            replace(APPLY, target="shop", source=replace(APPLY.source, topic="x")),
            "`target`: the task resumes from its progress on shop; without progress",
        ),
        (
            replace(APPLY, rules=ApplyRules(safe_mode=SafeMode("0-1-9"))),
            "`safe_mode`: replay: rows of source transactions in 0-1-9 are written again with REPLACE and DELETE"
            " (`millrace check` names cascades that block the task then, MR-5025)",
        ),
        (
            replace(APPLY, rules=ApplyRules(conflict=ConflictPolicy.SKIP, lanes=2)),
            "`lanes`, `conflict`: holds for the changes that are not applied yet",
        ),
        (
            replace(APPLY, rules=ApplyRules(load=LoadRules(parallel=2))),
            "`load.parallel`: holds for the chunks that are not copied yet",
        ),
        (
            replace(APPLY, rules=ApplyRules(compare=CompareRules(every_h=24))),
            "`compare.every_h`: source and target are compared every 24 h, beside the task",
        ),
        (
            replace(CAPTURE, output=replace(CAPTURE.output, brokers=Brokers("k2:9092"))),
            "`kafka.bootstrap`: holds for the changes that are not published yet",
        ),
    ],
)
def test_every_changed_field_has_its_effect(changed: Document, effect: str) -> None:
    """By the rules of docs/documents.md."""
    assert effect in _effects(_plan(changed), changed.name)


def test_changed_start_counts_while_nothing_was_done() -> None:
    """Without progress the task begins there."""
    idle = TaskReport(TaskState.RUNNING)
    plan = _plan(replace(APPLY, start=Start("0-1-3")), report=idle)
    assert "`start`: begins after 0-1-3, or after the progress" in _effects(plan, APPLY.name)
    loads = _plan(replace(APPLY, start=Start(is_load=True)), report=idle)
    assert "`start`: begins with a load of all its tables, or after" in _effects(loads, APPLY.name)


def test_changed_view_names_the_tables_whose_rows_differ() -> None:
    """Also the topics that they are in from then on, and the statements that an operator accepts."""
    rules = (TableRule("shop.a"), TableRule("shop.b_*"))
    task = PublishTask(name="public", source=APPLY.source, view=View(rules))
    changed = replace(
        task,
        view=View((rules[0], replace(rules[1], drop=("note",)))),
        on_change=OnChange.NEW_TOPICS,
        accept_ddl=(7, 9),
    )
    plan = make_plan(documents_of(*CLUSTER, task), wanted_of(*CLUSTER, changed), {})
    effects = _effects(plan, "public")
    assert (
        "`tables`, `include`: rows of shop.b_* are written by the new view from its begin on; they go to new topics"
        in effects
    )
    assert "`accept_ddl`: statements that pass, and rows before them stay as they are: 7, 9" in (
        effects
    )


def test_unwanted_documents_are_deleted_only_on_request() -> None:
    """The documents that stay are judged with what is left: here a task loses its set."""
    seen = documents_of(*CLUSTER)
    for prune in (False, True):
        plan = make_plan(seen, wanted_of(SHOP, CAPTURE, APPLY, prune=prune), {})
        (step,) = [step for step in plan.steps if step.key.name == "warehouse"]
        assert step.action is (Action.DELETE if prune else Action.IGNORE)
        assert [each.code for each in plan.problems] == (["MR-4140"] if prune else [])


def test_broken_document_is_neither_deleted_nor_missing() -> None:
    """Its file has a problem already; its tasks do not have another."""
    late = a_capture("late", of="crm")
    wanted = wanted_of(*CLUSTER[:-1], late, prune=True, broken=("crm", APPLY.name))
    plan = make_plan(documents_of(*CLUSTER), wanted, {})
    assert {step.key.name: step.action for step in plan.steps}[late.name] is Action.CREATE
    assert plan.problems == ()
    assert APPLY.name not in {edit.key.name for edit in plan.edits}


def test_plan_with_problems_is_not_called_done() -> None:
    """The folder is not what the operator wants it to be."""
    bad = Problem("a.yaml", "MR-4101", "a.yaml is refused")
    refused = make_plan(documents_of(), wanted_of(), {})
    assert list(lines_of(refused, is_done=False))[-1] == "nothing to do"
    refused = replace(refused, problems=(bad,))
    assert list(lines_of(refused, is_done=False)) == ["no document that can be read"]
