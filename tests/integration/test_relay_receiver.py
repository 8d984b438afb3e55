"""The receiver on real servers of both flavors: the server's files and mysqlbinlog are the oracles."""

import struct
import subprocess
import time
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from millrace.deploy.servers import DatabaseServer, DatabaseSet
from millrace.errors import Fenced, Retryable
from millrace.producer.binlog.events import GTID, MARIADB_GTID
from millrace.producer.binlog.gtid_runs import new_runs
from millrace.producer.relay import layout
from millrace.producer.relay.reader import RelayReader
from millrace.producer.relay.writer import RelayLog
from millrace.schemas.gtid import Flavour, GtidPosition, MariadbGtidSet, parse_gtid_set
from tests.fixtures.servers import NewServer, mostly
from tests.kit.binlog.plain_files import BinlogFile
from tests.kit.relay.relay import (
    PLAIN,
    CuttingProxy,
    Reception,
    assert_identical,
    dump_threads,
    flush_and_wait,
    kill_dumps,
    member_of,
    position_of,
    read_everything,
    receiving,
    relay_file,
    run_mixed_workload,
)
from tests.kit.waiting import eventually

NAME = "mysql-bin.000001"
_NAMES = iter(f"relay_{number}" for number in range(1000))


@pytest.fixture
def database(source_set: DatabaseSet) -> Iterator[str]:
    """A database for this test on the primary."""
    name = next(_NAMES)
    yield name
    source_set.execute(f"DROP DATABASE IF EXISTS {name}")


@pytest.mark.parametrize("member", ["primary", "replica"])
@pytest.mark.guarantee("relay log")
def test_relay_files_equal_the_servers_closed_files(
    source_set: DatabaseSet, tmp_path: Path, database: str, member: str
) -> None:
    """From primary and replica, also for a file that was active while it was received."""
    server = source_set.primary if member == "primary" else source_set.replicas[0]
    with receiving(server, tmp_path / "relay", from_first=True) as reception:
        reception.wait_for(server)
        run_mixed_workload(source_set.primary, database)
        wanted = position_of(source_set.primary)
        eventually(lambda: position_of(server).includes(wanted), what="the replica caught up")
        reception.wait_for(server)
        names = flush_and_wait(server, reception)
        assert len(names) >= 2 if member == "primary" else names
        assert_identical(server, reception, names)


def test_mysqlbinlog_reads_the_relay_files(
    mysql_server: DatabaseServer, tmp_path: Path, mysqlbinlog: Path
) -> None:
    """MySQL's own reader accepts every checksum."""
    name = next(_NAMES)
    with receiving(mysql_server, tmp_path / "relay") as reception:
        run_mixed_workload(mysql_server, name)
        reception.wait_for(mysql_server)
        for file in flush_and_wait(mysql_server, reception):
            path = relay_file(reception.relay, file)
            done = subprocess.run(
                [mysqlbinlog, "--verify-binlog-checksum", path], capture_output=True, check=False
            )
            assert done.returncode == 0, done.stderr.decode()
            assert b"BINLOG" in done.stdout


def test_reader_sees_every_byte_of_closed_files(
    source_set: DatabaseSet, tmp_path: Path, database: str
) -> None:
    """Joined spans equal the server's files, for small and large spans."""
    server = source_set.primary
    with receiving(server, tmp_path / "relay") as reception:
        run_mixed_workload(server, database)
        reception.wait_for(server)
        names = flush_and_wait(server, reception)
        for bytes_max in (100, 1 << 20):
            seen = read_everything(reception.relay, bytes_max=bytes_max)
            for name in names:
                (found,) = [payload for key, payload in seen.items() if key.endswith(name)]
                assert found == (server.binlog_dir / name).read_bytes()[4:]


