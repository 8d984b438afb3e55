"""A partly published source transaction resumes only on a member with the same rows: none is lost or repeated."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import pytest

from millrace.deploy.servers import DatabaseServer, DatabaseSet, sql
from millrace.producer.source.set_stream import Site
from millrace.producer.source.set_streams import Upstreams
from millrace.producer.task import resume
from millrace.schemas.documents import (
    Account,
    SecretPlace,
    SecretReference,
    SetDocument,
    TableFilter,
)
from millrace.schemas.gtid import Flavour
from millrace.schemas.progress import Progress
from tests.fixtures.servers import FLAVOURS, NewSet
from tests.kit.capture.rig import MemoryCapture
from tests.kit.relay.relay import UNVERIFIED, member_of, position_of
from tests.kit.waiting import eventually

ROWS = 4000  # of 700 bytes: more than one batch of the rig


@dataclass(frozen=True)
class Pair:
    """A primary, and a replica that logged the last source transaction with its rows in reverse."""

    servers: DatabaseSet
    folder: Path
    start: Progress  # before that transaction

    @property
    def primary(self) -> DatabaseServer:
        """Logged 1, 2, 3, …"""
        return self.servers.primary

    @property
    def replica(self) -> DatabaseServer:
        """Logged …, 3, 2, 1. Capture prefers it because it is a replica."""
        return self.servers.replicas[0]

    def capture(
        self, members: Iterable[DatabaseServer], relay: str, before: MemoryCapture | None = None
    ) -> MemoryCapture:
        """Capture from these members into this relay directory, after the progress of ``before``."""
        secret = self.folder / "password"
        secret.write_text(self.servers.password)
        document = SetDocument(
            name="f",
            members=tuple(map(member_of, members)),
            account=Account(self.servers.user, SecretReference(SecretPlace.FILE, str(secret))),
            tls=UNVERIFIED,
        )
        streams = Upstreams(Site(root=self.folder / relay))
        tables = TableFilter(include=("f.*",))
        if before is None:
            return MemoryCapture(streams, document, tables, self.start, ends_inside=True)
        rows, values = list(before.rows), list(before.values)
        return MemoryCapture(streams, document, tables, before.progress, rows=rows, values=values)


def _insert(order: Iterable[int]) -> str:
    return "INSERT INTO f.t VALUES " + ", ".join(f"({n}, REPEAT('v', 700))" for n in order)


@pytest.fixture(
    params=[
        pytest.param(flavour, marks=() if flavour is Flavour.MYSQL else pytest.mark.chaos)
        for flavour in FLAVOURS
    ],
    ids=str,
)
def pair(request: pytest.FixtureRequest, new_set: NewSet, tmp_path: Path) -> Pair:
    """The table has no key."""
    servers = new_set(request.param, replica_count=1)
    servers.execute("CREATE DATABASE f")
    servers.execute("CREATE TABLE f.t (n INT, v VARCHAR(700))")
    servers.wait_for_replicas()
    (replica,) = servers.replicas
    start = Progress(position_of(replica), None, 0)
    is_mariadb = servers.flavour is Flavour.MARIADB
    replica.execute("STOP SLAVE" if is_mariadb else "STOP REPLICA")
    servers.execute(_insert(range(1, ROWS + 1)))
    with sql.root_connection(replica.socket) as connection:
        for statement in (*_as_logged(servers), _insert(range(ROWS, 0, -1)), "COMMIT"):
            connection.cursor().execute(statement)
    if is_mariadb:
        replica.execute(f"SET GLOBAL gtid_slave_pos = '{servers.primary.gtid_position()}'")
    replica.execute("START SLAVE" if is_mariadb else "START REPLICA")
    servers.execute("FLUSH BINARY LOGS")  # a dump of the following events does not repeat it
    servers.execute("INSERT INTO f.t VALUES (0, 'after')")
    servers.wait_for_replicas()
    return Pair(servers, tmp_path, start)


def _as_logged(servers: DatabaseSet) -> tuple[str, ...]:
    """The SQL that gives a session's next source transaction the GTID of the primary's last one."""
    position = servers.primary.gtid_position()
    if servers.flavour is Flavour.MARIADB:
        domain, server, number = position.split("-")
        return (
            f"SET gtid_domain_id = {domain}, server_id = {server}, gtid_seq_no = {number}",
            "BEGIN",
        )
    uuid, _, numbers = position.partition(":")
    return f"SET gtid_next = '{uuid}:{numbers.rpartition('-')[2]}'", "BEGIN"


def _published_in_part(pair: Pair, relay: str) -> MemoryCapture:
    """The state of a worker that read the primary and died in the middle."""
    with pair.capture([pair.primary], relay) as capture:
        eventually(lambda: not capture.is_alive, what="a batch ends inside")
    assert capture.error is None, capture.error
    assert capture.progress.open is not None
    assert 0 < len(capture.rows) < ROWS
    return capture


def _numbers(capture: MemoryCapture) -> list[int]:
    return [int(str(dict(row.change.after or {})["n"])) for row in capture.rows]


def _finish(capture: MemoryCapture) -> list[int]:
    """Wait for the row after the transaction; returns the numbers of all rows, in order."""

    def is_there() -> bool:
        assert capture.error is None, capture.error
        return bool(capture.rows) and _numbers(capture)[-1] == 0

    eventually(is_there, what="the row after the transaction")
    return _numbers(capture)


def _codes(capture: MemoryCapture) -> list[str]:
    return [error.code for error in capture.errors]


@pytest.mark.guarantee("resumed")
def test_partly_published_transaction_resumes_only_with_identical_rows(
    pair: Pair,
) -> None:
    """The preferred member has the rest in another order; capture finds a member with the right order."""
    whole = [*range(1, ROWS + 1), 0]
    before = _published_in_part(pair, "first")
    half = len(before.rows)

    # another worker, an empty relay directory: the replica is chosen and refused, then the primary is read
    with pair.capture(pair.servers.members, "second", before) as capture:
        assert _finish(capture) == whole
    assert _codes(capture) == ["MR-6508"]
    assert capture.members == [str(member_of(pair.replica)), str(member_of(pair.primary))]
    assert [row.source.seq for row in capture.rows] == list(range(1, ROWS + 2))

    # the same worker: the replica is chosen, the relay directory still has the primary's bytes
    with pair.capture(pair.servers.members, "first", before) as capture:
        assert _finish(capture) == whole
    assert _codes(capture) == []
    assert capture.members == [str(member_of(pair.replica))]

    # only the replica is left: capture retries it and publishes none of its rows
    with pair.capture([pair.replica], "third", before) as capture:
        eventually(lambda: len(capture.errors) >= 2, what="refused twice")
    assert set(_codes(capture)) == {"MR-6508"}
    assert (len(capture.rows), capture.error) == (half, None)

    # the rule matters: without the comparison rows are lost and repeated without an error
    with (
        mock.patch.object(resume, "is_same_change", return_value=True),
        pair.capture([pair.replica], "third", before) as capture,
    ):
        found = _finish(capture)
    assert len(found) == len(whole)
    assert sorted(found) != sorted(whole)

    # an ordinary failover: the same rows in the same order, at other positions of another log
    late = replace(pair, start=Progress(position_of(pair.primary), None, 0))
    pair.servers.execute(_insert(range(ROWS + 1, 2 * ROWS + 1)))
    pair.servers.execute("INSERT INTO f.t VALUES (0, 'after')")
    pair.servers.wait_for_replicas()
    before = _published_in_part(late, "fourth")
    pair.primary.kill()
    with pair.capture([pair.replica], "fifth", before) as capture:
        assert _finish(capture) == [*range(ROWS + 1, 2 * ROWS + 1), 0]
    assert _codes(capture) == []
