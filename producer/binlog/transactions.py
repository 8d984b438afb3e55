"""Finds where source transactions begin and end in a stream of events: one state machine for relay log and converter.

MySQL   GTID, then one of:  BEGIN … XID | BEGIN … COMMIT | BEGIN … ROLLBACK | XA START … XA END, XA_PREPARE
                            | TRANSACTION_PAYLOAD | one statement (DDL, XA COMMIT, XA ROLLBACK)
MariaDB GTID (which is also the BEGIN) … XID | COMMIT | ROLLBACK | XA_PREPARE | XA COMMIT | XA ROLLBACK,
        or, with FL_STANDALONE, up to one statement
Between transactions there are format description, previous GTIDs, checkpoint, rotate, stop, and MariaDB's incident
(MySQL's incident has a GTID). Each of these events is complete in itself.

MySQL also writes BEGIN before ``CREATE TABLE … START TRANSACTION`` (CREATE TABLE … SELECT, tried with 9.7), so this
module parses no statements. It compares keywords without regard to letter case.

``transaction_step`` is the state machine: it returns the effect of an event on the open source transaction. The relay
log keeps its state in one int64 array (slots below) while a file is written or walked. It calls ``begin_event`` when
the head of an event has arrived and ``finish_event`` when its last byte has arrived. The GTIDs of finished transactions
are collected in ``runs`` (see ``gtid_runs``), consecutive GTIDs in one row. The converter's kernel calls
``transaction_step`` for each event of its window.

Guarantees: BOUNDARY is never inside a source transaction; an unknown sequence of events is an error, not a boundary.
Not done here: reading rows, checksums.
"""

import numpy as np
from numpy.typing import NDArray

from millrace.producer.binlog import events as t
from millrace.producer.binlog import gtid_events
from millrace.producer.binlog.compiled import Bytes, Words, compiled, int64
from millrace.producer.binlog.gtid_events import STANDALONE_FLAG, TAG_WORDS, read_gtid_event
from millrace.producer.binlog.loads import u16

# Slots of the relay log's state.
# A group is a source transaction as a sequence of events.
POS = 0  # file offset after the last finished event
BOUNDARY = 1  # file offset after the last whole source transaction
GROUP = 2  # OUTSIDE, AFTER_GTID, INSIDE
GROUP_AT = 3  # file offset of the event that opened the group
LAST_GROUP_AT = 4  # file offset of the last whole group (0: none yet)
ENDS_GROUP = 5  # the current event ends the group
HAS_GTID = 6  # whether the open group has a GTID, which is in the slots from GTID on
RUN_COUNT = 7
GROUP_COUNT = 8  # whole groups seen
EVENT_COUNT = 9
GTID = 10  # gtid_events.GTID_WORDS slots
SLOTS = GTID + gtid_events.GTID_WORDS
# producer.binlog.packets uses the slots from SLOTS on.

# Values of GROUP.
OUTSIDE = 0
AFTER_GTID = 1
INSIDE = 2

_SOURCE_WORDS = 2 + TAG_WORDS  # identity and tag of the source, the first words of a GTID
RUN_WORDS = _SOURCE_WORDS + 2

# Steps: the effect of an event on the open source transaction.
STAYS = 0
BEGINS = 1  # a GTID: a source transaction begins
OPENS = 2  # BEGIN: rows may come
OPENS_XA = 3  # XA START: rows may come
COMMITS = 4  # COMMIT as a statement: the source transaction ends
ROLLS_BACK = 5  # ROLLBACK as a statement: it ends without its rows
ENDS = 6  # it ends with any other event: XID, XA_PREPARE, a payload, its only statement
STARTS_FILE = 7  # a format description: a transaction open before it died with its server

# Statuses of the kernels. The first two are not errors.
OK = 0
RUNS_FULL = 1  # drain ``runs`` and call again
GROUP_NOT_ENDED = 10  # a GTID came before the last transaction ended
ROWS_OUTSIDE = 11  # rows, a statement or a commit outside a source transaction
BAD_BODY = 12  # the body of a control event is malformed
NO_CHECKSUM = 13  # the file was started without CRC32
BAD_LENGTH = 14
BAD_CHECKSUM = 15
BAD_POSITION = 16  # next_pos differs from the file offset

