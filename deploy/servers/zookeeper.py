"""A ZooKeeper server of our own (3.9, from PySpark's jars): standalone, loopback only.

The tick is half a second, so that a session may be as short as one second: a test of a lost worker need not wait long.
After ``kill``, ``start`` goes on with the same data and port: sessions survive it.
"""

import shutil
import socket
from pathlib import Path

from deploy.servers.process import ProcessSpec, ServerProcess, free_port
from deploy.servers.programs import java_program, zookeeper_classpath

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


class ZooKeeperServer:
    """One server. ``hosts`` is its address."""

    def __init__(self, folder: Path, *, port: int = 0, dies_with_parent: bool = True) -> None:
        self.folder = folder
        self.port = port or free_port()
        self._dies_with_parent = dies_with_parent
        self._process: ServerProcess | None = None

    @property
    def hosts(self) -> str:
        """host:port."""
        return f"127.0.0.1:{self.port}"

    @property
    def process(self) -> ServerProcess:
        """Its process (an error before ``launch``)."""
        if self._process is None:
            raise RuntimeError("ZooKeeper was not launched")
        return self._process

    def start(self) -> None:
        """Launch it and wait until it serves."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Start the process and return at once."""
        data_dir = self.folder / "data"
        data_dir.mkdir(parents=True, exist_ok=True)
        configuration = self.folder / "zoo.cfg"
        configuration.write_text(
            _CONFIGURATION.format(tick_ms=TICK_MS, data_dir=data_dir, port=self.port)
        )
        java = (
            str(java_program()),
            f"-Xmx{HEAP_MB}m",
            "-XX:+UseSerialGC",
            "-Dzookeeper.fsync.warningthresholdms=5000",
        )
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        command = (*java, "-cp", zookeeper_classpath(), main, str(configuration))
        spec = ProcessSpec(f"ZooKeeper on port {self.port}", command, self.folder / "log")
        self._process = ServerProcess(spec, dies_with_parent=self._dies_with_parent)
        self._process.launch()

    def wait_ready(self) -> None:
        """Until it serves clients; Fatal MR-8004 with the log's end."""
        self.process.wait_ready(self._serves, timeout_s=START_S)

    def stop(self) -> None:
        """A clean shutdown; data stays."""
        if self._process is not None:
            self._process.stop()

    def discard(self) -> None:
        """The quick end, when nobody needs the data any more: SIGKILL, and the folder is removed."""
        if self._process is not None:
            self._process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        self.process.kill()

    def lose_everything(self) -> None:
        """SIGKILL, and all its data gone: ``start`` begins a new ensemble at the same address."""
        self.kill()
        shutil.rmtree(self.folder / "data")

    def pause(self) -> None:
        """SIGSTOP."""
        self.process.pause()

    def resume(self) -> None:
        """SIGCONT."""
        self.process.resume()

    def is_alive(self) -> bool:
        """Whether its process runs."""
        return self._process is not None and self._process.is_alive()

    def _serves(self) -> bool:
        """The four-letter word ``srvr`` is answered with a mode only while requests are served."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"srvr")
                answer = connection.makefile("rb").read()
        except OSError:
            return False
        return b"Mode: standalone" in answer
