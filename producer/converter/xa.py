"""Prepared XA transactions: where their events lie, by xid, from XA PREPARE to XA COMMIT or XA ROLLBACK.

XA_PREPARE event: one phase 1 | format id 4 | gtrid length 4 | bqual length 4 | gtrid, bqual. Statements name the same as
``X'gtrid',X'bqual',format``; both become the text ``gtrid.bqual.format`` in hex.
"""

import re
from dataclasses import dataclass

from producer.converter.feeds import Reader
from schemas.byte_reader import ByteReader
from schemas.coordinates import Coordinates

_HEX = re.compile(r"[xX]'([0-9A-Fa-f]*)'")
_FORMAT = re.compile(r",\s*(\d+)\s*$")


@dataclass(frozen=True, slots=True)
class XaGroup:
    """The events from `start` up to `end_pos` in the same file."""

    start: Coordinates
    end_pos: int
    checksum_bytes: int


class XaGroups:
    """What is prepared and not yet decided."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._groups: dict[str, XaGroup] = {}
        self._start: Coordinates | None = None

    def begin(self, start: Coordinates) -> None:
        """Behind XA START."""
        self._start = start

    def forget(self, xid: str) -> None:
        """Decided."""
        self._groups.pop(xid, None)


def xid_of_prepare(body: bytes) -> tuple[str, bool]:
    """The xid, and whether it is committed in one phase."""
    reader = ByteReader(body, "XA prepare event")
    one_phase = reader.uint(1) != 0
    format_id, gtrid, bqual = reader.uint(4), reader.uint(4), reader.uint(4)
    return f"{reader.take(gtrid).hex()}.{reader.take(bqual).hex()}.{format_id}", one_phase


def xid_of_statement(text: str) -> str:
    """From ``XA COMMIT X'…',X'…',1``."""
    parts = [found.lower() for found in _HEX.findall(text)] + ["", ""]
    format_id = found[1] if (found := _FORMAT.search(text)) else "1"
    return f"{parts[0]}.{parts[1]}.{format_id}"
