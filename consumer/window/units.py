"""Units: records that are applied in one target transaction. Under ``consistency: transactional`` a source transaction.

A unit has one owner of causality keys, so its rows are in one group and one lane, and no part ends inside it.
Under ``consistency: causal`` each record is a unit.

Pure. The caller cuts windows at the ends of source transactions (``records.source_transactions``).
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from millrace.consumer.kernel.walk import LAST, SLOT
from millrace.consumer.records.numbers import Units
from millrace.consumer.records.rows import Rows
from millrace.consumer.tables.causality_keys import KeyEntries


def units_of(rows: Rows, *, is_whole: bool) -> Units:
    """The unit of each record; units grow in record order. ``is_whole``: a unit is a source transaction."""
    if not is_whole:
        return Units(np.arange(len(rows)))
    ends = (rows.column(LAST) == 1) & (rows.column(SLOT) >= 0)
    return Units(np.cumsum(ends) - ends)


def numbered(units: Units) -> Units:
    """The units of some records in order, numbered from 0 without gaps."""
    numbers = np.zeros(len(units), np.int64)
    np.cumsum(units[1:] != units[:-1], out=numbers[1:])
    return Units(numbers)


def owned_by(entries: KeyEntries, units: Units) -> KeyEntries:
    """The keys with the unit of each record as the owner."""
    return replace(entries, owners=units[entries.owners])


def cut(units: Units, *, rows_max: int) -> Iterator[tuple[int, int]]:
    """Cut records in order into parts ``first`` to ``end - 1`` at the ends of units.

    A part has at most ``rows_max`` records, or one unit that has more.
    """
    edges = np.append(np.flatnonzero(units[1:] != units[:-1]) + 1, len(units))
    first = 0
    while first < len(units):
        place = int(np.searchsorted(edges, first + rows_max, side="right")) - 1
        if place < 0 or edges[place] <= first:
            place += 1
        yield first, int(edges[place])
        first = int(edges[place])
