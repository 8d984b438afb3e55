"""Shared by tests of the relay log: a receiver in a thread, a cutting proxy, a workload, comparison with files."""

import socket
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from millrace.deploy.servers import DatabaseServer, DatabaseSet
from millrace.errors import MillraceError
from millrace.producer.relay.reader import RelayReader
from millrace.producer.relay.writer import RelayLog
from millrace.producer.source.connection import Login, connect_member
from millrace.producer.source.receive.dump import ReplicaIdentity
from millrace.producer.source.receive.receiver import Receiver, ReceiverSource
from millrace.schemas.documents import Member, Tls, TlsMode
from millrace.schemas.gtid import Flavour, GtidPosition, parse_gtid_set
from millrace.schemas.place import Coordinates
from tests.kit.database_sessions import kill_session
from tests.kit.faults.proxy import CHUNK_BYTES, Proxy
from tests.kit.waiting import PATIENCE_S, eventually

UNVERIFIED = Tls(TlsMode.REQUIRE_UNVERIFIED)
PLAIN = Tls(TlsMode.DISABLED)


def login_of(server: DatabaseServer, *, tls: Tls = UNVERIFIED) -> Login:
    """The service's login."""
    return Login(user=server.user, password=server.password, tls=tls)


def member_of(server: DatabaseServer) -> Member:
    """The server's address."""
    return Member(server.host, server.port)


def members_of(source_set: DatabaseSet) -> tuple[Member, ...]:
    """The members, as the set document lists them."""
    return tuple(member_of(server) for server in source_set.members)


def dump_threads(server: DatabaseServer) -> set[int]:
    """Connection ids of the service account's dumps, including one whose reader has just disconnected."""
    rows = server.execute("SHOW PROCESSLIST")
    ours = (row for row in rows if row[1] == server.user and "Binlog Dump" in str(row[4]))
    return {int(str(row[0])) for row in ours}


def kill_dumps(server: DatabaseServer, *, but: Collection[int] = ()) -> set[int]:
    """Kill these dumps; returns those that had not ended already."""
    threads = dump_threads(server).difference(but)
    return {thread for thread in threads if kill_session(server, thread)}


@dataclass
class Reception:
    """A receiver in a thread; ``error`` is the error that ended it, if any."""

    receiver: Receiver
    relay: RelayLog
    stop: threading.Event = field(default_factory=threading.Event)
    error: MillraceError | None = None
    thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.receiver.run(self.stop)
        except MillraceError as error:
            self.error = error

    def finish(self) -> None:
        """Stop the receiver cleanly; the relay log stays open."""
        self.stop.set()
        self.thread.join(120)

    def wait_for(self, server: DatabaseServer, *, timeout_s: float = PATIENCE_S) -> None:
        """Wait until the relay log has everything that the server has executed."""
        wanted = position_of(server)

        def reached() -> bool:
            assert self.error is None, self.error
            return self.relay.position().includes(wanted)

        eventually(reached, timeout_s=timeout_s, what=f"relay log at {wanted}")

    def wait_for_file(self, name: str) -> None:
        """Wait until the relay log is in the file ``name``."""

        def reached() -> bool:
            assert self.error is None, self.error
            end = self.relay.end()
            return end is not None and end.file == name

        eventually(reached, what=f"relay log in {name}")


@contextmanager
def receiving(
    server: DatabaseServer,
    directory: Path,
    *,
    member: Member | None = None,
    tls: Tls = UNVERIFIED,
    wanted: GtidPosition | None = None,
    from_first: bool = False,
    set_name: str = "",
    silence_s: float = 30.0,
) -> Iterator[Reception]:
    """A receiver from ``server`` into ``directory`` during the block: from the current file on, unless ``wanted``.

    A connection silent for ``silence_s`` counts as lost; the default is long enough for a machine that stalls.
    """
    relay = RelayLog.open(directory, flavour=server.flavour)
    if not from_first and wanted is None:
        wanted = relay.position() if relay.end() is not None else position_of(server)
    if tls is PLAIN:  # MySQL accepts a password without TLS only after a login over TLS cached it
        connect_member(member_of(server), login_of(server)).close()
    source = ReceiverSource(
        member=member or member_of(server),
        login=login_of(server, tls=tls),
        replica=ReplicaIdentity.for_set(set_name or str(directory)),
        silence_s=silence_s,
    )
    reception = Reception(Receiver(source, relay, wanted=wanted), relay)
    try:
        yield reception
    finally:
        reception.finish()
        relay.close()


def position_of(server: DatabaseServer) -> GtidPosition:
    """The server's executed GTID set."""
    return parse_gtid_set(server.flavour, server.gtid_position())


def flush(server: DatabaseServer) -> str:
    """End the server's current binlog file and return the name of the next one."""
    server.execute("FLUSH BINARY LOGS")
    return str(server.execute("SHOW BINARY LOGS")[-1][0])


def purge_to(server: DatabaseServer, file: str) -> None:
    """Make the server delete its binlog files before ``file``."""
    if server.flavour is Flavour.MARIADB:  # by default it keeps what no replica has fetched
        server.execute("SET GLOBAL slave_connections_needed_for_purge = 0")

    def is_purged() -> bool:
        server.execute(f"PURGE BINARY LOGS TO '{file}'")
        return str(server.execute("SHOW BINARY LOGS")[0][0]) == file

    # MariaDB keeps a file until its next checkpoint
    eventually(is_purged, every_s=0.1, what=f"{file} is the oldest binlog")


