"""Killed at each step of compressing and unpacking: the relay log reads the same, and nothing is left over."""

from pathlib import Path

import pytest

from millrace.faults import registered
from millrace.producer.relay.writer import RelayLog
from millrace.schemas.gtid import Flavour
from tests.kit.forked import killed_at
from tests.kit.relay.compress import compress, log_of_files, names_in
from tests.kit.relay.relay import read_everything

PACK = [name for name in registered() if name.startswith("relay.pack.")]
UNPACK = [name for name in registered() if name.startswith("relay.unpack.")]


def _open(root: Path) -> RelayLog:
    return RelayLog.open(root, flavour=Flavour.MYSQL)


@pytest.mark.parametrize("point", PACK)
def test_killed_compression_loses_no_file(point: str, tmp_path: Path) -> None:
    """The next start and the next compression end as an undisturbed one."""
    relay = log_of_files(tmp_path)
    before = read_everything(relay)
    relay.close()
    killed_at(f"{point}:kill", lambda: compress(_open(tmp_path)))
    again = _open(tmp_path)
    assert read_everything(again) == before
    compress(again)
    assert read_everything(again) == before
    again.close()
    assert names_in(tmp_path / "server-a.000001") == [
        "mysql-bin.000001.zst",
        "mysql-bin.000002.zst",
        "mysql-bin.000003",
        "relay.meta",
    ]


@pytest.mark.parametrize("point", UNPACK)
def test_killed_unpacking_loses_no_file(point: str, tmp_path: Path) -> None:
    """The file that must be written again is whole at every moment."""
    relay = log_of_files(tmp_path, count=2)
    compress(relay)
    relay.close()
    folder = tmp_path / "server-a.000001"
    (folder / "mysql-bin.000002").unlink()
    killed_at(f"{point}:kill", lambda: _open(tmp_path))
    again = _open(tmp_path)
    (payload,) = read_everything(again).values()
    again.close()
    assert (folder / "mysql-bin.000001").read_bytes()[4:] == payload
    assert names_in(folder) == ["mysql-bin.000001", "relay.meta"]
