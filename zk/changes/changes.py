"""Compares wanted documents with those of a cluster. Pure.

A plan names each document with its action and changed fields, each task that restarts and because of which field,
what a changed field means, and every problem. It is made from one ``Documents``, and its edits are written with the
same: ``Store.write`` refuses them if anything has changed in between.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from millrace.errors import Fatal, MillraceError
from millrace.schemas.documents import (
    FieldChange,
    SetDocument,
    TaskDocument,
    field_changes,
    set_of,
)
from millrace.schemas.status import TaskReport, TaskState
from millrace.zk.changes import effects
from millrace.zk.tree.documents import (
    Document,
    DocumentKey,
    DocumentKind,
    Documents,
    Edit,
    plain_document,
    refusals,
    set_key,
)

_AT_REST = (TaskState.PENDING, TaskState.PAUSED, TaskState.BLOCKED)  # no worker runs the task


class Action(StrEnum):
    """The action on a document."""

    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"
    KEEP = "keep"  # it is as wanted
    IGNORE = "ignore"  # it exists and is not wanted, and deletions were not asked for


@dataclass(frozen=True, slots=True)
class Problem:
    """A reason against a plan. ``where``: a document, or a file that can't be read."""

    where: str
    code: str
    message: str

    @classmethod
    def of(cls, where: str, error: MillraceError) -> "Problem":
        """The problem that an error names."""
        return cls(where, error.code, error.message)


