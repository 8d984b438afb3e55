"""The home folder: named by the environment, else the user's cache."""

import stat
from pathlib import Path

import pytest

from millrace.home import home, local_stack_environment, local_stack_folder


def test_the_environment_names_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """MILLRACE_HOME wins, and is made for its owner alone."""
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path / "here"))
    assert home() == tmp_path / "here"
    assert stat.S_IMODE(home().stat().st_mode) == 0o700


def test_otherwise_it_is_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The XDG cache folder, or ~/.cache."""
    monkeypatch.delenv("MILLRACE_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert home() == tmp_path / "millrace"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert home() == tmp_path / ".cache" / "millrace"


def test_commands_find_the_local_stack(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What `millrace up` wrote is what commands use; nothing when there is no stack."""
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    assert local_stack_environment() == {}
    local_stack_folder().mkdir(parents=True)
    (local_stack_folder() / "environment.json").write_text('{"MILLRACE_ZOOKEEPER": "127.0.0.1:1"}')
    assert local_stack_environment() == {"MILLRACE_ZOOKEEPER": "127.0.0.1:1"}


@pytest.mark.parametrize("content", [b"", b'{"MILLRACE_ZOO', b"[]", b"\xff", b'{"A": 1}'])
def test_a_half_written_stack_is_none(
    content: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Every command reads the file first: one that is being written stops none of them."""
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    local_stack_folder().mkdir(parents=True)
    (local_stack_folder() / "environment.json").write_bytes(content)
    assert local_stack_environment() == {}
