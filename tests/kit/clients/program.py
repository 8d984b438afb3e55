"""A program of ``examples/`` as a client: built once in ``$MILLRACE_HOME/clients``, run for each topic.

    $MILLRACE_HOME/clients/
        python-0f3a…/   a copy of examples/python that is built; the name has a digest of the sources
        caches/         what the package managers download

A folder is complete if it has the file ``.complete``. Folders that no run has used for a day are removed.
"""

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from hashlib import sha256
from pathlib import Path

from millrace.home_folder import home
from millrace.schemas.view.format_options import FormatName
from tests.kit.clients.client import ClientTopic
from tests.kit.clients.manifests import versions_of
from tests.kit.forked import ending_with_us
from tests.kit.paths import ROOT

EXAMPLES = ROOT / "examples"
PROGRAMS_FOLDER = Path(__file__).with_name("programs")
BUILD_S, RUN_S = 1800.0, 900.0
KEPT_S = 24 * 3600.0
# what a build in a checkout leaves; .gitignore has them, too
_OUTPUTS = ("target", "node_modules", ".venv", "subscriber", "Cargo.lock", "package-lock.json")
_SUMMARY = re.compile(r"^(\d+) records, (\d+) rows$")


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """The output of a program, and its exit code."""

    code: int
    output: str
    errors: str

    def rows(self) -> list[dict[str, object]]:
        """The printed rows. AssertionError if the program failed, or its last line counts other rows."""
        assert self.code == 0, f"exit code {self.code}: {self.errors[-2000:]}"
        rows = [json.loads(line, parse_float=Decimal) for line in self.output.split("\n") if line]
        assert self.summary()[1] == len(rows), f"{len(rows)} rows: {self.errors[-500:]}"
        return rows

    def summary(self) -> tuple[int, int]:
        """Records and rows of the last line on standard error."""
        last = self.errors.strip().rpartition("\n")[2]
        match = _SUMMARY.match(last)
        assert match is not None, f"no summary: {self.errors[-2000:]}"
        return int(match[1]), int(match[2])


@dataclass(frozen=True, slots=True)
class BuiltProgram:
    """Sources of a program. ``build`` and ``command`` run in the built folder."""

    folder: Path
    build: Sequence[Sequence[str]]
    command: Sequence[str]

    def prepare(self) -> None:
        """Copy and build, unless this has been done for the same sources and commands."""
        built = self._built()
        with _one_at_a_time(self.folder.name):
            if not (built / ".complete").exists():
                shutil.rmtree(built, ignore_errors=True)
                shutil.copytree(self.folder, built, ignore=shutil.ignore_patterns(*_OUTPUTS))
                for command in self.build:
                    _run_build(command, built)
            (built / ".complete").touch()
            _remove_unused(self.folder.name)

    def run(self, *arguments: str) -> ProgramRun:
        """Run it; ``prepare`` has built it."""
        done = subprocess.run(
            ending_with_us(*self.command, *arguments),
            cwd=self._built(),
            env=build_environment(),
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )
        return ProgramRun(done.returncode, done.stdout, done.stderr)

    def _built(self) -> Path:
        digest = sha256(repr((self.build, self.command)).encode())
        for path in source_files(self.folder):
            digest.update(str(path.relative_to(self.folder)).encode() + path.read_bytes())
        return clients_home() / f"{self.folder.name}-{digest.hexdigest()[:12]}"


@dataclass(frozen=True, slots=True)
class ExampleProgram:
    """``manifest``: in ``examples/``, or a whole path; its folder is the program. ``needs``: programs of the system.

    ``command`` gets BOOTSTRAP REGISTRY TOPIC.
    """

    name: str
    manifest: str
    format: FormatName
    needs: Sequence[str]
    build: Sequence[Sequence[str]]
    command: Sequence[str]

    @property
    def folder(self) -> Path:
        """The example's sources."""
        return (EXAMPLES / self.manifest).parent

    def missing(self) -> str:
        """The first program that this machine does not have."""
        return next((name for name in self.needs if shutil.which(name) is None), "")

    def versions(self) -> str:
        """The direct dependencies."""
        versions = versions_of(EXAMPLES / self.manifest)
        return ", ".join(f"{name} {version}" for name, version in versions.items())

    def prepare(self) -> None:
        """Build it once."""
        self._program().prepare()

    def run(self, topic: ClientTopic) -> ProgramRun:
        """Run the built program over a topic."""
        return self._program().run(topic.bootstrap, topic.registry, topic.topic)

    def rows(self, topic: ClientTopic) -> Iterable[Mapping[str, object]]:
        """The printed rows; the program must have counted all records of the topic."""
        run = self.run(topic)
        rows = run.rows()
        assert run.summary()[0] == topic.records, f"{topic.records} records: {run.errors[-500:]}"
        return rows

    def _program(self) -> BuiltProgram:
        return BuiltProgram(self.folder, self.build, self.command)