@dataclass(frozen=True, slots=True)
class Step:
    """The action on one document. ``effects``: sentences for the operator."""

    key: DocumentKey
    action: Action
    document: Document | None = None
    fields: tuple[FieldChange, ...] = ()
    effects: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Restart:
    """A task that restarts, and the fields because of which it does."""

    task: str
    because: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The documents that an operator wants. ``broken``: those that can't be read, as far as their names are known."""

    documents: Mapping[DocumentKey, Document]
    broken: frozenset[DocumentKey] = frozenset()
    prune: bool = False  # delete all others


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps are sorted: sets before tasks, then by name."""

    steps: tuple[Step, ...]
    restarts: tuple[Restart, ...] = ()
    problems: tuple[Problem, ...] = field(default=())

    @property
    def edits(self) -> list[Edit]:
        """The edits to write."""
        return [
            Edit(step.key, step.document)
            for step in self.steps
            if step.action in (Action.CREATE, Action.CHANGE, Action.DELETE)
        ]


def make_plan(seen: Documents, wanted: Wanted, reports: Mapping[str, TaskReport]) -> Plan:
    """The plan that leads from ``seen`` to ``wanted``. ``reports``: of all tasks, as `millrace status` shows them."""
    keys = sorted({*seen.entries, *wanted.documents} - wanted.broken)
    steps = tuple(_step(key, seen, wanted, reports) for key in keys)
    plan = Plan(steps)
    return Plan(
        steps, tuple(_restarts(seen, steps, reports)), tuple(_problems(seen, plan, wanted, reports))
    )


def _step(
    key: DocumentKey, seen: Documents, wanted: Wanted, reports: Mapping[str, TaskReport]
) -> Step:
    after, before = wanted.documents.get(key), seen.document(key)
    report = reports.get(key.name) if key.kind is DocumentKind.TASK else None
    if after is None:
        if not wanted.prune:
            return Step(key, Action.IGNORE)
        return Step(key, Action.DELETE, effects=tuple(_deleted(before)))
    if key not in seen.entries:
        return Step(key, Action.CREATE, after, effects=tuple(_created(after)))
    if before is None:
        return Step(key, Action.CHANGE, after, effects=("replaces a node that can't be read",))
    if before == after:
        return Step(key, Action.KEEP, after)
    fields = field_changes(plain_document(before), plain_document(after))
    sentences = [*_changed(before, after, fields, report)]
    if isinstance(before, SetDocument) and isinstance(after, SetDocument):
        restarts = effects.restarts_tasks(before, after)
        sentences += _stay_blocked(key.name, seen, wanted, reports) if restarts else ()
    return Step(key, Action.CHANGE, after, fields, tuple(sentences))


def _stay_blocked(
    set_name: str, seen: Documents, wanted: Wanted, reports: Mapping[str, TaskReport]
) -> Iterator[str]:
    """The blocked tasks of a set, whose own documents do not change: they wait for an operator."""
    for key in sorted(seen.entries):
        task, report = seen.document(key), reports.get(key.name)
        if not isinstance(task, TaskDocument) or set_of(task) != set_name:
            continue
        is_blocked = report is not None and report.state is TaskState.BLOCKED
        if is_blocked and wanted.documents.get(key, task) == task:
            yield f"{key} is blocked and stays so until `millrace task resume {key.name}`"


def _created(document: Document) -> Iterator[str]:
    if isinstance(document, SetDocument):
        yield from effects.of_new_set(document)
    else:
        yield effects.of_new_task(document)


def _deleted(document: Document | None) -> Iterator[str]:
    if isinstance(document, SetDocument):
        yield "its servers are not changed; the wishes about its members go with it"
    else:
        yield effects.of_deleted_task(document)


def _changed(
    before: Document, after: Document, fields: tuple[FieldChange, ...], report: TaskReport | None
) -> Iterator[str]:
    if isinstance(before, SetDocument) and isinstance(after, SetDocument):
        yield from effects.of_changed_set(before, after)
        return
    assert not isinstance(before, SetDocument), "a key has documents of one kind"
    assert not isinstance(after, SetDocument), "a key has documents of one kind"
    yield from effects.of_changed_task(before, after, fields, report)
    if report is None or report.state not in _AT_REST:
        return
    match report.state:
        case TaskState.PAUSED:
            yield f"the task is paused and stays so until `millrace task resume {after.name}`"
        case TaskState.BLOCKED:
            yield f"the task is blocked ({report.code or 'see its status'}) and is tried again"


def _restarts(
    seen: Documents, steps: tuple[Step, ...], reports: Mapping[str, TaskReport]
) -> Iterator[Restart]:
    """The live tasks that restart, sorted by name. Blocked ones do not restart for their set."""
    by_key = {step.key: step for step in steps}
    for step in steps:
        report, before = reports.get(step.key.name), seen.document(step.key)
        if not isinstance(before, TaskDocument) or step.action is Action.DELETE:
            continue
        if report is None or report.state in _AT_REST:
            continue
        own = tuple(change.path for change in step.fields)
        after = step.document if isinstance(step.document, TaskDocument) else before
        of_set = _set_fields(seen, by_key.get(set_key(set_of(after))))
        if own or of_set:
            yield Restart(step.key.name, own + of_set)


def _set_fields(seen: Documents, step: Step | None) -> tuple[str, ...]:
    """The changed fields of a set for which its tasks restart, as ``set shop: members``."""
    if step is None or step.action is not Action.CHANGE:
        return ()
    before, after = seen.document(step.key), step.document
    if not isinstance(before, SetDocument) or not isinstance(after, SetDocument):
        return ()
    paths = effects.restarting_fields(before, after, step.fields)
    return tuple(f"{step.key}: {path}" for path in paths)


def _problems(
    seen: Documents, plan: Plan, wanted: Wanted, reports: Mapping[str, TaskReport]
) -> Iterator[Problem]:
    for key, error in refusals(seen, plan.edits):
        task = wanted.documents.get(key)
        is_set_broken = isinstance(task, TaskDocument) and set_key(set_of(task)) in wanted.broken
        if not (is_set_broken and error.code == "MR-4104"):
            yield Problem.of(str(key), error)
    for step in plan.steps:
        moved = _topic_refusal(seen.document(step.key), step.document, reports.get(step.key.name))
        if moved is not None:
            yield Problem.of(str(step.key), moved)


def _topic_refusal(
    before: Document | None, after: Document | None, report: TaskReport | None
) -> Fatal | None:
    if isinstance(before, TaskDocument) and isinstance(after, TaskDocument):
        return effects.topic_refusal(before, after, report)
    return None
