"""The command line: ``millrace COMMAND …``.

``TOPICS`` lists every command with its module and one line of help. A module is imported only when its command is
used: ``millrace --help`` loads no driver, and a broken module breaks no other command. A module provides a function
with the command's name that Typer can run (``down``), or a ``typer.Typer`` named ``app``. Help and errors are plain
text everywhere. ``millrace --install-completion`` completes commands and options in bash, zsh and fish.

A Millrace error prints two lines to standard error (code and message, then the fix), or one JSON object with
``--json``. ``millrace.cli.exits`` has the exit codes. Logs go to standard error: MILLRACE_LOG is ``text`` (default) or
``json``, MILLRACE_LOG_LEVEL is ``info`` by default. If MILLRACE_ZOOKEEPER is not set and a local stack runs (``millrace
up``), commands connect to the local stack. If several run, MILLRACE_STACK names the one to use.
"""

import importlib
import importlib.util
import io
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from millrace import __version__, log
from millrace.cli.exits import (
    ExitCode,
    Finding,
    OutputClosed,
    exit_code_of,
    is_json_wanted,
    is_output_closed,
    print_error,
    table,
)
from millrace.errors import MillraceError
from millrace.home_folder import STACK, local_stack_environment
from millrace.process.installation import Extra, check_extra, check_parts, missing_modules
from millrace.process.signals import leave_at_interrupt, raise_at_interrupt

_ENSEMBLE = "MILLRACE_ZOOKEEPER"
_HELP = ("--help", "-h")


@dataclass(frozen=True, slots=True)
class Command:
    """A command's module, its help in one line, and the extra it needs."""

    module: str
    help: str
    extra: Extra | None = None


# what a user does, in the order in which users begin with it
TOPICS: Mapping[str, Mapping[str, Command]] = MappingProxyType(
    {
        "Try": {
            "try": Command(
                "millrace.cli.trial.trial", "Show the rows of your own server as they commit."
            ),
            "demo": Command(
                "millrace.cli.local.demo",
                "Start everything, change rows, watch them arrive, compare.",
                Extra.LOCAL,
            ),
            "up": Command(
                "millrace.cli.local.stack", "Start a local stack in the background.", Extra.LOCAL
            ),
            "sql": Command("millrace.cli.local.sql", "Open an SQL client on the local stack."),
            "down": Command("millrace.cli.local.stack", "Stop the local stack."),
            "bench": Command(
                "millrace.cli.local.bench",
                "Measure Millrace and its peers; prints JSON lines.",
                Extra.LOCAL,
            ),
        },
        "Run": {
            "worker": Command(
                "millrace.cli.worker", "Run a capture worker; list or drain any worker."
            ),
            "scheduler": Command(
                "millrace.cli.scheduler", "Run a scheduler, which assigns tasks to workers."
            ),
            "registry": Command("millrace.cli.registry", "Run the built-in schema registry."),
            "apply": Command(
                "millrace.cli.apply",
                "Run an apply driver: from Kafka to target sets, on Spark.",
                Extra.APPLY,
            ),
        },
        "Look": {
            "status": Command(
                "millrace.cli.status.status",
                "Show the state of every task, its figures, and why it waits.",
            ),
            "top": Command("millrace.cli.status.top", "Show the tasks live, in columns."),
            "check": Command(
                "millrace.cli.check.check",
                "Check every requirement of sets and tasks; change nothing.",
            ),
            "doctor": Command(
                "millrace.cli.doctor.doctor",
                "Find what to fix first; collect a bundle for those who help.",
            ),
            "explain": Command("millrace.cli.explain", "Explain an error code and how to fix it."),
            "topic": Command("millrace.cli.topic", "Read a topic, or verify that it is complete."),
            "compare": Command(
                "millrace.cli.compare.compare", "Compare every row of a task's source and target."
            ),
            "relay": Command(
                "millrace.cli.relay.relay",
                "List, verify, dump or purge a worker's relay log, on its machine.",
            ),
            "export": Command("millrace.cli.documents.export", "Write all documents to files."),
            "schema": Command(
                "millrace.cli.documents.schema", "Print the JSON Schema of set or task documents."
            ),
        },
        "Change": {
            "set": Command("millrace.cli.sets", "Manage sets: each is a primary and its replicas."),
            "task": Command(
                "millrace.cli.task.task",
                "Manage tasks: capture a set to a topic, apply a topic to a set.",
            ),
            "plan": Command(
                "millrace.cli.documents.plan",
                "Show what documents will change; change it with --execute.",
            ),
            "import": Command(
                "millrace.cli.documents.moving",
                "Turn the configuration of Debezium, Canal, Maxwell or DM into documents.",
            ),
            "subscriber": Command(
                "millrace.cli.subscriber",
                "Give consumers of topics a name: their rights, lag, and time to loss.",
            ),
            "replica": Command(
                "millrace.cli.replica", "Show the members of a set; pin or drain one of them."
            ),
            "grants": Command(
                "millrace.cli.grants", "Print the SQL of the accounts with the least privileges."
            ),
            "acl": Command("millrace.cli.acl", "Print the least rights that Millrace needs."),
            "cluster": Command(
                "millrace.cli.cluster", "Show the generation; raise it after ZooKeeper was rebuilt."
            ),
        },
        "Repair": {
            "conflict": Command(
                "millrace.cli.conflict",
                "Show changes that did not fit the target's row; replay or discard them.",
            ),
            "ddl": Command(
                "millrace.cli.ddl",
                "Show DDL statements that block apply tasks; skip or apply them.",
            ),
            "unsafe": Command(
                "millrace.cli.unsafe.unsafe",
                "Let a blocked capture task continue without changes that it can't publish.",
            ),
        },
    }
)
COMMANDS: Mapping[str, Command] = MappingProxyType(
    {name: command for commands in TOPICS.values() for name, command in commands.items()}
)


