"""A local stack starts from any current folder, with any folder names, and beside a slow broker."""

import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from millrace.cli.exits import ExitCode
from millrace.deploy.local import background
from millrace.deploy.local.secret_files import SecretFiles
from millrace.deploy.local.security import StackSecurity
from millrace.deploy.local.services import PROGRAM, Endpoints, service_environment
from millrace.deploy.local.stack import LocalStack, StackOptions, source_grants
from millrace.deploy.servers.process import ProcessSpec, ServerProcess
from millrace.deploy.servers.properties import property_value
from millrace.deploy.servers.tls import TlsFiles
from millrace.drivers.mysql.grants import EVERYWHERE, HeldGrants, Role, needed_grants
from millrace.errors import Fatal
from millrace.schemas.gtid import Flavour
from tests.kit.waiting import eventually


def test_services_start_beside_folders_named_like_product_packages(
    tmp_path: Path,
) -> None:
    """Without ``-P``, ``python -m`` would import modules from there."""
    (tmp_path / "millrace").mkdir()
    (tmp_path / "millrace" / "__init__.py").write_text("raise SystemExit('a stranger')\n")
    done = subprocess.run((*PROGRAM, "--help"), cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_keeper_ignores_packages_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ``deploy`` in the current folder is not Millrace's."""
    started: list[ProcessSpec] = []

    class Recorder:
        """A recorder that starts nothing."""

        def __init__(self, spec: ProcessSpec, **_: object) -> None:
            started.append(spec)

        def launch(self) -> None:
            """Do nothing."""

    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    monkeypatch.setattr(background, "LocalStack", mock.MagicMock())
    monkeypatch.setattr(background, "service_environment", lambda _: {})
    monkeypatch.setattr(background, "ServerProcess", Recorder)
    background.start_background("local", StackOptions())
    assert started[0].command[:4] == (sys.executable, "-P", "-m", "millrace.deploy.local.keeper")


def test_logins_of_other_servers_are_not_inherited() -> None:
    """A plain stack clears every variable that a secured one sets, as the shell may have it for another stack."""
    folder = Path("/stack")
    files = TlsFiles(folder, folder, folder)
    secured = StackSecurity(folder, SecretFiles(folder), files, files)
    plain = service_environment(Endpoints("k:1", "z:2", 3))
    logins = service_environment(Endpoints("k:1", "z:2", 3, secured))
    assert plain.keys() == logins.keys()
    assert {name for name in logins if logins[name] != plain[name]} == {
        "MILLRACE_REGISTRY",
        *secured.variables(),
    }
    assert not any(plain[name] for name in secured.variables())


@pytest.mark.parametrize(
    ("path", "written"),
    [
        ("/home/a b/run", "/home/a b/run"),
        ("/home/zo\u00eb/\u0159", "/home/zo\\u00eb/\\u0159"),
        ("/\U0001f600", "/\\ud83d\\ude00"),
        ("/a\\b", "/a\\\\b"),
    ],
)
def test_java_reads_any_path_from_a_properties_file(path: str, written: str) -> None:
    """Java reads the file as Latin-1, and a backslash as an escape."""
    assert property_value(Path(path)) == written


@pytest.mark.parametrize("flavour", Flavour)
@pytest.mark.parametrize("role", [Role.SOURCE, Role.LOAD, Role.COMPARE, Role.SNAPSHOT])
def test_source_account_suffices_for_tasks_on_any_database(flavour: Flavour, role: Role) -> None:
    """On MySQL, a load needs LOCK TABLES. The check reports none of these grants as superfluous."""
    grants = source_grants(flavour)
    held = HeldGrants(
        {
            scope: frozenset(
                name for one in grants if one.scope == scope for name in one.privileges
            )
            for scope in (EVERYWHERE, "%")
        }
    )
    assert not held.missing(needed_grants(role, flavour, ("shop", "my\\_shop", "%")))
    assert held.excess(needed_grants(Role.SOURCE, flavour)) == ()


def test_interrupted_start_leaves_no_empty_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is killed before the text is written; the next start makes a secret and keeps it."""
    files = SecretFiles(tmp_path / "secrets")

    def killed(*_: object) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(Path, "write_text", killed)
        with pytest.raises(KeyboardInterrupt):
            files.text("token")
    assert not files.path("token").exists()
    files.path("older").touch()
    for name in ("token", "older"):
        text = files.text(name)
        assert len(text) > 20
        assert files.text(name) == text
        assert files.path(name).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("code", "is_revived"), [(ExitCode.RETRY, True), (ExitCode.OPERATOR, False)]
)
def test_process_that_asks_for_another_try_gets_one(
    code: ExitCode, is_revived: bool, tmp_path: Path
) -> None:
    """Such as a registry that found no broker in time. Any other end is the stack's."""
    script = f"test -e tried && exec sleep 600; touch tried; exit {int(code)}"
    log = tmp_path / "service" / "log"
    spec = ProcessSpec("service", ("sh", "-c", f"cd {tmp_path}; {script}"), log)
    stack = LocalStack(tmp_path / "stack", StackOptions())
    stack.services = (ServerProcess(spec),)
    (service,) = stack.services
    service.launch()
    try:
        eventually(lambda: not service.is_alive())
        if is_revived:
            stack.revive_services()
            assert service.is_alive()
        else:
            with pytest.raises(Fatal, match="ended"):
                stack.revive_services()
    finally:
        service.kill()
