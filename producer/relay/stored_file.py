"""Relay files as readers see them: the same bytes at the same offsets, whether stored plain or compressed.

    <name>          the server's file
    <name>.zst      the same, compressed; only closed files:
                    frame*          each one frame of zstd: FRAME_BYTES of the file, the last one fewer
                    seek table      a skippable frame, which `zstd -d` ignores:
                        magic 4 (0x184D2A5E) | bytes that follow 4
                        per frame: compressed bytes 4 | bytes 4
                        frames 4 | flags 1 (0) | magic 4 (0x8F92EAB1)
    <name>.damaged  set aside (``quarantine``): no reader opens it

The compressed form is zstd's seekable format (facebook/zstd, contrib/seekable_format). `zstd -d` gives the server's
file. While a file is compressed, both of the first two may exist for a moment. The plain one is then preferred, because
the other may not be verified yet. A reader that has opened the plain file keeps reading it after its removal.

Guarantees: a read at any offset unpacks only the frames that it touches; a damaged frame or table raises Fatal MR-2004.
Not done here: when to compress (``compression``). Checksums: every reader checks the CRC-32 of each event.
"""

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

import numpy as np

from millrace.errors import Fatal
from millrace.faults import fault_point, register
from millrace.producer.binlog.zstd import ZstdError, compress, inflate
from millrace.producer.relay.files import Files, fill, read_range, write_all
from millrace.producer.relay.layout import NEW_SUFFIX, PACKED_SUFFIX, is_file_name


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


FRAME_BYTES = 1 << 20  # smaller frames compress worse; a read of 4 MiB unpacks four or five
LEVEL = 3  # zstd's default
_SKIPPABLE_MAGIC, _SEEKABLE_MAGIC = 0x184D2A5E, 0x8F92EAB1
_HEAD, _ENTRY, _FOOT = struct.Struct("<II"), struct.Struct("<II"), struct.Struct("<IBI")
FRAMES_MAX = 1 << 20  # 1 TiB


def packed_pieces(files: Files, fd: int, size: int) -> Iterator[bytes]:
    """The content of the compressed file of ``fd``, which has ``size`` bytes, in pieces."""
    entries: list[bytes] = []
    for begin in range(0, size, FRAME_BYTES):
        plain = read_range(files, fd, begin, min(begin + FRAME_BYTES, size))
        frame = compress(plain, LEVEL)
        entries.append(_ENTRY.pack(len(frame), len(plain)))
        yield frame
    table = b"".join(entries) + _FOOT.pack(len(entries), 0, _SEEKABLE_MAGIC)
    yield _HEAD.pack(_SKIPPABLE_MAGIC, len(table)) + table


