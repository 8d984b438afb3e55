"""``millrace plan -f DIR``: shows what the documents of a folder will change, and changes it with ``--execute``."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated

import typer

from millrace.cli.control import Control, console, control, print_json
from millrace.cli.documents.files import Reading, read_documents, refusal
from millrace.cli.exits import ExitCode
from millrace.cli.history import field_line, plain_field
from millrace.cli.task.outputs import notes_of
from millrace.cli.task.start import check_start
from millrace.errors import Fatal
from millrace.schemas.documents import PublishTask, Reader
from millrace.zk.changes.changes import Action, Plan, Problem, Step, make_plan
from millrace.zk.tree.documents import Documents
from millrace.zk.view import read_cluster, views

SIGNS = {
    Action.CREATE: "+",
    Action.CHANGE: "~",
    Action.DELETE: "-",
    Action.KEEP: "=",
    Action.IGNORE: "?",
}
DONE = {Action.CREATE: "created", Action.CHANGE: "changed", Action.DELETE: "deleted"}


def plan(
    place: Annotated[
        str,
        typer.Option(
            "-f",
            "--file",
            metavar="DIR",
            help="A folder of documents, or a file; - reads standard input.",
        ),
    ],
    prune: Annotated[
        bool, typer.Option("--prune", help="Also delete all documents that DIR does not contain.")
    ] = False,
    execute: Annotated[
        bool, typer.Option("--execute", help="Make all changes, in one ZooKeeper transaction.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what a folder of set and task documents will change: fields, restarts, replays and problems.

    Exits with 1 while there are changes, with 0 if there are none or --execute has made them.
    """
    reading = read_documents(place)
    with control("plan --execute" if execute else "plan") as now:
        seen = now.store.documents()
        found = _planned(now, seen, reading, prune=prune)
        is_done = execute and not found.problems and bool(found.edits)
        if is_done:
            now.store.write(seen, found.edits)
    if as_json:
        print_json(as_plain(found, is_done=is_done))
    else:
        out = console()
        for line in lines_of(found, is_done=is_done):
            out.print(line, soft_wrap=True)
    if found.problems:
        raise refusal([place], found.problems)
    if found.edits and not is_done:
        raise typer.Exit(ExitCode.FINDING)


def _planned(now: Control, seen: Documents, reading: Reading, *, prune: bool) -> Plan:
    """The plan, with the problems of the files and what the sources answer to the starts of apply and publish tasks."""
    reports = {view.name: view.report for view in views(read_cluster(now.session, now.tree))}
    plan = make_plan(seen, reading.wanted(prune=prune), reports)
    after = seen.after(plan.edits)
    steps, problems = [], [*reading.problems, *plan.problems]
    for step in plan.steps:
        note = ""
        if isinstance(step.document, Reader) and _has_new_start(seen, step):
            try:
                note = check_start(step.document, after)
            except Fatal as error:
                problems.append(Problem.of(str(step.key), error))
        if isinstance(step.document, PublishTask) and step.action in (Action.CREATE, Action.CHANGE):
            try:
                found = notes_of(step.document, seen.document(step.key), after)
            except Fatal as error:
                problems.append(Problem.of(str(step.key), error))
            else:
                note = "; ".join(part for part in (note, *found) if part)
        steps.append(replace(step, effects=(*step.effects, note)) if note else step)
    return replace(plan, steps=tuple(steps), problems=tuple(problems))


def _has_new_start(seen: Documents, step: Step) -> bool:
    before = seen.document(step.key)
    known = before.start if isinstance(before, Reader) else None
    return isinstance(step.document, Reader) and step.document.start != known


def lines_of(plan: Plan, *, is_done: bool) -> Iterator[str]:
    """The plan for people. Documents that are as wanted are only counted."""
    for step in plan.steps:
        if step.action is Action.KEEP:
            continue
        what = DONE[step.action] if is_done and step.action in DONE else _word(step.action)
        yield f"{SIGNS[step.action]} {step.key}: {what}"
        yield from (f"    {field_line(change)}" for change in step.fields)
        yield from (f"    · {effect}" for effect in step.effects)
    for restart in plan.restarts:
        yield f"! task {restart.task} restarts because of {', '.join(restart.because)}"
    counts = {action: sum(step.action is action for step in plan.steps) for action in Action}
    words = [
        f"{counts[action]} {_counted(action, is_done=is_done)}"
        for action in Action
        if counts[action]
    ]
    yield ", ".join(words) or "no document that can be read"
    if not (plan.edits or plan.problems):
        yield "nothing to do"


def as_plain(plan: Plan, *, is_done: bool) -> dict[str, object]:
    """The plan for scripts."""
    return {
        "executed": is_done,
        "changes": len(plan.edits),
        "documents": [
            {
                "kind": step.key.kind.value,
                "name": step.key.name,
                "action": step.action.value,
                "fields": [plain_field(change) for change in step.fields],
                "effects": list(step.effects),
            }
            for step in plan.steps
        ],
        "restarts": [{"task": each.task, "because": list(each.because)} for each in plan.restarts],
        "problems": [
            {"where": each.where, "code": each.code, "message": each.message}
            for each in plan.problems
        ],
    }


def _word(action: Action) -> str:
    return "not in DIR; --prune deletes it" if action is Action.IGNORE else action.value


def _counted(action: Action, *, is_done: bool) -> str:
    if is_done and action in DONE:
        return DONE[action]
    return {
        Action.CREATE: "to create",
        Action.CHANGE: "to change",
        Action.DELETE: "to delete",
        Action.KEEP: "unchanged",
        Action.IGNORE: "not in DIR",
    }[action]
