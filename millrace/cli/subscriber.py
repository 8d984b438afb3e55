"""``millrace subscriber add | list | remove``: gives the consumers of topics names, and prints their rights on Kafka.

``add`` and ``remove`` print commands for a shell; what they say beside them is in comments. They change nothing on
Kafka. ``list`` shows what the tasks measure, and asks Kafka for the rest.
"""

import dataclasses
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import groupby
from typing import Annotated

import typer

from millrace.cli.control import Control, console, control, new_table, operator, print_json
from millrace.cli.status.json_form import subscriber_as_plain
from millrace.cli.texts import duration
from millrace.drivers.kafka.acls import (
    UNKNOWN_PRINCIPAL,
    Acl,
    Resource,
    commands,
    group_acls,
    principal_of,
    watch_acls,
)
from millrace.errors import Fatal
from millrace.schemas.documents import TaskDocument, address_of
from millrace.schemas.documents.subscriber import GrantedRight, Subscriber, check_subscriber
from millrace.schemas.plain import to_plain
from millrace.schemas.stages import SubscriberStage
from millrace.zk.tree.entries import TaskEntry
from millrace.zk.tree.subscribers import SubscriberEntry, Subscribers, subscribers_of
from millrace.zk.view import TaskView, read_cluster, views

FRESH_MS = 150_000  # a task measures once a minute

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Give consumers of topics a name: their rights, their lag, and when they lose records.",
)
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="A name for the subscriber.", show_default=False)],
    *,
    task: Annotated[
        list[str],
        typer.Option(
            help="A publish task, or a capture task for its set topic. Repeatable.",
            show_default=False,
        ),
    ],
    group: Annotated[
        str, typer.Option(help="The consumer group that it reads with.", show_default=False)
    ],
    principal: Annotated[
        str, typer.Option(help="Its user on Kafka, such as User:reports.", show_default=False)
    ],
    topic: Annotated[
        list[str],
        typer.Option(
            help="Only this topic, or with a final * those that begin so. Repeatable. Default: all topics of tables."
        ),
    ] = [],  # noqa: B006 - Typer copies it
    replace: Annotated[bool, typer.Option(help="Replace the subscriber of this name.")] = False,
    json: Json = False,
) -> None:
    """Name a subscriber, and print the commands that grant its rights. Changes nothing on Kafka."""
    subscriber = Subscriber(
        name=name,
        tasks=tuple(dict.fromkeys(task)),
        topics=tuple(dict.fromkeys(topic)),
        group=group,
        principal=principal,
    )
    check_subscriber(subscriber)
    with control() as now:
        documents = [now.store.task_entry(one).document for one in subscriber.tasks]
        rights = _rights(subscriber, documents)
        subscribers = Subscribers(now.session, now.tree)
        written = subscribers.add(SubscriberEntry(subscriber, rights, operator()), replace=replace)
        gone = _without(written.gone, subscribers.rights_of_others(name))
    watching = _watching(subscriber, documents)
    if json:
        print_json(
            {
                "subscriber": to_plain(subscriber),
                "outcome": written.outcome.value,
                "grant": _plain(rights),
                "measure": _plain(watching),
                "revoke": _plain(gone),
            }
        )
        return
    print(f"# subscriber {name} {written.outcome.value}. These commands grant its rights:")
    _print(rights)
    if watching:
        print("# and this lets its tasks measure how far it is:")
        _print(watching)
    if gone:
        print("# and these take away what it does not need any more:")
        _print(gone, is_removal=True)


@app.command()
def remove(
    name: Annotated[str, typer.Argument(help="The subscriber.", show_default=False)],
    *,
    json: Json = False,
) -> None:
    """Forget a subscriber, and print the commands that take its rights away. Changes nothing on Kafka."""
    with control() as now:
        subscribers = Subscribers(now.session, now.tree)
        entry = subscribers.remove(name)
        others = subscribers.rights_of_others(name)
        if isinstance(entry, Fatal):
            raise entry
        tasks = _tasks(now)
    documents = [tasks[one] for one in entry.subscriber.tasks if one in tasks]
    rights = (
        *_without(entry.rights, others),
        *_watching(entry.subscriber, documents),
    )
    if json:
        print_json({"subscriber": to_plain(entry.subscriber), "revoke": _plain(rights)})
        return
    print(f"# subscriber {name} removed. These commands take its rights away:")
    _print(rights, is_removal=True)


@app.command("list")
def list_subscribers(
    *,
    now: Annotated[
        bool, typer.Option("--now", help="Ask Kafka now, also for what a task has measured.")
    ] = False,
    json: Json = False,
) -> None:
    """List all subscribers: how far they are in the topics of each task, and how long until records are lost."""
    with control() as connected:
        entries = Subscribers(connected.session, connected.tree).all()
        tasks = _tasks(connected)
        found = {view.name: view for view in views(read_cluster(connected.session, connected.tree))}
    stages = _stages(entries, tasks, {} if now else found)
    if json:
        print_json([_as_plain(name, entry, stages) for name, entry in entries.items()])
        return
    table = new_table(
        *("SUBSCRIBER", "TASK", "TOPICS", "GROUP", "STATE", "LAG", "OLDEST UNREAD", "TO LOSS")
    )
    for name, entry in entries.items():
        if isinstance(entry, Fatal):
            table.add_row(name, str(entry))
            continue
        for task in entry.subscriber.tasks:
            table.add_row(name, task, *_cells(entry.subscriber, stages.get((name, task))))
    console().print(
        table if entries else "no subscribers: millrace subscriber add NAME --task TASK …"
    )
    for (name, task), stage in stages.items():
        if stage.why:
            print(f"{name}, {task}: {stage.why}")


