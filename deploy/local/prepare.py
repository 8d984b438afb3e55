"""Prepares a checkout side by side: Python packages, servers, compiled kernels, JVM archives.

    python -m millrace.deploy.local.prepare GOAL --packages STAMP

GOAL: ``local`` (make demo) or ``dev`` (make setup, make test).

``deploy/local/setup`` calls it. ``.venv`` has uv and no package yet, so this module imports Python's library alone.
A step is a process; it starts when the steps that it needs have ended. A terminal shows one line with what runs and how
long it will take, a log one line for each step. A run that finds everything takes two seconds and prints nothing.

Guarantees: packages are installed once for each STAMP and goal. A step that fails ends the others; its output is
printed, then one sentence. Every step can be interrupted and repeated. A server that only some tests need may be
missing: a sentence names it. PySpark's wheel is built once for all checkouts (``wheel``).
Not done here: what a GOAL does not name. Servers are fetched and kernels compiled at first use.
"""

import argparse
import ast
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from millrace.deploy.local.wheel import wheels

ANNOUNCE_AFTER_S = 3.0
POLL_S = 0.1
REDRAW_S = 1.0
END_S = 10.0
LOCAL, DEV = "local", "dev"
PYTHON = sys.executable
UV = (str(Path(PYTHON).with_name("uv")), "pip", "install", "--python", PYTHON)
PACKAGES = (*UV, "--constraint", "constraints.txt")
# Constraints do not apply to isolated builds, so build tools come first and builds are not isolated.
BUILD_TOOLS = ("hatchling", "editables", "setuptools")
WHEEL = "wheel of PySpark"
# PySpark is a source distribution. Its jars do not get smaller: a wheel that stores them takes a quarter of the time.
STORED_WHEELS = "[bdist_wheel]\ncompression = stored\n"
NOT_INSTALLED = (
    "the Python packages could not be installed (uv says why above); to use another package index:"
    " PIP_INDEX_URL=URL make setup"
)
# pip's settings, and the variables in which uv takes them
PIP_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "index-url": ("UV_DEFAULT_INDEX",),
    "extra-index-url": ("UV_INDEX",),
    "find-links": ("UV_FIND_LINKS",),
    "no-index": ("UV_NO_INDEX",),
    "cert": ("SSL_CERT_FILE",),
    "client-cert": ("SSL_CLIENT_CERT",),
    "trusted-host": ("UV_INSECURE_HOST",),
    "proxy": ("HTTPS_PROXY", "HTTP_PROXY"),
    "timeout": ("UV_HTTP_TIMEOUT",),
    "default-timeout": ("UV_HTTP_TIMEOUT",),
}


@dataclass(frozen=True, slots=True)
class Step:
    """A process. ``about_s``: its time beside the others, on two cores with warm download caches.

    ``does_note``: what it prints on standard error is for the user, also when it succeeds.
    """

    name: str
    command: tuple[str, ...]
    about_s: float
    needs: tuple[str, ...] = ()
    does_note: bool = False


def _module(name: str, *arguments: str) -> tuple[str, ...]:
    return (PYTHON, "-m", name, *arguments)


def _fetch(what: str, name: str, about_s: float, *, needs: str) -> Step:
    command = _module("millrace.deploy.servers.fetch", what)
    return Step(name, command, about_s, (needs,), does_note=True)


