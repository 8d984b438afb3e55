"""A command of a test's own in the command line."""

import sys
import types

import pytest

from millrace import cli


def give(monkeypatch: pytest.MonkeyPatch, module: types.ModuleType) -> None:
    """Make ``millrace sample`` the only command, from this module."""
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(cli, "COMMANDS", {"sample": cli.Command(module.__name__, "A sample.")})
    monkeypatch.setattr(cli, "present_commands", lambda: cli.COMMANDS)
