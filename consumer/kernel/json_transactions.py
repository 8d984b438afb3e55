"""Numbers the changes of source transactions, and writes the records that begin and end them, as JSON or in Avro.

    {"status":"BEGIN","id":gtid,"event_count":null,"data_collections":null,"ts_ms":…}
    {"status":"END","id":gtid,"event_count":3,"data_collections":[{"data_collection":"db.t","event_count":3}],"ts_ms":…}

In Avro, nullable fields and the items of the list are unions with null first; the list is one block.

``events`` has a line for each change in the order of the records: ``record, table, count``. A change of the key counts
as two. A transaction begins with its first change in the view, and ends with the last row that the source committed. If
this row is not seen, it ends when the next one begins.
"""

from typing import NamedTuple

from millrace.characters import CLOSING_BRACE, CLOSING_BRACKET, COMMA
from millrace.consumer.kernel.avro_values import put_long, put_text
from millrace.consumer.kernel.compiled import Bytes, Ints, compiled_plain, int64
from millrace.consumer.kernel.digits import put_signed
from millrace.consumer.kernel.json_text import put_bytes, put_string
from millrace.consumer.kernel.record_parts import (
    KEY_END,
    KEY_START,
    PART,
    RECORD,
    SEQ,
    VALUE_END,
    VALUE_START,
)
from millrace.consumer.kernel.walk import COMMIT_MS, GTID_END, GTID_START, LAST, OP, OP_CONTROL
from millrace.consumer.kernel.walk import SEQ as RECORD_SEQ

# of ``events``
EVENT_RECORD, EVENT_TABLE, EVENT_COUNT = 0, 1, 2
EVENT_WIDTH = 3

# pieces of ``Texts.fixed``
ID, ID_END, BEGIN, BEGIN_COUNTS, END, END_COUNT, TABLES, TABLE, TABLE_COUNT, TS_MS, TAIL = range(11)
PIECES = 11

# of ``state``: whether a transaction is open; where its ID is, in ``IDs.before`` or in ``IDs.data``; its events so far
IS_OPEN, ID_START, ID_STOP, IS_BEFORE, TOTAL = range(5)
STATE = 5

# the PART of a record: the end of a transaction whose last row was not seen, a begin, an end
UNSEEN_END, FIRST, LAST_ROW = range(3)


class IDs(NamedTuple):
    """Where the ID of the open transaction is: in the topic's bytes, or, of one that began earlier, in ``before``."""

    data: Bytes
    before: Bytes


class Texts(NamedTuple):
    """The fixed texts; the places of the pieces and of the tables' names in them; 1 for Avro, 0 for JSON."""

    fixed: Bytes
    pieces: Ints
    names: Ints
    is_avro: int


