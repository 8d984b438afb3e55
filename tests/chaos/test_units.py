"""The units of ``deploy/systemd`` under a real systemd, installed as docs/deploy.md says."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from millrace.cli.exits import ExitCode
from millrace.deploy.local.secret_files import SecretFiles
from millrace.deploy.local.services import (
    APPLY_TASK,
    CAPTURE_TASK,
    SOURCE_SET,
    TARGET_SET,
    Endpoints,
    SetAddress,
    apply_document,
    capture_document,
    document_commands,
    set_document,
)
from millrace.deploy.local.stack import LocalStack, StackOptions
from millrace.deploy.servers.process import free_port
from millrace.home_folder import home
from tests.kit.deployment.machine import Machine, install_program, unit_files
from tests.kit.waiting import eventually

ADDRESS = "127.0.27.1"  # of this test alone, so the suggested ports are free
SCHEDULER, REGISTRY = "millrace-scheduler", "millrace-registry"
WORKER, APPLY = "millrace-worker@9471", "millrace-apply@9472"
UNITS = (SCHEDULER, REGISTRY, WORKER, APPLY)
PORTS = {SCHEDULER: 9473, REGISTRY: 9474, WORKER: 9471, APPLY: 9472}
USER = "millrace"
PROGRAM = "/opt/millrace/bin/millrace"
COMPILE_S = 900  # the first start of an installation compiles the kernels


@dataclass
class Installation:
    """The servers of a stack, and a machine with the units."""

    stack: LocalStack
    machine: Machine
    environment: tuple[str, ...]

    def command(self, *arguments: str) -> str:
        """Run `millrace ARGUMENTS` on the machine, as the user of the services."""
        return self.machine.run("env", *self.environment, PROGRAM, *arguments, user=USER)

    def is_ready(self, unit: str) -> bool:
        """Its page answers 200."""
        url = f"http://{ADDRESS}:{PORTS[unit]}/readyz"
        return self.machine.try_run("curl", "--silent", "--fail", url).returncode == 0

    def main_pid(self, unit: str) -> int:
        """The ID of the unit's main process, inside the machine."""
        return int(self.machine.shows(unit, "MainPID")["MainPID"])


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """Everything that docs/deploy.md installs, before a unit is started. Spark's jars are those of this machine."""
    folder = tmp_path_factory.mktemp("units")
    program = install_program(folder)
    stack = LocalStack(folder / "stack", StackOptions(replica_count=1))
    try:
        stack.start_servers()
        port = free_port()
        endpoints = Endpoints(stack.endpoints.kafka, stack.endpoints.zookeeper, port)
        variables = (
            f"MILLRACE_ZOOKEEPER={endpoints.zookeeper}",
            f"MILLRACE_KAFKA={endpoints.kafka}",
        )
        options = (
            f"METRICS_HOST={ADDRESS}",
            f"REGISTRY_OPTIONS=--port={port}",
            "APPLY_OPTIONS=--master=local[4]",
        )
        files = {
            **unit_files(),
            "/etc/millrace/millrace.env": "\n".join((*variables, *options, "")),
            **_documents(stack, endpoints),
        }
        with Machine(folder, files=files, program=program) as machine:
            machine.run("systemd-sysusers", "millrace.conf")
            machine.run("systemd-tmpfiles", "--create", "millrace.conf")
            machine.run("chown", "-R", "root:millrace", "/etc/millrace")
            machine.run("chmod", "-R", "u=rwX,g=rX,o=", "/etc/millrace")
            machine.copy(home() / "jars" / "spark", "/var/cache/millrace/jars/spark")
            machine.run("chown", "-R", "millrace:millrace", "/var/cache/millrace")
            yield Installation(stack, machine, (*variables, "MILLRACE_HOME=/var/cache/millrace"))
    finally:
        stack.stop()


def _documents(stack: LocalStack, endpoints: Endpoints) -> dict[str, str]:
    """The documents and passwords of the stack, where the user of the services reads them."""
    found = {}
    ports = {
        SOURCE_SET: tuple(member.port for member in stack.source.members),
        TARGET_SET: (stack.target.port,),
    }
    for name, its_ports in ports.items():
        secret = f"/etc/millrace/secrets/{name}"
        found[secret] = SecretFiles(stack.folder / "secrets").text(name)
        found[f"/etc/millrace/{name}.yaml"] = set_document(
            SetAddress(name, its_ports, Path(secret), None)
        )
    found[f"/etc/millrace/{CAPTURE_TASK}.yaml"] = capture_document(endpoints)
    found[f"/etc/millrace/{APPLY_TASK}.yaml"] = apply_document(endpoints)
    return found