def flush_and_wait(server: DatabaseServer, reception: Reception) -> list[str]:
    """End the server's current file, wait for the relay log, and return the closed files that it holds."""
    server.execute("FLUSH BINARY LOGS")
    names = [str(row[0]) for row in server.execute("SHOW BINARY LOGS")]
    reception.wait_for_file(names[-1])
    held = {name for _, name in reception.relay.list_files()}
    closed = [name for name in names[:-1] if name in held]
    assert closed
    return closed


def relay_file(relay: RelayLog, name: str) -> Path:
    """The file in the newest sub-directory that has it."""
    found = [subdir for subdir, file in relay.list_files() if file == name]
    return relay.root / str(found[-1]) / name


def assert_identical(server: DatabaseServer, reception: Reception, names: list[str]) -> None:
    """Closed relay files equal the server's byte for byte."""
    for name in names:
        assert (
            relay_file(reception.relay, name).read_bytes()
            == (server.binlog_dir / name).read_bytes()
        ), name


def read_everything(relay: RelayLog, *, bytes_max: int = 1 << 16) -> dict[str, bytes]:
    """The contents that a reader sees, by ``subdir/file``, without the magic."""
    found: dict[str, bytes] = {}
    with RelayReader(relay) as reader:
        at: Coordinates | None = reader.first()
        while at is not None:
            span = reader.read(at, bytes_max=bytes_max)
            key = f"{at.subdir}/{at.file}"
            found[key] = found.get(key, b"") + bytes(span.payload)
            at = at.at(at.pos + len(span.payload)) if len(span.payload) else reader.after_file(at)
    return found


def run_mixed_workload(server: DatabaseServer, database: str) -> None:
    """Every form of source transaction that the flavour logs."""
    run = server.execute
    run(f"CREATE DATABASE {database}")
    run(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY AUTO_INCREMENT, a VARCHAR(200), b LONGBLOB)"
    )
    run(f"CREATE TABLE {database}.m (id INT PRIMARY KEY, a VARCHAR(20)) ENGINE=MyISAM")
    for number in range(20):
        run(f"INSERT INTO {database}.t (a) VALUES ('{number}'), (REPEAT('é', 100))")
    run(f"UPDATE {database}.t SET a = CONCAT(a, '!')")
    run(f"INSERT INTO {database}.m VALUES (1, 'x'), (2, 'y')")  # BEGIN … COMMIT, without XID
    run(f"DELETE FROM {database}.t WHERE id % 3 = 0")
    run(f"CREATE TABLE {database}.s AS SELECT id, a FROM {database}.t")
    run(f"ALTER TABLE {database}.s ADD COLUMN c INT")
    run(f"CREATE VIEW {database}.v AS SELECT 1 AS one")
    run(f"TRUNCATE TABLE {database}.s")
    run("FLUSH BINARY LOGS")
    run(f"INSERT INTO {database}.t (a, b) VALUES ('big', REPEAT('x', 3000000))")
    run_transactions(server, database)
    run(f"DROP TABLE {database}.s")


def run_transactions(server: DatabaseServer, database: str) -> None:
    """Transactions of several statements in one session, by a stored procedure."""
    run = server.execute
    run(
        f"CREATE PROCEDURE {database}.p() BEGIN"
        f" START TRANSACTION; INSERT INTO {database}.t (a) VALUES ('one'); SAVEPOINT s;"
        f" INSERT INTO {database}.t (a) VALUES ('two'); ROLLBACK TO s;"
        f" INSERT INTO {database}.t (a) VALUES ('three'); COMMIT;"
        f" START TRANSACTION; INSERT INTO {database}.t (a) VALUES ('undone'); ROLLBACK;"
        f" START TRANSACTION; DELETE FROM {database}.m; COMMIT; END"
    )
    run(f"CALL {database}.p()")
    if server.flavour is Flavour.MARIADB:  # MySQL refuses to mix engines while GTIDs are enforced
        run(
            f"CREATE PROCEDURE {database}.q() BEGIN"
            f" START TRANSACTION; INSERT INTO {database}.t (a) VALUES ('undone');"
            f" INSERT INTO {database}.m VALUES (7, 'kept'); ROLLBACK; END"
        )
        run(f"CALL {database}.q()")


class CuttingProxy(Proxy):
    """A TCP proxy to a server that can cut every connection after a number of bytes sent to the client."""

    def __init__(self, member: Member) -> None:
        self.cut_after_bytes: int | None = None
        self._is_muted = self._is_torn = False
        super().__init__(member.host, member.port)

    @property
    def member(self) -> Member:
        """The proxy's address."""
        return Member("127.0.0.1", self.port)

    def mute(self) -> None:
        """Keep the connections open and forward nothing: half-open connections."""
        self._is_muted = True

    def unmute(self) -> None:
        """Forward data of new connections."""
        self._is_muted = False

    def tear(self) -> None:
        """End each connection inside the next packet that the server sends, until ``mend``."""
        self._is_torn = True

    def mend(self) -> None:
        """Forward everything again."""
        self._is_torn = False

    def carry(self, source: socket.socket, target: socket.socket, *, is_answer: bool) -> None:
        """Forward up to the cut."""
        passed = 0
        while chunk := source.recv(CHUNK_BYTES):
            limit = self.cut_after_bytes
            if is_answer and self._is_torn:
                target.sendall(chunk[: len(chunk) // 2])
                return
            if is_answer and limit is not None and passed + len(chunk) >= limit:
                target.sendall(chunk[: max(0, limit - passed)])
                return
            if not self._is_muted:
                target.sendall(chunk)
            passed += len(chunk)
