"""The condition of a view over a batch of walked records. Apart: tests compare it with the servers, without a view."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millrace.consumer.kernel import conditions as kernel
from millrace.consumer.records.numbers import Ints
from millrace.consumer.records.rows import Rows
from millrace.schemas.view.condition import Condition, Op

_NUMBERS: dict[Op, int] = {op: getattr(kernel, op.name) for op in Op}

Results = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Program:
    """A condition as arrays for ``kernel.conditions``."""

    lines: Ints
    octets: npt.NDArray[np.uint8]
    depth: int


def make_program(condition: Condition) -> Program:
    """The arrays of one condition."""
    lines = np.empty((len(condition.steps), kernel.STEP_WIDTH), np.int64)
    octets = bytearray()
    for place, step in enumerate(condition.steps):
        start = len(octets)
        octets += step.octets
        lines[place] = (
            _NUMBERS[step.op],
            step.column,
            step.comparison,
            step.number,
            start,
            len(octets),
        )
    return Program(lines, np.frombuffer(bytes(octets), np.uint8), condition.depth)


def evaluate(program: Program, rows: Rows, firsts: Ints) -> Results:
    """One of ``FALSE``, ``TRUE``, ``UNKNOWN``, ``UNREADABLE`` for each image whose cells begin at ``firsts``."""
    results = np.empty(len(firsts), np.uint8)
    kernel.evaluate(
        program.lines,
        program.octets,
        program.depth,
        rows.values.payload,
        rows.cells,
        firsts,
        results,
    )
    return results