def test_killed_dump_is_resumed(source_set: DatabaseSet, tmp_path: Path, database: str) -> None:
    """KILL of the dump thread while rows arrive: the same files in one sub-directory."""
    server = source_set.primary
    server.execute(f"CREATE DATABASE {database}")
    server.execute(f"CREATE TABLE {database}.k (id INT PRIMARY KEY AUTO_INCREMENT, a VARCHAR(300))")
    others, killed = dump_threads(server), set[int]()  # the test before has its own
    with receiving(server, tmp_path / "relay") as reception:
        for _ in range(4):
            reception.wait_for(server)
            eventually(lambda: dump_threads(server) - killed - others, what="a running dump")
            killed.update(kill_dumps(server, but=killed | others))
            for _ in range(20):
                server.execute(f"INSERT INTO {database}.k (a) VALUES (REPEAT('k', 300))")
        reception.wait_for(server)
        eventually(lambda: reception.receiver.figures.connects > len(killed) >= 4, what="a fifth")
        assert_identical(server, reception, flush_and_wait(server, reception))
        assert len({subdir for subdir, _ in reception.relay.list_files()}) == 1


def test_connection_cut_anywhere_is_resumed(
    source_set: DatabaseSet, tmp_path: Path, database: str
) -> None:
    """Cut inside a packet, an event or a transaction: the files are still byte-identical."""
    server = source_set.primary
    wanted = position_of(server)
    run_mixed_workload(server, database)
    with CuttingProxy(member_of(server)) as proxy:
        proxy.cut_after_bytes = 40_000
        with receiving(
            server, tmp_path / "relay", member=proxy.member, tls=PLAIN, wanted=wanted
        ) as reception:
            wait_for_bytes(reception, proxy, connections=2, received=0)
            for limit in (90_000, 1_000_001, 2_500_000, 5_000_007, None):
                proxy.cut_after_bytes = limit
                received = reception.receiver.figures.received_bytes
                wait_for_bytes(reception, proxy, connections=proxy.cut() + 1, received=received)
            eventually(lambda: reception.relay.position().includes(position_of(server)))
            assert reception.error is None
            assert_identical(server, reception, flush_and_wait(server, reception))


def test_silent_connection_is_replaced(
    source_set: DatabaseSet, tmp_path: Path, database: str
) -> None:
    """A half-open connection sends nothing and never ends; after three heartbeat periods the receiver reconnects."""
    server = source_set.primary
    with (
        CuttingProxy(member_of(server)) as proxy,
        receiving(
            server, tmp_path / "relay", member=proxy.member, tls=PLAIN, silence_s=3.0
        ) as reception,
    ):
        eventually(lambda: reception.relay.position().includes(position_of(server)))
        proxy.mute()
        before = proxy.connections
        server.execute(f"CREATE DATABASE {database}")
        eventually(lambda: proxy.connections > before, what="a new connection")
        proxy.unmute()
        proxy.cut()
        eventually(lambda: reception.relay.position().includes(position_of(server)))
        assert reception.error is None


def test_heartbeats_keep_an_idle_connection(source_set: DatabaseSet, tmp_path: Path) -> None:
    """Heartbeats arrive on an idle connection, and none is written."""
    source_set.wait_for_replicas()  # events of the last test's DROP could still arrive
    server = source_set.replicas[1]
    with receiving(server, tmp_path / "relay", silence_s=3.0) as reception:
        reception.wait_for(server)
        connection = _ConnectionAge(reception)
        size = sum(
            path.stat().st_size for path in (tmp_path / "relay").rglob("*.0*") if path.is_file()
        )
        eventually(
            lambda: connection.for_s() > 4.5 and connection.received_bytes() >= 3 * 40,
            what="a connection that received three heartbeats",
        )
        after = sum(
            path.stat().st_size for path in (tmp_path / "relay").rglob("*.0*") if path.is_file()
        )
        assert after == size


class _ConnectionAge:
    """How long the receiver has had its connection, and the bytes received meanwhile.

    If the machine silences the server for three seconds, the connection is lost and the count restarts.
    """

    def __init__(self, reception: Reception) -> None:
        self._reception = reception
        self._connects = 0
        self._since_s = 0.0
        self._before = 0

    def for_s(self) -> float:
        """Seconds so far; call it repeatedly."""
        figures, now_s = self._reception.receiver.figures, time.monotonic()
        if figures.connects != self._connects or self._before == 0:
            self._connects, self._since_s = figures.connects, now_s
            self._before = figures.received_bytes
        return now_s - self._since_s

    def received_bytes(self) -> int:
        """Bytes since the first call."""
        return self._reception.receiver.figures.received_bytes - self._before


