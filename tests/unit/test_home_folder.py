"""The environment names the home folder; else it is in the user's cache."""

import json
import os
import stat
from pathlib import Path

import pytest

from millrace import cli
from millrace.cli.control import operator
from millrace.deploy.local.description import ServerAddress, ServiceAddresses, StackDescription
from millrace.errors import Fatal
from millrace.home_folder import STACK, home, local_stack_environment, local_stack_folder


def test_environment_names_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """MILLRACE_HOME wins. Only its owner may read it."""
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path / "here"))
    assert home() == tmp_path / "here"
    assert stat.S_IMODE(home().stat().st_mode) == 0o700


def test_home_folder_defaults_to_the_user_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The default is in the XDG cache folder, or in ~/.cache."""
    monkeypatch.delenv("MILLRACE_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert home() == tmp_path / "millrace"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert home() == tmp_path / ".cache" / "millrace"


def test_commands_find_the_local_stack(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Commands use the file of `millrace up`, or nothing without a stack."""
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    assert local_stack_environment() == {}
    local_stack_folder().mkdir(parents=True)
    (local_stack_folder() / "environment.json").write_text('{"MILLRACE_ZOOKEEPER": "127.0.0.1:1"}')
    assert local_stack_environment() == {"MILLRACE_ZOOKEEPER": "127.0.0.1:1"}


@pytest.mark.parametrize("content", [b"", b'{"MILLRACE_ZOO', b"[]", b"\xff", b'{"A": 1}'])
def test_half_written_stack_file_is_ignored(
    content: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Every command reads the file first. A half-written one stops no command."""
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    local_stack_folder().mkdir(parents=True)
    (local_stack_folder() / "environment.json").write_bytes(content)
    assert local_stack_environment() == {}


def test_only_writing_needs_a_usable_home_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The home folder may be unwritable or the user may have none; most commands only look for a local stack."""
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("MILLRACE_HOME", str(blocked / "home"))
    assert local_stack_environment() == {}
    with pytest.raises(Fatal, match="MR-8008"):
        home()
    monkeypatch.setenv("MILLRACE_HOME", "~nobody-has-this-name/x")
    assert local_stack_environment() == {}
    with pytest.raises(Fatal, match="MR-8008"):
        home()


def test_commands_do_not_mix_another_ensemble_with_the_local_stack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its broker would answer for a topic of the same name."""
    local = {"MILLRACE_ZOOKEEPER": "127.0.0.1:1", "MILLRACE_KAFKA": "127.0.0.1:2"}
    monkeypatch.setattr(cli, "local_stack_environment", lambda: local)
    for ensemble, kafka in (
        ("zk1:2181", None),
        ("127.0.0.1:1", "127.0.0.1:2"),
        (None, "127.0.0.1:2"),
    ):
        monkeypatch.setattr(os, "environ", {"MILLRACE_ZOOKEEPER": ensemble} if ensemble else {})
        assert cli.run(["explain", "MR-4001"]) == 0
        assert os.environ.get("MILLRACE_KAFKA") == kafka


def test_operator_without_a_name_is_shown_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may run with an arbitrary user."""

    def no_user() -> str:
        raise KeyError("uid not found")

    monkeypatch.setattr("getpass.getuser", no_user)
    assert operator().startswith(f"uid {os.getuid()}@")


NO_NAMES = ("", ".", "..", "a/b", "a.lock", "-x", "a b", "a\n", "ä", "a" * 65)


@pytest.mark.parametrize("name", [*NO_NAMES, "/nonexistent/stack"])
def test_invalid_stack_name_addresses_no_folder(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An empty variable after --name would address every stack at once."""
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    with pytest.raises(ValueError, match="is not a valid stack name"):
        local_stack_folder(name)
    assert local_stack_folder("Of-2_parts").parent == tmp_path / "run"


@pytest.mark.parametrize("command", ["up", "down"])
@pytest.mark.parametrize("name", [*NO_NAMES, "/nonexistent/stack"])
def test_invalid_stack_name_is_a_usage_error(
    command: str, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 before any action. Both functions are replaced, because the real ones remove folders."""
    asked: list[str] = []
    monkeypatch.setattr(
        "millrace.deploy.local.background.start_background",
        lambda name, *_, **__: asked.append(name),
    )
    monkeypatch.setattr(
        "millrace.deploy.local.background.end_background", lambda name, **_: asked.append(name)
    )
    assert cli.run([command, f"--name={name}"]) == 2
    assert "is not a valid stack name" in " ".join(capsys.readouterr().err.replace("│", "").split())
    assert asked == []


def test_ending_an_unknown_stack_leaves_no_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not even a lock file remains. The function that removes folders is replaced."""
    ended: list[Path] = []

    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    monkeypatch.setattr("shutil.rmtree", lambda folder, **_: ended.append(folder))
    assert cli.run(["down", "--name=nosuch"]) == 0
    assert capsys.readouterr().out == "nothing was running\n"
    assert list(tmp_path.rglob("*")) == []
    (tmp_path / "run" / "killed").mkdir(parents=True)
    assert cli.run(["down", "--name=killed"]) == 0
    (tmp_path / "run" / "begun.lock").touch()  # by an `up` that has no folder yet
    assert cli.run(["down", "--name=begun"]) == 0
    assert [folder.name for folder in ended] == ["killed", "begun"]


def test_environment_selects_the_local_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Several stacks run side by side; an invalid name is a usage error."""
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    for name in ("local", "my"):
        local_stack_folder(name).mkdir(parents=True)
        (local_stack_folder(name) / "environment.json").write_text(json.dumps({"WHICH": name}))
    for named, found in ((None, "local"), ("", "local"), ("my", "my")):
        monkeypatch.delenv(STACK, raising=False)
        if named is not None:
            monkeypatch.setenv(STACK, named)
        assert local_stack_environment() == {"WHICH": found}
    monkeypatch.setattr(cli, "local_stack_environment", local_stack_environment)
    monkeypatch.setenv(STACK, "../etc")
    assert cli.run(["explain", "MR-4001"]) == 2
    assert "MILLRACE_STACK: '../etc' is not a valid" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        (
            "local",
            [
                "millrace status -w",
                "millrace topic tail shop",
                "millrace sql source",
                "millrace down",
            ],
        ),
        (
            "my",
            [
                "export MILLRACE_STACK=my",
                "millrace status -w",
                "millrace topic tail shop",
                "millrace sql source",
                "millrace down --name my",
            ],
        ),
    ],
)
def test_suggested_next_steps_name_the_started_stack(name: str, steps: list[str]) -> None:
    """`millrace down` without the name would end another stack that runs beside it."""
    server = ServerAddress(set="shop", role="primary", host="h", port=1, user="u", password="p")
    services = ServiceAddresses(
        kafka="k", zookeeper="z", registry="r", home="", relay_dir="", topic="shop"
    )
    described = StackDescription(
        source=(server,), targets=(server,), services=services, capture_tasks=(), apply_tasks=()
    )
    shown = described.as_text(name).partition("next")[2]
    assert [line.strip() for line in shown.splitlines()] == steps
