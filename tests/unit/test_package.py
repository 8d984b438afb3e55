"""The contents of the wheel, and what runs with only the base of the package."""

import email
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from email.message import Message
from pathlib import Path

import pytest

from millrace import cli
from millrace.cli import COMMANDS, TOPICS
from millrace.deploy.package.bundle import build_wheel
from millrace.process.installation import MODULES, PARTS, Extra
from tests.kit.paths import ROOT

# Modules of extras look as if they were not installed.
_BASE_ONLY = """
import sys
from millrace.process.installation import MODULES
sys.modules.update((name, None) for names in MODULES.values() for name in names)
from millrace import cli
sys.exit(max(cli.run(line.split()) for line in sys.argv[1:]))
"""
EXCLUDED = ("bench", "package", "site")  # folders of deploy/ that a checkout alone has
_DISTRIBUTIONS = {"pymysqlreplication": "mysql-replication"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel of this checkout once."""
    return build_wheel(tmp_path_factory.mktemp("dist"))


def _base_only(*lines: str) -> subprocess.CompletedProcess[str]:
    """Run each command line in one process where no extra can be imported; return the highest exit code."""
    return subprocess.run(
        [sys.executable, "-c", _BASE_ONLY, *lines],
        env=os.environ | {"PYTHONPATH": str(ROOT), "MILLRACE_ZOOKEEPER": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )


def test_wheel_holds_the_product_and_no_tests(wheel: Path) -> None:
    """It installs one name, with every Python file of the product and the data that they read, but no benchmarks."""
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"millrace"}
    sources = {
        str(Path("millrace") / path.relative_to(root))
        for root, folders in ((ROOT / "millrace", (".",)), (ROOT, PARTS))
        for folder in folders
        for path in (root / folder).rglob("*.py")
        if not any(path.is_relative_to(ROOT / "deploy" / name) for name in EXCLUDED)
    }
    data = {
        "deploy/grafana/expert.json",
        "deploy/grafana/overview.json",
        "deploy/grafana/provisioning/dashboards/millrace.yml",
        "deploy/grafana/provisioning/datasources/prometheus.yml",
        "deploy/prometheus/alerts.yml",
        "deploy/prometheus/prometheus.yml",
        "deploy/servers/ivy.xml",
        "deploy/servers/fetch-debian",
        "docs/errors.md",
        "docs/metrics.md",
        "py.typed",
        *(f"deploy/systemd/{path.name}" for path in (ROOT / "deploy/systemd").iterdir()),
    }
    found = {name for name in names if ".dist-info" not in name}
    assert found == sources | {f"millrace/{name}" for name in data}


def test_bench_outside_a_checkout_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """MR-8012, before anything is started: a wheel has no benchmarks."""
    monkeypatch.setitem(sys.modules, "millrace.deploy.bench", None)
    assert cli.run(["bench"]) == 4
    assert capsys.readouterr().err.startswith("MR-8012 this installation")


def _metadata(wheel: Path) -> Message:
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(archive.read(name))


def test_wheel_carries_its_license(wheel: Path) -> None:
    """The wheel has the text, and its name for tools."""
    assert _metadata(wheel)["License-Expression"] == "Apache-2.0"
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith("/licenses/LICENSE"))
    assert archive.read(name) == (ROOT / "LICENSE").read_bytes()


def test_wheel_names_its_extras(wheel: Path) -> None:
    """A capture host gets no Spark; a command that needs an extra checks every package of it."""
    metadata = _metadata(wheel)
    assert set(metadata.get_all("Provides-Extra", [])) == {"apply", "local", "dev"}
    base = [text for text in metadata.get_all("Requires-Dist", []) if "extra ==" not in text]
    assert not [text for text in base if text.startswith(("pandas", "pyspark"))]
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = declared["optional-dependencies"]
    packages = {
        Extra.APPLY: {_bounds(text)[0] for text in extras["apply"]},
        Extra.LOCAL: {
            _bounds(text)[0] for text in extras["local"] if not text.startswith("millrace[")
        },
    }
    packages[Extra.LOCAL] |= packages[Extra.APPLY]
    assert packages == {
        extra: {_DISTRIBUTIONS.get(module, module) for module in modules}
        for extra, modules in MODULES.items()
    }


def _bounds(requirement: str) -> tuple[str, str]:
    """The name of a required package, and its lower bound; it has an upper one, too."""
    found = re.match(r"([\w.-]+)>=([\w.]+),<\d", requirement)
    assert found is not None, requirement
    return found[1], found[2]


def test_package_requires_only_versions_that_are_tested() -> None:
    """An older PyMySQL logs in without TLS; a later major version of anything may break an installation."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = [*project["dependencies"], *project["optional-dependencies"]["apply"]]
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    tested = dict(line.split("==") for line in lines if "==" in line)
    assert dict(map(_bounds, required)) == {
        name: tested[name] for name, _ in map(_bounds, required)
    }


def test_every_command_has_help_without_extras() -> None:
    """Help loads neither PySpark nor pandas."""
    done = _base_only("--help", *(f"{name} --help" for name in COMMANDS))
    assert done.returncode == 0, done.stderr
    assert [name for name in COMMANDS if f"Usage: millrace {name}" not in done.stdout] == []


def test_help_lists_commands_by_topic() -> None:
    """Those that need an extra which is not installed come last, with its name."""
    command = [sys.executable, "-m", "millrace", "--help"]
    whole = subprocess.check_output(command, text=True, timeout=60)
    assert _sections(whole) == {name: [*commands] for name, commands in TOPICS.items()}
    base = _sections(_base_only("--help").stdout)
    assert base.pop("Not installed (extra apply)") == ["apply"]
    assert base.pop("Not installed (extra local)") == ["demo", "up", "bench"]
    assert base == {
        name: [one for one in commands if commands[one].extra is None]
        for name, commands in TOPICS.items()
    }


def _sections(text: str) -> dict[str, list[str]]:
    """The commands of each section that has any."""
    found: dict[str, list[str]] = {}
    for line in text.partition("Options:")[2].partition("Exit codes:")[0].splitlines():
        if line.endswith(":"):
            names = found[line.removesuffix(":")] = []
        elif found and (named := re.match("  ([a-z-]+)  ", line)):
            names.append(named[1])
    return found


def test_capture_host_runs_without_extras() -> None:
    """Each command loads all of its modules, then reports that no ensemble is named."""
    lines = ("worker --relay-dir relay", "scheduler", "status", "task list", "compare shop")
    done = _base_only(*lines)
    assert done.returncode == 4
    assert done.stderr.count("MR-4205 ") == len(lines), done.stderr


@pytest.mark.parametrize("name", [name for name in COMMANDS if COMMANDS[name].extra])
def test_command_without_its_extra_names_the_pip_command(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """MR-8011, before anything is started."""
    for module in MODULES[Extra.LOCAL]:
        monkeypatch.setitem(sys.modules, module, None)
    assert cli.run([name]) == 4
    printed = capsys.readouterr().err
    assert printed.startswith(f"MR-8011 millrace {name} needs pandas, pyarrow")
    assert (
        f'`pip install -c constraints.txt "$(ls millrace-*.whl)[{COMMANDS[name].extra}]"`'
        in printed
    )
