"""A standalone Kafka Connect worker on loopback, and the calls of its REST interface that the peer needs.

A connector is created stopped. Its tasks start and end while the worker's JVM stays warm. A refused request and
a failed task are Fatal MR-8004. The jars are fetched into the home folder when a peer runs for the first time:

$MILLRACE_HOME/jars/connect/          Kafka Connect
$MILLRACE_HOME/jars/debezium-…/       a connector as it was fetched, and unpacked in plugin/
"""

import json
import sys
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millrace.deploy.bench.figure import say
from millrace.deploy.servers.fetch import fetch_jars
from millrace.deploy.servers.process import ProcessSpec, free_port
from millrace.deploy.servers.properties import property_value
from millrace.deploy.servers.server import Server
from millrace.errors import Fatal
from millrace.jvm import java_program

START_S = 600.0
ANSWER_S = 120.0  # of one request; a worker that is busy or starts up answers none
WAIT_S = 900.0  # for a request that is repeated, and for a connector that stops
POLL_S = 0.1
HEAP = ("-Xms2g", "-Xmx2g")
_PROPERTIES = """\
bootstrap.servers={bootstrap}
listeners=http://127.0.0.1:{port}
plugin.path={plugins}
plugin.discovery=service_load
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
offset.storage.file.filename={offsets}
offset.flush.interval.ms=1000
"""


IVY_FILE = Path(__file__).with_name("ivy.xml")


@dataclass(frozen=True, slots=True)
class SinkJars:
    """``classpath`` is Kafka Connect's. ``plugins`` is the folder that holds the connector's folder."""

    classpath: str
    plugins: Path


class _Busy(Fatal):
    """The worker did not do what was asked, and may do it later."""


