"""The real disk with one fault that a test turns on and off, for all threads."""

import errno
import os
from dataclasses import dataclass
from pathlib import Path

from millrace.producer.relay.files import Files


@dataclass(frozen=True, slots=True)
class Trouble:
    """``operation`` of ``Files`` fails with ``code``. ``half``: a write first writes half; with no code, only that.

    ``is_at_start``: each write also fails after a half (EIO), for operations that only opening or cutting a log uses.
    """

    operation: str
    code: int = 0
    half: bool = False
    is_at_start: bool = False

    def __str__(self) -> str:
        what = errno.errorcode.get(self.code, "short")
        return f"{self.operation} {what}{' after a half' if self.half and self.code else ''}"


class FailingDisk(Files):
    """``trouble`` is the current fault, ``met_count`` how often it was met. A failing close still closes the file."""

    def __init__(self) -> None:
        self.trouble: Trouble | None = None
        self.met_count = 0

    def lock(self, path: Path) -> int:
        self._meet("lock")
        return super().lock(path)

    def open(self, path: Path, *, is_new: bool = False, is_read_only: bool = False) -> int:
        self._meet("create" if is_new else "open")
        return super().open(path, is_new=is_new, is_read_only=is_read_only)

    def close(self, fd: int) -> None:
        super().close(fd)
        self._meet("close")

    def size(self, fd: int) -> int:
        self._meet("size")
        return super().size(fd)

    def read_into(self, fd: int, target: memoryview, offset: int) -> int:
        self._meet("read_into")
        return super().read_into(fd, target, offset)

    def write(self, fd: int, payload: memoryview, offset: int) -> int:
        trouble = self.trouble
        count = len(payload)
        if trouble is not None and trouble.operation == "write" and trouble.half and count > 1:
            count = super().write(fd, payload[: count // 2], offset)
            if trouble.code == 0:
                self.met_count += 1
                return count
        if trouble is not None and trouble.is_at_start and count > 1:
            super().write(fd, payload[: count // 2], offset)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._meet("write")
        return super().write(fd, payload, offset)

    def truncate(self, fd: int, size: int) -> None:
        self._meet("truncate")
        super().truncate(fd, size)

    def sync(self, fd: int) -> None:
        self._meet("sync")
        super().sync(fd)

    def sync_directory(self, directory: Path) -> None:
        self._meet("sync_directory")
        super().sync_directory(directory)

    def replace(self, path: Path, onto: Path) -> None:
        self._meet("replace")
        super().replace(path, onto)

    def make_directory(self, directory: Path) -> None:
        self._meet("make_directory")
        super().make_directory(directory)

    def list_files(self, directory: Path) -> list[str]:
        self._meet("list_files")
        return super().list_files(directory)

    def list_directories(self, directory: Path) -> list[str]:
        self._meet("list_directories")
        return super().list_directories(directory)

    def _meet(self, operation: str) -> None:
        trouble = self.trouble
        if trouble is not None and trouble.operation == operation and trouble.code:
            self.met_count += 1
            raise OSError(trouble.code, os.strerror(trouble.code))
