"""Readers of a served relay log while its worker moves to another member, and while the serving process is killed."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from millrace.deploy.servers import DatabaseServer, DatabaseSet, ServerOptions
from millrace.producer.source.set_stream import Site
from millrace.producer.source.set_streams import Upstreams
from millrace.schemas.documents import (
    Account,
    Directives,
    Member,
    SecretPlace,
    SecretReference,
    SetDocument,
    TableFilter,
    UpstreamRules,
)
from millrace.schemas.gtid import Flavour, parse_gtid_set
from millrace.schemas.progress import Progress
from tests.fixtures.servers import SMALL, NewServer, NewSet, in_turn, mostly
from tests.kit.capture.load import Load, load_on, wait_for_rows
from tests.kit.capture.rig import MemoryCapture
from tests.kit.relay.relay import (
    PLAIN,
    UNVERIFIED,
    CuttingProxy,
    member_of,
    position_of,
    receiving,
)
from tests.kit.relay.serving import (
    PASSWORD,
    SET_NAME,
    USER,
    checksums,
    follow,
    options_in,
    served,
    serving,
    status_of,
    wait_caught_up,
)
from tests.kit.relay.stream import Address, connected
from tests.kit.waiting import eventually

RULES = UpstreamRules(max_lag_s=2.0, hysteresis_s=1.0, cool_down_s=0.0)
TABLES = TableFilter(include=("f.*",))


@dataclass
class Worker:
    """A capture of a set from its first transaction on, under load. ``folder / SET_NAME`` is its relay log."""

    servers: DatabaseSet
    folder: Path
    load: Load
    capture: MemoryCapture
    directives: list[Directives] = field(default_factory=lambda: [Directives()])

    def switch(self) -> None:
        """Drain the member that is read; returns when rows of another one arrive."""
        left, count = self.capture.stream.choice.member, len(self._switches())
        self.directives[0] = Directives(drained=frozenset({left}))
        eventually(lambda: len(self._switches()) > count, what="a switch")
        wait_for_rows(self.capture)
        assert not self.capture.errors

    def _switches(self) -> tuple[object, ...]:
        assert self.capture.error is None, self.capture.error
        return self.capture.stream.captured().switches


def document_of(
    folder: Path, name: str, members: tuple[Member, ...], user: str, password: str
) -> SetDocument:
    """A set whose members share an account; a served relay log has no TLS here."""
    secret = folder / f"password-{name}"
    secret.write_text(password)
    return SetDocument(
        name=name,
        members=members,
        account=Account(user, SecretReference(SecretPlace.FILE, str(secret))),
        tls=PLAIN if user == USER else UNVERIFIED,
        upstream=RULES,
    )


@contextmanager
def capturing(
    document: SetDocument, root: Path, flavour: Flavour, wishes: list[Directives]
) -> Iterator[MemoryCapture]:
    """A task from the first transaction on."""
    site = Site(root=root, directives=lambda _: wishes[0])
    progress = Progress(parse_gtid_set(flavour, ""), None, 0)
    with MemoryCapture(Upstreams(site), document, TABLES, progress) as capture:
        yield capture


@contextmanager
def working(servers: DatabaseSet, folder: Path) -> Iterator[Worker]:
    """See ``Worker``."""
    members = tuple(map(member_of, servers.members))
    document = document_of(folder, SET_NAME, members, servers.user, servers.password)
    wishes = [Directives()]
    with (
        load_on(servers) as load,
        capturing(document, folder, servers.flavour, wishes) as capture,
    ):
        load.resume()
        wait_for_rows(capture)
        yield Worker(servers, folder, load, capture, wishes)
        load.stop()


@in_turn("by", {"gtid": "gtid", "position": "position"}, later=("position",))
@pytest.mark.guarantee("served relay log")
def test_replica_follows_the_relay_log_across_a_switch(
    flavour: Flavour, by: str, new_set: NewSet, new_server: NewServer, tmp_path: Path
) -> None:
    """Under load, from one member to another; the replica has each row once and equals the source."""
    servers = new_set(flavour, replica_count=2)
    replica = new_server(flavour, options=ServerOptions(server_id=9, extra=SMALL[flavour]))
    with (
        working(servers, tmp_path) as worker,
        served(tmp_path / SET_NAME, options_in(tmp_path)) as address,
    ):
        first = first_file(address)
        follow(replica, address, file=first if by == "position" else "")
        wait_caught_up(replica, servers.primary)
        worker.switch()
        wait_caught_up(replica, servers.primary)
        worker.load.pause()
        wait_caught_up(replica, servers.primary)
        assert checksums(replica, "f.t") == checksums(servers.primary, "f.t")
        word = "SLAVE" if flavour is Flavour.MARIADB else "REPLICA"
        status = status_of(replica, word)
        file = status.get("Source_Log_File", status.get("Master_Log_File"))
        assert "-000002." in str(file), "the replica has left the first sub-directory"


@mostly(Flavour.MYSQL)
@pytest.mark.guarantee("served relay log")
def test_another_millrace_captures_from_the_relay_log(
    flavour: Flavour, new_set: NewSet, tmp_path: Path
) -> None:
    """A set whose only member is a served relay log, also across a switch: every row once and in order."""
    servers = new_set(flavour, replica_count=2)
    with (
        working(servers, tmp_path) as worker,
        served(tmp_path / SET_NAME, options_in(tmp_path)) as address,
    ):
        member = (Member("127.0.0.1", address.port),)
        document = document_of(tmp_path, "second", member, USER, PASSWORD)
        with capturing(document, tmp_path / "other", flavour, [Directives()]) as second:
            wait_for_rows(second)
            worker.switch()
            wait_for_rows(second)
            worker.load.pause()
            eventually(lambda: len(second.rows) >= worker.load.count, what="all rows")
            ids = [dict(row.change.after or {})["id"] for row in second.rows]
            assert ids == list(range(1, worker.load.count + 1))
            first = second.rows[0].source.seq  # DDL precedes it
            assert [row.source.seq for row in second.rows] == [first + n for n in range(len(ids))]
            assert second.error is None, second.error


def first_file(address: Address) -> str:
    """The first file that is served."""
    with connected(address) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW BINARY LOGS")
        return str(cursor.fetchall()[0][0])


class KillingProxy(CuttingProxy):
    """After a number of bytes sent to a client, it kills the server in the middle of what that was sending."""

    def __init__(self, member: Member, kill: Callable[[], object]) -> None:
        self.kill_after_bytes: int | None = None
        self._kill = kill
        super().__init__(member)

    def carry(self, source: socket.socket, target: socket.socket, *, is_answer: bool) -> None:
        """Forward up to the kill."""
        passed = 0
        while chunk := source.recv(1 << 16):
            target.sendall(chunk)
            passed += len(chunk)
            limit = self.kill_after_bytes
            if is_answer and limit is not None and passed >= limit:
                self.kill_after_bytes = None
                self._kill()
                return


@mostly(Flavour.MARIADB)
@pytest.mark.guarantee("served relay log", "outages")
def test_killed_server_costs_a_replica_nothing(
    flavour: Flavour, new_server: NewServer, tmp_path: Path
) -> None:
    """kill -9 inside a transaction of 8 MB, early and late; the replica reconnects and equals the source."""
    source = new_server(flavour, options=ServerOptions(server_id=1, extra=SMALL[flavour]))
    replica = new_server(flavour, options=ServerOptions(server_id=9, extra=SMALL[flavour]))
    with receiving(source, tmp_path / SET_NAME, from_first=True) as reception:
        source.execute("CREATE DATABASE f")
        source.execute("CREATE TABLE f.t (id INT PRIMARY KEY AUTO_INCREMENT, v LONGTEXT)")
        reception.wait_for(source)
        with (
            serving(tmp_path) as process,
            KillingProxy(Member("127.0.0.1", process.port), process.kill) as proxy,
        ):
            follow(replica, Address(proxy.port, USER, PASSWORD))
            wait_caught_up(replica, source)
            for sent_bytes in (2_000_000, 6_000_000):
                proxy.kill_after_bytes = sent_bytes
                _insert_8_mb(source)
                eventually(lambda: process.process.poll() is not None, what="a killed server")  # type: ignore[union-attr]
                assert not position_of(replica).includes(position_of(source))
                process.start()
                wait_caught_up(replica, source)
            assert checksums(replica, "f.t") == checksums(source, "f.t")


def _insert_8_mb(server: DatabaseServer) -> None:
    values = ", ".join("(REPEAT('v', 100000))" for _ in range(80))
    server.execute(f"INSERT INTO f.t (v) VALUES {values}")
