"""The relay file being written, and the position from which a dump resumes."""

from dataclasses import dataclass
from pathlib import Path

from producer.binlog.events import MAGIC
from producer.relay.files import Files, write_all
from producer.relay.layout import Subdir
from schemas.gtid import GtidPosition
from schemas.place import Coordinates

WRITE_FAILED = -1  # the size of a file after a failed write


@dataclass(slots=True)
class OpenFile:
    """The file being written."""

    subdir: Subdir
    name: str
    fd: int
    size: int  # bytes written, or WRITE_FAILED
    end: int  # end of the last whole source transaction, the limit for readers
    last_group_at: int  # start of the last whole source transaction, 0 if unknown
    synced_end: int  # the value of ``end`` that the last successful fsync covered


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """The end of the relay log, and where to start reading again to verify that the server's file is the same."""

    at: Coordinates
    server: str
    overlap_at: int
    position: GtidPosition


def create_file(path: Path, files: Files) -> int:
    """Create a file with its magic number under a durable name, and return its fd."""
    fd = files.open(path, is_new=True)
    try:
        write_all(files, fd, memoryview(MAGIC), 0)
        files.sync_directory(path.parent)
    except OSError:
        files.close(fd)
        raise
    return fd
