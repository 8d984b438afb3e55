"""A served relay log in a test: in a thread, or as the command's own process. And the programs that read from it."""

import json
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from millrace.cli import run
from millrace.deploy.servers import Account, DatabaseServer
from millrace.deploy.servers.programs import mariadb_programs, mysql_programs
from millrace.producer.serve.login import ServedAccount
from millrace.producer.serve.server import RelayServer, ServeOptions
from millrace.schemas.documents.secret import SecretReference
from millrace.schemas.gtid import Flavour
from tests.kit.forked import Fork, fork
from tests.kit.relay.stream import Address
from tests.kit.waiting import eventually

USER, PASSWORD = "replica", "served-secret"
SET_NAME = "s"
MARIADB_CLIENT = "11.8"  # MariaDB 11.4 comes without mariadb-binlog


def account_in(folder: Path) -> ServedAccount:
    """The account, with its password in a file."""
    path = folder / "served-password"
    path.write_text(PASSWORD)
    return ServedAccount(USER, SecretReference.parse(f"file:{path}"))


def options_in(folder: Path, **more: object) -> ServeOptions:
    """Loopback, a free port, and the account."""
    given: dict[str, object] = {"host": "127.0.0.1", "port": 0, "account": account_in(folder)}
    return ServeOptions(**(given | more))  # type: ignore[arg-type]


@contextmanager
def served(root: Path, options: ServeOptions) -> Iterator[Address]:
    """Serve the relay log in ``root`` in a thread during the block."""
    server, stop, is_ready = RelayServer(root, options), threading.Event(), threading.Event()
    thread = threading.Thread(target=server.run, args=(stop,), kwargs={"ready": is_ready.set})
    thread.start()
    try:
        assert is_ready.wait(60)
        yield Address(int(server.address.rpartition(":")[2]), USER, PASSWORD)
    finally:
        stop.set()
        thread.join(60)


@dataclass
class ServeProcess:
    """`millrace relay serve` as a process, which may be killed and started again on its port."""

    relay_dir: Path
    port: int = 0
    process: Fork | None = None

    @property
    def address(self) -> Address:
        """For clients."""
        return Address(self.port, USER, PASSWORD)

    def start(self) -> None:
        """Start it, and wait until it accepts clients."""
        output = self.relay_dir / "serve.output"
        self.process = fork(
            run,
            [
                *("relay", "serve", SET_NAME, "--password", "env:SERVED_PASSWORD"),
                *("--relay-dir", str(self.relay_dir), "--listen", f"127.0.0.1:{self.port}"),
            ],
            environment={"SERVED_PASSWORD": PASSWORD},
            log=output,
            errors=self.relay_dir / "serve.errors",
        )
        process = self.process

        def is_decided() -> bool:
            return output.read_text().endswith("\n") or process.poll() is not None

        eventually(is_decided, what="the relay log is served")
        self.port = int(json.loads(output.read_text())["serve"].rpartition(":")[2])

    def kill(self, number: signal.Signals = signal.SIGKILL) -> int:
        """End it, and return its exit code. Another thread may start its successor as soon as it is dead."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(60)


@contextmanager
def serving(relay_dir: Path) -> Iterator[ServeProcess]:
    """A running process, killed at the end."""
    made = ServeProcess(relay_dir)
    made.start()
    try:
        yield made
    finally:
        if made.process is not None and made.process.poll() is None:
            made.kill()


def binlog_program(flavour: Flavour, *, ca: Path | None = None) -> tuple[str, ...]:
    """mysqlbinlog or mariadb-binlog; ``ca`` verifies the certificate of the server."""
    if flavour is Flavour.MARIADB:
        tls = f"--ssl-ca={ca}" if ca else "--skip-ssl"
        return str(mariadb_programs(MARIADB_CLIENT).mariadb_binlog), tls
    programs = mysql_programs()
    assert programs is not None
    assert programs.mysqlbinlog is not None
    words = (f"--ssl-ca={ca}", "--ssl-mode=VERIFY_CA") if ca else ()
    return str(programs.mysqlbinlog), *words


def run_binlog(
    flavour: Flavour, address: Address, *words: str, ca: Path | None = None
) -> "subprocess.CompletedProcess[bytes]":
    """Run it against ``address``."""
    program = binlog_program(flavour, ca=ca)
    command = [*program, *login_words(address), "--read-from-remote-server", *words]
    return subprocess.run(command, capture_output=True, check=False, timeout=120)


def login_words(address: Address) -> Sequence[str]:
    """Options of the client programs."""
    login = (f"--user={address.user}", f"--password={address.password}")
    return ("--host=127.0.0.1", f"--port={address.port}", *login)


def follow(
    replica: DatabaseServer, address: Address, *, file: str = "", ca: Path | None = None
) -> None:
    """Make a server a replica of ``address``: by GTID, or from the start of a file on.

    ``ca``: over TLS. MySQL verifies the certificate. MariaDB 11.4 as a replica refuses every certificate for an address
    without a name, its own server's too, so it only encrypts.
    """
    account = Account(address.user, address.password)
    change, start = replica.dialect.follow(port=address.port, account=account)
    if file and replica.flavour is Flavour.MARIADB:
        change = change.replace("MASTER_USE_GTID=slave_pos", "MASTER_USE_GTID=no")
        change += f", MASTER_LOG_FILE='{file}', MASTER_LOG_POS=4"
    elif file:
        change = change.replace("SOURCE_AUTO_POSITION=1", "SOURCE_AUTO_POSITION=0")
        change += f", SOURCE_LOG_FILE='{file}', SOURCE_LOG_POS=4"
    word = "MASTER" if replica.flavour is Flavour.MARIADB else "SOURCE"
    change = change.replace(", MASTER_SSL_VERIFY_SERVER_CERT=0", "")
    change += f", {word}_SSL=1, {word}_SSL_CA='{ca}'" if ca else f", {word}_SSL=0"
    verifies = ca is not None and replica.flavour is Flavour.MYSQL
    change += f", {word}_SSL_VERIFY_SERVER_CERT={int(verifies)}"
    replica.execute(change)
    replica.execute(start)


def wait_caught_up(replica: DatabaseServer, source: DatabaseServer) -> None:
    """Wait until a replica has what ``source`` has now. AssertionError with the replica's error."""
    wanted = source.gtid_position()

    def has_caught_up() -> bool:
        if replica.wait_for_position(wanted, timeout_s=1.0):
            return True
        problem = replication_error(replica)
        assert not problem, problem
        return False

    eventually(has_caught_up, what=f"replica at {wanted}")


def replication_error(replica: DatabaseServer) -> str:
    """The last error of its threads that have stopped; "" if they run or retry."""
    word = "SLAVE" if replica.flavour is Flavour.MARIADB else "REPLICA"
    found = status_of(replica, word)
    stopped = [
        name for name in ("IO", "SQL") if found.get(f"{word.title()}_{name}_Running") == "No"
    ]
    return "; ".join(str(found[f"Last_{name}_Error"]) for name in stopped)


def status_of(replica: DatabaseServer, word: str) -> dict[str, object]:
    """SHOW … STATUS."""
    from millrace.deploy.servers import sql

    (row,) = sql.execute_named(replica.socket, f"SHOW {word} STATUS")
    return row


def checksums(server: DatabaseServer, *tables: str) -> list[tuple[object, ...]]:
    """CHECKSUM TABLE of these tables."""
    return server.execute(f"CHECKSUM TABLE {', '.join(tables)}")
