"""Events that a dump contains and no file: where a file begins or a dump continues, and signs of life. Pure.

    ROTATE               8 position | file name        timestamp 0, next_pos 0, flag 0x20
    FORMAT_DESCRIPTION   that of the file, with next_pos 0 and creation time 0: a dump that starts inside a file.
                         Otherwise a replica would drop its temporary tables, as after a restart of the source.
                         For a client of MySQL that has transactions by GTID, next_pos stays.
    HEARTBEAT            file name                     timestamp 0, next_pos: the position reached

The first ROTATE has a checksum only if the client announced CRC32; every later event has what the file has, CRC32.
Source: mysql-server sql/rpl_binlog_sender.cc; MariaDB sql/sql_repl.cc; compared with the streams of both servers.
"""

import struct
from zlib import crc32

from millrace.producer.binlog import events as t

_HEADER = struct.Struct("<IBIIIH")
_CREATED_AT = t.HEADER_BYTES + 2 + 50  # of a format description: version 2 | server version 50
_IN_USE_FLAG = 1
_POSITION_MAX = 0xFFFFFFFF  # of an event's header


def rotate_event(server_id: int, name: str, pos: int, *, has_checksum: bool) -> bytes:
    """The next event is at ``pos`` of the file ``name``."""
    body = struct.pack("<Q", pos) + name.encode()
    return _event(t.ROTATE, server_id, body, flags=t.ARTIFICIAL_FLAG, has_checksum=has_checksum)


def sign_of_life(server_id: int, name: str, pos: int) -> bytes:
    """The dump is alive and has nothing new after ``pos``.

    A heartbeat has room for a position below 4 GiB, and a replica stops at one that is before its own. After a larger
    transaction, a ROTATE to the place that was reached says the same.
    """
    if pos > _POSITION_MAX:
        return rotate_event(server_id, name, pos, has_checksum=True)
    return _event(t.HEARTBEAT, server_id, name.encode(), next_pos=pos)


def inner_format_description(event: bytes, *, keeps_place: bool = False) -> bytes:
    """The format description of a file, for a dump that starts inside it. ``keeps_place``: with its next_pos."""
    made = bytearray(event[: -t.CHECKSUM_BYTES])
    if not keeps_place:
        made[13:17] = bytes(4)
    made[_CREATED_AT : _CREATED_AT + 4] = bytes(4)
    (flags,) = struct.unpack_from("<H", made, t.FLAGS_AT)
    struct.pack_into("<H", made, t.FLAGS_AT, flags & ~_IN_USE_FLAG)
    return bytes(made) + struct.pack("<I", crc32(made))


def _event(
    kind: int,
    server_id: int,
    body: bytes,
    *,
    next_pos: int = 0,
    flags: int = 0,
    has_checksum: bool = True,
) -> bytes:
    size = t.HEADER_BYTES + len(body) + (t.CHECKSUM_BYTES if has_checksum else 0)
    made = _HEADER.pack(0, kind, server_id, size, next_pos, flags) + body
    return made + struct.pack("<I", crc32(made)) if has_checksum else made