@mostly(Flavour.MARIADB)
def test_events_larger_than_a_packet_arrive_whole(
    new_server: NewServer, flavour: Flavour, tmp_path: Path
) -> None:
    """On the wire an event above 16 MiB is split over packets; at exact multiples the last packet is empty.

    It needs a new server: every shared member would keep buffers of this size.
    """
    server, database = new_server(flavour), "large"
    server.execute("SET GLOBAL max_allowed_packet = 1073741824")
    server.execute(f"CREATE DATABASE {database}")
    server.execute(f"CREATE TABLE {database}.big (id INT PRIMARY KEY AUTO_INCREMENT, b LONGBLOB)")
    with receiving(server, tmp_path / "relay") as reception:
        for size in (35_000_000,):
            server.execute(f"INSERT INTO {database}.big (b) VALUES (REPEAT('b', {size}))")
        around = 16 * 1024 * 1024 - 110
        for size in (around, around + 30, around + 60):
            server.execute(f"INSERT INTO {database}.big (b) VALUES (REPEAT('c', {size}))")
        reception.wait_for(server)
        assert_identical(server, reception, flush_and_wait(server, reception))
        with RelayReader(reception.relay) as reader:
            assert reader.first() is not None
        seen = read_everything(reception.relay, bytes_max=1 << 20)
        assert max(map(len, seen.values())) > 35_000_000


def test_restart_resumes_at_the_end_of_the_relay_log(
    source_set: DatabaseSet, tmp_path: Path, database: str
) -> None:
    """The same sub-directory and nothing twice; relay.meta names the end."""
    server = source_set.primary
    server.execute(f"CREATE DATABASE {database}")
    with receiving(server, tmp_path / "relay") as reception:
        reception.wait_for(server)
    server.execute(f"CREATE TABLE {database}.r (id INT PRIMARY KEY)")
    server.execute("FLUSH BINARY LOGS")
    server.execute(f"INSERT INTO {database}.r VALUES (1)")
    with receiving(server, tmp_path / "relay") as reception:
        reception.wait_for(server)
        assert_identical(server, reception, flush_and_wait(server, reception))
        reception.finish()  # MariaDB writes its checkpoint event shortly after the flush
        end = reception.relay.end()
    (subdir,) = layout.list_subdirs(tmp_path / "relay")
    meta = layout.read_meta(tmp_path / "relay" / str(subdir))
    assert meta is not None
    assert end is not None
    assert (meta.binlog_name, meta.binlog_pos) == (end.file, end.pos)
    assert parse_gtid_set(server.flavour, meta.binlog_gtid) == position_of(server)


def test_deleted_relay_log_is_rebuilt_from_the_first_wanted_gtid(
    source_set: DatabaseSet, tmp_path: Path, database: str
) -> None:
    """Only files from the first wanted GTID on are fetched."""
    server = source_set.primary
    server.execute(f"CREATE DATABASE {database}")
    wanted = position_of(server)
    server.execute("FLUSH BINARY LOGS")
    last_file = str(server.execute("SHOW BINARY LOGS")[-1][0])
    server.execute(f"CREATE TABLE {database}.r (id INT PRIMARY KEY)")
    with receiving(server, tmp_path / "relay", wanted=wanted) as reception:
        reception.wait_for(server)
        assert [name for _, name in reception.relay.list_files()] == [last_file]
        with RelayReader(reception.relay) as reader:
            at = reader.seek(wanted)
            assert at is not None
            assert (at.file, at.pos) == (last_file, 4)


