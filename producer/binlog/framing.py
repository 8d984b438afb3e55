"""Turns the bytes of a binlog file into packets of a dump, in one compiled pass over a window of the file.

The reverse of ``packets``: before each event come 3 bytes of length, 1 of sequence and 0x00. Source transactions that
the client has are left out. Which these are is a table of ``done`` rows, one for each range of GTIDs:

    MySQL     uuid 2 words | tag 4 words | first number | last number + 1
    MariaDB   domain | server | 4 zeros | sequence | 1 once that GTID was passed
              The transactions of the domain before this one are left out. If another server's transaction has the
              sequence, or the sequence is missing, the client's history is not that of the file.

Guarantees: each event is checked (CRC-32, length, position) before it is framed; nothing is framed after a bad event,
and no part of an event. Not done here: events of 16 MiB or longer than the window, sockets, files.
"""

import numpy as np

from millrace.producer.binlog import events as t
from millrace.producer.binlog import gtid_events
from millrace.producer.binlog.compiled import Bytes, Sums, Words, compiled, int64
from millrace.producer.binlog.gtid_events import GTID_WORDS, read_gtid_event
from millrace.producer.binlog.packets import PACKET_HEAD_BYTES, PACKET_PAYLOAD_MAX, _copy
from millrace.producer.binlog.transactions import BAD_BODY, OK
from millrace.producer.binlog.walk import check_event

# Slots of the state.
POS = 0  # file offset of the next event
SEQUENCE = 1  # of the next packet
IS_LEAVING_OUT = 2  # inside a source transaction that the client has
LEFT_OUT_COUNT = 3  # source transactions
# stop at the first source transaction that the client does not have; frame nothing
IS_SEARCHING = 4
HOLDS_ROTATE = 5  # stop before a ROTATE: the file that it names is not there yet
HAS_ANNOTATIONS = 6  # the client wants MariaDB's annotate-rows events
HINT = 7  # the row of ``done`` that matched last
FOUND = 8  # gtid_events.GTID_WORDS slots: the GTID of the last transaction
SLOTS = FOUND + GTID_WORDS

# Columns of ``done``: those of the GTID up to NUMBER, then
FIRST, STOP = gtid_events.NUMBER, gtid_events.NUMBER + 1
DONE_WORDS = STOP + 1

# Statuses in addition to those of ``producer.binlog.transactions``; OK: the next event is not complete.
IS_FULL = 2  # ``out`` has no room for the next event
IS_LARGE = 3  # the next event needs several packets
IS_HELD = 4  # the next event is a ROTATE
IS_FOUND = 5  # the next event begins the transaction that is searched for
DIVERGED = 6  # the transaction in FOUND is not in the client's history

FRAME_BYTES = PACKET_HEAD_BYTES + 1
SENDS, LEAVES_OUT, DIVERGES = 0, 1, 2


@compiled
def frame_events(
    buf: Bytes,
    fill: int,
    out: Bytes,
    state: Words,
    done: Words,
    tables: Sums,
    folded: Bytes,
    mariadb: bool,
) -> tuple[int, int, int]:
    """(status, bytes consumed, bytes framed). ``buf[0]`` is at the file offset state[POS]."""
    at = written = 0
    source, target = buf.ctypes.data, out.ctypes.data
    while True:
        status, size = check_event(buf, at, fill, state[POS], tables, folded, mariadb, True)
        if status != OK or size == 0:
            return status, at, written
        kind = int64(buf[at + 4])
        if kind == t.ROTATE and state[HOLDS_ROTATE]:
            return IS_HELD, at, written
        if kind in (t.GTID, t.GTID_TAGGED, t.MARIADB_GTID):
            leaves_out = int64(0)
            if len(done):
                end = at + size - t.CHECKSUM_BYTES
                if not read_gtid_event(state, FOUND, buf, at, end):
                    return BAD_BODY, at, written
                leaves_out = _judge(state, done, mariadb)
                if leaves_out == DIVERGES:
                    return DIVERGED, at, written
            state[LEFT_OUT_COUNT] += leaves_out
            state[IS_LEAVING_OUT] = leaves_out
        elif _is_outside(kind) or kind == t.ANONYMOUS_GTID:
            state[IS_LEAVING_OUT] = 0
        is_group = not _is_outside(kind)
        if state[IS_SEARCHING] and is_group and not state[IS_LEAVING_OUT]:
            return IS_FOUND, at, written
        is_unwanted = kind == t.MARIADB_ANNOTATE_ROWS and not state[HAS_ANNOTATIONS]
        if not (state[IS_LEAVING_OUT] or is_unwanted or state[IS_SEARCHING]):
            if size + 1 >= PACKET_PAYLOAD_MAX:
                return IS_LARGE, at, written
            if written + FRAME_BYTES + size > len(out):
                return IS_FULL, at, written
            _put_head(out, written, size + 1, state[SEQUENCE])
            state[SEQUENCE] = (state[SEQUENCE] + 1) & 255
            out[written + PACKET_HEAD_BYTES] = 0
            _copy(target + written + FRAME_BYTES, source + at, size)
            written += FRAME_BYTES + size
        at += size
        state[POS] += size


@compiled
def _put_head(out: Bytes, at: int, length: int, sequence: int) -> None:
    out[at] = length & 255
    out[at + 1] = length >> 8 & 255
    out[at + 2] = length >> 16
    out[at + 3] = sequence


@compiled
def _is_outside(kind: int) -> bool:
    """Whether events of this type are never part of a source transaction."""
    return kind in (
        t.FORMAT_DESCRIPTION,
        t.PREVIOUS_GTIDS,
        t.ROTATE,
        t.STOP,
        t.MARIADB_GTID_LIST,
        t.MARIADB_BINLOG_CHECKPOINT,
        t.MARIADB_START_ENCRYPTION,
    )


@compiled
def _judge(state: Words, done: Words, mariadb: bool) -> int:
    """Whether the client has the transaction in FOUND."""
    if mariadb:
        return _judge_mariadb(state, done)
    count = len(done)
    for step in range(count):
        row = state[HINT] + step
        if row >= count:
            row -= count
        number = state[FOUND + gtid_events.NUMBER]
        is_in = done[row, FIRST] <= number < done[row, STOP]
        for k in range(gtid_events.NUMBER):
            is_in = is_in and done[row, k] == state[FOUND + k]
        if is_in:
            state[HINT] = row
            return LEAVES_OUT
    return SENDS


@compiled
def _judge_mariadb(state: Words, done: Words) -> int:
    number = np.uint64(state[FOUND + gtid_events.NUMBER])
    for row in range(len(done)):
        if done[row, gtid_events.SOURCE_LOW] != state[FOUND + gtid_events.SOURCE_LOW]:
            continue
        if done[row, STOP]:
            return SENDS
        last = np.uint64(done[row, FIRST])
        if number < last:
            return LEAVES_OUT
        is_same = done[row, gtid_events.SOURCE_HIGH] == state[FOUND + gtid_events.SOURCE_HIGH]
        if number > last or not is_same:
            return DIVERGES
        done[row, STOP] = 1
        return LEAVES_OUT
    return SENDS
