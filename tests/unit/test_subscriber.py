"""The topics of a named subscriber, as patterns and as rights, and when its tasks are measured."""

import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from millrace.drivers.kafka.acls import Resource, group_acls
from millrace.errors import Fatal, Retryable
from millrace.schemas.documents import OnChange, PublishTask, TaskDocument
from millrace.schemas.documents.subscriber import (
    Subscriber,
    TopicRange,
    check_subscriber,
    is_topic_of,
    topic_ranges,
)
from millrace.schemas.plain import to_plain
from millrace.schemas.stages import GroupState, SubscriberStage
from millrace.zk.client.session import Node, Session
from millrace.zk.run.subscriber_watch import SubscriberWatch
from millrace.zk.tree.paths import Tree, encode
from millrace.zk.tree.subscribers import SubscriberEntry, read_subscriber
from tests.kit.control.control import a_capture, a_publish, an_apply
from tests.kit.paths import ROOT
from tests.kit.sources import python_files

REPORTS = Subscriber(name="reports", tasks=("shop-public",), group="g", principal="User:reports")


def _publish(pattern: str) -> PublishTask:
    task = a_publish()
    return replace(task, topics=replace(task.topics, pattern=pattern))


@pytest.mark.parametrize(
    ("pattern", "topics", "ranges"),
    [
        ("p.{database}.{table}", (), [TopicRange("p.", is_prefix=True)]),
        ("p.all", (), [TopicRange("p.all")]),
        ("p.{database}.{table}", ("p.shop.*",), [TopicRange("p.shop.", is_prefix=True)]),
        ("p.{database}.{table}", ("p*",), [TopicRange("p.", is_prefix=True)]),
        ("p.{database}.{table}", ("p.shop.a", "p.shop.b"), [TopicRange("p.shop.a"), TopicRange("p.shop.b")]),
        ("p.{database}.{table}", ("q.*", "p.shop"), []),
        ("p.all", ("p.*",), [TopicRange("p.all")]),
        ("{database}.{table}", ("shop.*",), [TopicRange("shop.", is_prefix=True)]),
    ],
)  # fmt: skip
def test_rights_are_on_what_both_patterns_have(
    pattern: str, topics: tuple[str, ...], ranges: list[TopicRange]
) -> None:
    """Never on more than the task writes, or than the subscriber asked for."""
    subscriber = replace(REPORTS, topics=topics)
    assert list(topic_ranges(subscriber, _publish(pattern))) == ranges


def test_rights_are_to_read_only() -> None:
    """Read on the topics and on the group; the progress is not among them."""
    acls = group_acls(REPORTS, a_publish())
    assert {acl.operation for acl in acls} == {"Read"}
    assert [acl.resource for acl in acls] == [Resource.TOPIC, Resource.GROUP]
    assert not any("progress" in acl.name for acl in acls)
    (topic, _) = group_acls(REPORTS, a_capture(topic="shop"))
    assert (topic.name, topic.is_prefix) == ("shop", False)


def test_new_topics_after_a_change_are_readable() -> None:
    """Such as ``p.shop.a.v2``."""
    task = replace(_publish("p.{database}.{table}"), on_change=OnChange.NEW_TOPICS)
    assert topic_ranges(REPORTS, task) == (TopicRange("p.", is_prefix=True),)
    assert is_topic_of(REPORTS, task, "p.shop.a.v2")
    assert not is_topic_of(REPORTS, task, task.progress_topic)


def test_topics_of_no_table_must_be_named() -> None:
    """A reader of tables does not fall behind in heartbeats and transactions."""
    task = _publish("p.{database}.{table}")
    task = replace(task, format=replace(task.format, transaction_topic="moves"))
    assert not is_topic_of(REPORTS, task, "moves")
    assert topic_ranges(REPORTS, task) == (TopicRange("p.", is_prefix=True),)
    named = replace(REPORTS, topics=("moves",))
    assert is_topic_of(named, task, "moves")
    assert topic_ranges(named, task) == (TopicRange("moves"),)


