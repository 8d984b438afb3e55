"""Damage in a relay file: its exact place, and the exact source transactions that it takes away.

    Damage(at=Coordinates(subdir, file, offset of the first bad event), why="a wrong checksum",
           lost=GtidInterval(after=GTIDs of the whole transactions before it, through=GTIDs before the next file))

Guarantees: pure values; nothing is read here. ``survey`` finds damage, ``quarantine`` acts on it.
"""

from dataclasses import dataclass

from millrace.producer.binlog import transactions
from millrace.schemas.gtid import GtidPosition, GtidSet, MariadbGtidSet
from millrace.schemas.place import Coordinates

WHY = {
    transactions.BAD_LENGTH: "an impossible length",
    transactions.BAD_CHECKSUM: "a wrong checksum",
    transactions.BAD_POSITION: "a wrong position",
    transactions.GROUP_NOT_ENDED: "a transaction begins before the last one ended",
    transactions.ROWS_OUTSIDE: "rows or a commit outside a transaction",
    transactions.BAD_BODY: "a malformed event",
    transactions.NO_CHECKSUM: "a file without checksums",
}


@dataclass(frozen=True, slots=True)
class GtidInterval:
    """The transactions after one position up to another. None: not known from the relay log."""

    after: GtidPosition | None
    through: GtidPosition | None

    def __str__(self) -> str:
        """MySQL: the GTID set. MariaDB: per domain ``after … through``, because numbers may have holes."""
        if isinstance(self.after, GtidSet) and isinstance(self.through, GtidSet):
            return str(self.through - self.after)
        if isinstance(self.after, MariadbGtidSet) and isinstance(self.through, MariadbGtidSet):
            parts = []
            for last in self.through.gtids():
                first = self.after.last(last.domain)
                if first is None or not self.after.covers(last):
                    parts.append(f"({first or f'{last.domain}-*-0'} to {last}]")
            return ",".join(parts)
        return f"after {self.after if self.after is not None else 'an unknown position'} to the end"

    @property
    def is_empty(self) -> bool:
        return (
            self.after is not None
            and self.through is not None
            and self.after.includes(self.through)
        )


@dataclass(frozen=True, slots=True)
class Damage:
    """The first bad place of a file. ``lost`` has every transaction of the file that can't be read whole."""

    at: Coordinates
    why: str
    lost: GtidInterval

    def __str__(self) -> str:
        lost = "no transaction" if self.lost.is_empty else f"transactions {self.lost}"
        return f"{self.at}: {self.why}; affects {lost}"
