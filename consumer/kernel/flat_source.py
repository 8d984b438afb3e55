"""The parts of a set topic's record and of its images that records of Maxwell and Canal have.

``read_source`` finds them in the record's bytes (``walk`` has their layout). ``put_changed`` writes the columns of an
image before that differ from the one after.
"""

from millrace.characters import COMMA
from millrace.consumer.kernel.compiled import Bytes, Hashes, Ints, compiled_plain
from millrace.consumer.kernel.json_text import put_bytes
from millrace.consumer.kernel.json_values import CELL, OK, TEXT, TEXT_END, put_value
from millrace.consumer.kernel.record_parts import is_same, skip
from millrace.consumer.kernel.walk import COMMIT_MS, GTID_END, GTID_START, LAST, NULL, read_long

# a source: times, numbers, and the places of texts in the topic's bytes
(
    EVENT_MS,
    SERVER_ID,
    GTID,
    GTID_STOP,
    FILE,
    FILE_STOP,
    POS,
    TOTAL_ORDER,
    IS_LAST,
    COMMITTED_MS,
) = range(10)
SOURCE_WIDTH = 10


@compiled_plain
def read_source(data: Bytes, at: int, end: int, record: Ints, source: Ints) -> None:
    """Fill ``source`` from a record whose source begins at ``at``."""
    for _ in range(7):  # version, connector, name, snapshot, db, table, set
        at = skip(data, at, end)
    source[EVENT_MS], at = read_long(data, at, end)
    source[SERVER_ID], at = read_long(data, at, end)
    source[GTID], source[GTID_STOP] = record[GTID_START], record[GTID_END]
    length, at = read_long(data, record[GTID_END], end)
    source[FILE], source[FILE_STOP] = at, at + length
    source[POS], at = read_long(data, at + length, end)
    for _ in range(3):  # row, event_flags, seq
        _, at = read_long(data, at, end)
    at = skip(data, at, end)  # op
    _, at = read_long(data, at, end)  # ts_ms
    at = skip(data, at, end)  # the transaction's id
    source[TOTAL_ORDER], at = read_long(data, at, end)
    source[IS_LAST] = record[LAST]
    source[COMMITTED_MS] = record[COMMIT_MS]


@compiled_plain
def put_changed(
    out: Bytes,
    at: int,
    data: Bytes,
    cells: Ints,
    before: int,
    after: int,
    singles: Ints,
    fixed: Bytes,
    has_nulls: bool,
    work: Hashes,
) -> tuple[int, int]:
    """The columns of ``before`` that differ in ``after``: (position after them, status).

    ``has_nulls``: whether those that are NULL before are written, too.
    """
    is_first = True
    for number in range(len(singles)):
        if singles[number, CELL] < 0:
            continue
        old, new = cells[before + singles[number, CELL]], cells[after + singles[number, CELL]]
        length = old[2] - old[1]
        if old[0] == new[0] and (
            old[0] == NULL or (length == new[2] - new[1] and is_same(data, old[1], new[1], length))
        ):
            continue
        if old[0] == NULL and not has_nulls:
            continue
        if not is_first:
            out[at] = COMMA
            at += 1
        is_first = False
        at = put_bytes(out, at, fixed, singles[number, TEXT], singles[number, TEXT_END])
        at, status = put_value(out, at, data, old[0], old[1], old[2], singles, number, fixed, work)
        if status != OK:
            return at, status
    return at, OK


@compiled_plain
def put_present(
    out: Bytes,
    at: int,
    data: Bytes,
    cells: Ints,
    first: int,
    singles: Ints,
    fixed: Bytes,
    work: Hashes,
) -> tuple[int, int]:
    """The columns of an image that are not NULL, and constants: (position after them, status)."""
    is_first = True
    for number in range(len(singles)):
        place = singles[number, CELL]
        if place >= 0 and cells[first + place, 0] == NULL:
            continue
        if not is_first:
            out[at] = COMMA
            at += 1
        is_first = False
        at = put_bytes(out, at, fixed, singles[number, TEXT], singles[number, TEXT_END])
        if place < 0:
            continue
        cell = cells[first + place]
        at, status = put_value(
            out, at, data, cell[0], cell[1], cell[2], singles, number, fixed, work
        )
        if status != OK:
            return at, status
    return at, OK