def test_relay_log_that_begins_too_late_gets_a_new_subdirectory(
    source_set: DatabaseSet, tmp_path: Path, database: str
) -> None:
    """A task that needs more than the relay log holds gets it; no reader crosses the gap."""
    server = source_set.primary
    early = position_of(server)
    server.execute("FLUSH BINARY LOGS")
    server.execute(f"CREATE DATABASE {database}")
    server.execute("FLUSH BINARY LOGS")
    with receiving(server, tmp_path / "relay", wanted=position_of(server)) as reception:
        reception.wait_for(server)
    with receiving(server, tmp_path / "relay", wanted=early) as reception:
        eventually(lambda: len(layout.list_subdirs(tmp_path / "relay")) == 2)
        with RelayReader(reception.relay) as reader:
            # the former sub-directory reaches the server's position before the new one begins
            eventually(lambda: reader.seek(early) is not None, what="the new sub-directory")
            at = reader.seek(early)
        assert at is not None
        assert at.subdir.endswith(".000002")


# test_task_of_a_reset_source_reads_only_new_binlogs resets both
@mostly(Flavour.MARIADB)
def test_reset_server_gets_a_new_subdirectory(
    new_server: NewServer, tmp_path: Path, flavour: Flavour
) -> None:
    """After RESET the same file name has other bytes; a comparison detects it, and nothing is appended."""
    server = new_server(flavour)
    server.execute("CREATE DATABASE a")
    with receiving(server, tmp_path / "relay") as reception:
        reception.wait_for(server)
    server.execute("RESET MASTER" if flavour is Flavour.MARIADB else "RESET BINARY LOGS AND GTIDS")
    for number in range(3):
        server.execute(f"CREATE DATABASE b{number}")
    with receiving(server, tmp_path / "relay") as reception:
        eventually(lambda: len({subdir for subdir, _ in reception.relay.list_files()}) == 2)
        server.execute("CREATE DATABASE c")
        assert_identical(server, reception, flush_and_wait(server, reception))
        with RelayReader(reception.relay) as reader:
            begin = reader.first()
        assert begin is not None
        assert begin.subdir.endswith(".000002")


def _has_start(reader: RelayReader, wanted: GtidPosition) -> bool:
    return reader.seek(wanted) is not None and reader.first() is not None


def test_relay_tail_lost_in_a_failover_is_ignored(
    target_server: DatabaseServer, tmp_path: Path
) -> None:
    """The relay log ends with transactions that the failover lost; no reader returns them."""
    server = target_server
    mariadb = server.flavour is Flavour.MARIADB
    server.execute("FLUSH BINARY LOGS")
    done = position_of(server)
    here = done.last(0) if isinstance(done, MariadbGtidSet) else None
    number = here.sequence + 1 if here is not None else 1  # in MySQL with a different source ID
    lost = BinlogFile(mariadb=mariadb, first_number=number, server=server.server_id + 1)
    relay = RelayLog.open(tmp_path, flavour=server.flavour)
    relay.begin_subdir("old-primary", before=done)
    relay.begin_file(NAME)
    data = lost.transaction().transaction().data
    relay.append(
        np.frombuffer(data[4:], np.uint8), end=len(data), last_group_at=0, runs=new_runs()[:0]
    )
    relay.close()

    for _ in range(3):
        server.execute("CREATE DATABASE after_failover")
        server.execute("DROP DATABASE after_failover")
    server.execute("FLUSH BINARY LOGS")
    published = position_of(server)
    for wanted in (published, done):
        with receiving(server, tmp_path, wanted=wanted) as reception:
            reception.wait_for(server)
            with RelayReader(reception.relay) as reader:
                # the former sub-directory may reach the position before the new one begins
                eventually(partial(_has_start, reader, wanted), what="the new sub-directory")
                for place in (reader.seek(wanted), reader.first()):
                    assert place is not None
                    assert not place.subdir.startswith("old-primary")
                assert {at.subdir for at in reader.seek_all(wanted)}.isdisjoint(
                    {"old-primary.000001"}
                )


