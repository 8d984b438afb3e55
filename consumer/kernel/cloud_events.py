"""Writes the attributes of CloudEvents that differ from record to record: id, type and time, each as text.

id      seq "." part
type    one of the texts of ``types``
time    YYYY-MM-DDTHH:MM:SS.mmmZ, the source's commit; records of one time after the other share it
"""

from millrace.characters import COLON, MINUS, POINT, ZERO
from millrace.consumer.kernel import changes as view
from millrace.consumer.kernel.compiled import Bytes, Ints, compiled, compiled_plain, int64
from millrace.consumer.kernel.digits import put_signed
from millrace.consumer.kernel.record_parts import (
    CREATE,
    DELETE,
    PART,
    READ,
    RECORD,
    SEQ,
    UPDATE,
    VALUE_START,
)
from millrace.consumer.kernel.walk import COMMIT_MS

# columns of ``places``: start and end of each attribute
ID, TYPE, TIME = 0, 2, 4
WIDTH = 6
BYTES_MAX = 2 * 20 + 1 + 24  # of a record

# of ``types``
INSERT, UPDATED, DELETED, SNAPSHOT, TOMBSTONE, OTHER = range(6)
TYPES = 6

_T, _Z = 84, 90
_DAY_MS = 86_400_000


@compiled
def put_attributes(
    out: Bytes, at: int, lines: Ints, changes: Ints, records: Ints, types: Ints, places: Ints
) -> int:
    """Fill ``places`` for each line; the position after the last byte. ``changes`` (none: type OTHER) as ``lines``."""
    change, last_ms, time = int64(0), int64(-1), int64(0)
    for number in range(len(lines)):
        line = lines[number]
        places[number, ID] = at
        at = put_signed(out, at, line[SEQ])
        out[at] = POINT
        at = put_signed(out, at + 1, line[PART])
        places[number, ID + 1] = at
        kind = int64(OTHER)
        if len(changes) > 0:
            while changes[change, view.RECORD] < line[RECORD]:
                change += 1
            has_more = number + 1 < len(lines) and lines[number + 1, RECORD] == line[RECORD]
            kind = _kind(line, changes[change, view.OP], has_more)
        places[number, TYPE], places[number, TYPE + 1] = types[kind, 0], types[kind, 1]
        commit_ms = records[line[RECORD], COMMIT_MS]
        if commit_ms != last_ms:
            last_ms, time = commit_ms, at
            at = put_time(out, at, commit_ms)
        places[number, TIME], places[number, TIME + 1] = time, time + 24
    return at


@compiled_plain
def _kind(line: Ints, op: int, has_more: bool) -> int:
    """The type of a record. An update of several records, the first of them with a value, is a delete and an insert."""
    if line[VALUE_START] < 0:
        return int64(TOMBSTONE)
    if op == DELETE:
        return int64(DELETED)
    if op == READ:
        return int64(SNAPSHOT)
    if op == CREATE or line[PART] == 2:
        return int64(INSERT)
    if op == UPDATE and line[PART] == 0 and has_more:
        return int64(DELETED)
    return int64(UPDATED)


@compiled_plain
def put_time(out: Bytes, at: int, commit_ms: int) -> int:
    """The time in UTC. Years are those that begin in March, as in ``json_times``."""
    days, rest = commit_ms // _DAY_MS, commit_ms % _DAY_MS
    shifted = days + 719468
    era = shifted // 146097
    day_of_era = shifted % 146097
    year_of_era = (
        day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096
    ) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month_from_march + 2) // 5 + 1
    month = month_from_march + 3 if month_from_march < 10 else month_from_march - 9
    year = year_of_era + era * 400 + (1 if month <= 2 else 0)
    at = _put_two(out, at, year // 100)
    at = _put_two(out, at, year % 100)
    out[at] = MINUS
    at = _put_two(out, at + 1, month)
    out[at] = MINUS
    at = _put_two(out, at + 1, day)
    out[at] = _T
    at = _put_two(out, at + 1, rest // 3_600_000)
    out[at] = COLON
    at = _put_two(out, at + 1, rest // 60_000 % 60)
    out[at] = COLON
    at = _put_two(out, at + 1, rest // 1000 % 60)
    out[at] = POINT
    out[at + 1] = ZERO + rest % 1000 // 100
    at = _put_two(out, at + 2, rest % 100)
    out[at] = _Z
    return at + 1


@compiled_plain
def _put_two(out: Bytes, at: int, number: int) -> int:
    out[at] = ZERO + number // 10
    out[at + 1] = ZERO + number % 10
    return at + 2
