"""Record values as the reader of a topic hands them to apply."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from millrace.consumer.records.rows import Values


def values_of(values: Sequence[bytes]) -> Values:
    """The values in one buffer."""
    bounds: npt.NDArray[np.integer[npt.NBitBase]] = np.zeros(len(values) + 1, np.int64)
    np.cumsum([len(value) for value in values], out=bounds[1:])
    return Values(np.frombuffer(b"".join(values), np.uint8), bounds)