@pytest.mark.parametrize("task", [an_apply(), _publish("{database}.{table}")])
def test_topics_without_a_common_beginning_are_refused(task: TaskDocument) -> None:
    """Rights on every topic of the brokers are never printed."""
    with pytest.raises(Fatal) as raised:
        topic_ranges(REPORTS, task)
    assert raised.value.code == "MR-4114"


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "a b"},
        {"tasks": ()},
        {"group": ""},
        {"principal": "reports"},
        {"principal": "User:*"},
        {"topics": ("*",)},
        {"topics": ("p.*.a",)},
    ],
)
def test_wrong_fields_of_a_subscriber_are_refused(fields: dict[str, object]) -> None:
    """Each before anything is written."""
    check_subscriber(REPORTS)
    with pytest.raises(Fatal) as raised:
        check_subscriber(replace(REPORTS, **fields))  # type: ignore[arg-type]
    assert raised.value.code == "MR-4101"


def test_node_that_can_not_be_read_is_its_error() -> None:
    """It affects no other node."""
    good = Node(encode(to_plain(SubscriberEntry(REPORTS))), 0, 1, 1, 0, 0)
    assert read_subscriber(good, name="reports") == SubscriberEntry(REPORTS)
    for content in (b"{", encode({"subscriber": {"name": 1}}), b'{"format":9}'):
        error = read_subscriber(Node(content, 0, 1, 1, 0, 0), name="reports")
        assert isinstance(error, Fatal)
        assert error.code == "MR-4011"


def test_no_code_sends_admin_requests_to_group_coordinators() -> None:
    """If the connection breaks, librdkafka 2.16 ends the process (its issue 4605)."""
    dangerous = re.compile(
        r"\.(describe_consumer_groups|list_consumer_group_offsets|alter_consumer_group_offsets|"
        r"delete_consumer_groups)\("
    )
    product = [path for path in python_files() if not path.is_relative_to(ROOT / "tests")]
    found = [path for path in product if dangerous.search(path.read_text())]
    assert found == []


@dataclass
class Nodes:
    """The nodes of subscribers; ``is_away``: ZooKeeper does not answer."""

    nodes: dict[str, Node] = field(default_factory=dict)
    is_away: bool = False

    def children(self, path: str, *, watch: object = None) -> tuple[str, ...]:
        if self.is_away:
            raise Retryable("MR-4001", "away")
        return tuple(self.nodes)

    def get_each(self, paths: Sequence[str], *, watches: object = None) -> list[Node | None]:
        return [self.nodes.get(path.rpartition("/")[2]) for path in paths]


@dataclass
class CountingMeter:
    """Counts its measurements."""

    measured: list[tuple[str, ...]] = field(default_factory=list)

    def measure(self, subscribers: Sequence[Subscriber]) -> tuple[SubscriberStage, ...]:
        self.measured.append(tuple(one.name for one in subscribers))
        return tuple(
            SubscriberStage(name=one.name, group=one.group, state=GroupState.ACTIVE)
            for one in subscribers
        )


def test_running_tasks_are_measured_once_a_minute() -> None:
    """At once after a subscriber was added; also while ZooKeeper is away; never a task that does not run."""
    nodes, meter = Nodes(), CountingMeter()
    watch = SubscriberWatch(cast(Session, nodes), Tree(), meter=lambda _task: meter)
    task, stop = a_publish(), threading.Event()
    running: Mapping[str, TaskDocument] = {task.name: task, "shop-capture": a_capture()}
    watch.round(running, stop)
    assert meter.measured == []
    nodes.nodes["reports"] = Node(encode(to_plain(SubscriberEntry(REPORTS))), 0, 1, 1, 0, 0)
    watch = SubscriberWatch(cast(Session, nodes), Tree(), meter=lambda _task: meter)
    watch.round({}, stop)
    assert meter.measured == []
    watch.round(running, stop)
    watch.round(running, stop)
    assert meter.measured == [("reports",)]
    assert [stage.name for stage in watch.latest(task.name)] == ["reports"]
    assert watch.latest("shop-capture") == ()
    nodes.is_away = True
    watch.round({}, stop)
    assert watch.latest(task.name) != ()


def test_defect_of_a_measurement_ends_no_task() -> None:
    """The loop continues with its next round."""
    nodes, stop = Nodes(), threading.Event()
    watch = SubscriberWatch(cast(Session, nodes), Tree())
    rounds = []

    def running() -> Mapping[str, TaskDocument]:
        rounds.append(1)
        watch.wake()
        if len(rounds) == 2:
            stop.set()
        raise ZeroDivisionError

    watch.run(stop, running)
    assert len(rounds) == 2
