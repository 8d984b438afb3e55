"""The relay file being written, and the position from which a dump resumes."""

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from millrace.producer.binlog.events import MAGIC
from millrace.producer.relay.files import Files, write_all
from millrace.producer.relay.layout import Subdir
from millrace.schemas.gtid import GtidPosition
from millrace.schemas.place import FIRST_POS, Coordinates

WRITE_FAILED = -1  # the size of a file after a failed write
GROUP_STARTS_MAX = 64  # one for each append: enough to find the last few MiB


@dataclass(slots=True)
class OpenFile:
    """The file being written. ``size`` and ``synced_end`` start at ``end``."""

    subdir: Subdir
    name: str
    fd: int
    end: int  # end of the last whole source transaction, the limit for readers
    last_group_at: int = 0  # start of the last whole source transaction, 0 if unknown
    size: int = field(init=False)  # bytes written, or WRITE_FAILED
    synced_end: int = field(init=False)  # value of ``end`` that the last successful fsync covered
    group_starts: deque[int] = field(default_factory=lambda: deque(maxlen=GROUP_STARTS_MAX))

    def __post_init__(self) -> None:
        self.size = self.synced_end = self.end

    def note_group(self, start: int) -> None:
        """Note the start of the last whole source transaction; 0 if unknown."""
        if start and start != self.last_group_at:
            self.group_starts.append(start)
        self.last_group_at = start

    def tail_start(self, bytes_max: int) -> int:
        """The start of a source transaction, at most ``bytes_max`` before ``end``; ``end`` if none is known.

        The start of the file, if it is so near. Otherwise the earliest one that was the last of an append.
        """
        if self.end <= bytes_max:
            return FIRST_POS
        starts = [*self.group_starts, self.last_group_at or self.end]
        return next((start for start in starts if start >= self.end - bytes_max), self.end)


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
