"""Rows of snapshots: those that a publish task asked for are its own. Apart: the rule is tested alone."""

import numpy as np

from consumer.kernel import walk
from consumer.records.numbers import RecordNumbers
from consumer.records.rows import Rows

OWNED = "publish-"  # begins the id of a snapshot that a publish task asked for


def without_rows_of_others(rows: Rows, numbers: RecordNumbers, own: str) -> RecordNumbers:
    """These records without the rows of snapshots that other publish tasks asked for. ``own``: the task's snapshot."""
    of_snapshots = rows.records[numbers, walk.IS_SAFE] == 1
    if not of_snapshots.any():
        return numbers
    is_taken = np.ones(len(numbers), np.bool_)
    for place in np.flatnonzero(of_snapshots).tolist():
        snapshot = snapshot_of(rows, int(numbers[place]))
        is_taken[place] = not snapshot.startswith(OWNED) or snapshot == own
    return RecordNumbers(numbers[is_taken])


def snapshot_of(rows: Rows, number: int) -> str:
    """The id of the snapshot that a row belongs to: ``source.file``, the text after the GTID."""
    payload, at = rows.values.payload, int(rows.records[number, walk.GTID_END])
    length, at = walk.read_long(payload, at, len(payload))
    return bytes(payload[at : at + length]).decode("utf-8", "replace")
