"""A local ZooKeeper server (3.9, from PySpark's jars) on loopback: standalone, or in an ensemble.

The tick is half a second. A session may last from one second, for short tests of lost workers, to one minute, to
outlive the pauses of a busy machine. After ``kill``, ``start`` continues with the same data, port and sessions.
"""

import shutil
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.servers.process import ProcessSpec, free_port
from deploy.servers.programs import zookeeper_classpath
from deploy.servers.properties import property_value
from deploy.servers.server import Server
from millrace.jvm import JvmArchive, java_program

START_S = 180.0
HEAP_MB = 96
TICK_MS = 500
SESSION_MS_MAX = 60_000  # ZooKeeper's default is 20 ticks
_CONFIGURATION = """\
tickTime={tick_ms}
maxSessionTimeout={session_ms_max}
dataDir={data_dir}
clientPort={port}
clientPortAddress=127.0.0.1
admin.enableServer=false
4lw.commands.whitelist=envi,srvr,ruok
maxClientCnxns=0
"""
# in ticks: the time to join a leader, and the lag behind it, at most
_VOTING = """initLimit=40
syncLimit=20
"""


@dataclass(frozen=True, slots=True)
class Voter:
    """The ports at which the other servers of an ensemble reach this one."""

    peer_port: int
    election_port: int


@dataclass(frozen=True, slots=True)
class Voters:
    """An ensemble as server ``number`` knows it: all servers by number."""

    number: int
    known: Mapping[int, Voter]

    def configuration(self) -> str:
        """The lines that an ensemble adds to a standalone configuration."""
        servers = (
            f"server.{number}=127.0.0.1:{voter.peer_port}:{voter.election_port}\n"
            for number, voter in self.known.items()
        )
        return _VOTING + "".join(servers)


class ZooKeeperServer(Server):
    """One server. ``hosts`` is its address."""

    def __init__(
        self,
        folder: Path,
        *,
        port: int = 0,
        voters: Voters | None = None,
        dies_with_parent: bool = True,
        java_options: Sequence[str] | None = None,
    ) -> None:
        super().__init__(folder, dies_with_parent=dies_with_parent)
        self._java_options = jvm_archive().options() if java_options is None else java_options
        self._voters = voters
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
        text = _CONFIGURATION.format(
            tick_ms=TICK_MS,
            session_ms_max=SESSION_MS_MAX,
            data_dir=property_value(data_dir),
            port=self.port,
        )
        if self._voters is not None:
            (data_dir / "myid").write_text(str(self._voters.number))
            text += self._voters.configuration()
        configuration.write_text(text)
        java = (
            str(java_program()),
            *self._java_options,
            f"-Xmx{HEAP_MB}m",
            "-XX:+UseSerialGC",
            "-Dzookeeper.fsync.warningthresholdms=5000",
        )
        main = "ZooKeeperServerMain" if self._voters is None else "quorum.QuorumPeerMain"
        name = f"org.apache.zookeeper.server.{main}"
        command = (*java, "-cp", zookeeper_classpath(), name, str(configuration))
        spec = ProcessSpec(f"ZooKeeper on port {self.port}", command, self.folder / "log")
        self._launch(spec)

    def wait_ready(self) -> None:
        """Wait until the server serves clients. Fatal MR-8004 with the end of its log."""
        self.process.wait_ready(lambda: bool(self.mode()), timeout_s=START_S)

    def lose_everything(self) -> None:
        """Kill the server and remove its data. ``start`` begins a new ensemble at the same address."""
        self.kill()
        shutil.rmtree(self.folder / "data")

    def mode(self) -> str:
        """standalone, leader or follower. Empty while the server does not serve."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"srvr")
                answer = connection.makefile("rb").read().decode(errors="replace")
        except OSError:
            return ""
        return answer.partition("Mode: ")[2].partition("\n")[0]


def jvm_archive() -> JvmArchive:
    """The JVM archive of the server."""
    return JvmArchive("zookeeper", sorted(Path(zookeeper_classpath()).parent.glob("*.jar")))
