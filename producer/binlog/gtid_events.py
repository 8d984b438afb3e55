"""Decodes GTID events for the relay log and the converter.

    GTID (33)           flags 1 | uuid 16 | number 8 | kind 1 (2) | last committed 8 | sequence 8
                        | immediate commit time 7; if its top bit is set: | original commit time 7
                        MySQL 5.7 ends after the sequence.
    GTID_TAGGED (42)    version, size, last required field, then (field id, value)*, in MySQL's serialization format.
                        Fields: 0 flags, 1 uuid (16 numbers), 2 number (signed), 3 tag, 4 and 5 (signed),
                        6 immediate commit time, 7 original commit time.
                        A number takes 1 to 9 bytes: one more than the first byte has trailing one bits. The remaining
                        bits are little-endian. The lowest bit of a signed number is its sign.
    MariaDB GTID (162)  sequence 8 | domain 4 | flags 1 (1 standalone, 2 commit id, 64 XA prepared, 128 XA completed)
                        | with flag 2: commit id 8 | with an XA flag: xid (format 4, lengths 1 and 1, bytes)
                        | optional: further flags 1 (2, 4, 8: START, COMMIT, ROLLBACK of a two-phase ALTER) …

Sources: mysql-server libs/mysql/binlog/event/control_events.h, libs/mysql/serialization; MariaDB sql/log_event.h.
Guarantees: nothing is read outside the event; False means that the event is malformed.
"""

import numpy as np

from millrace.producer.binlog import events as t
from millrace.producer.binlog.compiled import Bytes, Words, compiled, int64
from millrace.producer.binlog.loads import u32, u56, u64

# A GTID event is decoded into these words of a state array, which begin at a given slot.
SOURCE_LOW = 0  # first 8 bytes of the uuid, little-endian; MariaDB: domain
SOURCE_HIGH = 1  # last 8 bytes of the uuid; MariaDB: server id
TAG = 2  # words 2 to 5: the tag, zero-padded to 32 bytes, little-endian
TAG_WORDS = 4
NUMBER = 6
COMMITTED_US = 7  # commit time on the original server; 0 if the event has none
FLAGS = 8  # MariaDB
ALTER_PHASE = 9  # MariaDB: nonzero for one phase of a two-phase ALTER
GTID_WORDS = 10

TAG_BYTES_MAX = 32
STANDALONE_FLAG = 1
XA_PREPARED_FLAG = 64
_COMMIT_ID_FLAG = 2
_XA_FLAGS = 192
_ALTER_FLAGS = 14


@compiled
def read_gtid_event(words: Words, base: int, buf: Bytes, at: int, end: int) -> bool:
    """Decode the event ``buf[at:end]`` (without checksum) into ``words[base:base + GTID_WORDS]``."""
    kind = int64(buf[at + 4])
    body = at + t.HEADER_BYTES
    for k in range(TAG, GTID_WORDS):
        words[base + k] = 0
    if kind == t.GTID:
        if body + 25 > end:
            return False
        words[base + SOURCE_LOW] = u64(buf, body + 1)
        words[base + SOURCE_HIGH] = u64(buf, body + 9)
        words[base + NUMBER] = u64(buf, body + 17)
        if body + 49 <= end:
            committed = u56(buf, body + 42)
            if committed >> 55 & 1:
                if body + 56 > end:
                    return False
                committed = u56(buf, body + 49)
            words[base + COMMITTED_US] = committed
    elif kind == t.MARIADB_GTID:
        if body + 13 > end:
            return False
        words[base + NUMBER] = u64(buf, body)
        words[base + SOURCE_LOW] = u32(buf, body + 8)
        words[base + SOURCE_HIGH] = u32(buf, at + 5)
        words[base + FLAGS] = int64(buf[body + 12])
        words[base + ALTER_PHASE] = _alter_phase(buf, body, end, words[base + FLAGS])
    elif not _read_tagged(words, base, buf, body, end):
        return False
    is_positive: bool = words[base + NUMBER] > 0
    return is_positive


@compiled
def _alter_phase(buf: Bytes, body: int, end: int, flags: int) -> int:
    at = body + 13
    if flags & _COMMIT_ID_FLAG:
        at += 8
    if flags & _XA_FLAGS:
        if at + 6 > end:
            return 0
        at += 6 + int64(buf[at + 4]) + int64(buf[at + 5])
    if at >= end:
        return 0
    return int64(buf[at]) & _ALTER_FLAGS


@compiled
def _read_tagged(words: Words, base: int, buf: Bytes, at: int, end: int) -> bool:
    is_named = False
    immediate = original = int64(0)
    for _ in range(3):
        at, _value = _varlen(buf, at, end)
    while 0 <= at < end:
        at, field = _varlen(buf, at, end)
        if field == 1:
            for half in (SOURCE_LOW, SOURCE_HIGH):
                words[base + half] = 0
                for k in range(8):
                    at, byte = _varlen(buf, at, end)
                    if at < 0 or not 0 <= byte <= 255:
                        return False
                    words[base + half] |= int64(byte) << (8 * k)
            is_named = True
        elif field == 3:
            at, length = _varlen(buf, at, end)
            if at < 0 or not 0 <= length <= TAG_BYTES_MAX or at + length > end:
                return False
            for k in range(length):
                letter = int64(buf[at + k])
                is_letter = letter == 95 or 97 <= letter <= 122
                if not is_letter and (k == 0 or not 48 <= letter <= 57):
                    return False  # a tag is [a-z_][a-z0-9_]*
                words[base + TAG + (k >> 3)] |= letter << (8 * (k & 7))
            at += length
        else:
            at, value = _varlen(buf, at, end)
            if field == 2:
                words[base + NUMBER] = (value >> 1) ^ -(value & 1)
            elif field == 6:
                immediate = value
            elif field == 7:
                original = value
            elif field > 7:
                break
    words[base + COMMITTED_US] = original if original != 0 else immediate
    return is_named and at >= 0


@compiled
def _varlen(buf: Bytes, at: int, end: int) -> tuple[int, int]:
    """(offset after the number, value); the offset is -1 if the bytes end inside the number."""
    if at < 0 or at >= end:
        return -1, 0
    more = 0
    while more < 8 and buf[at] >> more & 1:
        more += 1
    if at + more + 1 > end:
        return -1, 0
    value = int64(0)
    if more == 8:
        return at + 9, u64(buf, at + 1)
    for k in range(more + 1):
        value |= int64(buf[at + k]) << (8 * k)
    if more == 7:  # the top bit of the 64 may be set: shift as unsigned
        return at + 8, int64(np.uint64(value) >> np.uint64(8))
    return at + more + 1, value >> (more + 1)
