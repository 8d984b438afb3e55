"""Compiles the kernel into its cache, so that the first chunk of the first task does not wait for it.

    python -m producer.kernel.warm

Takes about half a minute of one core the first time, less than a second afterwards.
"""

import numpy as np

from producer.kernel import program as p
from producer.kernel import state as s
from producer.kernel.json_binary import STACK
from producer.kernel.walk import end_transaction, find_table, walk


def warm_up() -> None:
    """Everything that the converter calls, once, on nothing."""
    state = np.zeros(s.STATE_SIZE, np.int64)
    state[s.LAST_UNIT] = -1
    empty, rows = np.zeros(64, np.uint8), np.zeros((1, p.COLUMN_WIDTH), np.int64)
    ids = np.zeros((2, 2), np.int64)
    find_table(ids, 0)
    walk(
        empty,
        0,
        state,
        empty,
        np.zeros((1, 4), np.int64),
        rows,
        rows,
        empty,
        np.zeros((1, 2), np.int64),
        np.zeros(1, np.uint16),
        ids,
        np.zeros((1, s.INTERVAL_WIDTH), np.int64),
        empty,
        empty,
        empty,
        empty,
        empty,
        np.zeros(STACK, np.int64),
        np.zeros(2, np.int64),
    )
    end_transaction(
        state, np.zeros((1, s.INTERVAL_WIDTH), np.int64), empty, np.zeros((1, 4), np.int64)
    )


if __name__ == "__main__":
    warm_up()
