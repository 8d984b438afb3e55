"""Relay logs of three closed files and an active one, to be damaged in one place."""

from pathlib import Path

from millrace.producer.relay.writer import RelayLog
from millrace.schemas.gtid import Flavour
from tests.kit.binlog.plain_files import BinlogFile
from tests.kit.relay.lay import write_file

NAMES = [f"mysql-bin.{number:06d}" for number in (1, 2, 3, 4)]
PER_FILE = 4  # source transactions


def files_of_server(*, mariadb: bool) -> dict[str, BinlogFile]:
    """The server's files."""
    made = {}
    for index, name in enumerate(NAMES):
        file = BinlogFile(mariadb=mariadb, first_number=1 + PER_FILE * index)
        for _ in range(PER_FILE):
            file.transaction(rows_bytes=200)
        made[name] = file.rotate(f"mysql-bin.{index + 2:06d}") if name != NAMES[-1] else file
    return made


def lay_log(root: Path, *, mariadb: bool = False) -> dict[str, BinlogFile]:
    """Write them as the receiver does; the log is closed afterwards."""
    relay = open_log(root, mariadb=mariadb)
    relay.begin_subdir("0-1" if mariadb else "server-a")
    files = files_of_server(mariadb=mariadb)
    for name, file in files.items():
        write_file(relay, name, file)
    relay.close()
    open_log(root, mariadb=mariadb).close()  # writes the GTIDs of the files to relay.meta
    return files


def open_log(root: Path, *, mariadb: bool = False) -> RelayLog:
    """Open it."""
    return RelayLog.open(root, flavour=Flavour.MARIADB if mariadb else Flavour.MYSQL)


def flip(path: Path, place: int) -> None:
    """Change one bit."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