def steps_for(goal: str, *, has_packages: bool) -> tuple[Step, ...]:
    """The steps of a goal, each after those it needs. A need that is not among them is there already."""
    first, packages = "Python packages", "PySpark and further packages"
    formats = (
        () if goal == DEV else ("debezium-json",)
    )  # that of the local stack's task; () is every format
    install: tuple[Step, ...] = (
        Step(first, (*PACKAGES, *BUILD_TOOLS, "-r", "pyproject.toml"), 8),
        Step(WHEEL, _module("millrace.deploy.local.wheel"), 20, (first,)),
        Step(
            packages,
            (*PACKAGES, "--no-build-isolation", "-e", f".[{goal}]"),
            10,
            (first, WHEEL),
        ),
    )
    steps = (
        Step("kernels of capture", _module("millrace.producer.task.warm_up"), 55, (first,)),
        Step("kernels of apply", _module("millrace.consumer.turn.warm_up"), 30, (first,)),
        Step(
            "kernels of publish tasks",
            _module("millrace.consumer.publish.warm_up", *formats),
            30,
            (first,),
        ),
        _fetch("kafka", "Kafka", 40, needs=packages),
        _fetch("spark", "Spark's Kafka connector", 12, needs=packages),
        _fetch("mariadb", "MariaDB", 20, needs=packages),
        Step(
            "JVM archive of Spark",
            _module("millrace.consumer.spark.jvm_archive"),
            25,
            (packages, "Spark's Kafka connector"),
        ),
    )
    further = (
        _fetch("mysql", "MySQL", 25, needs=first),
        _fetch("mariadb-10.11", "MariaDB 10.11", 20, needs=first),
        _fetch("mariadb-11.8", "MariaDB 11.8", 20, needs=first),
        Step(
            "JVM archives of servers",
            _module("millrace.deploy.servers.jvm_archives"),
            8,
            (packages, "Kafka"),
        ),
    )
    return (*(() if has_packages else install), *steps, *(further if goal == DEV else ()))


class Failed(Exception):
    """A step failed; its output and the reason are printed."""


