"""``millrace check [-f FILE … | SET | TASK …]``: whether the requirements of sets and tasks hold. Changes nothing.

Exit code 0: all hold. 1: warnings only. 2: a failure. An error before the checks ends the command as usual.
This module assembles and prints; the checks are in ``checks`` of each folder.
"""

import functools
import importlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import typer

from millrace.checks.areas import LIMIT_S, Check, run_checks
from millrace.checks.host import HostUse, check_host
from millrace.checks.requirement import (
    Area,
    Requirement,
    Subject,
    by_area,
    exit_code,
    without_ignored,
)
from millrace.checks.retention import judge_loss
from millrace.checks.text import as_lines, as_plain
from millrace.cli.check.scope import Scope, parse_files, scope_of, stored_documents
from millrace.cli.check.subscribers import check_subscribers
from millrace.cli.control import print_json
from millrace.codes import CATALOGUE
from millrace.drivers.mysql.grants import Role
from millrace.errors import Fatal, MillraceError
from millrace.schemas.documents import (
    ApplyTask,
    CaptureTask,
    Directives,
    PublishTask,
    Reader,
    Registry,
    SetDocument,
    TaskDocument,
    address_of,
    names_of,
)
from millrace.zk.ensemble import Ensemble
from millrace.zk.tree.documents import capture_task_among

CONNECT_S = 5.0
PAUSE_H = 72.0
# the groups of kernels that a worker of such a task compiles, with the module that has a group's folder
KERNELS: Mapping[type[TaskDocument], Mapping[str, str]] = {
    CaptureTask: {
        "relay": "millrace.producer.binlog.compiled",
        "converter": "millrace.producer.convert.kernel.compiled",
        "snapshot": "millrace.producer.snapshot.kernel.compiled",
    },
    ApplyTask: {"apply": "millrace.consumer.kernel.compiled"},
    PublishTask: {
        "apply": "millrace.consumer.kernel.compiled",
        "kafka": "millrace.drivers.kafka.headers",
    },
}


