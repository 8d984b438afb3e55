"""A dump cut at every event of a source transaction and inside packets: the same bytes, nothing visible too early."""

from pathlib import Path

import pytest

from millrace.deploy.servers import DatabaseServer, DatabaseSet
from millrace.errors import Retryable
from millrace.producer.binlog.events import GTID, MARIADB_GTID
from millrace.producer.relay.writer import RelayLog
from millrace.producer.source.receive.receiver import RECONNECT_DELAYS_S
from tests.kit.binlog.packet_proxy import HEAD_BYTES, Cut, PacketProxy
from tests.kit.binlog.session import session
from tests.kit.relay.relay import (
    PLAIN,
    assert_identical,
    flush_and_wait,
    member_of,
    position_of,
    receiving,
)
from tests.kit.waiting import eventually

PACKET_BYTES = 0xFFFFFF


@pytest.mark.parametrize(
    "blob_bytes", [10, pytest.param(17_000_000, marks=pytest.mark.chaos)], ids=["small", "16 MiB"]
)
def test_connection_cut_at_every_event_is_resumed(
    source_set: DatabaseSet, tmp_path: Path, blob_bytes: int
) -> None:
    """One reconnect per cut: in a packet's header, in its body, before its last byte, after it."""
    server = source_set.primary
    database = f"cuts_{blob_bytes}"
    server.execute("SET GLOBAL max_allowed_packet = 1073741824")
    server.execute(f"CREATE DATABASE {database}")
    server.execute(f"CREATE TABLE {database}.a (id INT PRIMARY KEY, b LONGBLOB)")
    server.execute(f"CREATE TABLE {database}.n (id INT PRIMARY KEY)")
    server.execute("FLUSH BINARY LOGS")
    before = position_of(server)
    run_transaction(server, database, 1, 10)
    run_transaction(server, database, 2, blob_bytes)
    start, events = last_transaction(server)
    run_transaction(server, database, 3, 10)
    end = start + sum(map(len, events))
    cuts = cuts_of(events)
    count = len(cuts)
    seen: list[int] = []

    def look() -> None:
        found = reception.relay.end()
        seen.append(found.pos if found is not None else 0)

    with (
        PacketProxy(member_of(server), events[0], cuts, look) as proxy,
        receiving(
            server, tmp_path / "relay", member=proxy.member, tls=PLAIN, wanted=before
        ) as reception,
    ):
        eventually(lambda: not proxy.cuts or reception.error, what="every cut")
        reception.wait_for(server)
        assert_identical(server, reception, flush_and_wait(server, reception))
        assert len({subdir for subdir, _ in reception.relay.list_files()}) == 1
        assert reception.receiver.figures.connects == count + 1
    assert len(seen) == count
    assert all(pos <= start or pos >= end for pos in seen)
    server.execute(f"DROP DATABASE {database}")
    RelayLog.open(tmp_path / "relay", flavour=server.flavour).close()


def test_repeatedly_damaged_event_is_retried_a_bounded_number_of_times(
    mariadb_server: DatabaseServer, tmp_path: Path
) -> None:
    """Retries come a few times at growing intervals; then the supervisor gets the error with its code."""
    server = mariadb_server
    server.execute("CREATE DATABASE spoilt")
    server.execute("CREATE TABLE spoilt.a (id INT PRIMARY KEY, b LONGBLOB)")
    server.execute("CREATE TABLE spoilt.n (id INT PRIMARY KEY)")
    server.execute("FLUSH BINARY LOGS")
    before = position_of(server)
    run_transaction(server, "spoilt", 1, 10)
    run_transaction(server, "spoilt", 2, 10)
    start, events = last_transaction(server)
    with (
        PacketProxy(member_of(server), events[0], [], damaged=2) as proxy,
        receiving(
            server, tmp_path / "relay", member=proxy.member, tls=PLAIN, wanted=before
        ) as reception,
    ):
        eventually(lambda: reception.error is not None, what="an end")
        assert isinstance(reception.error, Retryable)
        assert reception.error.code == "MR-2006"
        assert reception.receiver.figures.connects == len(RECONNECT_DELAYS_S) + 1
        end = reception.relay.end()
        assert end is not None
        assert end.pos == start
    server.execute("DROP DATABASE spoilt")


def run_transaction(server: DatabaseServer, database: str, number: int, blob_bytes: int) -> None:
    """One transaction with several statements on several tables."""
    with session(server) as cursor:
        cursor.execute("BEGIN")
        cursor.execute(
            f"INSERT INTO {database}.a VALUES ({number}, REPEAT('x', {blob_bytes})), ({-number}, NULL)"
        )
        cursor.execute(f"INSERT INTO {database}.n VALUES ({number})")
        cursor.execute(f"UPDATE {database}.a SET b = 'y' WHERE id = {-number}")
        cursor.execute("COMMIT")


def last_transaction(server: DatabaseServer) -> tuple[int, list[bytes]]:
    """Start and events of the last source transaction in the server's current file."""
    file = str(server.execute("SHOW BINARY LOGS")[-1][0])
    content = (server.binlog_dir / file).read_bytes()
    start, events, at = 0, list[bytes](), 4
    while at < len(content):
        size = int.from_bytes(content[at + 9 : at + 13], "little")
        if content[at + 4] in (GTID, MARIADB_GTID):
            start, events = at, []
        events.append(content[at : at + size])
        at += size
    return start, events


def cuts_of(events: list[bytes]) -> list[Cut]:
    """Five cuts per packet."""
    cuts, packet = [], 0
    for event in events:
        left = len(event) + 1
        while left >= 0:
            size = min(left, PACKET_BYTES) + HEAD_BYTES
            cuts += [
                Cut(packet, kept)
                for kept in sorted({2, HEAD_BYTES, size // 2, size - 1, size})
                if kept <= size
            ]
            packet += 1
            left = left - PACKET_BYTES if left >= PACKET_BYTES else -1
    return cuts
