"""The file operations that the relay log needs. Every file operation of this package goes through ``Files``.

Tests override ``Files`` to fail operation number k or to keep only durable bytes (``tests.kit.relay.disk``). ``DISK``
is the real file system. Bytes are written in large pieces, so the cost of the extra call is not measurable.

Guarantees: every error is an OSError with its errno. Not done here: retries. ``disk_errors`` adds the error code.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from millrace.errors import Retryable
from millrace.schemas.place import Coordinates

OWN_FILE, OWN_FOLDER = 0o600, 0o700  # relay files hold rows in plain text


class Files:
    """Operations on the disk; an ``fd`` comes from ``open`` or ``lock``. Lists of names are unordered."""

    def lock(self, path: Path) -> int:
        """Lock a file and create it if it is missing; BlockingIOError if it is locked. ``close`` releases the lock."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWN_FILE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        return fd

    def is_locked(self, path: Path) -> bool:
        """Whether a process holds the lock; False if the file is missing."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            # shared: concurrent checks don't conflict
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def open(self, path: Path, *, is_new: bool = False, is_read_only: bool = False) -> int:
        """Open a file; ``is_new`` creates or empties it."""
        flags = os.O_RDONLY if is_read_only else os.O_RDWR
        return os.open(
            path, flags | os.O_CLOEXEC | (os.O_CREAT | os.O_TRUNC if is_new else 0), OWN_FILE
        )

    def close(self, fd: int) -> None:
        """Close the file, even if that raises an error; closing makes nothing durable."""
        os.close(fd)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def read_into(self, fd: int, target: memoryview, offset: int) -> int:
        """Read and return the count of bytes, which may be fewer than requested."""
        return os.preadv(fd, [target], offset)

    def write(self, fd: int, payload: memoryview, offset: int) -> int:
        """Write and return the count of bytes, which may be fewer than requested."""
        return os.pwrite(fd, payload, offset)

    def truncate(self, fd: int, size: int) -> None:
        """Cut the file to ``size`` bytes."""
        os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        """Make the bytes and the length durable. After an error, bytes that were not durable count as lost."""
        os.fdatasync(fd)

    def sync_directory(self, directory: Path) -> None:
        """Make the names in the directory durable."""
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def replace(self, path: Path, onto: Path) -> None:
        path.replace(onto)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def make_directory(self, directory: Path) -> None:
        directory.mkdir(OWN_FOLDER, parents=True, exist_ok=True)

    def remove_directory(self, directory: Path) -> None:
        directory.rmdir()

    def list_files(self, directory: Path) -> list[str]:
        return [path.name for path in directory.iterdir() if path.is_file()]

    def list_directories(self, directory: Path) -> list[str]:
        return [path.name for path in directory.iterdir() if path.is_dir()]

    def modified_at_s(self, path: Path) -> float:
        return path.stat().st_mtime

    def keep_time(self, path: Path, onto: Path) -> None:
        known = path.stat()
        os.utime(onto, ns=(known.st_atime_ns, known.st_mtime_ns))

    def free_bytes(self, directory: Path) -> int:
        return shutil.disk_usage(directory).free


DISK = Files()


def write_all(files: Files, fd: int, payload: memoryview, offset: int) -> None:
    """Write all of ``payload`` at ``offset``."""
    while len(payload):
        count = files.write(fd, payload, offset)
        payload, offset = payload[count:], offset + count


def read_all(files: Files, path: Path) -> bytes:
    fd = files.open(path, is_read_only=True)
    try:
        return read_range(files, fd, 0, files.size(fd))
    finally:
        files.close(fd)


def read_range(files: Files, fd: int, begin: int, end: int) -> bytes:
    """Read the bytes from ``begin`` to ``end``, fewer if the file ends earlier."""
    buffer = bytearray(end - begin)
    return bytes(buffer[: fill(files, fd, memoryview(buffer), begin)])


def fill(files: Files, fd: int, target: memoryview, offset: int) -> int:
    """Read until ``target`` is full or the file ends, and return the count of bytes."""
    done = 0
    while done < len(target):
        count = files.read_into(fd, target[done:], offset + done)
        if count == 0:
            break
        done += count
    return done


@contextmanager
def disk_errors(root: Path, at: Coordinates | None = None) -> Iterator[None]:
    """Translate disk errors: Retryable MR-2011 if a file (that of ``at``) is missing, else Retryable MR-2002."""
    try:
        yield
    except FileNotFoundError as error:
        raise Retryable(
            "MR-2011", f"{at or error.filename} is not in the relay log", directory=root
        ) from error
    except OSError as error:
        raise Retryable(
            "MR-2002", f"relay log disk error: {error.strerror}", directory=root
        ) from error
