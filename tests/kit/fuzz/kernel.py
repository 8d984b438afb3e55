"""Damages binlog files and converts them; with MILLRACE_KERNEL_CHECKED=1 an access beyond an array is an error.

    python -m tests.kit.fuzz.kernel SEED ROUNDS FLAVOUR FILE…

Each round takes the head of a file and a few of its source transactions, so the damage is a large part of the input.
Any outcome other than records, or an error with code and coordinates, ends it with exit code 1. The converter does not
check checksums and positions (the receiver and the relay log's reader do), so damage reaches the kernel, including all
19 bytes of a header. Only an event that is too short is refused earlier, by the reader, as in the product. Half of the
rounds read with tiny windows, so that payloads are streamed. MySQL's
compressed transactions are stored uncompressed half of the time, so the damage is in their events and not in the zstd
frame. With NUMBA_DISABLE_JIT=1 the kernel runs as plain Python, where an index below zero is an error. Prints how many
pieces were converted and the codes of the errors.
"""

import random
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from millrace.errors import Fatal, MillraceError
from millrace.producer.binlog.events import (
    CHECKSUM_BYTES,
    EVENT_BYTES_MIN,
    HEADER_BYTES,
    TRANSACTION_PAYLOAD,
)
from millrace.producer.convert import converter, event_sources
from millrace.producer.convert.event_sources import WINDOW_BYTES
from millrace.producer.convert.kernel.compiled import CHECKED, INTERPRETED
from millrace.producer.convert.kernel.memory import load_i64, load_u8, load_u32
from millrace.producer.convert.kernel.walk import walk
from millrace.schemas.byte_reader import ByteReader
from millrace.schemas.gtid import Flavour
from millrace.schemas.place import Coordinates
from tests.kit.capture.converter import Conversion, FileReader, FileSpan
from tests.kit.fuzz.guarded_memory import Guarded

_GTIDS = (33, 42, 162)
STORED = b"\2\3\xfc\xff\0\0"  # field 2 of 3 bytes: 255; the end of the fields


def event_starts(content: bytes) -> list[int]:
    """The offsets of all events."""
    starts, at = [], 4
    while at + 19 <= len(content):
        starts.append(at)
        at += size_of(content, at)
    return starts


def pieces(content: bytes) -> list[bytes]:
    """The head of the file, then each source transaction whole."""
    starts = event_starts(content)
    cuts = [at for at in starts if content[at + 4] in _GTIDS]
    return [content[a:b] for a, b in pairwise([0, *cuts, len(content)])]


def sample(parts: list[bytes], chance: random.Random) -> bytes:
    """The head and up to eight consecutive source transactions."""
    first = chance.randrange(1, len(parts))
    chosen = b"".join([parts[0], *parts[first : first + chance.randint(1, 8)]])
    return laid_open(chosen) if chance.random() < 1 / 2 else chosen


def laid_open(content: bytes) -> bytes:
    """The same content with each TRANSACTION_PAYLOAD stored, not compressed (field 2: method 255)."""
    made = [content[:4]]
    for start in event_starts(content):
        event = content[start : start + size_of(content, start)]
        if event[4] == TRANSACTION_PAYLOAD:
            reader = ByteReader(event[HEADER_BYTES:-CHECKSUM_BYTES], "payload")
            while reader.packed():
                reader.take(reader.packed())
            inner = pa.CompressedInputStream(pa.BufferReader(reader.take(reader.left)), "zstd")
            body = STORED + inner.read()
            size = HEADER_BYTES + len(body) + CHECKSUM_BYTES
            event = (
                event[:9] + size.to_bytes(4, "little") + event[13:HEADER_BYTES] + body + bytes(4)
            )
        made.append(event)
    return b"".join(made)


def size_of(content: bytes, start: int) -> int:
    """The event's size from its header."""
    return int.from_bytes(content[start + 9 : start + 13], "little")


