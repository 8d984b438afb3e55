"""A ZooKeeper server of our own (3.9, from PySpark's jars): standalone, loopback only.

The tick is half a second, so that a session may be as short as one second: a test of a lost worker need not wait long.
After ``kill``, ``start`` goes on with the same data and port: sessions survive it.
"""

import shutil
import socket
from collections.abc import Sequence
from pathlib import Path

from deploy.servers.process import ProcessSpec, free_port
from deploy.servers.programs import zookeeper_classpath
from deploy.servers.properties import property_value
from deploy.servers.server import Server
from millrace.java import ClassData, java_program

START_S = 60.0
HEAP_MB = 96
TICK_MS = 500
_CONFIGURATION = """\
tickTime={tick_ms}
dataDir={data_dir}
clientPort={port}
clientPortAddress=127.0.0.1
admin.enableServer=false
4lw.commands.whitelist=envi,srvr,ruok
maxClientCnxns=0
"""


class ZooKeeperServer(Server):
    """One server. ``hosts`` is its address."""

    def __init__(
        self,
        folder: Path,
        *,
        port: int = 0,
        dies_with_parent: bool = True,
        java_options: Sequence[str] | None = None,
    ) -> None:
        super().__init__(folder, dies_with_parent=dies_with_parent)
        self._java_options = class_data().options() if java_options is None else java_options
        self.port = port or free_port()

    @property
    def hosts(self) -> str:
        """host:port."""
        return f"127.0.0.1:{self.port}"

    def launch(self) -> None:
        """Start the process and return at once."""
        data_dir = self.folder / "data"
        data_dir.mkdir(parents=True, exist_ok=True)
        configuration = self.folder / "zoo.cfg"
        configuration.write_text(
            _CONFIGURATION.format(
                tick_ms=TICK_MS, data_dir=property_value(data_dir), port=self.port
            )
        )
        java = (
            str(java_program()),
            *self._java_options,
            f"-Xmx{HEAP_MB}m",
            "-XX:+UseSerialGC",
            "-Dzookeeper.fsync.warningthresholdms=5000",
        )
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        command = (*java, "-cp", zookeeper_classpath(), main, str(configuration))
        spec = ProcessSpec(f"ZooKeeper on port {self.port}", command, self.folder / "log")
        self._launch(spec)

    def wait_ready(self) -> None:
        """Until it serves clients; Fatal MR-8004 with the log's end."""
        self.process.wait_ready(self._serves, timeout_s=START_S)

    def lose_everything(self) -> None:
        """SIGKILL, and all its data gone: ``start`` begins a new ensemble at the same address."""
        self.kill()
        shutil.rmtree(self.folder / "data")

    def _serves(self) -> bool:
        """The four-letter word ``srvr`` is answered with a mode only while requests are served."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"srvr")
                answer = connection.makefile("rb").read()
        except OSError:
            return False
        return b"Mode: standalone" in answer


def class_data() -> ClassData:
    """What the server's JVM loads, from among PySpark's jars."""
    return ClassData("zookeeper", sorted(Path(zookeeper_classpath()).parent.glob("*.jar")))