def check(
    names: list[str] = typer.Argument(
        None, metavar="SET|TASK", help="Check these; without any, all of the cluster."
    ),
    file: list[str] = typer.Option(
        [], "-f", "--file", help="A document (YAML), which may not exist yet. Repeatable."
    ),
    ignore: list[str] = typer.Option([], help="Leave out findings with this code. Repeatable."),
    pause_h: float = typer.Option(
        PAUSE_H, help="The longest pause of a task, in hours, that must lose no change."
    ),
    relay_dir: Path | None = typer.Option(None, help="Where the worker here keeps the relay log."),
    timeout: float = typer.Option(LIMIT_S, help="The time limit of each check, in seconds."),
    json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Check every requirement of source, Kafka, registry, ZooKeeper, target and this machine. Changes nothing."""
    _check_codes(ignore)
    files = parse_files(file)
    stored, ensemble, error = stored_documents(connect_timeout_s=CONNECT_S)
    if error is not None and not file:
        raise error
    scope = scope_of(stored, files, names or ())
    use = Use(pause_s=pause_h * 3600, relay_dir=relay_dir, limit_s=timeout)
    found = find_requirements(scope, ensemble, error, use)
    kept = without_ignored(found, ignore)
    ignored_count = len(found) - len(kept)
    if json:
        print_json(as_plain(kept, ignored_count=ignored_count))
    else:
        print("\n".join(as_lines(kept, ignored_count=ignored_count)))
    raise typer.Exit(exit_code(kept))


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """``pause_s``: the longest pause that must lose nothing. ``limit_s``: of each area."""

    pause_s: float = PAUSE_H * 3600
    relay_dir: Path | None = None
    limit_s: float = LIMIT_S


def find_requirements(
    scope: Scope, ensemble: Ensemble | None, error: MillraceError | None, use: Use
) -> list[Requirement]:
    """All requirements of the scope, by area. ``error``: why the documents in ZooKeeper are not known."""
    checks = []
    if ensemble is not None:
        from millrace.zk.checks import check_ensemble

        zookeeper = Subject(Area.ZOOKEEPER, "ensemble")
        checks.append(Check(zookeeper, functools.partial(check_ensemble, ensemble)))
    found = _unstored(error) if ensemble is None and error is not None else []
    checks += [*_set_checks(scope, use.pause_s), *_task_checks(scope, use.pause_s)]
    checks += [*_registry_checks(scope), _host_check(scope, use.relay_dir)]
    return by_area([*found, *run_checks(checks, limit_s=use.limit_s)])


def _check_codes(ignore: list[str]) -> None:
    for code in ignore:
        if code not in CATALOGUE:
            raise Fatal("MR-4207", f"{code} is no error code")


def _unstored(error: MillraceError) -> list[Requirement]:
    return [Subject(Area.ZOOKEEPER, "ensemble").error("documents", error)]


def _set_checks(scope: Scope, pause_s: float) -> Iterator[Check]:
    for name in scope.sets:
        document = scope.known.sets.get(name)
        if document is None:
            yield Check(
                Subject(Area.ZOOKEEPER, f"set {name}"), functools.partial(_no_set, name), "document"
            )
            continue
        if scope.is_source(name):
            find = functools.partial(_check_source, scope, document, pause_s)
            names = _names(name, scope.captures(name))
            yield Check(Subject(Area.SOURCE, f"set {name}"), find, names=names)
        if scope.applies(name):
            find = functools.partial(_check_target, scope, document)
            names = _names(name, scope.applies(name))
            yield Check(Subject(Area.TARGET, f"set {name}"), find, names=names)


def _names(set_name: str, tasks: Sequence[TaskDocument]) -> dict[str, str]:
    """The names for fixes: the task only if no other one uses the set in this role."""
    return {"set": set_name, "task": tasks[0].name if len(tasks) == 1 else ""}


def _no_set(name: str) -> Iterator[Requirement]:
    yield from ()
    raise Fatal("MR-4104", f"set {name} is neither in a file nor in ZooKeeper")


def _check_source(scope: Scope, document: SetDocument, pause_s: float) -> Iterator[Requirement]:
    from millrace.producer.checks.source import SourceUse, check_set

    tasks = scope.captures(document.name)
    positions = {task.name: scope.position_of(task) for task in tasks}
    directives = scope.known.directives.get(document.name, Directives())
    other_grants = functools.partial(scope.grants_besides, document.name, Role.SOURCE)
    asked = scope.asked_for(document.name)
    use = SourceUse(tasks, positions, directives, asked, other_grants, pause_s)
    yield from check_set(document, use)


def _check_target(scope: Scope, document: SetDocument) -> Iterator[Requirement]:
    from millrace.consumer.checks.target import TargetUse, check_target

    tasks = scope.applies(document.name)
    other_grants = functools.partial(scope.grants_besides, document.name, Role.TARGET)
    captured = {task.name: [feed.tables for feed in scope.feeds(task)] for task in tasks}
    use = TargetUse(tasks, other_grants, _source_folds(scope, tasks), captured)
    yield from check_target(document, use)


def _source_folds(scope: Scope, tasks: list[ApplyTask]) -> bool | None:
    """Whether the source of one of the tasks stores names in lower case; None if none is known or answers."""
    from millrace.producer.checks.source import folds_names

    for task in tasks:
        for capture in scope.feeds(task):
            source = scope.known.sets.get(capture.set_name)
            with suppress(MillraceError):  # a password that this machine does not have
                if source is not None and (found := folds_names(source)) is not None:
                    return found
    return None


def _task_checks(scope: Scope, pause_s: float) -> Iterator[Check]:
    for task in scope.tasks:
        topic = Subject(Area.KAFKA, f"topic {address_of(task).topic}")
        if isinstance(task, Reader):
            from millrace.consumer.checks.target import check_readable

            find = functools.partial(check_readable, task, creator=_creator(scope, task))
            yield Check(topic, find, "can be read", names_of(task))
            if (left_s := scope.known.losses.get(task.name)) is not None:
                find = functools.partial(_check_loss, topic, task.name, left_s, pause_s)
                yield Check(topic, find, "records are kept", names_of(task))
        if subscribers := scope.known.subscribers.get(task.name):
            groups = Subject(Area.KAFKA, f"subscribers of {task.name}")
            find = functools.partial(check_subscribers, groups, task, subscribers, pause_s)
            yield Check(groups, find, "consumer groups", names_of(task))
        if isinstance(task, ApplyTask):
            yield from _rows_checks(scope, task)
        if isinstance(task, ApplyTask | PublishTask) and task.view.secrets:
            from millrace.consumer.checks.publish import check_secrets

            masks = Subject(Area.HOST, f"masks of {task.name}")
            yield Check(masks, functools.partial(check_secrets, task), "keys", names_of(task))
        if isinstance(task, PublishTask):
            yield from _publish_checks(scope, task, pause_s)
        if not isinstance(task, CaptureTask):
            continue
        from millrace.producer.checks.topic import check_topic_of

        find = functools.partial(check_topic_of, task, pause_s=pause_s)
        yield Check(topic, find, names=names_of(task))
        document = scope.known.sets.get(task.set_name)
        if document is not None:
            yield Check(topic, functools.partial(_check_rows, task, document), "widest row")


def _check_loss(topic: Subject, task: str, left_s: float, pause_s: float) -> Iterator[Requirement]:
    yield judge_loss(topic, task, left_s, pause_s)


def _publish_checks(scope: Scope, task: PublishTask, pause_s: float) -> Iterator[Check]:
    from millrace.consumer.checks.publish import check_outputs, check_source

    source = Subject(Area.KAFKA, f"topic {task.source.topic}")
    find = functools.partial(check_source, task, pause_s=pause_s)
    yield Check(source, find, "records are kept", names_of(task))
    outputs = Subject(Area.KAFKA, f"topics of {task.name}")
    find = functools.partial(check_outputs, task, functools.partial(_source_of, scope, task))
    yield Check(outputs, find, "topics", names_of(task))


def _source_of(scope: Scope, task: Reader) -> SetDocument:
    """The set that is captured to the task's topic. Fatal MR-4203 without a capture task, MR-4104 without the set."""
    capture = capture_task_among(scope.known.tasks.values(), task)
    document = scope.known.sets.get(capture.set_name)
    if document is None:
        raise Fatal("MR-4104", f"no set {capture.set_name}")
    return document


def _rows_checks(scope: Scope, task: ApplyTask) -> Iterator[Check]:
    """None if the capture task or a set is not known: others report that."""
    from millrace.consumer.checks.cascades import check_cascades
    from millrace.consumer.checks.compare import check_compare
    from millrace.consumer.checks.load import RowsUse, check_load

    sets = scope.known.sets
    capture = next(iter(scope.feeds(task)), None)
    source = sets.get(capture.set_name) if capture is not None else None
    target = sets.get(task.target)
    if capture is None or source is None or target is None:
        return
    directives = scope.known.directives.get(source.name, Directives())
    use = RowsUse(task, capture, source, target, directives)
    subject = Subject(Area.SOURCE, f"tables of {task.name}")
    yield Check(subject, functools.partial(check_cascades, use), "cascades", names_of(task))
    if task.start.is_load:
        subject = Subject(Area.SOURCE, f"load of {task.name}")
        yield Check(subject, functools.partial(check_load, use), "start: load", names_of(task))
    if task.rules.compare.every_h:
        subject = Subject(Area.SOURCE, f"comparison of {task.name}")
        yield Check(subject, functools.partial(check_compare, use), "compare", names_of(task))


def _registry_checks(scope: Scope) -> Iterator[Check]:
    """One for each address; capture tasks also write, and publish tasks whose format is Avro."""
    is_written: dict[Registry, bool] = {}
    for task in scope.tasks:
        registry = address_of(task).registry
        if registry.url:
            writes = isinstance(task, CaptureTask) or (
                isinstance(task, PublishTask) and task.format.name.is_avro
            )
            is_written[registry] = is_written.get(registry, False) or writes
    for registry, writes in is_written.items():
        find = functools.partial(_check_registry, registry, is_written=writes)
        yield Check(Subject(Area.REGISTRY, registry.url), find)


def _creator(scope: Scope, task: Reader) -> str:
    """The known capture task that creates the topic; empty if there is none."""
    return next((feed.name for feed in scope.feeds(task)), "")


def _check_rows(task: CaptureTask, document: SetDocument) -> Iterator[Requirement]:
    from millrace.producer.checks.source import widest_row
    from millrace.producer.checks.topic import judge_row_size, topic_limit_bytes, topic_subject

    try:
        tables, limit_bytes = widest_row(document, task.tables), topic_limit_bytes(task)
    except MillraceError:
        return  # the checks of the set and of the topic report it
    yield judge_row_size(topic_subject(task), tables, limit_bytes)


def _check_registry(registry: Registry, *, is_written: bool) -> Iterator[Requirement]:
    from millrace.registry.checks import check_registry
    from millrace.registry.client import RegistryClient

    yield from check_registry(RegistryClient(registry), is_written=is_written)


def _host_check(scope: Scope, relay_dir: Path | None) -> Check:
    kinds = {type(task) for task in scope.tasks}
    rules = [scope.known.sets[name].relay.purge for name in scope.sets if name in scope.known.sets]
    free_gb = max((purge.remain_gb for purge in rules), default=0)
    kernels = kernel_folders(kinds) or None
    use = HostUse(
        relay_dir, free_gb, applies=bool(kinds & {ApplyTask, PublishTask}), kernels=kernels
    )
    return Check(Subject(Area.HOST, "this machine"), functools.partial(check_host, use))


def kernel_folders(kinds: Collection[type[TaskDocument]]) -> Mapping[str, Path]:
    """The folders of the machine code that workers of these tasks need on this machine.

    Not of all groups that this process happens to import: no worker may ever compile them. Without Spark no worker
    applies or publishes here.
    """
    from millrace.compiled import cache_folders

    here = [kind for kind in kinds if kind is CaptureTask or find_spec("pyspark") is not None]
    modules = {name: module for kind in here for name, module in KERNELS[kind].items()}
    for module in modules.values():
        importlib.import_module(module)  # adds its folder to `cache_folders`
    return {name: cache_folders[name] for name in sorted(modules)}
