"""The files of ``deploy/`` fit the program: command lines, variables, ports, exit codes, times. No tool is needed."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from millrace import __version__
from millrace.cli.exits import ExitCode
from millrace.http import PORTS
from millrace.schemas.documents import parse_set, parse_task
from millrace.zk.run.worker import SHUTDOWN_S_MAX
from tests.kit.deployment.command_lines import values_of
from tests.kit.deployment.unit_file import UnitFile
from tests.kit.deployment.variables import documented_variables
from tests.kit.paths import ROOT

SYSTEMD = ROOT / "deploy/systemd"
UNITS = [UnitFile.read(path) for path in sorted(SYSTEMD.glob("*.service"))]
each_unit = pytest.mark.parametrize("unit", UNITS, ids=lambda unit: str(unit.path.name))
# settings that differ: a program that makes machine code, or reads /proc
OWN_SETTINGS = {"MemoryDenyWriteExecute", "ProcSubset"}
DOCKERFILE = (ROOT / "deploy/images/Dockerfile").read_text()
COMPOSE_FILE = ROOT / "deploy/compose/compose.yaml"
COMPOSE: dict[str, Any] = yaml.safe_load(COMPOSE_FILE.read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
OURS = {name: it for name, it in SERVICES.items() if it["image"].startswith("millrace")}
STACK = ("registry", "scheduler", "worker", "apply")
CHART = ROOT / "deploy/helm/millrace"
CONFINED = "# Confinement. The same lines in each unit.\n"


def _assigned(path: Path) -> dict[str, str]:
    """Variables of an environment file as a shell reads them, also those that are commented out."""
    lines = re.findall(r"^#?([A-Z][A-Z_]+=.*)$", path.read_text(), re.M)
    script = "\n".join(("set -ae", *lines, "env -0"))
    read = subprocess.run(
        ("bash", "-c", script), capture_output=True, text=True, check=True, env={}
    )
    found = dict(each.split("=", 1) for each in read.stdout.split("\0") if each)
    return {line.partition("=")[0]: found[line.partition("=")[0]] for line in lines}


@each_unit
def test_unit_starts_a_command_that_exists(unit: UnitFile) -> None:
    """Alone, and with the further arguments of the example. Its page is at the suggested port."""
    own = unit.variables()
    example = _assigned(SYSTEMD / "millrace.env")
    for environment in (own, own | example):
        program, command, *arguments = unit.command(environment)
        assert program == "/opt/millrace/bin/millrace"
        port = 9471 if "@" in unit.path.name else PORTS[f"millrace {command}"]
        assert values_of([command, *arguments])["http"] == f"{environment['METRICS_HOST']}:{port}"
    assert unit.path.name == f"millrace-{command}{'@' * ('@' in unit.path.name)}.service"


def test_variables_of_the_environment_file_exist() -> None:
    """They are the program's, or a unit puts them into its command."""
    used = {name for unit in UNITS for name in unit.variables()}
    unknown = _assigned(SYSTEMD / "millrace.env").keys() - used - documented_variables()
    assert unknown == set()


@each_unit
def test_unit_restarts_by_exit_class(unit: UnitFile) -> None:
    """A class that a restart can't change ends the unit. All others start again, without a limit."""
    final = {int(code) for code in unit.one("RestartPreventExitStatus").split()}
    assert final == {ExitCode.USAGE, ExitCode.OPERATOR, ExitCode.FENCED}
    assert unit.one("Restart") == "always"
    assert unit.settings["Unit.StartLimitIntervalSec"] == ["0"]


@each_unit
def test_unit_waits_until_its_process_ends_by_itself(unit: UnitFile) -> None:
    """A process whose tasks do not stop prints its stacks before systemd would kill it."""
    is_worker = "registry" not in unit.path.name
    assert int(unit.one("TimeoutStopSec")) > (SHUTDOWN_S_MAX if is_worker else 0)
    assert unit.one("KillMode") == "mixed"  # a JVM that gets the signal, too, looks lost


def test_units_are_confined_alike() -> None:
    """A difference would be an oversight, except where a program makes machine code."""
    parts = {}
    for unit in UNITS:
        text = unit.path.read_text().partition(CONFINED)[2].partition("[Install]")[0]
        settings = [line for line in text.splitlines() if line and not line.startswith("#")]
        parts[unit.path.name] = [
            line for line in settings if line.partition("=")[0] not in OWN_SETTINGS
        ]
    first, *others = parts.values()
    assert len(first) > 20
    assert [others] == [[first] * len(others)]
    without_jit = {
        unit.path.name for unit in UNITS if "Service.MemoryDenyWriteExecute" in unit.settings
    }
    assert without_jit == {"millrace-scheduler.service"}