def python_build() -> Sequence[Sequence[str]]:
    """A virtual environment with the packages of ``requirements.txt``."""
    uv = str(Path(sys.executable).with_name("uv"))
    return (
        (uv, "venv", "--quiet", "--python", sys.executable, ".venv"),
        (uv, "pip", "install", "--quiet", "--python", ".venv", "-r", "requirements.txt"),
    )


def source_files(folder: Path) -> Iterator[Path]:
    """The files of programs, without what a build in the folder has left, sorted."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not set(path.relative_to(folder).parts) & set(_OUTPUTS):
            yield path


def python_program(name: str, folder: str, format_name: FormatName) -> ExampleProgram:
    """``program.py`` of an example in a separate environment."""
    return ExampleProgram(
        name,
        f"{folder}/requirements.txt",
        format_name,
        needs=(),
        build=python_build(),
        command=(".venv/bin/python", "program.py"),
    )


def spark_program(name: str, folder: str, format_name: FormatName) -> ExampleProgram:
    """``program.py`` of an example on the PySpark of the tests, with the connector that an apply driver uses."""
    jars = home() / "jars" / "spark" / "*"
    options = f"--master local[2] --conf spark.ui.enabled=false --driver-class-path {jars}"
    return ExampleProgram(
        name,
        f"{folder}/requirements.txt",
        format_name,
        needs=(),
        build=((sys.executable, "-m", "millrace.deploy.servers.fetch", "spark"),),
        command=(
            *("env", "SPARK_LOCAL_IP=127.0.0.1", f"PYSPARK_SUBMIT_ARGS={options} pyspark-shell"),
            *(sys.executable, "program.py"),
        ),
    )


def go_program(name: str, folder: str, format_name: FormatName) -> ExampleProgram:
    """A module of Go with one program."""
    return ExampleProgram(
        name,
        f"{folder}/go.mod",
        format_name,
        needs=("go",),
        build=(("go", "build", "-o", "subscriber", "."),),
        command=("./subscriber",),
    )


def node_program(name: str, folder: str, format_name: FormatName) -> ExampleProgram:
    """``subscriber.js`` of an example. It has no lock file, which would name a registry's host."""
    return ExampleProgram(
        name,
        f"{folder}/package.json",
        format_name,
        needs=("node", "npm"),
        build=(("npm", "install", "--no-package-lock", "--no-audit", "--no-fund"),),
        command=("node", "subscriber.js"),
    )


def java_program(name: str, folder: str, format_name: FormatName) -> ExampleProgram:
    """``Orders`` of an example, with its jars in ``target``."""
    return ExampleProgram(
        name,
        f"{folder}/pom.xml",
        format_name,
        needs=("java", "mvn"),
        build=(("mvn", "--quiet", "package"),),
        command=("java", "-cp", "target/*", "Orders"),
    )


def rust_program(name: str, folder: str, format_name: FormatName) -> ExampleProgram:
    """``orders`` of an example. All builds share the compiled dependencies, which take minutes."""
    return ExampleProgram(
        name,
        f"{folder}/Cargo.toml",
        format_name,
        needs=("cargo", "cc", "make"),
        build=(("cargo", "install", "--quiet", "--path", ".", "--root", "."),),
        command=("bin/orders",),
    )


def clients_home() -> Path:
    """The folder of all built clients."""
    return home() / "clients"


def build_environment() -> dict[str, str]:
    """The environment of builds: downloads of Go and npm are in one folder, those of cargo and Maven in their own."""
    caches = clients_home() / "caches"
    return {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "GOMODCACHE": str(caches / "go-modules"),
        "GOCACHE": str(caches / "go-build"),
        "GOFLAGS": f"{os.environ.get('GOFLAGS', '')} -modcacherw".strip(),
        "CARGO_TARGET_DIR": str(caches / "cargo-target"),
        "npm_config_cache": str(caches / "npm"),
    }


def _run_build(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(
        ending_with_us(*command),
        cwd=folder,
        env=build_environment(),
        capture_output=True,
        text=True,
        timeout=BUILD_S,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)}: {(done.stdout + done.stderr)[-3000:]}"


@contextmanager
def _one_at_a_time(name: str) -> Iterator[None]:
    clients_home().mkdir(exist_ok=True)
    with (clients_home() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _remove_unused(name: str) -> None:
    for folder in clients_home().glob(f"{name}-{'?' * 12}"):
        stamp = folder / ".complete"
        if stamp.exists() and time.time() - stamp.stat().st_mtime > KEPT_S:
            shutil.rmtree(folder, ignore_errors=True)
