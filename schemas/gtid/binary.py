"""GTID positions at the start of a binlog file, in the binary form of the events.

MySQL, PREVIOUS_GTIDS_EVENT (35), ``Gtid_set::encode`` in mysql-server ``sql/rpl_gtid_set.cc``; integers little-endian:

    size  field                                       without tags            with tags (8.3 and later)
       8  head                                        n                       1 << 56 | n << 8 | 1
          n times:
      16    server uuid
       1    twice the length of the tag                -                      then the tag, lower case
       8    m, number of intervals
          m times:
       8      first number
       8      last number + 1

A uuid with several tags appears once per tag. MariaDB, GTID_LIST_EVENT (163), ``Gtid_list_log_event``:

       4  n in the lower 28 bits, flags above
          n times:
       4    domain
       4    server
       8    sequence              a domain appears once for each server; the last one is its position
                                  (``rpl_binlog_state`` writes the newest last, even if its sequence is smaller)
          an empty list has 2 more bytes of padding

Both bodies exclude the event header and the checksum. Invalid bytes raise Fatal MR-6003.
"""

from uuid import UUID

from millrace.errors import Fatal
from millrace.schemas.byte_reader import ByteReader
from millrace.schemas.gtid.mariadb import MariadbGtid, MariadbGtidSet
from millrace.schemas.gtid.mysql import GtidSet, Interval, Source
from millrace.schemas.gtid.position import Flavour, GtidPosition

_COUNT_MASK = 2**28 - 1
_TAGGED = 1
_TAG_LENGTH_MAX = 32
_EMPTY_PADDING_BYTES = 2


def decode_previous(body: bytes, *, flavour: Flavour) -> GtidPosition:
    """The position before a binlog file, from its PREVIOUS_GTIDS (MySQL) or GTID_LIST (MariaDB)."""
    return decode_previous_gtids(body) if flavour is Flavour.MYSQL else decode_gtid_list(body)


def decode_previous_gtids(body: bytes) -> GtidSet:
    """MySQL's GTID set, with or without tags."""
    reader = ByteReader(bytes(body), "PREVIOUS_GTIDS")
    head = reader.uint(8)
    form = head >> 56
    if form not in (0, _TAGGED) or (form == _TAGGED and head & 0xFF != _TAGGED):
        reader.refuse(f"unknown form {head:#x}")
    count = head >> 8 & 0xFFFF_FFFF_FFFF if form == _TAGGED else head
    found: list[tuple[Source, Interval]] = []
    for _ in range(count):
        uuid = UUID(bytes=reader.take(16))
        source = uuid, _tag(reader) if form == _TAGGED else ""
        for _ in range(reader.uint(8)):
            found.append((source, (reader.uint(8), reader.uint(8))))
    reader.end()
    try:
        return GtidSet.of_intervals(found)
    except Fatal as error:
        reader.refuse(error.message)


def decode_gtid_list(body: bytes) -> MariadbGtidSet:
    """MariaDB's position: the last GTID of each domain."""
    return MariadbGtidSet.of({gtid.domain: gtid for gtid in decode_binlog_state(body)}.values())


def decode_binlog_state(body: bytes) -> tuple[MariadbGtid, ...]:
    """All entries of MariaDB's list: the last GTID of each domain and server."""
    reader = ByteReader(bytes(body), "GTID_LIST")
    count = reader.uint(4) & _COUNT_MASK
    found = tuple(MariadbGtid(reader.uint(4), reader.uint(4), reader.uint(8)) for _ in range(count))
    if not count:
        reader.take(min(reader.left, _EMPTY_PADDING_BYTES))
    reader.end()
    return found


def _tag(reader: ByteReader) -> str:
    twice = reader.uint(1)  # a variable-length number of one byte: its low bit is 0
    tag = reader.take(twice >> 1)
    if twice & 1 or len(tag) > _TAG_LENGTH_MAX or not tag.isascii():
        reader.refuse(f"{tag!r} is not a tag")
    return tag.decode()
