"""A relay log of large enough files, compressed."""

import threading
from pathlib import Path

from millrace.producer.relay.compression import compress_closed
from millrace.producer.relay.writer import RelayLog
from millrace.schemas.gtid import Flavour
from millrace.schemas.place import Coordinates
from tests.kit.binlog.plain_files import BinlogFile
from tests.kit.relay.lay import write_file

ROWS_BYTES = 300_000  # seven of them make a file of three frames


def log_of_files(root: Path, *, count: int = 3, mariadb: bool = False) -> RelayLog:
    """``count`` files in one sub-directory; the last one is being written."""
    flavour = Flavour.MARIADB if mariadb else Flavour.MYSQL
    relay = RelayLog.open(root, flavour=flavour)
    relay.begin_subdir("0-1" if mariadb else "server-a")
    for number in range(count):
        file = BinlogFile(mariadb=mariadb, first_number=1 + 7 * number)
        for _ in range(7):
            file.transaction(rows_bytes=ROWS_BYTES)
        name = f"mysql-bin.{number + 1:06d}"
        write_file(relay, name, file.rotate(f"mysql-bin.{number + 2:06d}"))
    return relay


def compress(relay: RelayLog) -> list[Coordinates]:
    """Compress everything that can be."""
    return compress_closed(relay, threading.Event())


def names_in(folder: Path) -> list[str]:
    """The names in a directory."""
    return sorted(path.name for path in folder.iterdir())