@dataclass(frozen=True, slots=True)
class _Run:
    """A step that has started, and the files of what it prints."""

    step: Step
    process: "subprocess.Popen[bytes]"
    log: Path
    notes: Path
    began_s: float

    def end(self) -> None:
        if self.process.poll() is not None:
            return
        os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(timeout=END_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@dataclass(slots=True)
class Preparation:
    """Runs ``steps``. ``folder`` gets what they print, ``environment`` is added to theirs."""

    steps: Sequence[Step]
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    out: TextIO = field(default_factory=lambda: sys.stdout)
    _running: dict[str, _Run] = field(default_factory=dict)
    _ended: set[str] = field(default_factory=set)
    _began_s: float = field(default_factory=time.monotonic)
    _is_announced: bool = False
    _drawn_at_s: float = float("-inf")

    def run(self) -> None:
        """Run all. Raises ``Failed`` after the first step that fails."""
        try:
            while len(self._ended) < len(self.steps):
                self._start_ready()
                self._announce()
                for run in [
                    run for run in self._running.values() if run.process.poll() is not None
                ]:
                    self._finish(run)
                time.sleep(POLL_S)
            if self._is_announced:
                self._say(f"prepared in {self._passed_s():.0f} s")
        finally:
            for run in self._running.values():
                run.end()

    def remaining_s(self) -> float:
        """The longest way through the steps that have not ended."""
        now_s = time.monotonic()
        ends: dict[str, float] = dict.fromkeys(self._ended, 0.0)
        for step in self.steps:
            if step.name in self._ended:
                continue
            run = self._running.get(step.name)
            left_s = step.about_s if run is None else step.about_s - (now_s - run.began_s)
            before_s = max((ends.get(name, 0.0) for name in step.needs), default=0.0)
            ends[step.name] = before_s + max(left_s, 2.0)
        return max(ends.values(), default=0.0)

    def _start_ready(self) -> None:
        open_ = {step.name for step in self.steps} - self._ended
        for step in self.steps:
            if step.name in open_ - self._running.keys() and open_.isdisjoint(step.needs):
                self._running[step.name] = self._start(step)

    def _start(self, step: Step) -> _Run:
        log = self.folder / f"{step.name}.log"
        notes = self.folder / f"{step.name}.notes" if step.does_note else log
        with log.open("wb") as out, notes.open("ab") as errors:
            process = subprocess.Popen(
                step.command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                env={**os.environ, **self.environment},
                process_group=0,  # so that its children can be ended, too
            )
        return _Run(step, process, log, notes, time.monotonic())

    def _finish(self, run: _Run) -> None:
        step = run.step
        notes = run.notes.read_text(errors="replace") if step.does_note else ""
        if run.process.returncode:
            self._clear()
            sys.stderr.write(run.log.read_text(errors="replace") + notes)
            is_install = step.command[: len(UV)] == UV or step.name == WHEEL
            raise Failed(NOT_INSTALLED if is_install else f"{step.name}: failed (see above)")
        if notes:
            self._clear()
            sys.stderr.write(notes)
        if self._is_announced and not self.out.isatty():
            self._say(f"{step.name}: {time.monotonic() - run.began_s:.0f} s")
        del self._running[step.name]
        self._ended.add(step.name)

    def _announce(self) -> None:
        """On a terminal the one line, again each second; elsewhere it is printed once."""
        now_s = time.monotonic()
        if self._passed_s() < ANNOUNCE_AFTER_S or now_s - self._drawn_at_s < REDRAW_S:
            return
        names = ", ".join(self._running)
        line = f"about {_clock(self.remaining_s())} left: {names}"
        if self.out.isatty():
            width = os.get_terminal_size(self.out.fileno()).columns
            text = f"millrace: {_clock(self._passed_s())}, {line}"
            self.out.write(f"\r\x1b[K{text[: width - 1]}")
            self.out.flush()
        elif not self._is_announced:
            self._say(line)
        self._is_announced, self._drawn_at_s = True, now_s

    def _say(self, text: str) -> None:
        self._clear()
        print(f"millrace: {text}", file=self.out, flush=True)

    def _clear(self) -> None:
        if self._is_announced and self.out.isatty():
            self.out.write("\r\x1b[K")
            self.out.flush()

    def _passed_s(self) -> float:
        return time.monotonic() - self._began_s


def uv_settings(pip_settings: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables with which uv does what these lines of `pip config list` say. The user's own variables win."""
    found: dict[str, str] = {}
    if bundle := environment.get("REQUESTS_CA_BUNDLE") or environment.get("CURL_CA_BUNDLE"):
        found["SSL_CERT_FILE"] = bundle
    for line in pip_settings.splitlines():  # a later line wins: files first, then the environment
        name, _, quoted = line.partition("=")
        for variable in PIP_SETTINGS.get(name.rpartition(".")[2], ()):
            words = str(ast.literal_eval(quoted)).split()
            found[variable] = ("," if variable == "UV_FIND_LINKS" else " ").join(words)
    return {name: value for name, value in found.items() if not environment.get(name)}


def _pip_settings() -> str:
    command = (PYTHON, "-m", "pip", "config", "list")
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("goal", choices=(LOCAL, DEV))
    parser.add_argument("--packages", required=True, metavar="STAMP")
    given = parser.parse_args()
    stamp = Path(PYTHON).parents[1] / f"packages-{given.packages}.{given.goal}"
    has_packages = stamp.exists() or stamp.with_suffix(f".{DEV}").exists()
    settings = {} if has_packages else uv_settings(_pip_settings(), os.environ)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="millrace-prepare-") as name:
        config = Path(name, "wheels.cfg")
        config.write_text(STORED_WHEELS)
        links = settings.get("UV_FIND_LINKS") or os.environ.get("UV_FIND_LINKS", "")
        added = {
            **settings,
            "DIST_EXTRA_CONFIG": str(config),
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_FIND_LINKS": ",".join(filter(None, (links, str(wheels())))),
        }
        steps = steps_for(given.goal, has_packages=has_packages)
        try:
            Preparation(steps, Path(name), added).run()
        except Failed as error:
            print(f"millrace: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 130
    stamp.touch()
    return 0


if __name__ == "__main__":
    sys.exit(main())
