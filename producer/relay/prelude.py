"""What a binlog file says at its start: its format, and what was executed before it.

    4    magic  fe 62 69 6e
    …    FORMAT_DESCRIPTION
    …    PREVIOUS_GTIDS (MySQL) or GTID_LIST (MariaDB)

PREVIOUS_GTIDS, body (MySQL ``Gtid_set::encode``):
    8    number of sources; with tags: bytes 1 to 6 hold the number and byte 7 is 1
    each 16 uuid, [with tags: length * 2, tag], 8 number of intervals, each 8 start, 8 end (exclusive)
GTID_LIST, body (MariaDB ``Gtid_list_log_event``):
    4    number of GTIDs (low 28 bits), flags (high 4)
    each 4 domain, 4 server, 8 sequence; the last of each domain is its position

Guarantees: None until both events are there whole; what is said has a right checksum: from it follows with which file
a reader begins. Not done here: finding out which of a server's files this is.
"""

import struct
import zlib
from pathlib import Path
from uuid import UUID

from millrace.errors import Fatal
from producer.relay import event_types as t
from producer.relay.files import DISK, Files, read_range
from schemas.gtid import Flavour, GtidPosition, GtidSet, MariadbGtid, MariadbGtidSet

PRELUDE_READ_BYTES = 4096  # a few hundred bytes are usual
PRELUDE_BYTES_MAX = 64 << 20  # a GTID set of millions of intervals


def read_prelude(head: bytes | memoryview, flavour: Flavour) -> GtidPosition | None:
    """The position in front of a file from its first bytes; None: more bytes are needed. Fatal MR-2004."""
    if len(head) < t.MAGIC_BYTES:
        return None
    if bytes(head[: t.MAGIC_BYTES]) != t.MAGIC:
        raise Fatal("MR-2004", "the file does not begin as a binlog file does")
    at = t.MAGIC_BYTES
    wanted = t.PREVIOUS_GTIDS if flavour is Flavour.MYSQL else t.MARIADB_GTID_LIST
    while at + t.HEADER_BYTES <= len(head):
        kind = head[at + 4]
        (size,) = struct.unpack_from("<I", head, at + 9)
        if size < t.EVENT_BYTES_MIN:
            raise Fatal("MR-2004", f"the event at {at} has an impossible length")
        if at + size > len(head):
            return None
        body_end = at + size - t.CHECKSUM_BYTES
        if zlib.crc32(head[at:body_end]) != int.from_bytes(head[body_end : at + size], "little"):
            raise Fatal("MR-2004", f"the event at {at} has a wrong checksum")
        if kind not in (t.FORMAT_DESCRIPTION, t.MARIADB_START_ENCRYPTION, wanted):
            raise Fatal(
                "MR-2008",
                f"the file does not say what was executed before it (event type {kind} at {at})",
            )
        if kind == wanted:
            body = bytes(head[at + t.HEADER_BYTES : body_end])
            return (
                decode_previous_gtids(body) if flavour is Flavour.MYSQL else decode_gtid_list(body)
            )
        at += size
    return None


def read_file_prelude(path: Path, flavour: Flavour, files: Files = DISK) -> GtidPosition | None:
    """``read_prelude`` of a file, reading as much of it as is needed."""
    fd = files.open(path, is_read_only=True)
    try:
        wanted = PRELUDE_READ_BYTES
        while True:
            head = read_range(files, fd, 0, wanted)
            position = read_prelude(head, flavour)
            if position is not None or len(head) < wanted or wanted > PRELUDE_BYTES_MAX:
                return position
            wanted *= 8
    finally:
        files.close(fd)


def decode_previous_gtids(body: bytes) -> GtidSet:
    """The body of a PREVIOUS_GTIDS event; Fatal MR-2004."""
    try:
        return GtidSet.of_intervals(_intervals(body))
    except (struct.error, ValueError, IndexError) as error:
        raise Fatal("MR-2004", f"a PREVIOUS_GTIDS event can't be read: {error}") from error


def _intervals(body: bytes) -> list[tuple[tuple[UUID, str], tuple[int, int]]]:
    found = []
    has_tags = body[7] == 1
    (sources,) = struct.unpack_from("<Q", body)
    if has_tags:
        sources = sources >> 8 & (1 << 48) - 1
    at = 8
    for _ in range(sources):
        source, tag = UUID(bytes=body[at : at + 16]), ""
        at += 16
        if has_tags:
            length = body[at] >> 1
            tag = body[at + 1 : at + 1 + length].decode("ascii")
            at += 1 + length
        (count,) = struct.unpack_from("<Q", body, at)
        at += 8
        for _ in range(count):
            found.append(((source, tag), struct.unpack_from("<QQ", body, at)))
            at += 16
    return found


def decode_gtid_list(body: bytes) -> MariadbGtidSet:
    """The body of a GTID_LIST event; Fatal MR-2004."""
    try:
        (count,) = struct.unpack_from("<I", body)
        entries = [struct.unpack_from("<IIQ", body, 4 + 16 * k) for k in range(count & 0x0FFFFFFF)]
    except struct.error as error:
        raise Fatal("MR-2004", f"a GTID_LIST event can't be read: {error}") from error
    return MariadbGtidSet.of(
        {domain: MariadbGtid(domain, server, seq) for domain, server, seq in entries}.values()
    )
