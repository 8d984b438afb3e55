"""The relay log on failing and full disks."""

from pathlib import Path

import pytest

from millrace.errors import Retryable
from millrace.producer.relay import layout
from millrace.producer.relay.durable_end import SyncPolicy
from millrace.producer.relay.files import DISK
from millrace.producer.relay.writer import RelayLog
from millrace.schemas.gtid import Flavour
from millrace.schemas.place import Coordinates
from tests.kit.binlog.plain_files import BinlogFile
from tests.kit.relay.disk import Fault, FaultyFiles
from tests.kit.relay.lay import grow_file, write_file
from tests.kit.relay.relay import read_everything
from tests.kit.waiting import eventually

NAME = "mysql-bin.000001"


def test_failed_fsync_is_never_trusted_again(tmp_path: Path) -> None:
    """The next write fails, and the file is cut to what was synced before; a reopened log continues there."""
    file = BinlogFile().transaction()
    disk = FaultyFiles(tmp_path)
    relay = RelayLog.open(
        tmp_path,
        flavour=Flavour.MYSQL,
        policy=SyncPolicy(bytes_max=1, delay_ms=10_000),
        disk=disk,
    )
    relay.begin_subdir("server-a")
    write_file(relay, NAME, file)
    synced = len(file.data)
    folder = tmp_path / "server-a.000001"

    def is_synced() -> bool:
        meta = layout.read_meta(folder, DISK)  # written after the sync
        return meta is not None and meta.binlog_pos == synced

    eventually(is_synced)
    file.transaction()
    disk.fail_at = len(disk.ops) + 1  # the write, then the fsync
    grow_file(relay, file.data[synced:], end=len(file.data))

    def is_refused() -> bool:
        try:
            grow_file(relay, b"", end=len(file.data))
        except Retryable as error:
            return error.code == "MR-2003"
        return False

    eventually(is_refused)
    relay.close()
    relay = RelayLog.open(tmp_path, flavour=Flavour.MYSQL)
    assert relay.end() == Coordinates("server-a.000001", NAME, synced)
    relay.close()


@pytest.mark.parametrize("is_cut", [True, False])
def test_file_truncated_after_a_failed_fsync_is_not_damaged(tmp_path: Path, is_cut: bool) -> None:
    """A reader gets MR-2003 meanwhile, even if none of the file is left or it could not be cut."""
    file = BinlogFile().transaction()
    disk = FaultyFiles(tmp_path)
    relay = RelayLog.open(
        tmp_path, flavour=Flavour.MYSQL, policy=SyncPolicy(delay_ms=100_000), disk=disk
    )
    subdir = relay.begin_subdir("server-a")
    write_file(relay, NAME, file)
    disk.fail_at, disk.is_lasting = len(disk.ops), not is_cut
    with pytest.raises(Retryable):
        relay.begin_file("mysql-bin.000002")
    disk.heal()
    with pytest.raises(Retryable) as caught:
        relay.visible_end(Coordinates(str(subdir), NAME, 4))
    assert caught.value.code == "MR-2003"
    relay.close()


def test_full_disk_stops_the_writer_and_loses_nothing(tmp_path: Path) -> None:
    """Retryable, and permanent: half-written data is cut, and only a reopened log continues."""
    file = BinlogFile().transaction()
    disk, never = FaultyFiles(tmp_path), SyncPolicy(delay_ms=100_000)  # the next is the write
    relay = RelayLog.open(tmp_path, flavour=Flavour.MYSQL, policy=never, disk=disk)
    relay.begin_subdir("server-a")
    write_file(relay, NAME, file)
    whole = len(file.data)
    file.transaction()
    disk.fail_at, disk.fault = len(disk.ops), Fault.HALF
    for _ in range(2):
        with pytest.raises(Retryable) as caught:
            grow_file(relay, file.data[whole:][:30], end=whole)
        assert caught.value.code == "MR-2002"
        disk.heal()
    relay.close()
    relay = RelayLog.open(tmp_path, flavour=Flavour.MYSQL)
    end = relay.end()
    assert end is not None
    grow_file(relay, file.data[end.pos :], end=len(file.data))
    assert read_everything(relay) == {f"server-a.000001/{NAME}": file.data[4:]}
    relay.close()
