"""The command line loads commands late, and errors end in a code and a fix."""

import contextlib
import json
import os
import subprocess
import sys
import types
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import typer

from millrace import __version__, cli
from millrace.cli.compare.compare import apply_task_of
from millrace.cli.control import Control
from millrace.cli.exits import ExitCode
from millrace.cli.status import status
from millrace.cli.topic import registry_for
from millrace.codes import CATALOGUE
from millrace.errors import Fatal, Retryable
from millrace.schemas.documents import ApplyTask, Brokers, CaptureTask, TaskDocument, TopicAddress
from millrace.zk.tree.entries import Desired, TaskEntry
from millrace.zk.tree.paths import Tree
from millrace.zk.view import Cluster
from tests.kit.sample_command import give


def test_help_lists_commands_without_importing_them(capsys: pytest.CaptureFixture[str]) -> None:
    """`millrace --help` is fast."""
    assert cli.run(["--help"]) == 0
    assert "down" in capsys.readouterr().out
    assert (
        "millrace.cli.local.stack" not in sys.modules
        or cli.COMMANDS["down"].module == "millrace.cli.local.stack"
    )


def test_unknown_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is 2."""
    assert cli.run(["no-such"]) == 2
    assert "no-such" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "suggested"),
    [(["taks"], "task"), (["task", "creat"], "create")],
    ids=["top", "group"],
)
def test_misspelled_command_gets_a_suggestion(
    words: list[str], suggested: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code is 2, and the nearest command is shown."""
    assert cli.run(words) == 2
    assert f"Did you mean '{suggested}'" in capsys.readouterr().err


def test_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    """The version is one line for bug reports."""
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out == f"millrace {__version__}\n"


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_plain_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every help page has one style: no boxes, and `-h` works everywhere."""
    assert cli.run([name, "-h"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"Usage: millrace {name} ")
    assert "\n  -h, --help " in printed
    assert "─" not in printed


@pytest.mark.parametrize(
    ("words", "completed"),
    [("ta", {"task"}), ("task re", {"resume"}), ("worker --re", {"--relay-dir"})],
    ids=["command", "subcommand", "option"],
)
def test_shell_completes(
    words: str,
    completed: set[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Completion covers commands, subcommands and options."""
    monkeypatch.setenv("_MILLRACE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"millrace {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split())))
    assert cli.run([]) == 0
    assert set(capsys.readouterr().out.split()) == completed


def test_plain_function_runs_under_its_command_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module may define a plain function."""
    words: list[str] = []
    module = types.ModuleType("millrace_sample")

    def sample(word: str) -> None:
        words.append(word)

    module.sample = sample  # type: ignore[attr-defined]
    give(monkeypatch, module)
    assert cli.run(["sample", "hello"]) == 0
    assert words == ["hello"]


def test_product_error_prints_its_code_and_fix(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two lines, without a traceback."""
    module = types.ModuleType("millrace_sample")
    app = typer.Typer()

    @app.command()
    def go() -> None:
        raise Fatal("MR-8003", "no network", fix="Plug it in.")

    module.app = app  # type: ignore[attr-defined]
    give(monkeypatch, module)
    assert cli.run(["sample"]) == ExitCode.OPERATOR
    assert capsys.readouterr().err == "MR-8003 no network\n  Plug it in.\n"


def test_exit_code_of_a_command_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """`millrace compare` exits with 1 without a product error."""
    module = types.ModuleType("millrace_sample")

    def sample() -> None:
        raise typer.Exit(3)

    module.sample = sample  # type: ignore[attr-defined]
    give(monkeypatch, module)
    assert cli.run(["sample"]) == 3


def test_local_registry_serves_only_topics_of_the_local_stack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ids of another cluster mean other schemas; a registry given as an option is always asked."""
    monkeypatch.setenv("MILLRACE_REGISTRY", "http://local:1")
    monkeypatch.setenv("MILLRACE_KAFKA", "local:2")
    assert registry_for("http://local:1", "local:2") == "http://local:1"
    assert registry_for("http://local:1", "elsewhere:2") == ""
    assert registry_for("http://other:1", "elsewhere:2") == "http://other:1"
    monkeypatch.delenv("MILLRACE_KAFKA")
    assert registry_for("http://local:1", "elsewhere:2") == "http://local:1"


def test_unwritable_output_is_reported_in_one_line() -> None:
    """A redirection to a full disk gives an exit code, no traceback, and no message of Python's shutdown."""
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "millrace", "explain"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert ended.stderr == "millrace: the output can't be written: No space left on device\n"
    assert ended.returncode == ExitCode.OPERATOR


