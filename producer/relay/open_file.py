"""The relay file being written, and the place from which a dump resumes."""

from dataclasses import dataclass
from pathlib import Path

from producer.binlog.events import MAGIC
from producer.relay.files import Files, write_all
from producer.relay.layout import Subdir
from schemas.gtid import GtidPosition
from schemas.place import Coordinates

WRITE_FAILED = -1  # size of a file to which a write failed


@dataclass(slots=True)
class OpenFile:
    """The file being written."""

    subdir: Subdir
    name: str
    fd: int
    size: int  # bytes written, or WRITE_FAILED
    end: int  # of the last whole source transaction: what readers may see
    last_group_at: int  # where the last whole source transaction begins, 0 if unknown
    synced_end: int  # what the last successful fsync covered, of ``end``


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Where the relay log ends, and from where to read again to see that it is still the same file."""

    at: Coordinates
    server: str
    overlap_at: int
    position: GtidPosition


def create_file(path: Path, files: Files) -> int:
    """A new file with its magic, under a durable name; its fd."""
    fd = files.open(path, is_new=True)
    try:
        write_all(files, fd, memoryview(MAGIC), 0)
        files.sync_directory(path.parent)
    except OSError:
        files.close(fd)
        raise
    return fd
