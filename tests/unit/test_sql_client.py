"""`millrace sql` finds a client for the stack's servers without a path, and passes no password on a command line."""

import os
from pathlib import Path

import pytest

from millrace import cli
from millrace.deploy.local.description import ServerAddress, ServiceAddresses, StackDescription
from millrace.deploy.servers.process import ProcessSpec, ServerProcess
from millrace.home_folder import local_stack_folder

Executed = list[tuple[str, tuple[str, ...], dict[str, str]]]


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Executed:
    """Record the command that would replace the process, in a separate home folder."""
    found: Executed = []
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    monkeypatch.setattr(os, "execve", lambda *call: found.append(call))
    return found


def _stack(tmp_path: Path, server: str, client: str) -> ServerProcess:
    """Describe a stack with one process named like a server's program."""
    folder = local_stack_folder()
    for name, content in ((server, "#!/bin/sh\nexec sleep 600\n"), (client, "")):
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(0o700)
    process = ServerProcess(ProcessSpec("db", (str(tmp_path / server),), folder / "db" / "log"))
    process.launch()
    address = {"host": "127.0.0.1", "user": "admin", "password": "canary"}
    services = ServiceAddresses(
        kafka="", zookeeper="", registry="", home="", relay_dir="", topic="shop"
    )
    StackDescription(
        source=(
            ServerAddress(set="shop", role="primary", port=1, **address),
            ServerAddress(set="shop", role="replica", port=2, **address),
        ),
        targets=(ServerAddress(set="warehouse", role="primary", port=3, **address),),
        services=services,
        capture_tasks=(),
        apply_tasks=(),
    ).write(folder)
    return process


@pytest.mark.parametrize(("server", "client"), [("mariadbd", "mariadb"), ("mysqld", "mysql")])
@pytest.mark.parametrize(("where", "port"), [("source", 1), ("target", 3)])
def test_client_next_to_the_server_binary_is_used(
    executed: Executed, tmp_path: Path, server: str, client: str, where: str, port: int
) -> None:
    """It connects to the primary or the target with the given statement; the password is in the environment."""
    process = _stack(tmp_path, server, client)
    try:
        assert cli.run(["sql", where, "-e", "SELECT 1"]) == 0
    finally:
        process.kill()
    ((program, command, environment),) = executed
    assert program == command[0] == str(tmp_path / client)
    assert f"--port={port}" in command
    assert command[-2:] == ("-e", "SELECT 1")
    assert not any("canary" in part for part in command)
    assert environment["MYSQL_PWD"] == "canary"


def test_without_a_stack_the_sql_command_is_refused(
    executed: Executed, capsys: pytest.CaptureFixture[str]
) -> None:
    """MR-8010 comes with a fix; an invalid word is a usage error."""
    assert cli.run(["sql", "source"]) == 4
    assert capsys.readouterr().err.startswith("MR-8010 ")
    assert cli.run(["sql", "nowhere"]) == 2
    assert executed == []
