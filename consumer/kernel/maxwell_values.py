"""Writes one value of Maxwell's:

    HEAD insert TS ts XID xid XOFFSET xoffset COMMIT POSITION file : pos QUOTE GTID "gtid" SERVER_ID server_id
    primary key DATA data OLD old OBJECT_TAIL TAIL

``extras`` has the columns of the primary key as elements of an array, and its end is ``PRIMARY_TAIL``. The settings
choose what is written. ``DATA`` is before columns that are written without NULLs; otherwise it is the text of the first
column. ``xid`` is the number at the end of the GTID: the set topic does not have InnoDB's.
"""

import numpy as np

from millrace.characters import COLON, NINE, QUOTE, ZERO
from millrace.consumer.kernel import changes as view
from millrace.consumer.kernel import flat_source as origin
from millrace.consumer.kernel.compiled import Bytes, Hashes, Ints, compiled_plain
from millrace.consumer.kernel.digits import put_signed
from millrace.consumer.kernel.flat_source import put_changed, put_present
from millrace.consumer.kernel.json_text import put_bytes, put_string
from millrace.consumer.kernel.json_values import OK
from millrace.consumer.kernel.record_parts import (
    CREATE,
    DELETE,
    KEY_TAIL,
    READ,
    UPDATE,
    put_image,
    put_piece,
)

# pieces
(
    HEAD,
    TS,
    XID,
    XOFFSET,
    COMMIT,
    POSITION,
    GTID,
    SERVER_ID,
    PRIMARY_TAIL,
    DATA,
    DATA_TAIL,
    OLD,
    OBJECT_TAIL,
    TAIL,
) = range(KEY_TAIL + 1, KEY_TAIL + 15)
PIECES_MAX = KEY_TAIL + 15

# settings, after those of ``flat_records``
HAS_COMMIT, HAS_XOFFSET, HAS_POSITION, HAS_GTID, HAS_SERVER_ID, HAS_PRIMARY, HAS_NULLS = range(
    3, 10
)
IS_BOOTSTRAP = 10  # whether rows of a snapshot have Maxwell's word
SETTINGS = 11

_WORDS = np.frombuffer(b"insertupdatedeletebootstrap-insert", np.uint8)
_INSERT, _UPDATE, _DELETE, _READ = 0, 6, 12, 18
_SECOND_MS = 1000


@compiled_plain
def _put_word(out: Bytes, at: int, op: int) -> int:
    if op == CREATE:
        return put_bytes(out, at, _WORDS, _INSERT, _UPDATE)
    if op == UPDATE:
        return put_bytes(out, at, _WORDS, _UPDATE, _DELETE)
    if op == DELETE:
        return put_bytes(out, at, _WORDS, _DELETE, _READ)
    return put_bytes(out, at, _WORDS, _READ, len(_WORDS))


@compiled_plain
def _put_commit(
    out: Bytes, at: int, topic: Bytes, source: Ints, fixed: Bytes, pieces: Ints, settings: Ints
) -> int:
    first = source[origin.GTID_STOP]
    while first > source[origin.GTID] and ZERO <= topic[first - 1] <= NINE:
        first -= 1
    at = put_piece(out, at, fixed, pieces, XID)
    at = put_bytes(out, at, topic, first, source[origin.GTID_STOP])
    if source[origin.IS_LAST] == 1:
        return put_piece(out, at, fixed, pieces, COMMIT)
    if settings[HAS_XOFFSET] == 1:
        at = put_piece(out, at, fixed, pieces, XOFFSET)
        at = put_signed(out, at, source[origin.TOTAL_ORDER] - 1)
    return at


@compiled_plain
def _put_head(
    out: Bytes,
    at: int,
    op: int,
    topic: Bytes,
    source: Ints,
    fixed: Bytes,
    pieces: Ints,
    settings: Ints,
) -> int:
    """All that is before the primary key."""
    at = put_piece(out, at, fixed, pieces, HEAD)
    at = _put_word(out, at, CREATE if op == READ and settings[IS_BOOTSTRAP] == 0 else op)
    at = put_piece(out, at, fixed, pieces, TS)
    at = put_signed(out, at, source[origin.EVENT_MS] // _SECOND_MS)
    if op == READ:
        return at
    if settings[HAS_COMMIT] == 1 and source[origin.GTID_STOP] > source[origin.GTID]:
        at = _put_commit(out, at, topic, source, fixed, pieces, settings)
    if settings[HAS_POSITION] == 1:
        at = put_piece(out, at, fixed, pieces, POSITION)
        at = put_string(out, at, topic, source[origin.FILE], source[origin.FILE_STOP])
        out[at - 1] = COLON  # instead of the quote
        at = put_signed(out, at, source[origin.POS])
        out[at] = QUOTE
        at += 1
    if settings[HAS_GTID] == 1:
        at = put_piece(out, at, fixed, pieces, GTID)
        at = put_string(out, at, topic, source[origin.GTID], source[origin.GTID_STOP])
    if settings[HAS_SERVER_ID] == 1:
        at = put_piece(out, at, fixed, pieces, SERVER_ID)
        at = put_signed(out, at, source[origin.SERVER_ID])
    return at


@compiled_plain
def put_maxwell(
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
    settings: Ints,
    work: Hashes,
) -> tuple[int, int]:
    """Write it: (position after it, status)."""
    op = event[view.OP]
    first = event[view.BEFORE] if op == DELETE else event[view.AFTER]
    at = _put_head(out, at, op, topic, source, fixed, pieces, settings)
    if settings[HAS_PRIMARY] == 1:
        at, status = put_image(out, at, data, cells, first, extras, fixed, work)
        if status != OK:
            return at, status
        at = put_piece(out, at, fixed, pieces, PRIMARY_TAIL)
    if settings[HAS_NULLS] == 1:
        at, status = put_image(out, at, data, cells, first, columns, fixed, work)
        at = put_piece(out, at, fixed, pieces, DATA_TAIL)
    else:
        at = put_piece(out, at, fixed, pieces, DATA)
        at, status = put_present(out, at, data, cells, first, singles, fixed, work)
        at = put_piece(out, at, fixed, pieces, OBJECT_TAIL)
    if status != OK:
        return at, status
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
            settings[HAS_NULLS] == 1,
            work,
        )
        if status != OK:
            return at, status
        at = put_piece(out, at, fixed, pieces, OBJECT_TAIL)
    return put_piece(out, at, fixed, pieces, TAIL), OK