class PackedFile:
    """A compressed file, read at any offset of its content. It closes ``fd``, also if the table is damaged."""

    def __init__(self, files: Files, fd: int, name: str) -> None:
        self._files, self._fd, self._name = files, fd, name
        self._kept: tuple[int, memoryview] = (-1, memoryview(b""))
        try:
            self._stored_at, self._plain_at = self._read_table()
        except BaseException:
            files.close(fd)
            raise

    def size(self) -> int:
        return int(self._plain_at[-1])

    def fill(self, target: memoryview, offset: int) -> int:
        """Read until ``target`` is full or the content ends, and return the count of bytes."""
        done = 0
        number = int(np.searchsorted(self._plain_at, offset, "right")) - 1
        while done < len(target) and number < len(self._plain_at) - 1:
            begin = offset + done - int(self._plain_at[number])
            piece = self._frame(number)[begin : begin + len(target) - done]
            target[done : done + len(piece)] = piece
            done += len(piece)
            number += 1
        return done

    def close(self) -> None:
        self._files.close(self._fd)

    def _frame(self, number: int) -> memoryview:
        if self._kept[0] == number:
            return self._kept[1]
        begin, end = int(self._stored_at[number]), int(self._stored_at[number + 1])
        wanted = int(self._plain_at[number + 1] - self._plain_at[number])
        content = read_range(self._files, self._fd, begin, end)
        try:
            plain = memoryview(inflate(content, wanted + 1))
        except ZstdError as error:
            raise self._damaged(
                f"frame {number}, content {self._plain_at[number]}: {error}"
            ) from error
        if len(plain) != wanted:
            raise self._damaged(f"frame {number} has {len(plain)} bytes, expected {wanted}")
        self._kept = number, plain
        return plain

    def _read_table(self) -> tuple["np.ndarray", "np.ndarray"]:
        size = self._files.size(self._fd)
        foot = read_range(self._files, self._fd, max(0, size - _FOOT.size), size)
        count, flags, magic = _FOOT.unpack(foot) if len(foot) == _FOOT.size else (0, 0, 0)
        table_bytes = count * _ENTRY.size + _FOOT.size
        at = size - table_bytes - _HEAD.size
        if magic != _SEEKABLE_MAGIC or flags or count > FRAMES_MAX or at < 0:
            raise self._damaged("no table of frames")
        table = np.empty(table_bytes + _HEAD.size, np.uint8)
        fill(self._files, self._fd, table.data, at)
        if _HEAD.unpack(table[: _HEAD.size].tobytes()) != (_SKIPPABLE_MAGIC, table_bytes):
            raise self._damaged("no table of frames")
        lengths = table[_HEAD.size : -_FOOT.size].view("<u4").reshape(count, 2).astype(np.int64)
        bounds = np.zeros((count + 1, 2), np.int64)
        np.cumsum(lengths, axis=0, out=bounds[1:])
        if bounds[-1, 0] != at or (lengths[:, 1] > FRAME_BYTES).any():
            raise self._damaged("the table of frames does not fit the file")
        return bounds[:, 0], bounds[:, 1]

    def _damaged(self, what: str) -> Fatal:
        return Fatal("MR-2004", f"{self._name} is damaged: {what}")


AFTER_UNPACKED_WRITE = register("relay.unpack.after_write")
AFTER_UNPACKED_RENAME = register("relay.unpack.after_rename")


def remove_leftovers(directory: Path, files: Files) -> None:
    """Remove what a crash left of compressing and unpacking: unfinished files, and F.zst beside F."""
    names = set(files.list_files(directory))
    for name in sorted(names):
        plain = name.removesuffix(NEW_SUFFIX).removesuffix(PACKED_SUFFIX)
        is_unfinished = name.endswith(NEW_SUFFIX) and is_file_name(plain)
        if is_unfinished or (name.endswith(PACKED_SUFFIX) and plain in names):
            files.unlink(directory / name)


def unpack(path: Path, files: Files) -> None:
    """Replace the compressed file of ``path`` by the plain one. Nothing if it is plain. OSError; Fatal MR-2004.

    The newest file is written again if the file after it was lost in a crash. The steps, for a file F:

    | step                                   | a crash after it leaves                                |
    |----------------------------------------|--------------------------------------------------------|
    | F.new written and synced               | F.zst, and a file that the next start removes          |
    | F.new renamed to F, directory synced   | both: the next start removes F.zst                     |
    | F.zst unlinked                         | F                                                      |

    Of F and F.zst, F is kept: it is complete in every state that a crash leaves (``compression``).
    """
    if path.name in files.list_files(path.parent):
        return
    packed = packed_path(path)
    file = PackedFile(files, files.open(packed, is_read_only=True), packed.name)
    new_path = path.with_name(path.name + NEW_SUFFIX)
    try:
        bounds = range(0, file.size(), FRAME_BYTES)
        pieces = (
            read_stored(file, begin, min(begin + FRAME_BYTES, file.size())) for begin in bounds
        )
        write_pieces(files, new_path, pieces)
    finally:
        file.close()
    fault_point(AFTER_UNPACKED_WRITE)
    files.replace(new_path, path)
    files.sync_directory(path.parent)
    fault_point(AFTER_UNPACKED_RENAME)
    files.unlink(packed)


def write_pieces(files: Files, path: Path, pieces: Iterable[bytes]) -> None:
    """Write a new file and make its content durable."""
    fd, offset = files.open(path, is_new=True), 0
    try:
        for piece in pieces:
            write_all(files, fd, memoryview(piece), offset)
            offset += len(piece)
        files.sync(fd)
    finally:
        files.close(fd)
