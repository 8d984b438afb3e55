"""The command line: commands are found late, errors end in a code and a fix."""

import contextlib
import json
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from millrace import cli
from millrace.cli import status
from millrace.cli.topic import _registry_for
from millrace.codes import CATALOGUE
from millrace.errors import Fatal, Retryable
from zk.tree import Tree
from zk.view import Cluster


def _give(monkeypatch: pytest.MonkeyPatch, module: types.ModuleType) -> None:
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(cli, "COMMANDS", {"sample": cli.Command(module.__name__, "A sample.")})
    monkeypatch.setattr(cli, "present_commands", lambda: cli.COMMANDS)


def test_help_lists_commands_without_importing_them(capsys: pytest.CaptureFixture[str]) -> None:
    """`millrace --help` costs nothing."""
    assert cli.run(["--help"]) == 0
    assert "down" in capsys.readouterr().out
    assert (
        "millrace.cli.local" not in sys.modules
        or cli.COMMANDS["down"].module == "millrace.cli.local"
    )


def test_an_unknown_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, with the list of commands."""
    assert cli.run(["no-such"]) == 2
    assert "no-such" in capsys.readouterr().err


def test_a_function_is_run_under_its_commands_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module may offer a plain function."""
    heard: list[str] = []
    module = types.ModuleType("millrace_sample")

    def sample(word: str) -> None:
        heard.append(word)

    module.sample = sample  # type: ignore[attr-defined]
    _give(monkeypatch, module)
    assert cli.run(["sample", "hello"]) == 0
    assert heard == ["hello"]


def test_an_error_of_ours_ends_in_its_code_and_fix(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, no traceback."""
    module = types.ModuleType("millrace_sample")
    app = typer.Typer()

    @app.command()
    def go() -> None:
        raise Fatal("MR-8003", "no network", fix="Plug it in.")

    module.app = app  # type: ignore[attr-defined]
    _give(monkeypatch, module)
    assert cli.run(["sample"]) == 1
    assert capsys.readouterr().err == "MR-8003 no network\n  Plug it in.\n"


def test_a_commands_own_exit_code_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """`millrace compare` says 1 without an error of ours."""
    module = types.ModuleType("millrace_sample")

    def sample() -> None:
        raise typer.Exit(3)

    module.sample = sample  # type: ignore[attr-defined]
    _give(monkeypatch, module)
    assert cli.run(["sample"]) == 3


def test_the_local_stacks_registry_explains_the_local_stacks_topics_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another cluster's ids mean other schemas; a registry that was named is always asked."""
    monkeypatch.setenv("MILLRACE_REGISTRY", "http://local:1")
    monkeypatch.setenv("MILLRACE_KAFKA", "local:2")
    assert _registry_for("http://local:1", "local:2") == "http://local:1"
    assert _registry_for("http://local:1", "elsewhere:2") == ""
    assert _registry_for("http://other:1", "elsewhere:2") == "http://other:1"
    monkeypatch.delenv("MILLRACE_KAFKA")
    assert _registry_for("http://local:1", "elsewhere:2") == "http://local:1"


def test_output_that_cannot_be_written_is_one_line() -> None:
    """A full disk behind `>` is no defect of ours: exit code 1, no traceback, nothing at Python's own end."""
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "millrace", "explain"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert ended.stderr == "millrace: the output can't be written: No space left on device\n"
    assert ended.returncode == 1


@pytest.mark.parametrize("code", CATALOGUE)
def test_every_code_of_the_catalogue_is_explained_with_cause_and_fix(
    code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`millrace explain CODE`, whole or by its number, for each that an operator may be told."""
    assert cli.run(["explain", code]) == 0
    told = capsys.readouterr().out
    assert told.startswith(f"{code}  {CATALOGUE[code].title}\n")
    assert f"\n  why  {CATALOGUE[code].cause}\n" in told
    assert f"\n  fix  {CATALOGUE[code].fix}\n" in told
    assert CATALOGUE[code].cause
    assert CATALOGUE[code].fix
    assert cli.run(["explain", code.removeprefix("MR-")]) == 0
    assert capsys.readouterr().out == told


@pytest.mark.parametrize("options", [["--json"], []], ids=["json", "pipe"])
def test_a_watched_status_outlives_an_ensemble_that_is_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    """It says so and goes on when it is back; what a program reads is JSON and nothing else."""
    empty = Cluster(tasks={}, workers={}, assigned={}, owners={}, standings={}, leader="s1")
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
    told = capsys.readouterr()
    assert (told.err if options else told.out).count("MR-4001 the connection is lost\n  ") == 2
    if options:
        assert [json.loads(line)["cluster"] for line in told.out.splitlines()] == ["shop", "shop"]
    else:
        assert told.out.count("cluster shop") == 2


@pytest.mark.parametrize(
    "words",
    [
        ["up", "--flavour", "postgres"],
        ["demo", "--flavour", "postgres"],
        ["bench", "--flavour", "postgres"],
        ["registry", "--kafka", "127.0.0.1:1", "--port", "99999"],
    ],
)
def test_a_value_that_is_none_is_a_wrong_use(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Said before anything is started."""
    assert cli.run(words) == 2
    assert "Invalid value" in capsys.readouterr().err


def test_a_log_level_that_is_none_is_a_wrong_use(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line."""
    monkeypatch.setenv("MILLRACE_LOG_LEVEL", "verbose")
    assert cli.run(["explain", "MR-1001"]) == 2
    assert "'verbose' is none of debug" in capsys.readouterr().err


def test_a_terminal_of_another_encoding_sees_escapes() -> None:
    """Not a traceback: the usage has a character that Latin-1 lacks."""
    found = subprocess.run(
        [sys.executable, "-m", "millrace"],
        env={"PATH": "", "PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        check=False,
        timeout=180,
    )
    assert found.returncode == 2
    assert b"Traceback" not in found.stderr
    assert b"\\u2026" in found.stdout
