"""Turns the bytes of a dump connection into the bytes of a binlog file, in one compiled pass over a receive buffer.

On the wire (MySQL protocol, COM_BINLOG_DUMP):

    3  payload length   0xFFFFFF: the payload continues in the next packet
    1  sequence number  of the packet, modulo 256
    1  0x00             an event follows (0xFF: error packet, 0xFE: end of file)
    n  event            header, body, CRC-32

The output is the events alone, joined across packets. The checksum and the file position of each event are verified.
Heartbeats are dropped. The pass stops before artificial events, errors and ends of stream; the caller handles them.
An event may be larger than the buffer: its bytes are copied as they arrive.

Guarantees: the bytes written up to state[POS] are whole events with a correct CRC-32 and a correct position.
Not done here: sockets, files.
"""

import ctypes
from collections.abc import Sequence

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.base import BaseContext

from millrace.producer.binlog import events as t
from millrace.producer.binlog.compiled import Bytes, Lowering, Sums, Words, compiled, int64, lowered
from millrace.producer.binlog.crc import crc32
from millrace.producer.binlog.loads import u16, u32
from millrace.producer.binlog.transactions import (
    BAD_CHECKSUM,
    BAD_LENGTH,
    BAD_POSITION,
    GROUP,
    OK,
    OUTSIDE,
    POS,
    SLOTS,
    begin_event,
    finish_event,
    head_bytes,
)

# State slots in addition to those of ``producer.binlog.transactions``.
PACKET_LEFT = SLOTS  # payload bytes of the current packet still to come
EVENT_LEFT = SLOTS + 1  # bytes of the current event still to come
EVENT_SIZE = SLOTS + 2
EVENT_SUM = SLOTS + 3  # running CRC-32 of the current event
PACKET_SEQUENCE = SLOTS + 4  # of the next packet
STORED_SUM = SLOTS + 5  # the checksum bytes received so far
PACKET_IS_FULL = SLOTS + 6  # the current packet has the maximum length, so another follows
STATE_SLOTS = SLOTS + 7

# Statuses in addition to those of ``producer.binlog.transactions``.
ARTIFICIAL = 2  # the packet at the offset holds an artificial event
NOT_AN_EVENT = 3  # the packet at the offset holds an error or the end of the stream
REACHED = 4  # state[POS] is at ``stop_pos``
BAD_SEQUENCE = 20  # packets out of order

PACKET_PAYLOAD_MAX = 0xFFFFFF
PACKET_HEAD_BYTES = 4
# Error packets, artificial ROTATE and FORMAT_DESCRIPTION events are far smaller.
OPAQUE_BYTES_MAX = 1 << 16


def _plain_copy(target: int, source: int, length: int) -> None:
    ctypes.memmove(int(target), int(source), int(length))


@lowered(_plain_copy)
def _copy(_typing: object, _target: object, _source: object, _length: object) -> Lowering:
    """Copy ``length`` bytes between addresses that don't overlap."""

    def build(
        context: BaseContext, builder: ir.IRBuilder, _signature: object, args: Sequence[ir.Value]
    ) -> ir.Value:
        byte = ir.IntType(8).as_pointer()
        target, source = (builder.inttoptr(address, byte) for address in args[:2])
        cgutils.raw_memcpy(builder, target, source, args[2], 1)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp), build