def test_units_take_rows_from_source_to_target(installation: Installation) -> None:
    """All four, confined as they are: kernels compile, the JVM runs, the relay log is written, pages answer."""
    machine = installation.machine
    machine.run("systemctl", "start", *UNITS)
    for unit in UNITS:
        eventually(
            partial(installation.is_ready, unit), timeout_s=COMPILE_S, what=f"{unit} is ready"
        )
    for arguments in document_commands(Path("/etc/millrace")):
        installation.command(*arguments)
    source = installation.stack.source.primary
    source.execute("CREATE DATABASE play")
    source.execute("CREATE TABLE play.t (id INT PRIMARY KEY, v TEXT)")
    source.execute("INSERT INTO play.t VALUES (1, 'hello')")
    installation.command("task", "wait", APPLY_TASK, "--timeout", str(COMPILE_S))
    assert installation.stack.target.execute("SELECT v FROM play.t") == [("hello",)]
    installation.command("compare", APPLY_TASK)
    for unit in UNITS:
        assert machine.shows(unit, "ActiveState") == {"ActiveState": "active"}
    workers = json.loads(installation.command("worker", "list", "--json"))
    host = machine.run("hostname", "--short").strip()
    assert {worker["worker"] for worker in workers} == {f"{host}-9471", f"{host}-9472"}


@pytest.mark.parametrize("unit", UNITS)
def test_analysis_accepts_the_unit(installation: Installation, unit: str) -> None:
    """`systemd-analyze verify` finds nothing, and `security` an exposure of at most 1.5 of 10 (1.1 when written)."""
    name = f"{unit}.service"
    done = installation.machine.try_run("systemd-analyze", "verify", name)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    installation.machine.run("systemd-analyze", "security", "--threshold=15", name)


@pytest.mark.parametrize("unit", UNITS)
def test_process_is_confined(installation: Installation, unit: str) -> None:
    """No capability, no new privilege, a filter of system calls, another user; the system is read-only."""
    machine = installation.machine
    pid = installation.main_pid(unit)
    status = dict(
        line.split(":\t", 1)
        for line in machine.run("cat", f"/proc/{pid}/status").splitlines()
        if ":\t" in line
    )
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    assert {int(status[name], 16) for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb")} == {0}
    assert machine.run("stat", "--format=%U", f"/proc/{pid}").strip() == USER
    mounts = machine.run("cat", f"/proc/{pid}/mounts").splitlines()
    (options,) = [line.split()[3] for line in mounts if line.split()[1] == "/"]
    assert "ro" in options.split(",")


def test_killed_worker_is_started_again(installation: Installation) -> None:
    """So is an apply driver whose JVM has ended, by its exit code."""
    machine = installation.machine
    machine.run("systemctl", "kill", "--signal=SIGKILL", "--kill-who=main", WORKER)
    machine.run("pkill", "-KILL", "-u", USER, "java")
    for unit, code in ((WORKER, "9"), (APPLY, str(int(ExitCode.RESTART)))):
        eventually(partial(_has_restarted, machine, unit), what=f"{unit} starts again")
        eventually(partial(installation.is_ready, unit), what=f"{unit} is ready again")
        assert f"status={code}/" in machine.journal(unit)


def _has_restarted(machine: Machine, unit: str) -> bool:
    shown = machine.shows(unit, "NRestarts", "ActiveState")
    return int(shown["NRestarts"]) > 0 and shown["ActiveState"] == "active"


def test_wrong_option_is_not_tried_again(installation: Installation) -> None:
    """Usage, an error that needs an operator, another owner: the unit fails and stays down."""
    machine = installation.machine
    port = PORTS[REGISTRY]
    path = f"/etc/millrace/{SCHEDULER}.env"
    machine.run("sh", "-c", f"echo SCHEDULER_OPTIONS=--no-such-option > {path}")
    machine.run("systemctl", "restart", SCHEDULER)
    _fails_with(machine, SCHEDULER, ExitCode.USAGE)
    machine.run(
        "sh",
        "-c",
        f"echo METRICS_HOST={ADDRESS} 'SCHEDULER_OPTIONS=--http={ADDRESS}:{port}' > {path}",
    )
    machine.run("systemctl", "restart", SCHEDULER)
    _fails_with(machine, SCHEDULER, ExitCode.OPERATOR)  # MR-8009: the registry has this port
    machine.run("rm", path)
    machine.run("systemctl", "restart", SCHEDULER)
    eventually(partial(installation.is_ready, SCHEDULER))


def _fails_with(machine: Machine, unit: str, code: ExitCode) -> None:
    expected = {
        "ActiveState": "failed",
        "Result": "exit-code",
        "ExecMainStatus": str(int(code)),
        "NRestarts": "0",
    }
    eventually(lambda: machine.shows(unit, *expected) == expected, what=f"{unit} ends with {code}")


def test_stopped_units_end_in_order(installation: Installation) -> None:
    """Within the time that they have; nothing of theirs is left."""
    machine = installation.machine
    machine.run("systemctl", "stop", *UNITS)
    for unit in UNITS:
        assert machine.shows(unit, "ActiveState", "Result", "ExecMainStatus") == {
            "ActiveState": "inactive",
            "Result": "success",
            "ExecMainStatus": "0",
        }, unit
    # In a container with cgroups of version 1, systemd does not wait for the processes that it has killed: the JVM
    eventually(lambda: machine.try_run("pgrep", "-u", USER).returncode == 1, what="no process")
