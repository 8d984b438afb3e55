"""Arrays of numbers, by what they number: mypy refuses slots where a function wants seqs.

Each type is a one-dimensional array of int64. An index into such an array gives a plain array, and the place that takes
it names its kind again. Inside kernels all are plain arrays.
"""

from typing import NewType

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

RecordNumbers = NewType("RecordNumbers", Ints)  # indexes into ``Rows``
Slots = NewType("Slots", Ints)  # row schemas: indexes into ``Programs.ids``
Seqs = NewType("Seqs", Ints)  # numbers of records in the topic
Units = NewType("Units", Ints)  # source transactions or single records of a window
Groups = NewType("Groups", Ints)  # of units that share a causality key
LaneNumbers = NewType("LaneNumbers", Ints)

NO_SEQS = Seqs(np.empty(0, np.int64))
