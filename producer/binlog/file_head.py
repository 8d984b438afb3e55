"""The head of a binlog file: its format and the GTIDs executed before it.

    4    magic  fe 62 69 6e
    …    FORMAT_DESCRIPTION
    …    PREVIOUS_GTIDS (MySQL) or GTID_LIST (MariaDB)

Readers use this position to find the file that they start from. ``schemas.gtid.binary`` decodes the bodies.

Guarantees: the result is None until both events are complete, and their checksums are verified. Not done here:
identifying which of the server's files this is.
"""

import struct
import zlib
from collections.abc import Callable

import numpy as np

from millrace.errors import Fatal
from millrace.producer.binlog import events as t
from millrace.producer.binlog.gtid_runs import read_gtid
from millrace.schemas.gtid import Flavour, GtidPosition
from millrace.schemas.gtid.binary import decode_previous

_SEARCHED_BYTES_MAX = 64 << 20  # previous GTIDs of millions of intervals


def read_file_head(head: bytes | memoryview, flavour: Flavour) -> GtidPosition | None:
    """The GTIDs executed before a file, from its first bytes; None if more bytes are needed.

    Fatal MR-2004, MR-2008.
    """
    if len(head) < t.MAGIC_BYTES:
        return None
    if bytes(head[: t.MAGIC_BYTES]) != t.MAGIC:
        raise Fatal("MR-2004", "the file does not begin with the binlog magic number")
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
                f"the file does not name the GTIDs executed before it (event type {kind} at {at})",
            )
        if kind == wanted:
            return _decoded(bytes(head[at + t.HEADER_BYTES : body_end]), flavour)
        at += size
    return None


def read_first_gtid(read: Callable[[int], bytes]) -> str:
    """The first GTID event of a file as text, "" if it has none. ``read`` returns that many of its first bytes."""
    wanted, at = 4096, t.MAGIC_BYTES
    head = read(wanted)
    while True:
        while at + t.HEADER_BYTES <= len(head):
            (size,) = struct.unpack_from("<I", head, at + 9)
            if size < t.EVENT_BYTES_MIN or at + size > len(head):
                break
            if head[at + 4] in (t.GTID, t.GTID_TAGGED, t.MARIADB_GTID):
                event = bytearray(head[at : at + size - t.CHECKSUM_BYTES])
                return str(read_gtid(np.frombuffer(event, np.uint8)) or "")
            at += size
        if len(head) < wanted or wanted > _SEARCHED_BYTES_MAX:
            return ""
        wanted *= 8
        head = read(wanted)


def _decoded(body: bytes, flavour: Flavour) -> GtidPosition:
    try:
        return decode_previous(body, flavour=flavour)
    except Fatal as error:
        raise Fatal("MR-2004", f"the head of the file can't be decoded: {error.message}") from error
