"""Zstandard: MySQL's transaction payloads and compressed relay files consist of its frames (RFC 8878).

Python has this module from 3.14 on; before, the package ``backports.zstd`` is the same.
"""

import sys
from typing import Protocol

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

READ_BYTES = 1 << 18  # of the source at once

ZstdError = zstd.ZstdError
compress = zstd.compress


class Source(Protocol):
    """A readable file. ``read`` returns fewer bytes than it is asked for only at the end."""

    def read(self, count: int, /) -> bytes: ...


class MemorySource:
    """A part of a buffer; only the bytes that are read are copied."""

    def __init__(self, buffer: bytes | memoryview) -> None:
        self._rest = memoryview(buffer)

    def read(self, count: int, /) -> bytes:
        piece = bytes(self._rest[:count])
        self._rest = self._rest[count:]
        return piece


class InflatedStream:
    """The content of the frames that ``source`` has, one after the other. It is a ``Source``, too."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._frame: zstd.ZstdDecompressor | None = None

    def read(self, count: int, /) -> bytes:
        """The next ``count`` bytes, fewer only at the end. ZstdError: a frame is damaged or cut."""
        pieces: list[bytes] = []
        while count and (piece := self._piece(count)):
            pieces.append(piece)
            count -= len(piece)
        return b"".join(pieces)

    def _piece(self, bytes_max: int) -> bytes:
        """Some bytes; empty only at the end."""
        while True:
            frame = self._frame
            if frame is None or frame.eof:
                stored = (frame and frame.unused_data) or self._source.read(READ_BYTES)
                if not stored:
                    return b""
                frame = self._frame = zstd.ZstdDecompressor()
            elif not frame.needs_input:
                stored = b""
            elif not (stored := self._source.read(READ_BYTES)):
                raise ZstdError("the last frame is cut")
            if piece := frame.decompress(stored, bytes_max):
                return piece


def inflate(frame: bytes | bytearray | memoryview, bytes_max: int) -> bytes:
    """The content of one frame, or its first ``bytes_max`` bytes. ZstdError: it is damaged."""
    return zstd.ZstdDecompressor().decompress(frame, bytes_max)
