"""Damages MySQL's binary JSON and writes it as text, in memory between two forbidden pages.

    python -m tests.kit.fuzz.json SEED ROUNDS FILE

FILE has one document per line, in hexadecimal digits, as a server logged it. Each is first written undamaged, with
every buffer size that is too small and some that are not. Then each byte of the small ones is changed and each cut is
made; for the smallest, both together. Then, ROUNDS times, bytes and lengths are changed, and documents cut and mixed.
Document, text and stack each end at a forbidden page: an access beyond ends the process (SIGSEGV), also in ordinary
machine code. With MILLRACE_KERNEL_CHECKED=1 or NUMBA_DISABLE_JIT=1 indexes are checked as well. The outcome is BROKEN,
FULL or the text of a document. Prints the count of each.
"""

import json
import mmap
import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from millrace.producer.convert.kernel.compiled import INTERPRETED
from millrace.producer.convert.kernel.json_binary import BROKEN, FULL, STACK, write_json
from tests.kit.fuzz.guarded_memory import Area, Guarded, assert_guarded

EDGE_BYTES = 64  # at the start of a document: its counts, sizes and offsets
SMALL_BYTES, SMALLEST_BYTES = 150, 20
VALUES = (0, 1, 2, 3, 4, 7, 8, 12, 15, 127, 128, 246, 255)  # kinds, lengths, signs
ROOM_STEP = 1 << 12
GROWTH = 8  # a byte becomes six at most (\u0001), its frame some more


class Desk:
    """A document, its text and the stack, each in guarded memory."""

    def __init__(self, document_bytes_max: int) -> None:
        self._pages = GROWTH * document_bytes_max // mmap.PAGESIZE + 2
        self._document, self._text, self._stack = (Area(self._pages) for _ in range(3))
        assert_guarded(self._document)

    @property
    def room_bytes(self) -> int:
        """The size of the largest text."""
        return self._pages * mmap.PAGESIZE

    def write(self, document: bytes, limit: int, *, is_at_end: bool) -> bytes | int:
        """Write the document; returns the text, BROKEN or FULL."""
        stack = self._stack.lay(bytes(8 * STACK), is_at_end=is_at_end).view(np.int64)
        text = self._text.lay(bytes(limit), is_at_end=is_at_end)
        octets = self._document.lay(document, is_at_end=is_at_end)
        if INTERPRETED:
            stack, text, octets = (each.view(Guarded) for each in (stack, text, octets))
        end = int(write_json(text, 0, limit, octets, 0, len(document), stack))
        assert end in (BROKEN, FULL) or 0 < end <= limit, end
        return text[:end].tobytes() if end > 0 else end


def assert_document(text: bytes) -> None:
    """The text is JSON except inside strings, whose encoding the caller of ``write_json`` checks."""
    json.loads(text.decode(errors="replace"))


def judge(outcome: bytes | int) -> str:
    """The outcome's name."""
    if isinstance(outcome, bytes):
        assert_document(outcome)
        return "a document"
    return "BROKEN" if outcome == BROKEN else "FULL"


def write_intact(desk: Desk, document: bytes) -> None:
    """A document fits into the size it needs or slightly more (for a scalar), and never into less."""
    text = desk.write(document, desk.room_bytes, is_at_end=True)
    assert isinstance(text, bytes), document.hex()
    assert_document(text)
    step = len(text) // ROOM_STEP + 1
    for limit in (*range(0, len(text), step), *range(len(text) - 1, len(text) + 97)):
        found = desk.write(document, limit, is_at_end=True)
        assert found == FULL or (found == text and limit >= len(text)), (limit, document.hex())


def harmed_once(document: bytes) -> Iterator[bytes]:
    """Each byte changed, each cut; for the smallest documents both together."""
    for end in range(len(document) + 1):
        yield document[:end]
        if end == len(document) or len(document) <= SMALLEST_BYTES:
            for place in range(end):
                for value in (*VALUES, document[place] - 1 & 255):
                    yield document[:place] + bytes([value]) + document[place + 1 : end]


def damaged(documents: list[bytes], chance: random.Random) -> bytes:
    """One of the documents with one to four damages."""
    made = bytearray(chance.choice(documents))
    for _ in range(chance.randint(1, 4)):
        if not made:
            break
        reach = len(made) if chance.random() < 1 / 3 else min(len(made), EDGE_BYTES)
        place = chance.randrange(reach)
        match chance.randrange(8):
            case 0:
                del made[place + 1 :]
            case 1:
                del made[place : place + chance.randint(1, 8)]
            case 2:
                made[place:place] = chance.choice(documents)[: chance.randint(1, 40)]
            case 3 | 4:
                width = chance.choice((2, 4))
                near = len(made) + chance.randint(-12, 12)
                lie = chance.choice((0, 1, 2, near, near - place, place, 1 << 15, 1 << 31, -1))
                made[place : place + width] = (lie % (1 << 8 * width)).to_bytes(width, "little")
            case _:
                flipped = made[place] ^ 1 << chance.randrange(8)
                kinds = chance.randrange(17)
                made[place] = chance.choice((0, 255, 127, 128, 246, flipped, kinds))
    return bytes(made)


def main() -> int:
    """See the module."""
    chance = random.Random(int(sys.argv[1]))
    documents = [bytes.fromhex(line) for line in Path(sys.argv[3]).read_text().split()]
    desk = Desk(max(map(len, documents)) + EDGE_BYTES)
    if not INTERPRETED:
        for document in documents:
            write_intact(desk, document)
            if len(document) <= SMALL_BYTES:
                for harmed in harmed_once(document):
                    judge(desk.write(harmed, GROWTH * EDGE_BYTES, is_at_end=True))
    seen: Counter[str] = Counter()
    for _ in range(int(sys.argv[2])):
        document = damaged(documents, chance)
        limit = chance.choice((chance.randrange(2 * len(document) + 200), desk.room_bytes // 4))
        seen[judge(desk.write(document, limit, is_at_end=chance.random() < 3 / 4))] += 1
    print(dict(seen))
    return 0


if __name__ == "__main__":
    sys.exit(main())
