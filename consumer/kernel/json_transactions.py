"""Numbers the changes of source transactions, and writes the records that begin and end them, as JSON.

    {"status":"BEGIN","id":gtid,"event_count":null,"data_collections":null,"ts_ms":…}
    {"status":"END","id":gtid,"event_count":3,"data_collections":[{"data_collection":"db.t","event_count":3}],"ts_ms":…}

``events`` has a line for each change in the order of the records: ``record, table, count``. A change of the key counts
as two. A transaction begins with its first change in the view, and ends with the last row that the source committed. If
this row is not seen, it ends when the next one begins.
"""

from consumer.kernel.compiled import Bytes, Ints, compiled_plain, int64
from consumer.kernel.digits import put_signed
from consumer.kernel.json_text import put_bytes, put_string
from consumer.kernel.record_parts import (
    KEY_END,
    KEY_START,
    PART,
    RECORD,
    SEQ,
    VALUE_END,
    VALUE_START,
)
from consumer.kernel.walk import COMMIT_MS, GTID_END, GTID_START, LAST, OP, OP_CONTROL
from consumer.kernel.walk import SEQ as RECORD_SEQ
from millrace.characters import CLOSING_BRACE, CLOSING_BRACKET, COMMA

# of ``events``
EVENT_RECORD, EVENT_TABLE, EVENT_COUNT = 0, 1, 2
EVENT_WIDTH = 3

# pieces of ``fixed``
ID, ID_END, BEGIN, BEGIN_COUNTS, END, END_COUNT, TABLES, TABLE, TABLE_COUNT, TS_MS, TAIL = range(11)
PIECES = 11

# of ``state``: whether a transaction is open; where its id is (in the topic's bytes, or before them in ``first_id``)
IS_OPEN, ID_START, ID_STOP, IS_FIRST, TOTAL = range(5)
STATE = 5
_PARTS = 3  # the end of the transaction before, begin, end


@compiled_plain
def _put_piece(out: Bytes, at: int, fixed: Bytes, pieces: Ints, piece: int) -> int:
    return put_bytes(out, at, fixed, pieces[piece, 0], pieces[piece, 1])


@compiled_plain
def _put_id(out: Bytes, at: int, data: Bytes, first_id: Bytes, state: Ints) -> int:
    if state[IS_FIRST] == 1:
        return put_string(out, at, first_id, state[ID_START], state[ID_STOP])
    return put_string(out, at, data, state[ID_START], state[ID_STOP])


@compiled_plain
def _is_open(data: Bytes, first_id: Bytes, state: Ints, start: int, end: int) -> bool:
    """Whether the open transaction has this id."""
    if state[IS_OPEN] == 0 or state[ID_STOP] - state[ID_START] != end - start:
        return False
    for place in range(end - start):
        at = state[ID_START] + place
        other = first_id[at] if state[IS_FIRST] == 1 else data[at]
        if other != data[start + place]:
            return False
    return True


@compiled_plain
def _put_record(
    out: Bytes,
    at: int,
    data: Bytes,
    first_id: Bytes,
    record: Ints,
    state: Ints,
    counts: Ints,
    names: Ints,
    fixed: Bytes,
    pieces: Ints,
    is_end: bool,
    line: Ints,
) -> int:
    """One record with its key."""
    line[KEY_START] = at
    at = _put_piece(out, at, fixed, pieces, ID)
    at = _put_id(out, at, data, first_id, state)
    at = _put_piece(out, at, fixed, pieces, ID_END)
    line[KEY_END] = line[VALUE_START] = at
    at = _put_piece(out, at, fixed, pieces, END if is_end else BEGIN)
    at = _put_id(out, at, data, first_id, state)
    if is_end:
        at = _put_piece(out, at, fixed, pieces, END_COUNT)
        at = put_signed(out, at, state[TOTAL])
        at = _put_piece(out, at, fixed, pieces, TABLES)
        is_next = False
        for table in range(len(counts)):
            if counts[table] == 0:
                continue
            if is_next:
                out[at] = COMMA
                at += 1
            is_next = True
            at = _put_piece(out, at, fixed, pieces, TABLE)
            at = put_bytes(out, at, fixed, names[table, 0], names[table, 1])
            at = _put_piece(out, at, fixed, pieces, TABLE_COUNT)
            at = put_signed(out, at, counts[table])
            out[at] = CLOSING_BRACE
            at += 1
        out[at] = CLOSING_BRACKET
        at += 1
    else:
        at = _put_piece(out, at, fixed, pieces, BEGIN_COUNTS)
    at = _put_piece(out, at, fixed, pieces, TS_MS)
    at = put_signed(out, at, record[COMMIT_MS])
    at = _put_piece(out, at, fixed, pieces, TAIL)
    line[VALUE_END] = at
    line[SEQ] = record[RECORD_SEQ]
    return at


@compiled_plain
def number_events(
    out: Bytes,
    data: Bytes,
    records: Ints,
    events: Ints,
    orders: Ints,
    first_id: Bytes,
    state: Ints,
    counts: Ints,
    names: Ints,
    fixed: Bytes,
    pieces: Ints,
    lines: Ints,
) -> tuple[int, int]:
    """Fill ``orders`` (in the transaction, in its table) and ``lines``: (bytes written, lines).

    ``state`` and ``counts`` (one for each table) are those before the first record, and then after the last.
    """
    at, count, event = int64(0), int64(0), int64(0)
    for number in range(len(records)):
        record = records[number]
        if record[OP] == OP_CONTROL:
            continue
        start, end = record[GTID_START], record[GTID_END]
        has_event = event < len(events) and events[event, EVENT_RECORD] == number
        if has_event and not _is_open(data, first_id, state, start, end):
            for is_end in range(1, -1, -1):  # the end of the one before, the begin of this
                if is_end == 1 and state[IS_OPEN] == 0:
                    continue
                if is_end == 0:
                    state[IS_OPEN], state[ID_START], state[ID_STOP] = 1, start, end
                    state[IS_FIRST], state[TOTAL] = 0, 0
                    counts[:] = 0
                line = lines[count]
                line[RECORD], line[PART] = number, 1 - is_end
                at = _put_record(
                    out,
                    at,
                    data,
                    first_id,
                    record,
                    state,
                    counts,
                    names,
                    fixed,
                    pieces,
                    is_end == 1,
                    line,
                )
                count += 1
        if has_event:
            table = events[event, EVENT_TABLE]
            orders[event, 0] = state[TOTAL] + 1
            orders[event, 1] = counts[table] + 1
            state[TOTAL] += events[event, EVENT_COUNT]
            counts[table] += events[event, EVENT_COUNT]
            event += 1
        if record[LAST] == 1 and _is_open(data, first_id, state, start, end):
            line = lines[count]
            line[RECORD], line[PART] = number, _PARTS - 1
            at = _put_record(
                out,
                at,
                data,
                first_id,
                record,
                state,
                counts,
                names,
                fixed,
                pieces,
                True,
                line,
            )
            count += 1
            state[IS_OPEN] = 0
    return at, count
