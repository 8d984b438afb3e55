"""Prepared XA transactions: where their events lie, by xid, from XA PREPARE to XA COMMIT or XA ROLLBACK.

    MySQL     GTID, XA START, rows, XA END, XA_PREPARE          … GTID, XA COMMIT
    MariaDB   GTID (flag 64), rows, XA END, XA_PREPARE          … GTID, XA COMMIT

XA_PREPARE event: one phase 1 | format id 4 | gtrid length 4 | bqual length 4 | gtrid, bqual. Statements name the same
as ``X'gtrid',X'bqual',format``; both become the text ``gtrid.bqual.format`` in hex.

What is prepared is remembered while the relay log is read, until its rows have come out: its file is held. A converter
that begins behind an XA PREPARE looks for it from the oldest file on: nothing has to be stored, but the relay log must
reach back that far, and nothing holds that file. Where it is gone, ``producer.set_stream`` has the relay log begun anew
at the first binlog there is.
"""

import re
from dataclasses import dataclass

from producer.converter.feeds import (
    HEADER_BYTES,
    WINDOW_BYTES,
    PayloadFeed,
    Reader,
    checksum_bytes_of,
)
from schemas.byte_reader import ByteReader
from schemas.coordinates import Coordinates

_FORMAT_DESCRIPTION, _XA_PREPARE, _PAYLOAD, _GTIDS = 15, 38, 40, (33, 42, 162)
_HEX = re.compile(r"[xX]'([0-9A-Fa-f]*)'")
_FORMAT = re.compile(r",\s*(\d+)\s*$")


@dataclass(frozen=True, slots=True)
class XaGroup:
    """The events from ``start`` (behind the GTID) up to ``end_pos`` (behind XA_PREPARE or the payload) in the same
    file."""

    start: Coordinates
    end_pos: int
    checksum_bytes: int


class XaGroups:
    """What is prepared and not yet decided."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._groups: dict[str, XaGroup] = {}

    def prepare(self, xid: str, group: XaGroup) -> None:
        """Prepared: its rows wait."""
        self._groups[xid] = group

    def forget(self, xid: str) -> None:
        """Rolled back, or committed and its rows behind us."""
        self._groups.pop(xid, None)

    def oldest(self) -> Coordinates | None:
        """Where the first one that waits begins: the relay log is needed from there on."""
        return min((group.start for group in self._groups.values()), default=None)

    def committed(self, xid: str, until: Coordinates) -> XaGroup | None:
        """Where its rows are, in front of `until`; they are held until it is forgotten. None: not in the relay log."""
        group = self._groups.get(xid) or self._search(xid, until)
        if group is not None:
            self._groups[xid] = group
        return group

    def _search(self, xid: str, until: Coordinates) -> XaGroup | None:
        """The last one of this xid, by a walk over the headers of all events."""
        at = self._reader.first()
        found: XaGroup | None = None
        start, checksum_bytes = at, 0
        while at is not None and at < until:
            span = self._reader.read(at, bytes_max=WINDOW_BYTES).payload
            if not len(span):
                at = self._reader.after_file(at)
                continue
            offset = 0
            while offset < len(span) and at.at(at.pos + offset) < until:
                size = int.from_bytes(span[offset + 9 : offset + 13], "little")
                event, here = bytes(span[offset : offset + size]), at.at(at.pos + offset)
                if event[4] == _FORMAT_DESCRIPTION:
                    checksum_bytes = checksum_bytes_of(event)
                elif event[4] in _GTIDS:
                    start = here.at(here.pos + size)
                elif start is not None and xid in _prepared(event, checksum_bytes, here):
                    found = XaGroup(start, here.pos + size, checksum_bytes)
                offset += size
            at = at.at(at.pos + offset)
        return found


def xid_of_prepare(body: bytes) -> tuple[str, bool]:
    """The xid, and whether it is committed in one phase."""
    reader = ByteReader(body, "XA prepare event")
    one_phase = reader.uint(1) != 0
    format_id, gtrid, bqual = reader.uint(4), reader.uint(4), reader.uint(4)
    return f"{reader.take(gtrid).hex()}.{reader.take(bqual).hex()}.{format_id}", one_phase


def xid_of_statement(text: str) -> str:
    """From ``XA COMMIT X'…',X'…',1``."""
    parts = [*(found.lower() for found in _HEX.findall(text)), "", ""]
    format_id = found[1] if (found := _FORMAT.search(text)) else "1"
    return f"{parts[0]}.{parts[1]}.{format_id}"


def _prepared(event: bytes, checksum_bytes: int, at: Coordinates) -> list[str]:
    """The xids that an event prepares, also inside of a payload."""
    body = event[HEADER_BYTES : len(event) - checksum_bytes]
    if event[4] == _XA_PREPARE:
        return [xid_of_prepare(body)[0]]
    if event[4] != _PAYLOAD:
        return []
    found: list[str] = []
    feed = PayloadFeed(body, at, end_pos=at.pos + len(event))
    while feed.more():
        inner = feed.window.tobytes()
        while feed.offset + HEADER_BYTES <= len(inner):
            size = int.from_bytes(inner[feed.offset + 9 : feed.offset + 13], "little")
            if size < HEADER_BYTES or feed.offset + size > len(inner):
                break
            found += _prepared(inner[feed.offset : feed.offset + size], 0, at)
            feed.offset += size
    return found