_QUERY_FIXED_BYTES = 13  # thread id 4 | seconds 4 | database bytes 1 | error 2 | status bytes 2
# Header, fixed part, status variables, database, and the first 64 bytes of the statement.
QUERY_HEAD_BYTES_MAX = t.HEADER_BYTES + _QUERY_FIXED_BYTES + 65_535 + 256 + 64
CONTROL_BYTES_MAX = 1024  # GTID and format description events are far smaller

# The meaning of an event type to the state machine.
(
    _NEUTRAL,
    _GTID,
    _CONTENT,
    _COMMIT,
    _QUERY,
    _LONG_STATEMENT,  # a statement that is never BEGIN, COMMIT or another short keyword
    _PAYLOAD,
    _INCIDENT,
    _FILE_HEAD,
) = range(9)


def _meanings() -> NDArray[np.int64]:
    table = np.full(256, _NEUTRAL, np.int64)
    for meaning, types in {
        _GTID: t.GTIDS,
        _CONTENT: (t.TABLE_MAP, *t.PRE_GA_ROWS, *t.ROWS, t.PARTIAL_UPDATE_ROWS),
        _COMMIT: (t.XID, t.XA_PREPARE),
        _QUERY: (t.QUERY,),
        _LONG_STATEMENT: (t.MARIADB_QUERY_COMPRESSED, t.EXECUTE_LOAD_QUERY),
        _PAYLOAD: (t.TRANSACTION_PAYLOAD,),
        _INCIDENT: (t.INCIDENT,),
        _FILE_HEAD: (t.FORMAT_DESCRIPTION,),
    }.items():
        table[list(types)] = meaning
    return table


_MEANINGS = _meanings()


@compiled
def transaction_step(group: int, buf: Bytes, at: int, end: int, mariadb: bool) -> int:
    """The step of the event ``buf[at:end]`` (without checksum) in the state ``group``; an error from 10 on.

    Of a QUERY event only the head and the first bytes of the statement are read.
    """
    meaning = _MEANINGS[buf[at + 4]]
    if meaning == _NEUTRAL:
        return STAYS
    if meaning == _CONTENT:
        return STAYS if group == INSIDE else ROWS_OUTSIDE
    if meaning == _COMMIT:
        return ENDS if group == INSIDE else ROWS_OUTSIDE
    if meaning == _GTID:
        return BEGINS if group == OUTSIDE else GROUP_NOT_ENDED
    if meaning == _QUERY:
        return _statement_step(group, buf, at + t.HEADER_BYTES, end, mariadb)
    if meaning == _PAYLOAD:
        return ENDS if group == AFTER_GTID else ROWS_OUTSIDE
    if meaning == _LONG_STATEMENT:
        return ENDS if group == AFTER_GTID else STAYS
    if meaning == _INCIDENT:
        return ENDS if group != OUTSIDE else STAYS
    return STARTS_FILE


@compiled
def _statement_step(group: int, buf: Bytes, body: int, end: int, mariadb: bool) -> int:
    if body + _QUERY_FIXED_BYTES > end:
        return BAD_BODY
    sql = body + _QUERY_FIXED_BYTES + u16(buf, body + 11) + int64(buf[body + 8]) + 1
    length = end - sql
    if length < 0:
        return BAD_BODY
    if group == OUTSIDE:
        return ROWS_OUTSIDE
    if group == AFTER_GTID:
        if mariadb:
            return ENDS
        if _statement_matches(buf, sql, length, b"BEGIN", True):
            return OPENS
        if _statement_matches(buf, sql, length, b"XA START", False) or _statement_matches(
            buf, sql, length, b"XA BEGIN", False
        ):
            return OPENS_XA
        return ENDS
    if _statement_matches(buf, sql, length, b"COMMIT", True):
        return COMMITS
    if _statement_matches(buf, sql, length, b"ROLLBACK", True):
        return ROLLS_BACK
    if _statement_matches(buf, sql, length, b"XA COMMIT", False) or _statement_matches(
        buf, sql, length, b"XA ROLLBACK", False
    ):
        return ENDS
    return STAYS


