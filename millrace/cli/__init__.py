"""The command line: ``millrace COMMAND …``.

A table names every command, the module it lives in and its one-line help. The module is imported only when its command
is used, so that ``millrace --help`` loads no driver and a broken half does not break the other. It offers, under the
command's name, a function that Typer can run (``down``), or ``app``, a ``typer.Typer``.

Errors of ours end in two lines on standard error (code and what happened; the fix) and exit code 1; a wrong use in 2.
Logs go to standard error: MILLRACE_LOG is ``text`` (default) or ``json``, MILLRACE_LOG_LEVEL is ``info`` by default.
Where MILLRACE_ZOOKEEPER is not set and a local stack runs (``millrace up``), commands speak to that.
"""

import importlib
import importlib.util
import io
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import typer
import typer.main

from millrace import log
from millrace.errors import MillraceError
from millrace.home import local_stack_environment
from millrace.roots import check_roots

_ENSEMBLE = "MILLRACE_ZOOKEEPER"
_HELP = ("--help", "-h", "help")


@dataclass(frozen=True, slots=True)
class Command:
    """Where a command lives, and what it does in one line."""

    module: str
    help: str


COMMANDS: Mapping[str, Command] = MappingProxyType(
    {
        "demo": Command(
            "millrace.cli.demo", "Start everything, change rows, watch them arrive, compare."
        ),
        "up": Command("millrace.cli.local", "Start the whole stack in the background."),
        "down": Command("millrace.cli.local", "End the stack that `up` started."),
        "set": Command("millrace.cli.sets", "The sets: a primary and its replicas each."),
        "task": Command(
            "millrace.cli.tasks", "The tasks: what is captured, what is applied where."
        ),
        "status": Command("millrace.cli.status", "What every task does, and why it waits."),
        "topic": Command("millrace.cli.topic", "Read a topic; prove that it is whole."),
        "compare": Command(
            "millrace.cli.compare", "Compare every row of a task's source and target."
        ),
        "relay": Command(
            "millrace.cli.relay", "Purge a worker's relay log by hand, on its machine."
        ),
        "registry": Command("millrace.cli.registry", "Run the built-in schema registry."),
        "cluster": Command(
            "millrace.cli.cluster", "The ensemble's generation; raise it after a rebuild."
        ),
        "explain": Command("millrace.cli.explain", "What an error code means and what mends it."),
        "scheduler": Command(
            "millrace.cli.scheduler", "Run a scheduler: assigns tasks to workers."
        ),
        "worker": Command("millrace.cli.worker", "Run a capture worker: source sets to Kafka."),
        "apply": Command(
            "millrace.cli.apply", "Run an apply driver: Kafka to target sets, on Spark."
        ),
        "apply-ddl": Command(
            "millrace.cli.apply_ddl", "Decide about a statement that blocks an apply task."
        ),
        "bench": Command(
            "millrace.cli.bench", "Measure, beside peers; JSON lines on standard output."
        ),
    }
)


def main() -> None:
    """The entry point of the ``millrace`` program."""
    for stream in (sys.stdout, sys.stderr):  # a terminal of another encoding sees escapes
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line; its exit code."""
    json = os.environ.get("MILLRACE_LOG", "text") == "json"
    try:
        log.configure(json=json, level=os.environ.get("MILLRACE_LOG_LEVEL", "info"))
    except ValueError as error:
        print(f"millrace: MILLRACE_LOG_LEVEL: {error}", file=sys.stderr)
        return 2
    name = arguments[0] if arguments else ""
    if not name or name in _HELP:
        print(_usage())
        return 0 if name else 2
    if name not in present_commands():
        print(f"millrace: there is no command {name!r}\n\n{_usage()}", file=sys.stderr)
        return 2
    try:
        check_roots()
        _join_local_stack()
        try:
            _run_command(name, arguments[1:])
        finally:
            sys.stdout.flush()
    except MillraceError as error:
        print(f"{error}\n  {error.fix}", file=sys.stderr)
        return 1
    except OSError as error:
        if not _is_output_broken():
            raise
        print(f"millrace: the output can't be written: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def _join_local_stack() -> None:
    """Its servers, for what the environment leaves out; none of them where it names another ensemble."""
    local = local_stack_environment()
    ensemble = local.get(_ENSEMBLE)
    if os.environ.get(_ENSEMBLE, ensemble) == ensemble:
        for variable, value in local.items():
            os.environ.setdefault(variable, value)


def _is_output_broken() -> bool:
    """Whether standard output is what failed: one more byte says it, a flush may have dropped what it held.

    What is left in its buffer goes nowhere then, or Python would tell the same again at its own end.
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


def _run_command(name: str, arguments: list[str]) -> None:
    module = importlib.import_module(COMMANDS[name].module)
    function = getattr(module, name, None)
    if callable(function) and not isinstance(function, typer.Typer):
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        app.command(name)(function)
    else:
        app = module.app
        app.pretty_exceptions_enable = app._add_completion = False
    typer.main.get_command(app).main(arguments, prog_name=f"millrace {name}")


def _usage() -> str:
    lines = [f"  {name:<11}{command.help}" for name, command in present_commands().items()]
    head = "Millrace: change data capture for MySQL and MariaDB.\n\nUsage: millrace COMMAND … [--help]\n"
    return "\n".join([head, *lines])
