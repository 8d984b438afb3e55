"""Scripts decide by the exit code, and read an error as one JSON object."""

import json
import sys
import types
from collections.abc import Callable

import pytest
import typer

from millrace import cli
from millrace.cli.exits import MEANINGS, ExitCode, Finding, OutputClosed
from millrace.errors import Fatal, Fenced, Retryable
from tests.kit.paths import ROOT
from tests.kit.sample_command import give

AWAY = Retryable("MR-4001", "no answer from http://ann:canary@h:1", hosts="http://ann:canary@h:1")


def _give(monkeypatch: pytest.MonkeyPatch, end: Callable[[], object]) -> None:
    def sample(json: bool = typer.Option(False, "--json", help="Print JSON.")) -> None:
        print("[]" if json else "nothing", flush=True)
        end()

    module = types.ModuleType("millrace_sample")
    module.sample = sample  # type: ignore[attr-defined]
    give(monkeypatch, module)


def _raising(error: BaseException) -> Callable[[], object]:
    def end() -> None:
        raise error

    return end


ENDS: dict[ExitCode, BaseException | None] = {
    ExitCode.DONE: None,
    ExitCode.FINDING: Finding(Fatal("MR-3503", "2 violations in shop")),
    ExitCode.USAGE: typer.BadParameter("no such member"),
    ExitCode.RETRY: AWAY,
    ExitCode.OPERATOR: Fatal("MR-4103", "set shop exists with other contents"),
    ExitCode.FENCED: Fenced("MR-6023", "another registry has started"),
    ExitCode.DEFECT: RuntimeError("a defect"),
    ExitCode.RESTART: SystemExit(ExitCode.RESTART),
    ExitCode.INTERRUPTED: KeyboardInterrupt(),
    ExitCode.CLOSED: OutputClosed(),
}


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
@pytest.mark.parametrize("code", ExitCode)
def test_every_class_of_end_has_its_exit_code(
    code: ExitCode, as_json: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A defect does not look like a finding: Python's own exit code for it would be 1."""
    error = ENDS[code]
    _give(monkeypatch, (lambda: None) if error is None else _raising(error))
    monkeypatch.setattr(sys, "argv", ["millrace", "sample", *(["--json"] if as_json else [])])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == code


def test_json_error_is_one_line_of_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Standard output has only the result, so a script can parse it. No credential is printed."""
    _give(monkeypatch, _raising(AWAY))
    assert cli.run(["sample", "--json"]) == ExitCode.RETRY
    printed = capsys.readouterr()
    assert json.loads(printed.out) == []
    assert printed.err.count("\n") == 1
    assert json.loads(printed.err) == {
        "code": "MR-4001",
        "class": "retryable",
        "message": "no answer from http://[redacted]@h:1",
        "fix": AWAY.fix,
        "context": {"hosts": "http://[redacted]@h:1"},
        "exit_code": 3,
    }


def test_error_without_json_is_two_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also if a word after `--` looks like the option."""
    _give(monkeypatch, _raising(Fatal("MR-8003", "no network", fix="Plug it in.")))
    assert cli.run(["sample"]) == ExitCode.OPERATOR
    assert capsys.readouterr().err == "MR-8003 no network\n  Plug it in.\n"
    assert cli.run(["sample", "--", "--json"]) == ExitCode.USAGE
    assert "{" not in capsys.readouterr().err


def test_exit_codes_are_in_the_help_and_on_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    """Each with its meaning, and no other."""
    assert set(MEANINGS) == set(ExitCode)
    assert cli.run(["--help"]) == ExitCode.DONE
    printed = capsys.readouterr().out.splitlines()
    told = [line.strip() for line in printed[printed.index("  Exit codes:") + 1 :] if line.strip()]
    assert told == [f"{code:d}  {meaning}" for code, meaning in MEANINGS.items()]
    page = (ROOT / "docs/commands.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ") and line[2].isdigit()]
    assert rows == [f"| {code:d} | {meaning} |" for code, meaning in MEANINGS.items()]
