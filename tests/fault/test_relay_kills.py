"""A relay log writer is killed at each of its fault points: no torn or lost transaction, the same bytes at the end."""

import signal
from pathlib import Path

import pytest

import millrace.producer.relay.purge
import millrace.producer.relay.recovery  # noqa: F401
from millrace.faults import registered
from millrace.producer.relay.writer import RelayLog
from millrace.schemas.gtid import Flavour
from tests.kit.binlog.plain_files import BinlogFile
from tests.kit.faults.campaign import victim_of
from tests.kit.forked import exit_status
from tests.kit.relay.process import main
from tests.kit.relay.relay import read_everything

POINTS = [
    name for name in registered() if name.startswith("relay.") and victim_of(name) == "worker"
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three closed binlog files of a server."""
    folder = tmp_path_factory.mktemp("server")
    made = []
    for number in range(3):
        file = BinlogFile(first_number=1 + 4 * number)
        for ending in ("xid", "ddl", "commit", "xid"):
            file.transaction(ending=ending, rows_bytes=200)
        file.rotate(f"mysql-bin.{number + 2:06d}")
        path = folder / f"mysql-bin.{number + 1:06d}"
        path.write_bytes(file.data)
        made.append(path)
    return made


def run_writer(root: Path, files: list[Path], fault: str = "") -> int:
    """Return the exit status: 0 when the writer came to its end, -SIGKILL when the fault killed it."""
    status = exit_status(main, root, files, fault=fault)
    assert status in (0, -signal.SIGKILL)
    return status


@pytest.mark.parametrize("point", POINTS)
def test_writer_killed_anywhere_resumes_to_the_same_bytes(
    point: str, files: list[Path], tmp_path: Path
) -> None:
    """After each kill the relay log is a prefix of whole transactions; at the end it equals the server's files."""
    if point in ("relay.before_cut", "relay.after_cut"):  # passed only where a tail is torn
        run_writer(tmp_path, files, "relay.mid_write:kill@9")
    killed = run_writer(tmp_path, files, f"{point}:kill") != 0
    killed |= run_writer(tmp_path, files, f"{point}:kill@3") != 0
    assert killed
    for key, payload in visible(tmp_path).items():
        content = next(path for path in files if key.endswith(path.name)).read_bytes()
        assert content[4:].startswith(payload)
    assert run_writer(tmp_path, files) == 0
    ((key, payload),) = visible(tmp_path).items()
    assert key.startswith("server-b.")
    assert payload == files[-1].read_bytes()[4:]


def visible(root: Path) -> dict[str, bytes]:
    """The events that a reader sees after recovery."""
    relay = RelayLog.open(root, flavour=Flavour.MYSQL)
    try:
        return read_everything(relay) if relay.end() is not None else {}
    finally:
        relay.close()