class ConnectWorker(Server):
    def __init__(self, folder: Path, jars: SinkJars, bootstrap: str) -> None:
        super().__init__(folder)
        self._jars = jars
        self._bootstrap = bootstrap
        self._port = free_port()

    def launch(self) -> None:
        """Start the process and return at once."""
        self.folder.mkdir(parents=True, exist_ok=True)
        properties = self.folder / "worker.properties"
        properties.write_text(
            _PROPERTIES.format(
                bootstrap=self._bootstrap,
                port=self._port,
                plugins=property_value(self._jars.plugins),
                offsets=property_value(self.folder / "offsets"),
            )
        )
        logs = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Duser.timezone=UTC")
        program = (str(java_program()), *HEAP, *logs, "-cp", self._jars.classpath)
        main = ("org.apache.kafka.connect.cli.ConnectStandalone", str(properties))
        name = f"Kafka Connect on port {self._port}"
        self._launch(ProcessSpec(name, (*program, *main), self.folder / "log"))

    def wait_ready(self) -> None:
        self.process.wait_ready(self._answers, timeout_s=START_S)

    def create(self, name: str, settings: Mapping[str, str]) -> None:
        """Create a stopped connector."""
        config = {"name": name, **settings}
        created = {"name": name, "config": config, "initial_state": "STOPPED"}
        try:
            self._ask("POST", "connectors", created)
        except Fatal:
            if name not in self._ask(
                "GET", "connectors"
            ):  # an earlier request, without an answer, has made it
                raise
        self._wait_stopped(name)

    def resume_tasks(self, name: str) -> None:
        self._ask("PUT", f"connectors/{name}/resume")

    def stop_tasks(self, name: str) -> None:
        """End the connector's tasks; their offsets are kept."""
        self._ask("PUT", f"connectors/{name}/stop")
        self._wait_stopped(name)

    def rewind(self, name: str) -> None:
        """End the connector's tasks; they will begin with their first records."""
        self.stop_tasks(name)
        self._ask("DELETE", f"connectors/{name}/offsets")

    def committed(self, name: str) -> int:
        """How many records its tasks have written and committed."""
        self.check(name)
        return committed_count(self._ask("GET", f"connectors/{name}/offsets"))

    def check(self, name: str) -> None:
        """Fatal MR-8004 if the connector or one of its tasks has failed."""
        if trace := self.failure(name):
            raise Fatal("MR-8004", f"connector {name} failed: {trace}")

    def failure(self, name: str) -> str | None:
        """The trace of the connector or of its task that failed; None if none did."""
        return failure_of(self._ask("GET", f"connectors/{name}/status"))

    def _wait_stopped(self, name: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not is_stopped(self._ask("GET", f"connectors/{name}/status")):
            if time.monotonic() > deadline:
                raise self.process.failure(f"did not stop connector {name}")
            time.sleep(POLL_S)

    def _answers(self) -> bool:
        try:
            self._ask_once("GET", "connectors")
        except (OSError, Fatal):  # it listens before it knows this path
            return False
        return True

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        """The answer, as JSON. The request is repeated while there is none, or the worker is busy; Fatal MR-8004."""
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                return self._ask_once(method, path, body)
            except _Busy as busy:
                if time.monotonic() > deadline:
                    raise
                say(f"  {busy.message}: repeated")
            except OSError as error:
                if time.monotonic() > deadline:
                    raise Fatal(
                        "MR-8004", f"Kafka Connect: {method} {path}: no answer: {error}"
                    ) from error
                say(f"  Kafka Connect: {method} {path}: no answer: {error}; repeated")
            if not self.process.is_alive():
                raise self.process.failure(f"ended at {method} {path}")
            time.sleep(POLL_S)

    def _ask_once(self, method: str, path: str, body: object = None) -> Any:
        """The answer, as JSON. OSError if there is none."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            detail = error.read().decode(errors="replace")
            kind = _Busy if is_busy(error.code, detail) else Fatal
            raise kind("MR-8004", f"Kafka Connect: {method} {path}: {detail}") from error
        return json.loads(text) if text else None


def is_busy(status: int, detail: str) -> bool:
    """Whether the worker starts, stops, or was too slow to do it. A connector that exists already is none of these."""
    if status in (409, 503):
        return "already exists" not in detail
    return status == 500 and "timed out" in detail


def is_stopped(status: Any) -> bool:
    """True if the connector is stopped and has no task left, by its status."""
    return status["connector"]["state"] == "STOPPED" and not status["tasks"]


def failure_of(status: Any) -> str | None:
    """The trace of a failed task, or of the failed connector; None if none failed."""
    parts = (status["connector"], *status["tasks"])
    return next(
        (part.get("trace", "no trace") for part in parts if part["state"] == "FAILED"), None
    )


def committed_count(offsets: Any) -> int:
    """The sum of the committed offsets of all partitions; 0 before the first commit."""
    return sum(int(each["offset"]["kafka_offset"]) for each in offsets["offsets"])


def connector_jars(peer: str, fetch: Callable[[], SinkJars]) -> SinkJars | None:
    """The artifacts of a peer. None, with a sentence on standard error, if they cannot be fetched."""
    try:
        return fetch()
    except Fatal as error:
        say(f"  no line with the peer {peer}: {error}")
        return None


def fetch_connector(name: str, *, size_mb: int, ivy_file: Path) -> SinkJars:
    """Fetch what is missing, with progress on standard error. Fatal MR-8003 if a download fails."""
    with redirect_stdout(sys.stderr):
        connect = fetch_jars("connect", size_mb=33, ivy_file=IVY_FILE)
        connector = fetch_jars(name, size_mb=size_mb, ivy_file=ivy_file, finish=_unpack)
    return SinkJars(str(connect / "*"), connector / "plugin")


def _unpack(folder: Path) -> None:
    """Unpack a connector as it was fetched into ``plugin``."""
    (packed,) = folder.glob("*.tar.gz")
    with tarfile.open(packed) as archive:
        archive.extractall(folder / "plugin", filter="data")
    packed.unlink()
