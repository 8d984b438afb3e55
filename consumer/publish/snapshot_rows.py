"""Rows of snapshots: those that a publish task asked for are its own. Apart: the rule is tested alone."""

import numpy as np
import numpy.typing as npt

from millrace.consumer.kernel import walk
from millrace.consumer.kernel.compiled import Bytes, Ints
from millrace.consumer.records.numbers import RecordNumbers
from millrace.consumer.records.rows import Rows

OWNED = "publish-"  # begins the id of a snapshot that a publish task asked for
_TWO_BYTES = (
    0x80  # from here on, the length of a text has another byte; ids of publish tasks are shorter
)


def without_rows_of_others(rows: Rows, numbers: RecordNumbers, own: str) -> RecordNumbers:
    """These records without the rows of snapshots that other publish tasks asked for. ``own``: the task's snapshot.

    A row has the id of its snapshot in ``source.file``, the text after the GTID.
    """
    of_snapshots = rows.records[numbers, walk.IS_SAFE] == 1
    if not of_snapshots.any():
        return numbers
    payload, places = rows.values.payload, rows.records[numbers[of_snapshots], walk.GTID_END]
    is_long = payload[places] >= _TWO_BYTES
    is_owned = is_long | (payload[places] >= _length_of(OWNED))
    is_owned &= _has(payload, places + 1 + is_long, OWNED.encode())
    if own:
        is_owned &= ~_has(payload, places, bytes([_length_of(own)]) + own.encode())
    is_taken = np.ones(len(numbers), np.bool_)
    is_taken[of_snapshots] = ~is_owned
    return RecordNumbers(numbers[is_taken])


def _length_of(text: str) -> int:
    """The byte before a short text in Avro."""
    return 2 * len(text)


def _has(payload: Bytes, places: Ints, octets: bytes) -> npt.NDArray[np.bool_]:
    """For each place, whether these bytes are there."""
    wanted = np.frombuffer(octets, np.uint8)
    at = np.minimum(places[:, None] + np.arange(len(wanted)), len(payload) - 1)
    return np.asarray((payload[at] == wanted).all(axis=1))