@compiled
def _statement_matches(buf: Bytes, sql: int, length: int, word: bytes, is_all: bool) -> bool:
    """Whether the statement begins with ``word`` (``is_all``: equals ``word``) in any letter case."""
    if length < len(word) or (is_all and length != len(word)):
        return False
    for k in range(len(word)):
        byte = buf[sql + k]
        if 97 <= byte <= 122:
            byte -= 32
        if byte != word[k]:
            return False
    return True


@compiled
def state_after_gtid(words: Words, base: int, mariadb: bool) -> int:
    """INSIDE if the GTID event is also the BEGIN, else AFTER_GTID."""
    if mariadb and words[base + gtid_events.FLAGS] & STANDALONE_FLAG == 0:
        return INSIDE
    return AFTER_GTID


@compiled
def head_bytes(kind: int, size: int) -> int:
    """The number of contiguous bytes of an event that ``begin_event`` needs."""
    if kind == t.QUERY:
        return min(size, QUERY_HEAD_BYTES_MAX)
    if kind in (t.GTID, t.GTID_TAGGED, t.MARIADB_GTID, t.FORMAT_DESCRIPTION):
        return min(size, CONTROL_BYTES_MAX)
    return t.HEADER_BYTES


@compiled
def begin_event(state: Words, runs: Words, buf: Bytes, at: int, size: int, mariadb: bool) -> int:
    """Advance the state by the head of an event of ``size`` bytes at ``buf[at]``, file offset state[POS]."""
    end = at + size - t.CHECKSUM_BYTES
    step = transaction_step(state[GROUP], buf, at, end, mariadb)
    state[ENDS_GROUP] = 0
    if step == STAYS:
        return OK
    if step >= GROUP_NOT_ENDED:
        return step
    if step == BEGINS:
        return _begin_group(state, runs, buf, at, size)
    if step == STARTS_FILE:
        if size < 19 + 57 + 5 or size > CONTROL_BYTES_MAX:
            return BAD_BODY
        if buf[at + size - 5] != t.CHECKSUM_ALGORITHM_CRC32:
            return NO_CHECKSUM
        state[GROUP] = OUTSIDE
    elif step in (OPENS, OPENS_XA):
        state[GROUP] = INSIDE
    else:
        state[ENDS_GROUP] = 1
    return OK


@compiled
def finish_event(state: Words, runs: Words, size: int) -> None:
    """Advance the state past the event that ``begin_event`` started: all its bytes have arrived."""
    state[POS] += size
    state[EVENT_COUNT] += 1
    if state[ENDS_GROUP]:
        state[GROUP] = OUTSIDE
        state[LAST_GROUP_AT] = state[GROUP_AT]
        state[GROUP_COUNT] += 1
        if state[HAS_GTID]:
            _gather(state, runs)
    if state[GROUP] == OUTSIDE:
        state[BOUNDARY] = state[POS]


@compiled
def _begin_group(state: Words, runs: Words, buf: Bytes, at: int, size: int) -> int:
    if state[RUN_COUNT] == runs.shape[0]:
        return RUNS_FULL
    kind = buf[at + 4]
    group = AFTER_GTID
    if kind == t.ANONYMOUS_GTID:
        state[HAS_GTID] = 0
    else:
        end = at + size - t.CHECKSUM_BYTES
        if size > CONTROL_BYTES_MAX or not read_gtid_event(state, GTID, buf, at, end):
            return BAD_BODY
        state[HAS_GTID] = 1
        group = state_after_gtid(state, GTID, kind == t.MARIADB_GTID)
    state[GROUP] = group
    state[GROUP_AT] = state[POS]
    return OK


@compiled
def _gather(state: Words, runs: Words) -> None:
    """Append the finished group's GTID to the last run, or add a run (``_begin_group`` ensures that there is room)."""
    count = state[RUN_COUNT]
    number = state[GTID + gtid_events.NUMBER]
    if count:
        last = runs[count - 1]
        same = last[_SOURCE_WORDS + 1] + 1 == number
        for k in range(_SOURCE_WORDS):
            same = same and last[k] == state[GTID + k]
        if same:
            last[_SOURCE_WORDS + 1] = number
            return
    for k in range(_SOURCE_WORDS):
        runs[count, k] = state[GTID + k]
    runs[count, _SOURCE_WORDS] = number
    runs[count, _SOURCE_WORDS + 1] = number
    state[RUN_COUNT] = count + 1
