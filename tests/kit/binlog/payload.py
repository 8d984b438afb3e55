"""Bodies of TRANSACTION_PAYLOAD events (MySQL ``control_events.h``), made from a builder's events."""

from collections.abc import Callable

import pyarrow as pa

from tests.kit.binlog.builder import BinlogBuilder

KIND = 40
STORED = b"\2\3\xfc\xff\0\0"  # method 255, the end of the fields
ZSTD = b"\2\1\0\0"


def inner_events(build: Callable[[BinlogBuilder], object]) -> bytes:
    """The events that ``build`` appends, as they are in a payload: without checksums."""
    builder = BinlogBuilder()
    at = len(builder.content)
    build(builder)
    events = bytearray()
    while at < len(builder.content):
        size = int.from_bytes(builder.content[at + 9 : at + 13], "little")
        head = builder.content[at : at + size - 4]
        head[9:13] = (size - 4).to_bytes(4, "little")
        events += head
        at += size
    return bytes(events)


def zstd_body(*plain: bytes, with_size: bool = True) -> bytes:
    """A payload of one frame for each of ``plain``; without ``with_size``, frames do not name their size."""
    frames = [_frame(each, with_size=with_size) for each in plain]
    return ZSTD + b"".join(frames)


def _frame(plain: bytes, *, with_size: bool) -> bytes:
    if with_size:
        frame: bytes = pa.compress(plain, "zstd", asbytes=True)
        return frame
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(plain)
    streamed: bytes = sink.getvalue().to_pybytes()
    return streamed
