"""Publish tasks in `millrace plan` and `task create`: effects of changes, and refusals."""

from dataclasses import replace

import pytest

from millrace.schemas.documents import (
    Brokers,
    OnChange,
    OutputTopics,
    Placement,
    PublishTask,
    Start,
    TaskDocument,
    TaskKind,
    TopicCompression,
)
from millrace.schemas.documents.topic_names import may_be_equal
from millrace.schemas.status import TaskReport, TaskState
from millrace.schemas.view.format_options import FormatName, FormatOptions
from millrace.schemas.view.view import TableRule, View
from millrace.zk.changes.changes import Plan, make_plan
from millrace.zk.placement.assignment import Placeable, placeable
from millrace.zk.tree.documents import Document
from tests.kit.control.control import a_capture, a_publish, a_set, an_apply
from tests.kit.control.tree import documents_of, wanted_of

SHOP, CAPTURE, PUBLISH = a_set(), a_capture(topic="shop"), a_publish()
RUNNING = TaskReport(TaskState.RUNNING, gtid_set="0-1-7", seq=7)
PAID = View((TableRule("shop.orders", where="(`state` = 1)"), TableRule("shop.*")))


def _plan(
    *wanted: Document, before: tuple[Document, ...] = (SHOP, CAPTURE, PUBLISH), is_new: bool = False
) -> Plan:
    names = {document.name for document in wanted}
    rest = [document for document in before if document.name not in names]
    report = TaskReport(TaskState.PENDING) if is_new else RUNNING
    return make_plan(documents_of(*before), wanted_of(*wanted, *rest), {PUBLISH.name: report})


def _effects(task: PublishTask) -> str:
    plan = _plan(task)
    assert plan.problems == ()
    return "; ".join(next(step.effects for step in plan.steps if step.key.name == task.name))


def _codes(*wanted: TaskDocument) -> list[str]:
    plan = _plan(*wanted, before=(SHOP,))
    return [problem.code for problem in plan.problems]


@pytest.mark.parametrize(
    ("changed", "effect"),
    [
        (
            replace(PUBLISH, view=PAID),
            "rows of *.*, shop.orders, shop.* are written by the new view from the next record on"
            " (it has published up to seq 7); they follow the older ones in the same topics",
        ),
        (
            replace(PUBLISH, view=PAID, on_change=OnChange.NEW_TOPICS),
            "they go to new topics (`on_change: new_topics`)",
        ),
        (
            replace(PUBLISH, topics=OutputTopics(partitions=8)),
            "`partitions`: topics get 8 partitions and keys are spread over them from the next record",
        ),
        (
            replace(PUBLISH, format=FormatOptions.of(FormatName.JSON)),
            "`records.format`, `records.decimal`, `records.zero_dates`: records are written so from",
        ),
        (
            replace(PUBLISH, topics=OutputTopics(compression=TopicCompression.ZSTD)),
            "`compression`: holds for the changes that are not published yet",
        ),
        (replace(PUBLISH, start=Start("0-1-3")), "`start` changed from first to 0-1-3 and has no"),
    ],
)
def test_change_of_a_publish_task_is_explained(changed: PublishTask, effect: str) -> None:
    """Records change from a recorded seq on; nothing is written again."""
    assert effect in _effects(changed)


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        (replace(PUBLISH, topics=OutputTopics(slots=2)), "it has 1 slots, the document names 2"),
        (a_publish(topic="other"), "it has published the topic shop up to seq 7"),
        (
            replace(PUBLISH, source=replace(PUBLISH.source, brokers=Brokers("elsewhere:9092"))),
            "it writes to the brokers",
        ),
    ],
)
def test_slots_topic_and_brokers_of_published_rows_stay(changed: PublishTask, what: str) -> None:
    """The progress and the output topics belong to them. A task that has published nothing may change them."""
    (problem,) = _plan(changed).problems
    assert problem.code == "MR-4112"
    assert what in problem.message
    assert _plan(changed, is_new=True).problems == ()


def test_new_and_deleted_publish_tasks_are_explained() -> None:
    """It begins at its start or its progress, and its topics stay."""
    created = _plan(replace(a_publish("crm-public"), start=Start(is_snapshot=True)))
    assert "begins with a snapshot of the rows that exist" in str(created.steps)
    plan = make_plan(documents_of(SHOP, CAPTURE, PUBLISH), wanted_of(SHOP, prune=True), {})
    assert "the topics shop-public.{database}.{table} and the progress" in str(plan.steps)


def test_publish_task_is_placed_on_apply_workers() -> None:
    """By its own labels, as a separate unit."""
    assert placeable(PUBLISH, Placement(frozenset({"zone=a"}))) == Placeable(
        PUBLISH.name, TaskKind.APPLY, f"task:{PUBLISH.name}", frozenset({"zone=a"})
    )


def test_two_tasks_never_write_one_topic() -> None:
    """Neither an output topic of another task, nor its progress, nor a set topic."""
    first = replace(a_publish("a"), topics=OutputTopics(pattern="public.{table}"))
    second = replace(a_publish("b"), topics=OutputTopics(pattern="public.orders"))
    assert _codes(first, second) == ["MR-4111", "MR-4111"]
    into_progress = replace(a_publish("b"), topics=OutputTopics(pattern="_a.{table}"))
    assert _codes(a_publish("a"), into_progress) == ["MR-4111", "MR-4111"]
    into_set_topic = replace(a_publish("b", topic="x"), topics=OutputTopics(pattern="shop"))
    assert _codes(CAPTURE, into_set_topic) == ["MR-4111", "MR-4111"]
    read_elsewhere = an_apply(topic="public.orders")
    assert _codes(first, read_elsewhere) == ["MR-4111", "MR-4111"]


def test_tasks_with_their_own_topics_share_a_set_topic() -> None:
    """Any number of tasks may publish one topic, beside apply tasks."""
    far = replace(
        a_publish("b"),
        topics=OutputTopics(pattern="public.{table}"),
        source=replace(PUBLISH.source, brokers=Brokers("elsewhere:9092")),
    )
    near = replace(a_publish("a"), topics=far.topics)
    assert _codes(CAPTURE, PUBLISH, near, far, an_apply("copy", topic="shop", to="w")) == [
        "MR-4104"  # the target of the apply task
    ]


@pytest.mark.parametrize(
    ("one", "other", "is_equal"),
    [
        ("a.{database}.{table}", "a.{database}.{table}", True),
        ("{database}.{table}", "a.{database}.{table}", False),
        ("{database}.{table}", "shop.orders", True),
        ("{database}.{table}", "shop.order-line", False),
        ("x{table}", "{table}y", True),
        ("x{table}", "{table}", True),
        ("{table}", "xy", True),
        ("x{table}", "x", False),
        ("a", "a", True),
        ("a", "b", False),
    ],
)
def test_patterns_that_may_give_one_name(one: str, other: str, is_equal: bool) -> None:
    """A place is one or more letters, digits and underscores."""
    assert may_be_equal(one, other) is is_equal
    assert may_be_equal(other, one) is is_equal
