"""What the relay log asks of a file system, and nothing else; every file operation of this folder goes through it.

``Files`` is where tests fail operation number k, or keep only what was made durable (``tests.kit.relay.disk``).
``DISK`` is the real one. Bytes are written in large pieces, so the extra call costs nothing that can be measured.

Guarantees: every error is an OSError with its errno. Not done here: meaning, retries; ``disk_errors`` gives the code.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from millrace.errors import Retryable
from schemas.place import Coordinates


class Files(Protocol):
    """Operations on one file system; ``fd`` is what ``open`` gave."""

    def lock(self, path: Path) -> int:
        """Create if need be, and lock; BlockingIOError when another has it. ``close`` lets go."""

    def is_locked(self, path: Path) -> bool:
        """Whether anybody has it locked; not, when it is not there."""

    def open(self, path: Path, *, is_new: bool = False, is_read_only: bool = False) -> int:
        """Open; ``is_new``: create, or empty what is there."""

    def close(self, fd: int) -> None:
        """Let go of it, also when that is an error; nothing becomes durable by that."""

    def size(self, fd: int) -> int:
        """Bytes."""

    def read_into(self, fd: int, target: memoryview, offset: int) -> int:
        """Bytes read, fewer than asked for at the end or as it pleases."""

    def write(self, fd: int, payload: memoryview, offset: int) -> int:
        """Bytes written, perhaps fewer than asked for."""

    def truncate(self, fd: int, size: int) -> None:
        """Cut off what is behind ``size``."""

    def sync(self, fd: int) -> None:
        """Make its bytes and its length durable. After an error what was not durable must be taken for lost."""

    def sync_directory(self, directory: Path) -> None:
        """Make the names in it durable."""

    def replace(self, path: Path, onto: Path) -> None:
        """Give a file another's name, in one step."""

    def unlink(self, path: Path) -> None:
        """Remove a file; nothing when it is not there."""

    def make_directory(self, directory: Path) -> None:
        """With its parents; nothing when it is there."""

    def remove_directory(self, directory: Path) -> None:
        """It must be empty."""

    def list_files(self, directory: Path) -> list[str]:
        """Names of the files in it, in no order."""

    def list_directories(self, directory: Path) -> list[str]:
        """Names of the directories in it, in no order."""

    def modified_at_s(self, path: Path) -> float:
        """When it was written last, in Unix time."""

    def free_bytes(self, directory: Path) -> int:
        """How much is left on its file system."""


class DiskFiles:
    """The real one."""

    def lock(self, path: Path) -> int:
        """See ``Files``."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        return fd

    def is_locked(self, path: Path) -> bool:
        """See ``Files``."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two that ask disturb no other
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def open(self, path: Path, *, is_new: bool = False, is_read_only: bool = False) -> int:
        """See ``Files``."""
        flags = os.O_RDONLY if is_read_only else os.O_RDWR
        return os.open(
            path, flags | os.O_CLOEXEC | (os.O_CREAT | os.O_TRUNC if is_new else 0), 0o644
        )

    def close(self, fd: int) -> None:
        """See ``Files``."""
        os.close(fd)

    def size(self, fd: int) -> int:
        """See ``Files``."""
        return os.fstat(fd).st_size

    def read_into(self, fd: int, target: memoryview, offset: int) -> int:
        """See ``Files``."""
        return os.preadv(fd, [target], offset)

    def write(self, fd: int, payload: memoryview, offset: int) -> int:
        """See ``Files``."""
        return os.pwrite(fd, payload, offset)

    def truncate(self, fd: int, size: int) -> None:
        """See ``Files``."""
        os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        """See ``Files``."""
        os.fdatasync(fd)

    def sync_directory(self, directory: Path) -> None:
        """See ``Files``."""
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def replace(self, path: Path, onto: Path) -> None:
        """See ``Files``."""
        path.replace(onto)

    def unlink(self, path: Path) -> None:
        """See ``Files``."""
        path.unlink(missing_ok=True)

    def make_directory(self, directory: Path) -> None:
        """See ``Files``."""
        directory.mkdir(parents=True, exist_ok=True)

    def remove_directory(self, directory: Path) -> None:
        """See ``Files``."""
        directory.rmdir()

    def list_files(self, directory: Path) -> list[str]:
        """See ``Files``."""
        return [path.name for path in directory.iterdir() if path.is_file()]

    def list_directories(self, directory: Path) -> list[str]:
        """See ``Files``."""
        return [path.name for path in directory.iterdir() if path.is_dir()]

    def modified_at_s(self, path: Path) -> float:
        """See ``Files``."""
        return path.stat().st_mtime

    def free_bytes(self, directory: Path) -> int:
        """See ``Files``."""
        return shutil.disk_usage(directory).free


DISK = DiskFiles()


def write_all(files: Files, fd: int, payload: memoryview, offset: int) -> None:
    """Write until all of ``payload`` stands at ``offset``."""
    while len(payload):
        count = files.write(fd, payload, offset)
        payload, offset = payload[count:], offset + count


def read_all(files: Files, path: Path) -> bytes:
    """A small file."""
    fd = files.open(path, is_read_only=True)
    try:
        return read_range(files, fd, 0, files.size(fd))
    finally:
        files.close(fd)


def read_range(files: Files, fd: int, begin: int, end: int) -> bytes:
    """The bytes from ``begin`` to ``end``, fewer when the file ends before."""
    buffer = bytearray(end - begin)
    return bytes(buffer[: fill(files, fd, memoryview(buffer), begin)])


def fill(files: Files, fd: int, target: memoryview, offset: int) -> int:
    """Read until ``target`` is full or the file ends; bytes read."""
    done = 0
    while done < len(target):
        count = files.read_into(fd, target[done:], offset + done)
        if count == 0:
            break
        done += count
    return done


@contextmanager
def disk_errors(root: Path, at: Coordinates | None = None) -> Iterator[None]:
    """What the disk says, as ours: Retryable MR-2011 for a file (of ``at``) that went away, else MR-2002."""
    try:
        yield
    except FileNotFoundError as error:
        raise Retryable(
            "MR-2011", f"{at or error.filename} is not in the relay log", directory=root
        ) from error
    except OSError as error:
        raise Retryable(
            "MR-2002", f"the disk of the relay log fails: {error.strerror}", directory=root
        ) from error
