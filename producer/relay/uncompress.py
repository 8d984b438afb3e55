"""Compressed files at a start: removes the remains of a crash, and unpacks the file that is written again.

The newest file is written again if the file after it was lost in a crash. The steps, for a file F:

| step                                   | a crash after it leaves                                |
|----------------------------------------|--------------------------------------------------------|
| F.new written and synced               | F.zst, and a file that the next start removes          |
| F.new renamed to F, directory synced   | both: the next start removes F.zst                     |
| F.zst unlinked                         | F                                                      |

Of F and F.zst, F is kept: it is complete in every state that a crash leaves (``compression``).
"""

from collections.abc import Iterable
from pathlib import Path

from millrace.faults import fault_point, register
from producer.relay.compressed_file import FRAME_BYTES, PackedFile
from producer.relay.files import Files, write_all
from producer.relay.layout import NEW_SUFFIX, PACKED_SUFFIX, is_file_name
from producer.relay.stored_file import packed_path, read_stored

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
    """Replace the compressed file of ``path`` by the plain one. Nothing if it is plain. OSError; Fatal MR-2004."""
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
