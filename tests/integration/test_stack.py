"""The local stack: up in the background, found by commands, down without a trace."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from deploy.background import records
from deploy.servers.process import is_running, session_members
from millrace.home import home, local_stack_folder
from tests.fix_servers import FLAVOURS
from tests.waiting import eventually

NAME = "stack-test"


def _millrace(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "millrace", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


@pytest.fixture(scope="module", params=FLAVOURS, ids=str)
def stack(request: pytest.FixtureRequest) -> Iterator[dict[str, object]]:
    """What `millrace up --json` prints."""
    _millrace("down", "--name", NAME)
    done = _millrace("up", "--json", "--name", NAME, "--flavour", str(request.param))
    assert done.returncode == 0, done.stderr
    yield json.loads(done.stdout)
    _millrace("down", "--name", NAME)


def test_passwords_are_in_no_command_line_and_no_world_readable_file(
    stack: dict[str, object],
) -> None:
    """Secrets are references everywhere but in files of their owner."""
    folder = local_stack_folder(NAME)
    secrets = [path.read_text() for path in (folder / "secrets").iterdir()]
    assert secrets
    assert folder.stat().st_mode & 0o077 == 0
    for record in records(folder):
        told = Path(f"/proc/{record.identity.pid}/cmdline").read_bytes().decode()
        told += Path(f"/proc/{record.identity.pid}/environ").read_bytes().decode()
        assert not any(secret in told for secret in secrets)


def test_a_killed_server_is_started_again(stack: dict[str, object]) -> None:
    """The keeper brings a killed primary back, on the same port, with its data."""
    primary = stack["source"][0]  # type: ignore[index]
    login = {name: primary[name] for name in ("host", "port", "user", "password")}
    with pymysql.connect(**login) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE kept")
    record = next(
        one
        for one in records(local_stack_folder(NAME))
        if f"port {primary['port']}" in one.spec.name
    )
    os.kill(record.identity.pid, signal.SIGKILL)
    eventually(lambda: not is_running(record.identity))
    eventually(lambda: _answers(login), timeout_s=60)
    with pymysql.connect(**login) as connection, connection.cursor() as cursor:
        assert cursor.execute("SHOW DATABASES LIKE 'kept'") == 1


def test_up_prints_where_everything_is_and_down_ends_it(stack: dict[str, object]) -> None:
    """Every server of the object answers its login; after `down` no process of the stack is left."""
    servers = [*stack["source"], *stack["targets"]]  # type: ignore[misc]
    assert [server["role"] for server in servers] == ["primary", "replica", "replica", "primary"]
    for server in servers:
        login = {name: server[name] for name in ("host", "port", "user", "password")}
        pymysql.connect(**login).close()
    assert set(stack) >= {"kafka", "zookeeper", "registry", "home", "relay_dir", "topic", "tasks"}
    assert stack["home"] == str(home())
    standing = records(local_stack_folder(NAME))
    assert all(is_running(record.identity) for record in standing)
    assert json.loads(_millrace("up", "--json", "--name", NAME).stdout) == stack
    assert _millrace("down", "--name", NAME).returncode == 0
    assert not any(session_members(record.identity) for record in standing)
    assert not local_stack_folder(NAME).exists()


def _answers(login: dict[str, object]) -> bool:
    connection = pymysql.connect(**login, defer_connect=True)  # type: ignore[call-overload]
    try:
        connection.connect()
    except pymysql.err.OperationalError:
        return False
    connection.close()
    return True