@pytest.mark.parametrize("code", CATALOGUE)
def test_explain_shows_cause_and_fix_of_every_code(
    code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`millrace explain CODE` takes the whole code or its number."""
    assert cli.run(["explain", code]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{code}  {CATALOGUE[code].title}\n")
    assert f"\n  why   {CATALOGUE[code].cause}\n" in printed
    assert f"\n  fix   {CATALOGUE[code].fix}\n" in printed
    assert CATALOGUE[code].cause
    assert CATALOGUE[code].fix
    assert cli.run(["explain", code.removeprefix("MR-")]) == 0
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize("options", [["--json"], []], ids=["json", "pipe"])
def test_watched_status_survives_an_ensemble_outage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    """The status reports the outage and continues after it; with --json the output is only JSON."""
    empty = Cluster(tasks={}, workers={}, assigned={}, owners={}, saved_reports={}, leader="s1")
    away = Retryable("MR-4001", "the connection is lost")
    answers: Iterator[Cluster | BaseException] = iter(
        [empty, away, away, empty, KeyboardInterrupt()]
    )

    def read_cluster(*_: object) -> Cluster:
        answer = next(answers)
        if isinstance(answer, Cluster):
            return answer
        raise answer

    now = types.SimpleNamespace(session=None, tree=Tree("shop"))
    monkeypatch.setattr(status, "control", lambda: contextlib.nullcontext(now))
    monkeypatch.setattr(status, "read_cluster", read_cluster)
    monkeypatch.setattr(status, "WATCH_S", 0.0)
    assert cli.run(["status", "-w", *options]) == 130
    printed = capsys.readouterr()
    assert (printed.err if options else printed.out).count(
        "MR-4001 the connection is lost\n  "
    ) == 2
    if options:
        assert [json.loads(line)["cluster"] for line in printed.out.splitlines()] == [
            "shop",
            "shop",
        ]
    else:
        assert printed.out.count("cluster shop") == 2


@pytest.mark.parametrize(
    "words",
    [
        ["up", "--flavour", "postgres"],
        ["demo", "--flavour", "postgres"],
        ["bench", "--flavour", "postgres"],
        ["registry", "--kafka", "127.0.0.1:1", "--port", "99999"],
    ],
)
def test_invalid_option_value_is_a_usage_error(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """It is refused before anything starts."""
    assert cli.run(words) == 2
    assert "Invalid value" in capsys.readouterr().err


def test_invalid_log_level_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The report is one line."""
    monkeypatch.setenv("MILLRACE_LOG_LEVEL", "verbose")
    assert cli.run(["explain", "MR-1001"]) == 2
    assert "'verbose' is not one of debug" in capsys.readouterr().err


def test_terminal_of_another_encoding_shows_escapes() -> None:
    """The codes page has a character that Latin-1 does not have; there is no traceback."""
    found = subprocess.run(
        [sys.executable, "-m", "millrace", "explain", "--markdown"],
        env={"PATH": "", "PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        check=False,
        timeout=180,
    )
    assert found.returncode == 0
    assert b"Traceback" not in found.stderr
    assert b"\\u2026" in found.stdout


@pytest.mark.parametrize("words", [["--help"], ["explain", "--markdown"], ["schema", "set"]])
def test_closed_pipe_ends_a_command_quietly(words: list[str]) -> None:
    """As after `| head`; not with 1, which means a finding."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as output:
        ended = subprocess.run(
            [sys.executable, "-m", "millrace", *words],
            stdout=output,
            stderr=subprocess.PIPE,
            check=False,
            timeout=180,
        )
    assert (ended.returncode, ended.stderr) == (141, b"")


@pytest.mark.parametrize("registry", ["http://ann:canary@h:8081", "h:8081", "ftp://h"])
def test_registry_option_is_parsed_as_in_a_document(
    registry: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The usage error shows the expected form, without the password."""
    assert cli.run(["topic", "tail", "shop", "--kafka", "127.0.0.1:1", "--registry", registry]) == 2
    printed = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert "https://host:port" in printed
    assert "canary" not in printed


@pytest.mark.parametrize(
    ("task", "appliers", "code"),
    [
        ("shop-apply", ["shop-apply", "other"], ""),
        ("shop-capture", ["shop-apply"], ""),
        ("shop-capture", [], "MR-5060"),
        ("shop-capture", ["shop-apply", "other"], "MR-5060"),
    ],
)
def test_compare_finds_the_only_apply_task_of_a_capture(
    task: str, appliers: list[str], code: str
) -> None:
    """The help documents this."""
    output = TopicAddress(topic="shop", brokers=Brokers("k:1"))
    tasks: dict[str, TaskDocument] = {
        "shop-capture": CaptureTask(name="shop-capture", set_name="shop", output=output),
        "elsewhere": ApplyTask(name="elsewhere", source=replace(output, topic="x"), target="t"),
        **{name: ApplyTask(name=name, source=output, target=name) for name in appliers},
    }
    entries = {name: TaskEntry(Desired(document), 0, 0, 1) for name, document in tasks.items()}
    now = cast(Control, SimpleNamespace(store=SimpleNamespace(tasks=lambda: entries)))
    if not code:
        assert apply_task_of(now, tasks[task]).name == "shop-apply"
        return
    with pytest.raises(Fatal) as caught:
        apply_task_of(now, tasks[task])
    assert caught.value.code == code
    assert all(name in caught.value.message for name in appliers)
