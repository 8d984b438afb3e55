"""Writes one value of Canal's, with one row:

    data DATA_TAIL es GTID "gtid" ID seq TYPES old KEY types TABLE ts TYPE INSERT TAIL

``extras`` has the JDBC types in ``sqlType``, which depend on the value as they do in Canal: ``text text_end cell bits
null low high``. The type is ``null`` for NULL, ``high`` for an unsigned integer of ``bits`` from 2**(bits - 1) on, else
``low``. A column whose type is always the same is in the text.
"""

import numpy as np

from millrace.consumer.kernel import changes as view
from millrace.consumer.kernel import flat_source as origin
from millrace.consumer.kernel.compiled import Bytes, Hashes, Ints, compiled_plain
from millrace.consumer.kernel.digits import put_signed
from millrace.consumer.kernel.flat_source import put_changed
from millrace.consumer.kernel.json_text import put_bytes, put_string
from millrace.consumer.kernel.json_values import OK, put_null
from millrace.consumer.kernel.record_parts import DELETE, KEY_TAIL, UPDATE, put_image, put_piece
from millrace.consumer.kernel.walk import INT, NULL, read_long

# pieces
(
    DATA_TAIL,
    GTID,
    ID,
    TYPES,
    OLD,
    OLD_TAIL,
    KEY,
    TABLE,
    TYPE,
    TAIL,
) = range(KEY_TAIL + 1, KEY_TAIL + 11)
PIECES_MAX = KEY_TAIL + 11

TEXT, TEXT_END, CELL, BITS, IF_NULL, IF_LOW, IF_HIGH = range(7)
EXTRA_WIDTH = 7

_WORDS = np.frombuffer(b"INSERTUPDATEDELETE", np.uint8)
_WORD_BYTES = 6
_LONG_BYTES = 8


@compiled_plain
def _is_high(data: Bytes, kind: int, start: int, end: int, bits: int) -> bool:
    """Whether an unsigned integer has its highest bit. One of 64 bits is a number of up to 9 bytes."""
    if kind == INT:
        value, _ = read_long(data, start, end)
        return bool(value >> (bits - 1) != 0)
    return end - start > _LONG_BYTES


@compiled_plain
def _put_types(
    out: Bytes, at: int, data: Bytes, cells: Ints, first: int, extras: Ints, fixed: Bytes
) -> int:
    for number in range(len(extras)):
        line = extras[number]
        at = put_bytes(out, at, fixed, line[TEXT], line[TEXT_END])
        kind, start, end = cells[first + line[CELL]]
        code = line[IF_LOW]
        if kind == NULL:
            code = line[IF_NULL]
        elif line[BITS] > 0 and _is_high(data, kind, start, end, line[BITS]):
            code = line[IF_HIGH]
        at = put_signed(out, at, code)
    return at


@compiled_plain
def put_canal(
    out: Bytes,
    at: int,
    data: Bytes,
    cells: Ints,
    event: Ints,
    topic: Bytes,
    source: Ints,
    columns: Ints,
    singles: Ints,
    extras: Ints,
    fixed: Bytes,
    pieces: Ints,
    work: Hashes,
) -> tuple[int, int]:
    """Write it: (position after it, status)."""
    op = event[view.OP]
    first = event[view.BEFORE] if op == DELETE else event[view.AFTER]
    at, status = put_image(out, at, data, cells, first, columns, fixed, work)
    if status != OK:
        return at, status
    at = put_piece(out, at, fixed, pieces, DATA_TAIL)
    at = put_signed(out, at, source[origin.EVENT_MS])
    at = put_piece(out, at, fixed, pieces, GTID)
    at = put_string(out, at, topic, source[origin.GTID], source[origin.GTID_STOP])
    at = put_piece(out, at, fixed, pieces, ID)
    at = put_signed(out, at, event[view.SEQ])
    at = put_piece(out, at, fixed, pieces, TYPES)
    if op == UPDATE:
        at = put_piece(out, at, fixed, pieces, OLD)
        at, status = put_changed(
            out,
            at,
            data,
            cells,
            event[view.BEFORE],
            event[view.AFTER],
            singles,
            fixed,
            True,
            work,
        )
        if status != OK:
            return at, status
        at = put_piece(out, at, fixed, pieces, OLD_TAIL)
    else:
        at = put_null(out, at)
    at = put_piece(out, at, fixed, pieces, KEY)
    at = _put_types(out, at, data, cells, first, extras, fixed)
    at = put_piece(out, at, fixed, pieces, TABLE)
    at = put_signed(out, at, source[origin.COMMITTED_MS])
    at = put_piece(out, at, fixed, pieces, TYPE)
    word = 0
    if op in (UPDATE, DELETE):
        word = _WORD_BYTES if op == UPDATE else 2 * _WORD_BYTES
    at = put_bytes(out, at, _WORDS, word, word + _WORD_BYTES)
    return put_piece(out, at, fixed, pieces, TAIL), OK
