"""The changes of one table in a batch, as a view shows them: the input of a format.

A line is one change. Its images begin at cells of ``cells``, whose places are in ``payload``: a masked value is another
cell, whose bytes come after those of the batch. Lines are in the order of the records.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from consumer.records.numbers import Ints

# columns of a line: the number of the record in the batch; the letter of its operation for the view (c, u, d, r); the
# first cell of each image, -1 without one; the record's seq
RECORD, OP, BEFORE, AFTER, SEQ = 0, 1, 2, 3, 4
LINE_WIDTH = 5


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of one table; see the module."""

    payload: npt.NDArray[np.uint8]
    cells: Ints
    lines: Ints

    def __len__(self) -> int:
        return len(self.lines)