@pytest.mark.parametrize("count", [1, 2])
def test_relay_file_longer_than_the_servers_gets_a_new_subdirectory(
    source_set: DatabaseSet, tmp_path: Path, database: str, count: int
) -> None:
    """As when a crashed server lost its tail: the receiver does not wait until the file has grown again."""
    server = source_set.primary
    server.execute("FLUSH BINARY LOGS")
    server.execute(f"CREATE DATABASE {database}")
    with receiving(server, tmp_path / "relay") as reception:
        reception.wait_for(server)
        reception.finish()
        end = reception.relay.end()
        assert end is not None
        path = reception.relay.path(end)
    for _ in range(count):
        path.write_bytes(with_one_more_transaction(path.read_bytes(), server.flavour))
    relay = RelayLog.open(tmp_path / "relay", flavour=server.flavour)
    end = relay.end()
    relay.close()
    assert end is not None
    assert end.pos == path.stat().st_size
    with receiving(server, tmp_path / "relay", wanted=position_of(server)) as reception:
        eventually(lambda: len(layout.list_subdirs(tmp_path / "relay")) == 2)
        server.execute(f"CREATE TABLE {database}.u (id INT PRIMARY KEY)")
        eventually(lambda: reception.relay.position() == position_of(server))
        assert_identical(server, reception, flush_and_wait(server, reception))


def test_tail_lost_by_the_running_server_ends_the_stream(
    source_set: DatabaseSet, tmp_path: Path, database: str
) -> None:
    """The server returns with less than was read; member selection decides whether the rest was published."""
    server = source_set.primary
    server.execute("FLUSH BINARY LOGS")
    server.execute(f"CREATE DATABASE {database}")
    with receiving(server, tmp_path / "relay") as reception:
        reception.wait_for(server)
        end = reception.relay.end()
        assert end is not None
        content = reception.relay.path(end).read_bytes()
        lost = with_one_more_transaction(content, server.flavour)[len(content) :]
        reception.relay.append(
            np.frombuffer(lost, np.uint8),
            end=end.pos + len(lost),
            last_group_at=0,
            runs=new_runs()[:0],
        )
        kill_dumps(server)

        def subdirs() -> int:
            return len(layout.list_subdirs(tmp_path / "relay"))

        eventually(lambda: reception.error or subdirs() > 1, what="the end of the stream")
        assert subdirs() == 1, "the stream continues in a new sub-directory"
        assert isinstance(reception.error, Retryable)
        assert reception.error.code == "MR-1041"


def with_one_more_transaction(content: bytes, flavour: Flavour) -> bytes:
    """The content with its last transaction repeated under the next GTID."""
    start, at = 0, 4
    while at < len(content):
        start = at if content[at + 4] in (GTID, MARIADB_GTID) else start
        at += int.from_bytes(content[at + 9 : at + 13], "little")
    made, at = content, start
    while at < len(content):
        size = int.from_bytes(content[at + 9 : at + 13], "little")
        event = bytearray(content[at : at + size - 4])
        if at == start:
            number = 19 if flavour is Flavour.MARIADB else 19 + 1 + 16
            (known,) = struct.unpack_from("<Q", event, number)
            struct.pack_into("<Q", event, number, known + 1)
        struct.pack_into("<I", event, 13, len(made) + size)
        made += bytes(event) + struct.pack("<I", zlib.crc32(event))
        at += size
    return made


def test_newer_reader_with_the_same_server_id_evicts_the_older(
    source_set: DatabaseSet, tmp_path: Path
) -> None:
    """The older reader ends as fenced: it must check its lease before it reads again."""
    server = source_set.primary
    with receiving(server, tmp_path / "old", set_name="one") as old:
        old.wait_for(server)
        with receiving(server, tmp_path / "new", set_name="one") as new:
            eventually(lambda: old.error is not None, what="the older reader's end")
            assert isinstance(old.error, Fenced)
            assert old.error.code == "MR-1042"
            new.wait_for(server)


def wait_for_bytes(
    reception: Reception, proxy: CuttingProxy, *, connections: int, received: int
) -> None:
    """Wait for a new connection that received bytes; after several empty connections the supervisor would take over."""

    def has_come() -> bool:
        assert reception.error is None, reception.error
        figures = reception.receiver.figures
        return proxy.connections >= connections and figures.received_bytes > received

    eventually(has_come, what=f"bytes on connection {connections}")