def main() -> None:
    """Run the command line of this process, and exit."""
    for stream in (sys.stdout, sys.stderr):  # a character that the terminal can't encode is escaped
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = run(sys.argv[1:])
    except Exception:  # noqa: BLE001 - Python would exit with 1, which means a finding
        traceback.print_exc()
        code = ExitCode.DEFECT
    leave_at_interrupt()
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code."""
    json = os.environ.get("MILLRACE_LOG", "text") == "json"
    try:
        log.configure(json=json, level=os.environ.get("MILLRACE_LOG_LEVEL", "info"))
    except ValueError as error:
        print(f"millrace: MILLRACE_LOG_LEVEL: {error}", file=sys.stderr)
        return ExitCode.USAGE
    as_json = is_json_wanted(arguments)
    try:
        check_parts()
        try:
            _use_local_stack()
        except ValueError as error:
            print(f"millrace: {STACK}: {error}", file=sys.stderr)
            return ExitCode.USAGE
        try:
            _run_commands(arguments)
        finally:
            sys.stdout.flush()
    except MillraceError as error:
        return print_error(error, exit_code_of(error), as_json=as_json)
    except Finding as found:
        return print_error(found.error, ExitCode.FINDING, as_json=as_json)
    except OutputClosed:
        _is_output_broken()
        return ExitCode.CLOSED
    except OSError as error:
        if not _is_output_broken():
            raise
        if isinstance(error, BrokenPipeError):
            return ExitCode.CLOSED
        print(f"millrace: the output can't be written: {error.strerror}", file=sys.stderr)
        return ExitCode.OPERATOR
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return ExitCode.DONE


def _use_local_stack() -> None:
    """Add the local stack's variables to the environment, unless that names another ensemble. Overwrites none."""
    local = local_stack_environment()
    ensemble = local.get(_ENSEMBLE)
    if os.environ.get(_ENSEMBLE, ensemble) == ensemble:
        for variable, value in local.items():
            os.environ.setdefault(variable, value)


def _is_output_broken() -> bool:
    """Whether standard output can't be written. A flush may have dropped its data, so this writes one more byte.

    If so, the rest of its buffer goes to /dev/null. Otherwise Python would print the same error when it exits.
    """
    try:
        sys.stdout.flush()
        os.write(sys.stdout.fileno(), b"\n")
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False


def present_commands() -> Mapping[str, Command]:
    """The commands whose modules exist."""
    return {
        name: command
        for name, command in COMMANDS.items()
        if importlib.util.find_spec(command.module)
    }


class _Commands(TyperGroup):
    """The commands of ``COMMANDS``. Their modules are imported only when a command is used or completed."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, command in present_commands().items():
            self.add_command(TyperCommand(name, help=command.help, rich_markup_mode=None))

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 (as overridden)
        """By topic. Commands that this installation cannot run come last, with the extra that they need."""
        absent: dict[Extra, list[tuple[str, str]]] = {}
        for topic, commands in TOPICS.items():
            rows = []
            for name, command in commands.items():
                if name not in self.commands:
                    continue
                if command.extra is not None and missing_modules(command.extra):
                    absent.setdefault(command.extra, []).append((name, command.help))
                else:
                    rows.append((name, command.help))
            _write_section(formatter, topic, rows)
        for extra, rows in absent.items():
            _write_section(formatter, f"Not installed (extra {extra})", rows)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, found, rest = super().resolve_command(ctx, args)
        if name is None or found is None:
            return name, found, rest
        extra = COMMANDS[name].extra
        if extra is not None and not (ctx.resilient_parsing or set(_HELP) & set(rest)):
            check_extra(extra, user=f"millrace {name}")
        command = load_command(name)
        raise_at_interrupt()
        return name, command, rest

    def make_context(self, *arguments: Any, **more: Any) -> Any:
        with _closed_output():
            return super().make_context(*arguments, **more)

    def invoke(self, ctx: Any) -> Any:
        with _closed_output():
            return super().invoke(ctx)


@contextmanager
def _closed_output() -> Iterator[None]:
    """``OutputClosed`` instead of BrokenPipeError, which Typer would end with 1."""
    try:
        yield
    except BrokenPipeError as error:
        if not is_output_closed():
            raise
        raise OutputClosed from error


def _write_section(formatter: Any, title: str, rows: list[tuple[str, str]]) -> None:
    if rows:
        with formatter.section(title):
            formatter.write_dl(rows)


def _run_commands(arguments: list[str]) -> None:
    app = typer.Typer(
        cls=_Commands,
        help="Millrace: change data capture for MySQL and MariaDB.",
        epilog=f"\b\nExit codes:\n{table()}",
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        context_settings={"help_option_names": list(_HELP), "max_content_width": 100},
    )
    app.callback()(_options)
    words = ["--help"] if arguments == ["help"] else arguments
    typer.main.get_command(app).main(words, prog_name="millrace")


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(f"millrace {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    pass


def load_command(name: str) -> Any:
    """Import a command of ``COMMANDS`` and return its click command, with plain help and without completion options."""
    module = importlib.import_module(COMMANDS[name].module)
    function = getattr(module, name, None)
    if callable(function) and not isinstance(function, typer.Typer):
        app = typer.Typer()
        app.command(name)(function)
    else:
        app = module.app
    app._add_completion = False
    app.rich_markup_mode = None
    return typer.main.get_command(app)
