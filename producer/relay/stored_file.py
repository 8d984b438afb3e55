"""Relay files as readers see them: the same bytes at the same offsets, whether stored plain or compressed.

    <name>          the server's file
    <name>.zst      the same, compressed (``compressed_file``); only closed files
    <name>.damaged  set aside (``quarantine``): no reader opens it

While a file is compressed, both of the first two may exist for a moment. The plain one is then preferred, because the
other may not be verified yet. A reader that has opened the plain file keeps reading it after its removal.
"""

from pathlib import Path
from typing import Protocol

from producer.relay.compressed_file import PackedFile
from producer.relay.files import Files, fill
from producer.relay.layout import PACKED_SUFFIX


class StoredFile(Protocol):
    """An open relay file."""

    def size(self) -> int: ...

    def fill(self, target: memoryview, offset: int) -> int:
        """Read until ``target`` is full or the content ends, and return the count of bytes."""

    def close(self) -> None: ...


class PlainFile:
    def __init__(self, files: Files, fd: int) -> None:
        self._files, self._fd = files, fd

    def size(self) -> int:
        return self._files.size(self._fd)

    def fill(self, target: memoryview, offset: int) -> int:
        return fill(self._files, self._fd, target, offset)

    def close(self) -> None:
        self._files.close(self._fd)


def open_stored(path: Path, files: Files) -> StoredFile:
    """Open the file named ``path``, plain or compressed. FileNotFoundError; Fatal MR-2004."""
    try:
        return PlainFile(files, files.open(path, is_read_only=True))
    except FileNotFoundError as error:
        packed = packed_path(path)
        try:
            fd = files.open(packed, is_read_only=True)
        except FileNotFoundError:
            raise error from None  # it names the file without the suffix
        return PackedFile(files, fd, packed.name)


def packed_path(path: Path) -> Path:
    """Where the compressed file of ``path`` is."""
    return path.with_name(path.name + PACKED_SUFFIX)


def read_stored(file: StoredFile, begin: int, end: int) -> bytes:
    """Read the bytes from ``begin`` to ``end``, fewer if the content ends earlier."""
    buffer = bytearray(end - begin)
    return bytes(buffer[: file.fill(memoryview(buffer), begin)])


def remove_stored(path: Path, files: Files) -> None:
    """Remove the file in every form, except one that was set aside."""
    files.unlink(path)
    files.unlink(packed_path(path))


def stored_bytes(path: Path, files: Files) -> int:
    """The bytes that the file takes on disk, plain or compressed. FileNotFoundError."""
    try:
        fd = files.open(path, is_read_only=True)
    except FileNotFoundError:
        fd = files.open(packed_path(path), is_read_only=True)
    try:
        return files.size(fd)
    finally:
        files.close(fd)


def modified_at_s(path: Path, files: Files) -> float:
    """When the content was last written; compressing does not count."""
    try:
        return files.modified_at_s(path)
    except FileNotFoundError:
        return files.modified_at_s(packed_path(path))
