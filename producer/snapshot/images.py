"""The row images of a chunk, from the packets of its SELECT, without an object per row (``kernel.images``).

Memory: the images, at most ``bytes_max`` of them or one row; a buffer for packets, and the largest row.
"""

from dataclasses import dataclass

import numpy as np

from millrace.errors import Fatal, Retryable
from millrace.producer.convert.arrays import Bytes
from millrace.producer.snapshot.kernel.images import (
    FULL,
    KEY_AT,
    KEY_END,
    OUT,
    REFUSED,
    ROWS,
    STATE_WIDTH,
    WRONG,
    put_images,
)
from millrace.producer.snapshot.select_list import Selection
from millrace.text_protocol import walk as w
from millrace.text_protocol.arriving import Arriving, RowPackets

BUFFER_BYTES = 1 << 20
_FIRST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Images:
    """``octets``: the images of ``rows`` rows, one after the other. ``key``: the last row's key, as texts.

    ``is_cut``: more rows follow, and were not read.
    """

    octets: Bytes
    rows: int
    key: tuple[str, ...]
    is_cut: bool = False


def read_images(
    packets: RowPackets,
    selection: Selection,
    *,
    keys: int,
    bytes_max: int,
    held_bytes: int = BUFFER_BYTES,
) -> Images:
    """Read a result whose first ``keys`` columns are the key. ``held_bytes``: of packets.

    Fatal MR-6520 if a column can't hold its value; Retryable MR-1006 if the bytes are no rows; those of ``packets``.
    """
    state = np.zeros(STATE_WIDTH, np.int64)
    state[w.SEQUENCE] = packets.sequence
    arriving, key = Arriving(packets, held_bytes), b""
    out, room = np.empty(min(_FIRST_BYTES, bytes_max), np.uint8), selection.margin
    while True:
        stopped = put_images(
            state,
            arriving.data,
            arriving.end,
            arriving.joined,
            out,
            selection.packs,
            keys,
            room,
        )
        if state[KEY_END]:  # before the bytes move
            key = arriving.data[state[KEY_AT] : state[KEY_END]].tobytes()
            state[KEY_END] = 0
        if stopped == w.MORE:
            arriving.more(state)
        elif stopped == w.CONTINUES:
            arriving.join(state)
        elif stopped == FULL:
            needed = int(state[OUT] + room + state[w.ROW_END] - state[w.AT])
            if needed > bytes_max and state[ROWS]:
                return Images(out[: state[OUT]], int(state[ROWS]), _texts(key), is_cut=True)
            larger = np.empty(max(min(2 * len(out), bytes_max), needed), np.uint8)
            larger[: state[OUT]] = out[: state[OUT]]
            out = larger
        elif stopped == REFUSED:
            column = selection.schema.columns[state[WRONG] - 1]
            raise Fatal("MR-6520", f"a value of {column.name} can't be encoded")
        elif stopped == w.END:
            arriving.finish(state)
            return Images(out[: state[OUT]], int(state[ROWS]), _texts(key))
        else:
            raise Retryable("MR-1006", "the member sent bytes that are no rows")


def _texts(key: bytes) -> tuple[str, ...]:
    """The values of a key, which are ASCII."""
    data, at, found = np.frombuffer(key, np.uint8), 0, []
    while at < len(key):
        at, size = w.value_at(data, at, len(key))
        found.append(key[at : at + max(size, 0)].decode("ascii"))
        at += max(size, 0)
    return tuple(found)
