"""Compressed relay files: zstd frames that can be read one by one, and a table of them at the end.

    <name>.zst      frame*          each one frame of zstd: FRAME_BYTES of the file, the last one fewer
                    seek table      a skippable frame, which `zstd -d` ignores:
                        magic 4 (0x184D2A5E) | bytes that follow 4
                        per frame: compressed bytes 4 | bytes 4
                        frames 4 | flags 1 (0) | magic 4 (0x8F92EAB1)

This is zstd's seekable format (facebook/zstd, contrib/seekable_format). `zstd -d` gives the server's file.

Guarantees: a read at any offset unpacks only the frames that it touches; a damaged frame or table raises Fatal MR-2004.
Not done here: when to compress (``compress``). Checksums: every reader checks the CRC-32 of each event.
"""

import struct
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from millrace.errors import Fatal
from producer.relay.files import Files, fill, read_range

FRAME_BYTES = 1 << 20  # smaller frames compress worse; a read of 4 MiB unpacks four or five
LEVEL = 3  # zstd's default
_SKIPPABLE_MAGIC, _SEEKABLE_MAGIC = 0x184D2A5E, 0x8F92EAB1
_HEAD, _ENTRY, _FOOT = struct.Struct("<II"), struct.Struct("<II"), struct.Struct("<IBI")
FRAMES_MAX = 1 << 20  # 1 TiB


def packed_pieces(files: Files, fd: int, size: int) -> Iterator[bytes]:
    """The content of the compressed file of ``fd``, which has ``size`` bytes, in pieces."""
    codec = pa.Codec("zstd", compression_level=LEVEL)
    entries: list[bytes] = []
    for begin in range(0, size, FRAME_BYTES):
        plain = read_range(files, fd, begin, min(begin + FRAME_BYTES, size))
        frame: bytes = codec.compress(plain, asbytes=True)
        entries.append(_ENTRY.pack(len(frame), len(plain)))
        yield frame
    table = b"".join(entries) + _FOOT.pack(len(entries), 0, _SEEKABLE_MAGIC)
    yield _HEAD.pack(_SKIPPABLE_MAGIC, len(table)) + table


class PackedFile:
    """A compressed file, read at any offset of its content. It closes ``fd``, also if the table is damaged."""

    def __init__(self, files: Files, fd: int, name: str) -> None:
        self._files, self._fd, self._name = files, fd, name
        self._codec = pa.Codec("zstd")
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
            plain = memoryview(self._codec.decompress(content, decompressed_size=wanted)).cast("B")
        except (OSError, pa.ArrowException) as error:
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
