"""A served relay log and the real server answer alike: the same packets, the same files, the same refusals.

The server's own dump is the oracle. Only file names differ: a served name has the number of its sub-directory.
"""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pymysql
import pytest

from millrace.deploy.servers import DatabaseServer, DatabaseSet
from millrace.producer.relay.layout import parse_subdir
from millrace.producer.serve.catalogue import served_name
from millrace.schemas.documents import TlsMode
from millrace.schemas.gtid import Flavour
from tests.kit.relay.compress import compress
from tests.kit.relay.relay import (
    Reception,
    flush_and_wait,
    receiving,
    run_mixed_workload,
)
from tests.kit.relay.serving import (
    SET_NAME,
    binlog_program,
    login_words,
    options_in,
    run_binlog,
    served,
)
from tests.kit.relay.stream import (
    DUMP,
    DUMP_GTID,
    Address,
    connected,
    dump_packets,
    dump_request,
    encoded_gtids,
    gtid_request,
)
from tests.kit.waiting import eventually

_NAMES = iter(f"serve_{number}" for number in range(1000))
_CHECKSUM = "SET @master_binlog_checksum='{0}', @source_binlog_checksum='{0}'"
_CAPABILITY = "SET @mariadb_slave_capability=4"
ANNOTATED = 3  # non-blocking, with MariaDB's annotate-rows events


@dataclass(frozen=True)
class Scene:
    """A server, and its relay log served: closed files, and the newest one with one transaction."""

    server: DatabaseServer
    reception: Reception
    closed: Sequence[str]
    address: Address

    @property
    def flavour(self) -> Flavour:
        """The flavour of the server."""
        return self.server.flavour

    @property
    def direct(self) -> Address:
        """The server itself."""
        login = self.server.user, self.server.password
        return Address(self.server.port, *login, tls=TlsMode.REQUIRE_UNVERIFIED)

    def served(self, file: str) -> str:
        """The served name of a file."""
        subdir = parse_subdir(self.reception.relay.end().subdir)  # type: ignore[union-attr]
        assert subdir is not None
        return served_name(subdir, file)

    def assert_same_dump(
        self, command: int, theirs: bytes, ours: bytes, settings: Sequence[str]
    ) -> None:
        """Both answer with the same packets; an artificial ROTATE may name the served file."""
        expected = dump_packets(self.direct, command, theirs, settings=settings)
        found = dump_packets(self.address, command, ours, settings=settings)
        assert len(found) == len(expected)
        for ours_packet, packet in zip(found, expected, strict=True):
            assert _without_names(ours_packet) == _without_names(packet)


def _without_names(packet: bytes) -> bytes:
    """An artificial ROTATE without file name, length and checksum."""
    if packet[:6] == b"\0\0\0\0\0\x04":
        return packet[:10] + packet[14:28]
    return packet


@contextmanager
def scene_of(server: DatabaseServer, folder: Path) -> Iterator[Scene]:
    """See ``Scene``."""
    database = next(_NAMES)
    with receiving(server, folder / SET_NAME) as reception:
        run_mixed_workload(server, database)
        reception.wait_for(server)
        closed = flush_and_wait(server, reception)
        server.execute(f"DROP DATABASE {database}")
        reception.wait_for(server)
        with served(folder / SET_NAME, options_in(folder)) as address:
            made = Scene(server, reception, closed, address)
            eventually(
                lambda: _status(address, server.flavour) == _status(made.direct, server.flavour)
            )
            yield made


def _status(address: Address, flavour: Flavour) -> object:
    """The position that a server or a relay log shows."""
    statement = "SHOW MASTER STATUS" if flavour is Flavour.MARIADB else "SHOW BINARY LOG STATUS"
    with connected(address) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()[0][1:]


@pytest.fixture
def scene(source_set: DatabaseSet, tmp_path: Path) -> Iterator[Scene]:
    """On each flavour."""
    with scene_of(source_set.primary, tmp_path) as made:
        yield made