@compiled
def strip_packets(
    wire: Bytes,
    at: int,
    fill: int,
    out: Bytes,
    state: Words,
    runs: Words,
    tables: Sums,
    folded: Bytes,
    mariadb: bool,
    stop_pos: int,
) -> tuple[int, int, int]:
    """Returns (status, offset of the first byte not consumed, bytes written to ``out``).

    ``wire[at:fill]`` holds the received bytes; ``out`` is as long as ``wire``. OK means that more bytes are needed.
    """
    written = 0
    source = wire.ctypes.data
    target = out.ctypes.data
    while True:
        if state[EVENT_LEFT] == 0:
            if state[POS] == stop_pos:
                return REACHED, at, written
            if fill - at < PACKET_HEAD_BYTES:
                return OK, at, written
            length = u16(wire, at) | int64(wire[at + 2]) << 16
            if state[PACKET_IS_FULL]:  # the event filled its last packet: an empty packet follows
                if int64(wire[at + 3]) != state[PACKET_SEQUENCE]:
                    return BAD_SEQUENCE, at, written
                if length != 0:
                    return BAD_LENGTH, at, written
                state[PACKET_SEQUENCE] = (state[PACKET_SEQUENCE] + 1) & 255
                state[PACKET_IS_FULL] = 0
                at += PACKET_HEAD_BYTES
                continue
            if length == 0:
                return BAD_LENGTH, at, written
            if fill - at < PACKET_HEAD_BYTES + 1:
                return OK, at, written
            if wire[at + 4] != 0:
                if length > OPAQUE_BYTES_MAX:
                    return BAD_LENGTH, at, written
                if fill - at < PACKET_HEAD_BYTES + length:
                    return OK, at, written
                return NOT_AN_EVENT, at, written
            if int64(wire[at + 3]) != state[PACKET_SEQUENCE]:
                return BAD_SEQUENCE, at, written
            event = at + PACKET_HEAD_BYTES + 1
            if fill - event < t.HEADER_BYTES:
                if length < 1 + t.EVENT_BYTES_MIN:
                    return BAD_LENGTH, at, written
                return OK, at, written
            kind = int64(wire[event + 4])
            size = u32(wire, event + 9)
            next_pos = u32(wire, event + 13)
            if size < t.EVENT_BYTES_MIN or (
                size != length - 1 if length < PACKET_PAYLOAD_MAX else size < length - 1
            ):
                return BAD_LENGTH, at, written
            is_heartbeat = kind == t.HEARTBEAT or kind == t.HEARTBEAT_V2
            # next_pos 0 alone does not mark an artificial event. It is also the position 2^32 of a huge file (then it
            # equals the expected position), and MariaDB 11.4 and later write it inside a transaction (then the group
            # is open).
            expected = (state[POS] + size) & 0xFFFFFFFF
            is_unplaced = next_pos == 0 and state[GROUP] == OUTSIDE and expected != 0
            if is_heartbeat or is_unplaced or u16(wire, event + 17) & t.ARTIFICIAL_FLAG:
                if size > OPAQUE_BYTES_MAX:
                    return BAD_LENGTH, at, written
                if fill - event < size:
                    return OK, at, written
                body = size - t.CHECKSUM_BYTES
                sum_ = crc32(source + event, body, np.uint32(0), tables, folded)
                if int64(sum_) != u32(wire, event + body):
                    return BAD_CHECKSUM, at, written
                if not is_heartbeat:
                    return ARTIFICIAL, at, written
                state[PACKET_SEQUENCE] = (state[PACKET_SEQUENCE] + 1) & 255
                at = event + size
                continue
            if fill - event < head_bytes(kind, size):
                return OK, at, written
            if next_pos != expected and not (mariadb and next_pos == 0 and state[GROUP] != OUTSIDE):
                return BAD_POSITION, at, written
            status = begin_event(state, runs, wire, event, size, mariadb)
            if status != OK:
                return status, at, written
            state[PACKET_SEQUENCE] = (state[PACKET_SEQUENCE] + 1) & 255
            # The usual case: the whole event is in the buffer.
            if length < PACKET_PAYLOAD_MAX and fill - event >= size:
                body = size - t.CHECKSUM_BYTES
                sum_ = crc32(source + event, body, np.uint32(0), tables, folded)
                if int64(sum_) != u32(wire, event + body):
                    return BAD_CHECKSUM, at, written
                _copy(target + written, source + event, size)
                written += size
                at = event + size
                finish_event(state, runs, size)
                continue
            state[PACKET_LEFT] = length - 1
            state[PACKET_IS_FULL] = 1 if length == PACKET_PAYLOAD_MAX else 0
            state[EVENT_LEFT] = size
            state[EVENT_SIZE] = size
            state[EVENT_SUM] = 0
            state[STORED_SUM] = 0
            at = event
        if state[PACKET_LEFT] == 0:  # the event continues in the next packet
            if fill - at < PACKET_HEAD_BYTES:
                return OK, at, written
            length = u16(wire, at) | int64(wire[at + 2]) << 16
            if int64(wire[at + 3]) != state[PACKET_SEQUENCE]:
                return BAD_SEQUENCE, at, written
            if not state[PACKET_IS_FULL] or length == 0 or length > state[EVENT_LEFT]:
                return BAD_LENGTH, at, written
            state[PACKET_SEQUENCE] = (state[PACKET_SEQUENCE] + 1) & 255
            state[PACKET_LEFT] = length
            state[PACKET_IS_FULL] = 1 if length == PACKET_PAYLOAD_MAX else 0
            at += PACKET_HEAD_BYTES
        piece = min(fill - at, state[PACKET_LEFT], state[EVENT_LEFT])
        if piece == 0:
            return OK, at, written
        done = state[EVENT_SIZE] - state[EVENT_LEFT]
        summed = min(piece, max(0, state[EVENT_SIZE] - t.CHECKSUM_BYTES - done))
        if summed:
            state[EVENT_SUM] = int64(
                crc32(source + at, summed, np.uint32(state[EVENT_SUM]), tables, folded)
            )
        for k in range(summed, piece):
            place = done + k - (state[EVENT_SIZE] - t.CHECKSUM_BYTES)
            state[STORED_SUM] |= int64(wire[at + k]) << (8 * place)
        _copy(target + written, source + at, piece)
        written += piece
        at += piece
        state[PACKET_LEFT] -= piece
        state[EVENT_LEFT] -= piece
        if state[EVENT_LEFT] == 0:
            if state[PACKET_LEFT] != 0:
                return BAD_LENGTH, at, written
            if state[EVENT_SUM] != state[STORED_SUM]:
                return BAD_CHECKSUM, at, written
            finish_event(state, runs, state[EVENT_SIZE])