def _rights(
    subscriber: Subscriber, documents: Collection[TaskDocument]
) -> tuple[GrantedRight, ...]:
    """Fatal MR-4114 if a pattern matches no topic of any task."""
    rights: dict[GrantedRight, None] = {}
    for document in documents:
        acls = group_acls(subscriber, document)
        if not any(acl.resource is Resource.TOPIC for acl in acls):
            what = f"no pattern of {subscriber.name} matches a topic of {document.name}"
            raise Fatal("MR-4114", what)
        rights |= dict.fromkeys(_granted(acls, document, subscriber.principal))
    for pattern in subscriber.topics:
        alone = dataclasses.replace(subscriber, topics=(pattern,))
        if not any(len(group_acls(alone, document)) > 1 for document in documents):
            raise Fatal("MR-4114", f"no task of {subscriber.name} writes a topic {pattern}")
    return tuple(rights)


def _watching(
    subscriber: Subscriber, documents: Collection[TaskDocument]
) -> tuple[GrantedRight, ...]:
    """The rights of the tasks' users, where brokers have logins."""
    rights: dict[GrantedRight, None] = {}
    for document in documents:
        brokers = address_of(document).brokers
        if brokers.sasl is None and brokers.certificate is None:
            continue
        rights |= dict.fromkeys(_granted(watch_acls(subscriber), document, principal_of(brokers)))
    return tuple(rights)


def _granted(acls: Iterable[Acl], document: TaskDocument, principal: str) -> Iterable[GrantedRight]:
    bootstrap = address_of(document).brokers.bootstrap
    return (
        GrantedRight(
            bootstrap=bootstrap,
            principal=principal,
            resource=acl.resource.value,
            name=acl.name,
            operation=acl.operation,
            is_prefix=acl.is_prefix,
        )
        for acl in acls
    )


def _without(
    rights: Iterable[GrantedRight], others: Collection[GrantedRight]
) -> tuple[GrantedRight, ...]:
    """Those that no other subscriber has: one user may read for several."""
    return tuple(right for right in rights if right not in others)


def _print(rights: Iterable[GrantedRight], *, is_removal: bool = False) -> None:
    for (bootstrap, principal), some in groupby(rights, lambda one: (one.bootstrap, one.principal)):
        acls = [Acl(Resource(one.resource), one.name, one.operation, one.is_prefix) for one in some]
        mark = "# " if principal == UNKNOWN_PRINCIPAL else ""  # the operator names the user
        for line in commands(acls, principal=principal, bootstrap=bootstrap, is_removal=is_removal):
            print(f"{mark}{line}")


def _plain(rights: Iterable[GrantedRight]) -> list[dict[str, object]]:
    return [to_plain(right) for right in rights]


def _tasks(now: Control) -> dict[str, TaskDocument]:
    return {
        name: entry.document
        for name, entry in now.store.tasks().items()
        if isinstance(entry, TaskEntry)
    }


def _stages(
    entries: Mapping[str, SubscriberEntry | Fatal],
    tasks: Mapping[str, TaskDocument],
    found: Mapping[str, TaskView],
) -> dict[tuple[str, str], SubscriberStage]:
    """By subscriber and task: what the task has measured lately, else what Kafka answers now."""
    from millrace.drivers.kafka.subscribers import SubscriberMeter

    now_ms = time.time_ns() // 1_000_000
    stages: dict[tuple[str, str], SubscriberStage] = {}
    for task, document in tasks.items():
        wanted = subscribers_of(entries, task)
        reported = found[task].report.subscribers if task in found else ()
        fresh = {stage.name: stage for stage in reported if now_ms - stage.measured_ms <= FRESH_MS}
        stages |= {
            (one.name, task): fresh[one.name]
            for one in wanted
            if one.name in fresh and fresh[one.name].group == one.group
        }
        asked = [one for one in wanted if (one.name, task) not in stages]
        if asked:
            measured = SubscriberMeter(document).measure(asked)
            stages |= {(stage.name, task): stage for stage in measured}
    return stages


def _cells(subscriber: Subscriber, stage: SubscriberStage | None) -> list[str]:
    if stage is None:
        return ["", subscriber.group, "no such task", "", "", ""]
    now_ms = time.time_ns() // 1_000_000
    lag = "-" if stage.lag is None else f"{stage.lag:,}"
    if stage.lost:
        lag += f", {stage.lost:,} lost"
    return [
        f"{stage.topics:,}"
        if stage.begun == stage.topics
        else f"{stage.begun:,} of {stage.topics:,}",
        stage.group,
        stage.state.value,
        lag,
        _shown(stage.age_s(now_ms), duration),
        _shown(stage.time_to_loss_s(now_ms), duration),
    ]


def _shown(value: float | None, shown: Callable[[float], str]) -> str:
    return "-" if value is None else shown(value)


def _as_plain(
    name: str,
    entry: SubscriberEntry | Fatal,
    stages: Mapping[tuple[str, str], SubscriberStage],
) -> dict[str, object]:
    if isinstance(entry, Fatal):
        return {"name": name, "error": str(entry)}
    now_ms = time.time_ns() // 1_000_000
    measured = {task: stages.get((name, task)) for task in entry.subscriber.tasks}
    return {
        **to_plain(entry.subscriber),
        "by": entry.by,
        "tasks": [
            {"task": task, **({} if stage is None else subscriber_as_plain(stage, now_ms))}
            for task, stage in measured.items()
        ],
    }