@pytest.mark.parametrize("name", OURS)
def test_compose_service_runs_a_command_that_exists(name: str) -> None:
    """With variables that exist, in the image that has the command."""
    service = OURS[name]
    values_of(service["command"])
    assert service["environment"].keys() - documented_variables() == set()
    target = service["build"]["target"]
    assert target == ("apply" if service["command"][0] == "apply" else "core")
    assert (
        service["image"].partition(":")[0]
        == {"core": "millrace", "apply": "millrace-apply"}[target]
    )
    assert re.search(rf"^FROM \w+ AS {target}$", DOCKERFILE, re.M)
    context = (COMPOSE_FILE.parent / service["build"]["context"]).resolve()
    assert (context / service["build"]["dockerfile"]).read_text() == DOCKERFILE
    assert int(service["stop_grace_period"].removesuffix("s")) > SHUTDOWN_S_MAX


def test_compose_ports_are_the_suggested_ones() -> None:
    """The page of each process, where Prometheus and the image's health check ask; only loopback is open."""
    pages = {name: f"{name}:{PORTS[f'millrace {name}']}" for name in STACK}
    for name, page in pages.items():
        _, _, port = page.partition(":")
        assert SERVICES[name]["environment"]["MILLRACE_HTTP"] == f"0.0.0.0:{port}"
        assert port in _exposed()
    prometheus = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    (job,) = prometheus["scrape_configs"]
    (targets,) = job["static_configs"]
    assert (job["job_name"], set(targets["targets"])) == ("millrace", set(pages.values()))
    assert f"--port={_exposed()[0]}" in SERVICES["registry"]["command"]
    published = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert published
    assert [port for port in published if not port.startswith("127.0.0.1:")] == []


def _exposed() -> list[str]:
    (ports,) = re.findall(r"^EXPOSE (.*)$", DOCKERFILE, re.M)
    return list(ports.split())


def test_compose_names_only_files_volumes_and_services_that_exist() -> None:
    """A folder that is missing would be created, empty and of root."""
    volumes, used = set(COMPOSE["volumes"]), set()
    for service in SERVICES.values():
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            if source.startswith("."):
                assert (COMPOSE_FILE.parent / source).exists()
            else:
                used.add(source)
        assert set(service.get("depends_on", ())) <= SERVICES.keys()
        assert set(service.get("secrets", ())) <= COMPOSE["secrets"].keys()
    assert used == volumes
    writable = {"/var/lib/millrace", "/var/lib/millrace/relay", "/var/cache/millrace"}
    (line,) = re.findall(r"install -d -m 0700 -o millrace -g millrace (.*)$", DOCKERFILE, re.M)
    assert set(line.split()) == writable
    assert "relay:/var/lib/millrace/relay" in SERVICES["worker"]["volumes"]


def test_documents_of_the_compose_file_are_read() -> None:
    """They name its services, and the password that it mounts."""
    hosts = set()
    for path in (COMPOSE_FILE.parent / "documents").glob("*.yaml"):
        plain = yaml.safe_load(path.read_text())
        (parse_set if "set" in plain and "task" not in plain else parse_task)(plain)
        hosts |= {member["host"] for member in plain.get("members", ())}
        hosts |= {plain["kafka"]["bootstrap"].partition(":")[0]} if "kafka" in plain else set()
        assert plain.get("password", "file:/run/secrets/millrace") == "file:/run/secrets/millrace"
    assert hosts == {"source", "target", "kafka"}
    assert hosts <= SERVICES.keys()


def test_chart_has_the_ports_of_the_commands() -> None:
    """In its templates, and in the range that its NetworkPolicy opens."""
    for name in STACK:
        text = (CHART / f"templates/{name}.yaml").read_text()
        assert f'"port" {PORTS[f"millrace {name}"]} "args"' in text
    ports = [PORTS[f"millrace {name}"] for name in STACK]
    policy = (CHART / "templates/access.yaml").read_text()
    assert f"port: {min(ports)}, endPort: {max(ports)}" in policy


def test_chart_has_the_rules_and_dashboards_themselves() -> None:
    """Links: helm packs what they point to."""
    for path in (CHART / "files").iterdir():
        assert path.is_symlink()
        assert path.resolve().is_relative_to(ROOT / "deploy")


def test_versions_in_chart_compose_and_images_agree() -> None:
    """Those of the program."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert {chart["version"], chart["appVersion"]} == {__version__}
    assert {service["image"].partition(":")[2] for service in OURS.values()} == {__version__}