def inner_starts(content: bytes) -> list[int]:
    """The offsets of the events in stored payloads."""
    starts = []
    for start in event_starts(content):
        at = start + HEADER_BYTES
        if content[start + 4] == TRANSACTION_PAYLOAD and content[at:].startswith(STORED):
            at, end = at + len(STORED), start + size_of(content, start) - CHECKSUM_BYTES
            while at + HEADER_BYTES <= end:
                starts.append(at)
                at += size_of(content, at)
    return starts


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Some bytes changed, a third of them in headers; sometimes an event is missing."""
    starts = event_starts(content)
    places = starts[1:] + inner_starts(content)
    mutable = bytearray(content)
    for _ in range(chance.randint(1, 6)):
        start = chance.choice(places)
        size = size_of(content, start)
        is_head = size <= HEADER_BYTES or chance.random() < 1 / 3
        place = start + chance.randrange(*((HEADER_BYTES,) if is_head else (HEADER_BYTES, size)))
        mutable[place] = chance.choice(
            (0, 255, 127, 128, mutable[place] ^ 1 << chance.randint(0, 7))
        )
    if chance.random() < 0.2:
        start = chance.choice(starts[1:])
        del mutable[start : start + size_of(content, start)]
    return bytes(mutable)


class CuttingReader(FileReader):
    """Cuts spans by the lengths in the headers, and refuses the lengths that ``RelayReader`` refuses."""

    def read(self, at: Coordinates, *, bytes_max: int, cuts_payloads: bool = False) -> FileSpan:
        """MR-2004 at an event that is too short or longer than the file."""
        content = self._files[at.file]
        end = at.pos
        while len(content) - end >= HEADER_BYTES:
            size = size_of(content, end)
            if size < EVENT_BYTES_MIN or end + size > len(content):
                if end == at.pos:
                    raise Fatal("MR-2004", "an impossible length", coordinates=str(at))
                break
            if end > at.pos and end + size - at.pos > bytes_max:
                break
            end += size
        if (
            cuts_payloads
            and end > at.pos + bytes_max
            and content[at.pos + 4] == TRANSACTION_PAYLOAD
        ):
            end = at.pos + bytes_max
        return FileSpan(at, memoryview(content)[at.pos : end])


def guarded_walk(*given: Any) -> Any:
    """``walk`` on guarded arrays."""
    kernel: Any = walk
    return kernel(*(each.view(Guarded) if isinstance(each, np.ndarray) else each for each in given))


def assert_guarded() -> None:
    """Check the guards: a read before or after an array must be noticed."""
    assert CHECKED or INTERPRETED, (
        "memory is not watched here: see millrace.producer.convert.kernel.compiled"
    )
    octets = np.zeros(8, np.uint8)
    seen = 0
    for offset, load in ((-1, load_u8), (8, load_u8), (-1, load_u32), (5, load_u32), (1, load_i64)):
        try:
            load(octets, offset)
        except IndexError:
            seen += 1
    if INTERPRETED:
        try:
            octets.view(Guarded)[-1]
        except IndexError:
            seen += 1
    assert seen == (6 if INTERPRETED else 5), "memory is not watched here"


def main() -> int:
    """See the module."""
    assert_guarded()
    if INTERPRETED:
        vars(converter)["walk"] = guarded_walk
    seed, rounds, flavour = int(sys.argv[1]), int(sys.argv[2]), Flavour(sys.argv[3])
    files = [pieces(Path(name).read_bytes()) for name in sys.argv[4:]]
    chance, windows = random.Random(seed), random.Random(seed)
    codes: Counter[str] = Counter()
    for _ in range(rounds):
        bad = damaged(sample(chance.choice(files), chance), chance)
        event_sources.WINDOW_BYTES = windows.choice(
            (WINDOW_BYTES, HEADER_BYTES + windows.randrange(99))
        )
        run = Conversion(CuttingReader({"mysql-bin.000001": bad}), flavour=flavour)
        try:
            for _batch in run.batches(rows_max=100, bytes_max=1 << 16):
                pass
            codes["converted"] += 1
        except MillraceError as error:
            if "coordinates" not in error.context:
                raise
            codes[error.code] += 1
    print(dict(codes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
