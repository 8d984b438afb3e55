"""The server that capture reads is restarted, killed, re-pointed or lost: every row arrives once and in order."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from millrace.deploy.servers import DatabaseServer, DatabaseSet
from millrace.producer.relay import layout
from millrace.producer.source.set_stream import Site
from millrace.producer.source.set_streams import Upstreams
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
from tests.kit.capture.load import assert_complete, load_on, wait_for_rows
from tests.kit.capture.promote import promote
from tests.kit.capture.rig import MemoryCapture
from tests.kit.relay.relay import UNVERIFIED, member_of, position_of


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
        Upstreams(Site(root=folder / "relay")), document, TableFilter(include=("f.*",)), progress
    ) as capture:
        yield capture


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
        read = first if capture.stream.choice.member == member_of(first) else second
        new = second if read is first else first
        known = len(subdirs(tmp_path))
        load.pause()
        servers.wait_for_replicas()
        servers.primary.kill()
        promote(new, read)
        load.primary = new
        load.resume()
        wait_for_rows(capture)
        assert_complete(capture, load)
        assert capture.stream.choice.member == member_of(read), "the replica is read on"
        assert len(subdirs(tmp_path)) == known
        read.kill()  # under load: the remaining member sends the rest
        wait_for_rows(capture)
        assert_complete(capture, load)
        load.stop()
        assert capture.stream.choice.member == member_of(new)
        assert not capture.errors, "the task saw only pauses"
    assert len(subdirs(tmp_path)) > 1
