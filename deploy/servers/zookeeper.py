"""A local ZooKeeper server (3.9, from PySpark's jars) on loopback: standalone, or in an ensemble.

The tick is half a second. A session may last from one second, for short tests of lost workers, to one minute, to
outlive the pauses of a busy machine. After ``kill``, ``start`` continues with the same data, port and sessions.

With ``protection`` it also listens with TLS, and knows SASL users. Unless it ``is_closed``, the port for plain text
remains. It accepts every client unless ``requires_login``.
"""

import shutil
import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from millrace.deploy.servers.cluster import Cluster
from millrace.deploy.servers.process import ProcessSpec, free_port
from millrace.deploy.servers.programs import zookeeper_classpath
from millrace.deploy.servers.properties import property_value
from millrace.deploy.servers.server import Server
from millrace.deploy.servers.tls import TlsFiles
from millrace.jvm import JvmArchive, java_program

START_S = 180.0
HEAP_MB = 96
TICK_MS = 500
SESSION_MS_MAX = 60_000  # ZooKeeper's default is 20 ticks
_CONFIGURATION = """\
tickTime={tick_ms}
maxSessionTimeout={session_ms_max}
dataDir={data_dir}
admin.enableServer=false
4lw.commands.whitelist=envi,srvr,ruok
maxClientCnxns=0
"""
_PLAIN = """\
clientPort={port}
clientPortAddress=127.0.0.1
"""
# in ticks: the time to join a leader, and the lag behind it, at most
_VOTING = """initLimit=40
syncLimit=20
"""


_TLS = """\
secureClientPort={port}
secureClientPortAddress=127.0.0.1
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
ssl.keyStore.location={key_store}
ssl.trustStore.location={authority}
ssl.clientAuth={client_auth}
authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider
"""
_SASL = "authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n"
_ENFORCED = "enforce.auth.enabled=true\nenforce.auth.schemes=sasl,x509\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """TLS files of a secure port, and the users of SASL logins with their passwords."""

    tls: TlsFiles | None = None
    client_auth: str = "want"  # a client certificate: none, want, need
    users: Mapping[str, str] = field(default_factory=dict)
    requires_login: bool = False
    is_closed: bool = False  # no port for plain text

    def configuration(self, folder: Path, secure_port: int) -> str:
        """The lines that it adds to the configuration. Writes the key store and the JAAS file into ``folder``."""
        text = ""
        if self.tls is not None:
            key_store = folder / "key-store.pem"
            _write_private(key_store, self.tls.key.read_text() + self.tls.certificate.read_text())
            text += _TLS.format(
                port=secure_port,
                key_store=property_value(key_store),
                authority=property_value(self.tls.authority),
                client_auth=self.client_auth,
            )
        if self.users:
            users = "".join(f' user_{name}="{word}"' for name, word in self.users.items())
            login = "org.apache.zookeeper.server.auth.DigestLoginModule required"
            _write_private(folder / "jaas.conf", f"Server {{ {login}{users}; }};\n")
            text += _SASL
        return text + (_ENFORCED if self.requires_login else "")


def _write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)


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
    def __init__(
        self,
        folder: Path,
        *,
        port: int = 0,
        voters: Voters | None = None,
        dies_with_parent: bool = True,
        java_options: Sequence[str] | None = None,
        protection: Protection | None = None,
    ) -> None:
        super().__init__(folder, dies_with_parent=dies_with_parent)
        self._java_options = jvm_archive().options() if java_options is None else java_options
        self._voters = voters
        self.protection = protection or Protection()  # another one takes effect at the next start
        self.port = port or free_port()
        self.secure_port = free_port() if self.protection.tls else 0

    @property
    def hosts(self) -> str:
        """host:port, of the port for TLS if there is no other."""
        return self.secure_hosts if self.protection.is_closed else f"127.0.0.1:{self.port}"

    @property
    def secure_hosts(self) -> str:
        """host:port of the port for TLS. The name is in the server's certificate."""
        return f"localhost:{self.secure_port}"

    def launch(self) -> None:
        data_dir = self.folder / "data"
        data_dir.mkdir(parents=True, exist_ok=True)
        configuration = self.folder / "zoo.cfg"
        text = _CONFIGURATION.format(
            tick_ms=TICK_MS,
            session_ms_max=SESSION_MS_MAX,
            data_dir=property_value(data_dir),
        )
        if not self.protection.is_closed:
            text += _PLAIN.format(port=self.port)
        if self._voters is not None:
            (data_dir / "myid").write_text(str(self._voters.number))
            text += self._voters.configuration()
        text += self.protection.configuration(self.folder, self.secure_port)
        configuration.write_text(text)
        jaas = self.folder / "jaas.conf"
        java = (
            str(java_program()),
            *self._java_options,
            *((f"-Djava.security.auth.login.config={jaas}",) if self.protection.users else ()),
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
        return self._field("Mode")

    def counters(self) -> tuple[int, int]:
        """The requests received, with pings, and the number of the last change; each write adds one."""
        return int(self._field("Received")), int(self._field("Zxid"), 16)

    def _field(self, name: str) -> str:
        """One line of the server's status. Empty while it does not serve."""
        try:
            with self._connection() as connection:
                connection.sendall(b"srvr")
                answer = connection.makefile("rb").read().decode(errors="replace")
        except OSError:
            return ""
        return answer.partition(f"{name}: ")[2].partition("\n")[0]

    def _connection(self) -> socket.socket:
        protection = self.protection
        if not protection.is_closed or protection.tls is None:
            return socket.create_connection(("127.0.0.1", self.port), timeout=1)
        context = ssl.create_default_context(cafile=protection.tls.authority)
        plain = socket.create_connection(("127.0.0.1", self.secure_port), timeout=1)
        try:
            return context.wrap_socket(plain, server_hostname="localhost")
        except BaseException:
            plain.close()
            raise


def jvm_archive() -> JvmArchive:
    return JvmArchive("zookeeper", sorted(Path(zookeeper_classpath()).parent.glob("*.jar")))


NUMBERS = (1, 2, 3)


class ZooKeeperEnsemble(Cluster[ZooKeeperServer]):
    def __init__(self, folder: Path) -> None:
        voters = {number: Voter(free_port(), free_port()) for number in NUMBERS}
        super().__init__(
            {
                number: ZooKeeperServer(
                    folder / f"zookeeper-{number}", voters=Voters(number, voters)
                )
                for number in NUMBERS
            }
        )

    @property
    def hosts(self) -> str:
        return ",".join(server.hosts for server in self.servers.values())
