"""Compares the end of the relay log with the first member of the next sub-directory, by canonical checksum.

A member that lost its last transactions in a crash, or was promoted without them, gives their GTIDs to other
transactions. Its GTID set looks right. So the source transactions at the end of the preceding sub-directory are
compared with those of the same GTIDs in the new one, before any reader crosses over.

Guarantees: the tail is read before the new sub-directory exists. Bounded: ``TAIL_BYTES`` of source transactions, or one
larger transaction of at most ``LAST_BYTES_MAX``. A larger one, or one whose checksum is unknown, is not compared.
"""

import numpy as np

from millrace.errors import Retryable
from millrace.log import get_logger
from millrace.producer.convert.canonical import checksums
from millrace.producer.relay.reader import RelayReader
from millrace.producer.relay.writer import RelayLog
from millrace.schemas.gtid import GtidPosition, GtidSet

TAIL_BYTES = 1 << 20
LAST_BYTES_MAX = 64 << 20
SEARCHED_BYTES = 16 << 20  # the last two appends to the new sub-directory, and some room

log = get_logger("producer.source.receive.overlap")


class Overlap:
    """The end of the relay log, and its source transactions to compare."""

    def __init__(self, relay: RelayLog) -> None:
        """Read the end of ``relay``. Fatal MR-2004, Retryable MR-2002."""
        self._relay = relay
        self.end = relay.position()
        self._known = self._read(TAIL_BYTES) or self._read(LAST_BYTES_MAX)

    @property
    def wanted(self) -> GtidPosition:
        """The position after which a member's binlog has what is compared (MariaDB: the end)."""
        if not isinstance(self.end, GtidSet) or not self._known:
            return self.end
        return self.end - GtidSet.parse(",".join(self._known))

    def is_reached(self) -> bool:
        """Whether the new sub-directory has everything that the relay log had."""
        return self._relay.position().includes(self.end)

    def compare(self) -> None:
        """Compare once the end is reached. Retryable MR-1037 names the first source transaction that differs."""
        found = self._read(SEARCHED_BYTES, only_known=True) or {}
        if len(found) < len(self._known):
            found = {**(self._read(LAST_BYTES_MAX, only_known=True) or {}), **found}
        for gtid, known in self._known.items():
            other = found.get(gtid)
            if None not in (known, other) and known != other:
                message = f"its source transaction {gtid} has other changes than the relay log"
                raise Retryable("MR-1037", message, gtid=gtid)
        log.info("end of the relay log compared", compared=len(found), known=len(self._known))

    def _read(self, bytes_max: int, *, only_known: bool = False) -> dict[str, int | None]:
        """The checksums at the end of the relay log, at most ``bytes_max`` before it."""
        at, end = self._relay.tail(bytes_max), self._relay.end()
        if at is None or end is None:
            return {}
        pieces = []
        with RelayReader(self._relay) as reader:
            while at.pos < end.pos:
                span = reader.read(at, bytes_max=end.pos - at.pos)
                if not len(span.payload):
                    break
                pieces.append(np.frombuffer(span.payload, np.uint8))
                at = at.at(at.pos + len(span.payload))
        if not pieces:
            return {}
        events = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        known = self._known if only_known else None
        return checksums(
            events,
            flavour=self._relay.flavour,
            is_wanted=lambda gtid: known is None or gtid in known,
        )
