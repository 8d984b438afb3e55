"""The server that capture reads is restarted, killed, re-pointed or lost: every row arrives once and in order."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from deploy.servers import DatabaseServer, DatabaseSet
from producer.relay import layout
from producer.upstream.upstream import Upstreams
from schemas.documents import Account, SecretPlace, SecretReference, SetDocument, TableFilter
from schemas.gtid import Flavour
from schemas.progress import Progress
from tests.fixtures.servers import FLAVOURS, NewSet
from tests.kit.capture.promote import promote
from tests.kit.capture.rig import MemoryCapture
from tests.kit.relay.relay import UNVERIFIED, member_of, position_of
from tests.kit.waiting import eventually


@dataclass
class Load:
    """Writes rows 1, 2, 3, … in transactions of one to four rows until ``pause``; ``primary`` may be replaced then."""

    primary: DatabaseServer
    count: int = 0
    _go: threading.Event = field(default_factory=threading.Event)
    _is_idle: threading.Event = field(default_factory=threading.Event)
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Run in a thread."""
        while not self._stop.is_set():
            if not self._go.wait(0.05):
                self._is_idle.set()
                continue
            ids = range(self.count + 1, self.count + 2 + self.count % 4)
            values = ", ".join(f"({number}, REPEAT('v', 300))" for number in ids)
            self.primary.execute(f"INSERT INTO f.t VALUES {values}")
            self.count = ids[-1]
            self._stop.wait(0.005)

    def resume(self) -> None:
        """Start or continue to write."""
        self._go.set()

    def pause(self) -> None:
        """Returns when no write is in progress."""
        self._is_idle.clear()
        self._go.clear()
        assert self._is_idle.wait(120)

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()


@contextmanager
def load_on(servers: DatabaseSet) -> Iterator[Load]:
    """A table, and a thread that fills it from ``resume`` until the block ends."""
    servers.execute("CREATE DATABASE f")
    servers.execute("CREATE TABLE f.t (id INT PRIMARY KEY, v VARCHAR(300))")
    servers.wait_for_replicas()
    load = Load(servers.primary)
    thread = threading.Thread(target=load.run)
    thread.start()
    try:
        yield load
    finally:
        load.stop()
        thread.join()


@contextmanager
def capturing(
    servers: DatabaseSet, members: tuple[DatabaseServer, ...], folder: Path
) -> Iterator[MemoryCapture]:
    """Capture from the current position."""
    secret = folder / "password"
    secret.write_text(servers.password)
    document = SetDocument(
        name="f",
        members=tuple(map(member_of, members)),
        account=Account(servers.user, SecretReference(SecretPlace.FILE, str(secret))),
        tls=UNVERIFIED,
    )
    progress = Progress(position_of(members[0]), None, 0)
    with MemoryCapture(
        Upstreams(folder / "relay"), document, TableFilter(include=("f.*",)), progress
    ) as capture:
        yield capture


def assert_complete(capture: MemoryCapture, load: Load) -> None:
    """Pause the load, check that every row was captured once and in order, and resume the load."""
    load.pause()

    def is_there() -> bool:
        assert capture.error is None, capture.error
        return len(capture.rows) >= load.count

    eventually(is_there, what=f"{load.count} rows")
    ids = [dict(row.change.after or {})["id"] for row in capture.rows]
    assert ids == list(range(1, load.count + 1))
    assert [row.source.seq for row in capture.rows] == ids
    load.resume()


def wait_for_rows(capture: MemoryCapture, rows: int = 40) -> None:
    """Wait for ``rows`` more captured rows."""
    wanted = len(capture.rows) + rows

    def is_there() -> bool:
        assert capture.error is None, capture.error
        return len(capture.rows) >= wanted

    eventually(is_there, what=f"{wanted} rows")


def subdirs(folder: Path) -> list[layout.Subdir]:
    """The sub-directories of the set's relay log."""
    return layout.list_subdirs(folder / "relay" / "f")


BOTH = [
    pytest.param(flavour, marks=() if flavour is Flavour.MARIADB else pytest.mark.chaos)
    for flavour in FLAVOURS
]


@pytest.mark.parametrize("flavour", BOTH, ids=str)
@pytest.mark.guarantee("failover")
def test_restarted_or_killed_source_loses_no_row(
    flavour: Flavour, new_set: NewSet, tmp_path: Path
) -> None:
    """The only member restarts cleanly, then is killed; one relay sub-directory equals its files."""
    servers = new_set(flavour, replica_count=1)
    (replica,) = servers.replicas
    with load_on(servers) as load, capturing(servers, (replica,), tmp_path) as capture:
        load.resume()
        wait_for_rows(capture)
        replica.stop()
        replica.start()
        wait_for_rows(capture)
        replica.kill()
        replica.start()
        wait_for_rows(capture)
        assert_complete(capture, load)
        load.stop()
    (subdir,) = subdirs(tmp_path)
    files = layout.list_files(tmp_path / "relay" / "f" / str(subdir))
    assert len(files) >= 3  # each start of a server begins one
    for name in files[:-1]:
        relayed = (tmp_path / "relay" / "f" / str(subdir) / name).read_bytes()
        assert relayed == _as_sent((replica.binlog_dir / name).read_bytes())


def _as_sent(content: bytes) -> bytes:
    """The file as the dump sends it: LOG_EVENT_BINLOG_IN_USE_F (1), left by a killed server, is cleared."""
    flags_at = 4 + 17
    return content[:flags_at] + bytes([content[flags_at] & ~1]) + content[flags_at + 1 :]


@pytest.mark.parametrize("flavour", BOTH, ids=str)
@pytest.mark.guarantee("failover")
def test_primary_failover_loses_no_row(flavour: Flavour, new_set: NewSet, tmp_path: Path) -> None:
    """First the primary fails over beside the replica that is read; then that replica dies too."""
    servers = new_set(flavour, replica_count=2)
    first, second = servers.replicas
    with load_on(servers) as load, capturing(servers, servers.members, tmp_path) as capture:
        load.resume()
        wait_for_rows(capture)
        read = first if capture.members[-1] == str(member_of(first)) else second
        new = second if read is first else first
        attached, known = len(capture.members), len(subdirs(tmp_path))
        load.pause()
        servers.wait_for_replicas()
        servers.primary.kill()
        promote(new, read)
        load.primary = new
        load.resume()
        wait_for_rows(capture)
        assert_complete(capture, load)
        assert set(capture.members[attached:]) <= {str(member_of(read))}
        assert len(subdirs(tmp_path)) == known
        read.kill()  # under load: the remaining member sends the rest
        wait_for_rows(capture)
        assert_complete(capture, load)
        load.stop()
        assert capture.members[-1] == str(member_of(new))
    assert len(subdirs(tmp_path)) > 1
