"""Damages binlog files and converts them; with MILLRACE_KERNEL_CHECKED=1 an access beyond an array is an error.

    python -m tests.kernel_fuzz SEED ROUNDS FLAVOUR FILE…

Each round takes the head of a file and a few of its source transactions, so that the damage is most of what is read.
Every outcome but records or an error with code and coordinates ends it with exit code 1. Checksums are not looked at
by the converter (the receiver did), so damage reaches the kernel. Prints how many were converted and which codes came.
"""

import random
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

from millrace.errors import MillraceError
from schemas.gtid import Flavour
from tests.converter_rig import Conversion, FileReader

_GTIDS = (33, 42, 162)


def event_starts(content: bytes) -> list[int]:
    """The offsets of all events."""
    starts, at = [], 4
    while at + 19 <= len(content):
        starts.append(at)
        at += int.from_bytes(content[at + 9 : at + 13], "little")
    return starts


def pieces(content: bytes) -> list[bytes]:
    """The head of the file, then each source transaction whole."""
    starts = event_starts(content)
    cuts = [at for at in starts if content[at + 4] in _GTIDS]
    return [content[a:b] for a, b in pairwise([0, *cuts, len(content)])]


def sample(parts: list[bytes], chance: random.Random) -> bytes:
    """The head and up to eight source transactions that stand together."""
    first = chance.randrange(1, len(parts))
    return b"".join([parts[0], *parts[first : first + chance.randint(1, 8)]])


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Some bytes changed, inside of bodies mostly; sometimes an event left out."""
    starts = event_starts(content)
    mutable = bytearray(content)
    for _ in range(chance.randint(1, 6)):
        start = chance.choice(starts[1:])
        size = int.from_bytes(content[start + 9 : start + 13], "little")
        place = start + chance.choice((4, *range(19, size))) if size > 19 else start + 4
        mutable[place] = chance.choice(
            (0, 255, 127, 128, mutable[place] ^ 1 << chance.randint(0, 7))
        )
    if chance.random() < 0.2:
        start = chance.choice(starts[1:])
        size = int.from_bytes(content[start + 9 : start + 13], "little")
        del mutable[start : start + size]
    return bytes(mutable)


def main() -> int:
    """See the module."""
    seed, rounds, flavour = int(sys.argv[1]), int(sys.argv[2]), Flavour(sys.argv[3])
    files = [pieces(Path(name).read_bytes()) for name in sys.argv[4:]]
    chance = random.Random(seed)
    codes: Counter[str] = Counter()
    for _ in range(rounds):
        bad = damaged(sample(chance.choice(files), chance), chance)
        run = Conversion(FileReader({"mysql-bin.000001": bad}), flavour=flavour)
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
