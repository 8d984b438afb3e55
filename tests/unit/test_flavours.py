"""Which MySQL is used, and what is reported without one: nothing is skipped silently."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from millrace.deploy.servers import DatabaseServer, ServerOptions, fetch
from millrace.deploy.servers.programs import check_mysql, mysql_programs
from millrace.errors import Fatal
from tests.kit.paths import ROOT

NEITHER = "tests/integration/test_source.py"  # has tests of each flavour in turn and of MySQL alone


def _program(folder: Path, printed: str) -> Path:
    """Return a server program that prints this version."""
    path = folder / "mysqld"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{printed}'\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    "printed",
    [
        "/usr/sbin/mysqld  Ver 8.4.6 for Linux on x86_64 (MySQL Community Server - GPL)",
        "/usr/sbin/mysqld  Ver 9.6.0 for Linux on x86_64 ((Debian))",
        "/usr/sbin/mariadbd  Ver 11.4.5-MariaDB for linux-systemd on x86_64 (MariaDB Server)",
        "",
    ],
    ids=["too old", "just too old", "MariaDB", "silent"],
)
def test_unsupported_mysql_is_refused_with_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str
) -> None:
    """The program comes from `--mysqld`, the environment or the cache; it is refused before a stack starts."""
    given = _program(tmp_path / "given", printed)
    cached = _program(tmp_path / "home" / "mysql", printed)
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path / "home"))
    for named, path in (("", cached), (str(given), given)):
        monkeypatch.setenv("MILLRACE_MYSQLD", named)
        with pytest.raises(Fatal) as caught:
            mysql_programs()
        assert caught.value.code == "MR-8005"
        assert caught.value.message == f"{path} is not MySQL 9.7 or later: {printed}"
        assert "--mysqld PATH" in caught.value.fix


@pytest.mark.parametrize("version", ["9.7.0", "9.7.4-2", "9.10.1", "10.0.0"])
def test_mysql_of_the_supported_version_or_later_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """Versions are numbers, not text."""
    printed = f"/usr/sbin/mysqld  Ver {version} for Linux on x86_64"
    monkeypatch.setenv("MILLRACE_MYSQLD", str(_program(tmp_path, printed)))
    found = mysql_programs()
    assert found is not None
    assert found.mysqld == tmp_path / "mysqld"


def test_missing_mysql_package_is_reported_with_the_alternative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without dpkg and apt there is one sentence, and `make setup` continues."""
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    fetch.fetch_mysql()
    printed = capsys.readouterr().err
    assert "Debian amd64 only" in printed
    assert "give MySQL (9.7 or later) with `--mysqld PATH` or MILLRACE_MYSQLD=PATH" in printed
    assert printed.count("\n") == 1


def test_missing_mariadb_package_is_reported_and_its_tests_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`make setup` continues after one sentence; a test that starts the release gets the code and the fix."""
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    fetch.fetch_mariadb_release("10.11")
    printed = capsys.readouterr().err
    assert (
        "MariaDB 10.11 is fetched on Debian amd64 only; the tests of MariaDB 10.11 will" in printed
    )
    with pytest.raises(Fatal) as caught:
        DatabaseServer.mariadb(tmp_path / "server", ServerOptions(release="10.11")).start()
    assert caught.value.code == "MR-8005"
    assert "make setup" in caught.value.fix


def test_fetched_mysql_that_is_too_old_is_reported_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A version fetched from an older suite is fetched again."""
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    versions = iter(["9.7.1", "8.4.7"])
    fetched: list[str] = []

    class Fetching:
        """Acts as the program ``fetch-debian``."""

        returncode = 0

        def __init__(self, command: list[str], **_: object) -> None:
            folder = Path(command[4])
            assert not folder.exists()  # else deploy/servers/fetch-debian would leave it as it is
            fetched.append(command[1])
            _program(folder, f"mysqld  Ver {next(versions)} for Linux")

        def wait(self, timeout: float) -> int:
            return self.returncode

    popen = subprocess.Popen

    def start(command: list[str], **given: Any) -> object:
        return (Fetching if command[0] == "bash" else popen)(command, **given)

    monkeypatch.setattr(subprocess, "Popen", start)
    _program(tmp_path / "mysql", "mysqld  Ver 8.4.6 for Linux")
    fetch.fetch_mysql()
    assert len(fetched) == 1
    assert "8.4" not in capsys.readouterr().err
    fetch.fetch_mysql()
    assert len(fetched) == 1, "it is there, and new enough"
    (tmp_path / "mysql" / "mysqld").unlink()
    (tmp_path / "mysql").rmdir()
    check_mysql.cache_clear()  # the path is the same, the program another
    fetch.fetch_mysql()
    printed = capsys.readouterr().err
    assert "MySQL could not be fetched" in printed
    assert "Ver 8.4.7" in printed
    assert "--mysqld PATH" in printed
    assert not (tmp_path / "mysql").exists()


def test_run_without_mysql_reports_the_omission_first_and_last(tmp_path: Path) -> None:
    """The first and last lines of the run report that MySQL tests did not run and how to provide a MySQL."""
    environment = {**os.environ, "MILLRACE_HOME": str(tmp_path), "MILLRACE_MYSQLD": ""}
    command = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", NEITHER)
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    head, _, rest = done.stdout.partition("collected ")
    collected, _, end = rest.partition("flavour not run")
    for part in (head, end):
        assert "MySQL's half of the tests was NOT RUN" in part
        assert "give MySQL (9.7 or later) with `--mysqld PATH` or MILLRACE_MYSQLD=PATH" in part
    assert "[mariadb" in collected
    assert "[mysql" not in collected
    assert "deselected" in collected