@compiled_plain
def number_events(
    out: Bytes,
    ids: IDs,
    records: Ints,
    events: Ints,
    orders: Ints,
    state: Ints,
    counts: Ints,
    texts: Texts,
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
        is_open = _is_open(ids, state, record)
        if event < len(events) and events[event, EVENT_RECORD] == number:
            if not is_open:
                if state[IS_OPEN] == 1:
                    lines[count, RECORD], lines[count, PART] = number, UNSEEN_END
                    at = _put_end(out, at, ids, record, state, counts, texts, lines[count])
                    count += 1
                _open(state, counts, record)
                lines[count, RECORD], lines[count, PART] = number, FIRST
                at = _put_begin(out, at, ids, record, state, texts, lines[count])
                count += 1
                is_open = True
            table = events[event, EVENT_TABLE]
            orders[event, 0], orders[event, 1] = state[TOTAL] + 1, counts[table] + 1
            state[TOTAL] += events[event, EVENT_COUNT]
            counts[table] += events[event, EVENT_COUNT]
            event += 1
        if is_open and record[LAST] == 1:
            lines[count, RECORD], lines[count, PART] = number, LAST_ROW
            at = _put_end(out, at, ids, record, state, counts, texts, lines[count])
            count += 1
            state[IS_OPEN] = 0
    return at, count


@compiled_plain
def _is_open(ids: IDs, state: Ints, record: Ints) -> bool:
    """Whether the open transaction is that of the record."""
    start, length = record[GTID_START], record[GTID_END] - record[GTID_START]
    if state[IS_OPEN] == 0 or state[ID_STOP] - state[ID_START] != length:
        return False
    for place in range(length):
        at = state[ID_START] + place
        letter = ids.before[at] if state[IS_BEFORE] == 1 else ids.data[at]
        if letter != ids.data[start + place]:
            return False
    return True


@compiled_plain
def _open(state: Ints, counts: Ints, record: Ints) -> None:
    """The transaction of the record is open, without events."""
    state[IS_OPEN], state[ID_START], state[ID_STOP] = 1, record[GTID_START], record[GTID_END]
    state[IS_BEFORE], state[TOTAL] = 0, 0
    counts[:] = 0


@compiled_plain
def _put_begin(
    out: Bytes, at: int, ids: IDs, record: Ints, state: Ints, texts: Texts, line: Ints
) -> int:
    """The record that begins the open transaction, with its key."""
    at = _put_start(out, at, ids, state, texts, BEGIN, line)
    at = _put_piece(out, at, texts, BEGIN_COUNTS)
    return _put_time(out, at, record, texts, line)


@compiled_plain
def _put_end(
    out: Bytes,
    at: int,
    ids: IDs,
    record: Ints,
    state: Ints,
    counts: Ints,
    texts: Texts,
    line: Ints,
) -> int:
    """The record that ends the open transaction, with its key."""
    at = _put_start(out, at, ids, state, texts, END, line)
    at = _put_piece(out, at, texts, END_COUNT)
    at = _put_number(out, at, state[TOTAL], texts)
    at = _put_piece(out, at, texts, TABLES)
    at = _put_tables(out, at, counts, texts)
    return _put_time(out, at, record, texts, line)


@compiled_plain
def _put_tables(out: Bytes, at: int, counts: Ints, texts: Texts) -> int:
    """The tables that have events, and the end of the list."""
    if texts.is_avro == 1:
        at = put_long(out, at, _table_count(counts))  # the transaction has an event, so it is not 0
    first = at
    for table in range(len(counts)):
        if counts[table] == 0:
            continue
        if at > first and texts.is_avro == 0:
            out[at] = COMMA
            at += 1
        at = _put_piece(out, at, texts, TABLE)
        at = put_bytes(out, at, texts.fixed, texts.names[table, 0], texts.names[table, 1])
        at = _put_piece(out, at, texts, TABLE_COUNT)
        at = _put_number(out, at, counts[table], texts)
        if texts.is_avro == 0:
            out[at] = CLOSING_BRACE
            at += 1
    out[at] = 0 if texts.is_avro == 1 else CLOSING_BRACKET
    return at + 1


@compiled_plain
def _table_count(counts: Ints) -> int:
    """How many tables have events."""
    count = int64(0)
    for table in range(len(counts)):
        if counts[table] > 0:
            count += 1
    return count


@compiled_plain
def _put_start(
    out: Bytes, at: int, ids: IDs, state: Ints, texts: Texts, piece: int, line: Ints
) -> int:
    """The key, and the value up to the ID."""
    line[KEY_START] = at
    at = _put_piece(out, at, texts, ID)
    at = _put_id(out, at, ids, state, texts)
    at = _put_piece(out, at, texts, ID_END)
    line[KEY_END] = line[VALUE_START] = at
    at = _put_piece(out, at, texts, piece)
    return _put_id(out, at, ids, state, texts)


@compiled_plain
def _put_time(out: Bytes, at: int, record: Ints, texts: Texts, line: Ints) -> int:
    """The rest of the value."""
    at = _put_piece(out, at, texts, TS_MS)
    at = _put_number(out, at, record[COMMIT_MS], texts)
    at = _put_piece(out, at, texts, TAIL)
    line[VALUE_END], line[SEQ] = at, record[RECORD_SEQ]
    return at


@compiled_plain
def _put_piece(out: Bytes, at: int, texts: Texts, piece: int) -> int:
    return put_bytes(out, at, texts.fixed, texts.pieces[piece, 0], texts.pieces[piece, 1])


@compiled_plain
def _put_number(out: Bytes, at: int, value: int, texts: Texts) -> int:
    if texts.is_avro == 1:
        return put_long(out, at, value)
    return put_signed(out, at, value)


@compiled_plain
def _put_id(out: Bytes, at: int, ids: IDs, state: Ints, texts: Texts) -> int:
    start, end = state[ID_START], state[ID_STOP]
    data = ids.before if state[IS_BEFORE] == 1 else ids.data
    if texts.is_avro == 1:
        return put_text(out, at, data, start, end)
    return put_string(out, at, data, start, end)
