"""A ZooKeeper server of our own (3.9, from PySpark's jars), loopback only: standalone, or one of an ensemble.

The tick is half a second, so that a session may be as short as one second: a test of a lost worker need not wait long.
It may be as long as a minute, too: no pause of a busy machine ends it then.
After ``kill``, ``start`` goes on with the same data and port: sessions survive it.
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
from millrace.java import ClassData, java_program

START_S = 180.0
HEAP_MB = 96
TICK_MS = 500
SESSION_MS_MAX = 60_000  # ZooKeeper itself would grant 20 ticks at most
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
# in ticks: how long one may take to join a leader, and how far it may be behind him
_VOTING = """initLimit=40
syncLimit=20
"""


@dataclass(frozen=True, slots=True)
class Voter:
    """Where the others of an ensemble reach one of its servers."""

    peer_port: int
    election_port: int


@dataclass(frozen=True, slots=True)
class Voters:
    """An ensemble as one of its servers, ``number``, knows it: all of them, by number."""

    number: int
    known: Mapping[int, Voter]

    def configuration(self) -> str:
        """What is added to that of a standalone server."""
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
        self._java_options = class_data().options() if java_options is None else java_options
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
        """Until it serves clients; Fatal MR-8004 with the log's end."""
        self.process.wait_ready(lambda: bool(self.mode()), timeout_s=START_S)

    def lose_everything(self) -> None:
        """SIGKILL, and all its data gone: ``start`` begins a new ensemble at the same address."""
        self.kill()
        shutil.rmtree(self.folder / "data")

    def mode(self) -> str:
        """standalone, leader or follower; nothing while it serves nobody."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"srvr")
                answer = connection.makefile("rb").read().decode(errors="replace")
        except OSError:
            return ""
        return answer.partition("Mode: ")[2].partition("\n")[0]


def class_data() -> ClassData:
    """What the server's JVM loads, from among PySpark's jars."""
    return ClassData("zookeeper", sorted(Path(zookeeper_classpath()).parent.glob("*.jar")))