@pytest.mark.both_flavours
@pytest.mark.guarantee("served relay log")
def test_served_dump_equals_the_servers(scene: Scene) -> None:
    """By position: from the start and from inside a file, with each checksum setting, annotations or not."""
    file = scene.closed[0]
    rows = scene.server.execute(f"SHOW BINLOG EVENTS IN '{file}'")
    starts = [int(str(row[1])) for row in rows if row[2] == "Gtid"]
    for pos in (4, starts[0], starts[len(starts) // 2], starts[-1], 2):
        for checksum in ("CRC32", "NONE"):
            for flags in (1, ANNOTATED):
                settings = [_CHECKSUM.format(checksum), _CAPABILITY]
                theirs = dump_request(file=file, pos=pos, flags=flags)
                ours = dump_request(file=scene.served(file), pos=pos, flags=flags)
                if pos >= 4 or scene.flavour is Flavour.MYSQL:
                    scene.assert_same_dump(DUMP, theirs, ours, settings)


@pytest.mark.both_flavours
@pytest.mark.guarantee("served relay log")
def test_served_dump_by_gtid_equals_the_servers(scene: Scene) -> None:
    """MySQL: the same packets. MariaDB: the same transactions; its artificial GTID lists are not sent."""
    settings = [_CHECKSUM.format("CRC32"), _CAPABILITY]
    executed = scene.server.gtid_position()
    if scene.flavour is Flavour.MARIADB:
        domain, server, last = map(int, executed.split("-"))
        for done in (
            executed,
            f"{domain}-{server}-{last - 3}",
            f"{domain}-{server}-{last - 20},7-7-7",
        ):
            state = [*settings, f"SET @slave_connect_state='{done}'"]
            request = dump_request(file="", flags=ANNOTATED)
            assert _groups(dump_packets(scene.address, DUMP, request, settings=state)) == _groups(
                dump_packets(scene.direct, DUMP, request, settings=state)
            )
        return
    ((uuid,),) = scene.server.execute("SELECT @@server_uuid")
    sources = dict(one.split(":", 1) for one in executed.split(","))
    last = int(sources.pop(str(uuid)).rpartition("-")[2])
    others = [f"{source}:{numbers}" for source, numbers in sources.items()]  # of earlier tests
    unknown = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"
    for own in (
        f"{uuid}:1-{last}",
        f"{uuid}:1-{last - 3}",
        f"{uuid}:1-{last - 20}:{last - 10}-{last - 8}:{last - 5},{unknown}",
    ):
        request = gtid_request(encoded_gtids(",".join([own, *others])))
        scene.assert_same_dump(DUMP_GTID, request, request, settings)


def _groups(packets: Sequence[bytes]) -> list[bytes]:
    """The packets from the first GTID event on."""
    first = next(
        (n for n, packet in enumerate(packets) if packet[5:6] == b"\xa2"), len(packets) - 1
    )
    return [_without_names(packet) for packet in packets[first:]]


@pytest.mark.both_flavours
@pytest.mark.guarantee("served relay log")
def test_binlog_program_writes_the_servers_files(scene: Scene, tmp_path: Path) -> None:
    """--raw gives the server's bytes, plain and compressed in the relay log; without it, the server's text."""
    for turn in ("plain", "packed"):
        folder = tmp_path / turn
        folder.mkdir()
        first = scene.served(scene.closed[0])
        words = ("--raw", "--to-last-log", f"--result-file={folder}/", first)
        done = run_binlog(scene.flavour, scene.address, *words)
        assert done.returncode == 0, done.stderr.decode()
        for name in scene.closed:
            own = (scene.server.binlog_dir / name).read_bytes()
            assert (folder / scene.served(name)).read_bytes() == own
        compress(scene.reception.relay)
    theirs = run_binlog(scene.flavour, scene.direct, scene.closed[0])
    ours = run_binlog(scene.flavour, scene.address, scene.served(scene.closed[0]))
    assert ours.returncode == 0, ours.stderr.decode()
    assert len(ours.stdout) > 1000
    assert ours.stdout == theirs.stdout


@pytest.mark.guarantee("served relay log")
def test_endless_binlog_program_follows_the_active_file(scene: Scene, tmp_path: Path) -> None:
    """--stop-never: new transactions and new files arrive; the source has no reader but the worker."""
    newest = scene.served(scene.reception.relay.end().file)  # type: ignore[union-attr]
    words = ("--read-from-remote-server", "--raw", "--stop-never", f"--result-file={tmp_path}/r-")
    command = [*binlog_program(scene.flavour), *login_words(scene.address), *words, newest]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        name = next(_NAMES)
        scene.server.execute(f"CREATE DATABASE {name}")
        scene.server.execute(f"DROP DATABASE {name}")
        scene.reception.wait_for(scene.server)
        (*_, closed) = flush_and_wait(scene.server, scene.reception)
        copy, own = tmp_path / f"r-{scene.served(closed)}", scene.server.binlog_dir / closed
        following = tmp_path / f"r-{scene.served(scene.reception.relay.end().file)}"  # type: ignore[union-attr]
        eventually(following.exists, what="the next file")
        eventually(lambda: copy.read_bytes() == own.read_bytes(), what="the same bytes")
        assert process.poll() is None
    finally:
        process.kill()
        process.wait(60)


@pytest.mark.both_flavours
def test_statements_of_clients_are_answered(scene: Scene) -> None:
    """Those of replicas, drivers and Millrace; unknown statements and variables are errors."""
    is_mysql = scene.flavour is Flavour.MYSQL
    same = [
        "SELECT VERSION()",
        "SELECT @@GLOBAL.server_id, @@global.binlog_checksum AS c",
        "SHOW GLOBAL VARIABLES LIKE 'server\\_%id'"
        if is_mysql
        else "SHOW VARIABLES LIKE 'SERVER_ID'",
        "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('log_bin', 'binlog_format', 'gtid_mode',"
        " 'gtid_strict_mode', 'binlog_row_image', 'lower_case_table_names')",
        f"SELECT @@GLOBAL.{'gtid_executed' if is_mysql else 'gtid_binlog_pos'}",
        *([] if is_mysql else ["SELECT @@GLOBAL.gtid_binlog_state", "SELECT @@gtid_domain_id"]),
    ]
    for statement in same:
        assert _rows(scene.address, statement) == _rows(scene.direct, statement), statement
    sizes = {str(row[0]): row[1] for row in _rows(scene.direct, "SHOW BINARY LOGS")}
    for name, size, *_ in _rows(scene.address, "SHOW BINARY LOGS"):
        assert size == sizes[str(name).replace("-000001.", ".")]
    for statement, number in (
        ("SELECT * FROM mysql.user", 1235),
        ("INSERT INTO t VALUES (1)", 1235),
        ("SELECT @@no_such_variable", 1193),
        ("SET GLOBAL read_only = OFF", 1227),
        ("SELECT SLEEP(1)", 1305),
        ("", 1065),
    ):
        with pytest.raises(pymysql.Error) as refused:
            _rows(scene.address, statement)
        assert refused.value.args[0] == number, statement


def _rows(address: Address, statement: str) -> list[tuple[object, ...]]:
    with connected(address) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return [tuple(row) for row in cursor.fetchall()]
