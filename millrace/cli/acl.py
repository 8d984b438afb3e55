"""``millrace acl print [TASK | -f FILE]``: the least rights on Kafka, as ``kafka-acls.sh`` commands."""

from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import typer

from millrace.cli.control import control, origin_of, plain_from_file, print_json
from millrace.drivers.kafka.acls import (
    Acl,
    check_acls,
    commands,
    principal_of,
    registry_acls,
    subscriber_acls,
    task_acls,
)
from millrace.drivers.kafka.names import REGISTRY_TOPIC
from millrace.schemas.documents import CaptureTask, TaskDocument, address_of, parse_task

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Print the least rights that Millrace needs."
)


class Part(StrEnum):
    """The part of Millrace that logs in."""

    TASK = "task"
    SUBSCRIBER = "subscriber"
    REGISTRY = "registry"
    CHECK = "check"


@app.callback()
def main() -> None:
    """Print the least rights that Millrace needs."""


@app.command("print")
def print_acls(
    task: Annotated[str | None, typer.Argument(help="The task.", show_default=False)] = None,
    file: Annotated[
        str,
        typer.Option("-f", "--file", help="A task document (YAML) instead; - is standard input."),
    ] = "",
    part: Annotated[
        Part,
        typer.Option(
            "--for",
            help="The task itself, a program that reads its topic, the registry, or `millrace check`.",
        ),
    ] = Part.TASK,
    principal: Annotated[
        str,
        typer.Option(help="Kafka's name of the user. Default: the user of the task's `kafka`."),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the rights on Kafka of a task, of a subscriber of its topic, or of the built-in registry."""
    document = _document(task, file)
    brokers = address_of(document).brokers
    who = principal or principal_of(brokers)
    acls = _acls(document, part)
    if as_json:
        print_json([asdict(acl) | {"principal": who} for acl in acls])
        return
    for command in commands(acls, principal=who, bootstrap=brokers.bootstrap):
        print(command)


def _document(task: str | None, file: str) -> TaskDocument:
    if (task is None) == (not file):
        raise typer.BadParameter("give a TASK or -f FILE")
    if task is None:
        return parse_task(plain_from_file(file), origin=origin_of(file))
    with control() as now:
        return now.store.task_entry(task).document


def _acls(document: TaskDocument, part: Part) -> tuple[Acl, ...]:
    if part is Part.REGISTRY:
        return registry_acls(REGISTRY_TOPIC)
    if part is Part.SUBSCRIBER:
        return subscriber_acls(address_of(document).topic)
    if part is Part.CHECK and isinstance(document, CaptureTask):
        return check_acls(document.output.topic)
    return task_acls(document)
