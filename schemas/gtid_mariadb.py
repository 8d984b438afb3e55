"""MariaDB's GTIDs: ``domain-server-sequence``, and a position as the exact last GTID of each domain.

A MariaDB server does not keep which sequences it executed, only the last GTID of each domain: everything of a domain
up to that sequence is behind us. The server id belongs to the position (the server looks for exactly this GTID
when a dump starts), but not to the order.

    Gtid:     0-1-23
    Position: 0-1-23,1-2-5      one GTID for each domain, printed sorted by domain

Two servers that went on from one place give the same sequences in one domain: a position does not tell them apart, a
server's binlog state does (``parse_binlog_state``, ``is_logged``). Import these names from ``schemas.gtid``.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from millrace.errors import Fatal
from schemas.gtid_position import Flavour, GtidPosition

_GTID = re.compile(r"([0-9]{1,10})-([0-9]{1,10})-([0-9]{1,20})", re.ASCII)
_ID_MAX = 2**32 - 1  # domain and server
_SEQUENCE_MAX = 2**64 - 1


@dataclass(frozen=True, slots=True)
class MariadbGtid:
    """One MariaDB transaction (an event group)."""

    domain: int
    server: int
    sequence: int

    @classmethod
    def parse(cls, text: str) -> "MariadbGtid":
        """``domain-server-sequence``; Fatal MR-6001."""
        found = _GTID.fullmatch(text.strip())
        if found is None:
            raise Fatal("MR-6001", f"{text!r} is not domain-server-sequence")
        domain, server, sequence = int(found[1]), int(found[2]), int(found[3])
        if domain > _ID_MAX or server > _ID_MAX or sequence > _SEQUENCE_MAX:
            raise Fatal("MR-6001", f"{text!r} holds a number that is too large")
        return cls(domain, server, sequence)

    def __str__(self) -> str:
        return f"{self.domain}-{self.server}-{self.sequence}"


@dataclass(frozen=True, slots=True)
class MariadbGtidSet:
    """The last GTID of each domain.

    >>> str(MariadbGtidSet.parse("1-2-5,0-1-23").advanced(MariadbGtid.parse("0-3-24")))
    '0-3-24,1-2-5'
    """

    _last: tuple[MariadbGtid, ...] = ()  # sorted by domain, one each

    @classmethod
    def parse(cls, text: str) -> "MariadbGtidSet":
        """The text of ``@@gtid_binlog_pos`` and its like; "" is the beginning. Fatal MR-6001."""
        return cls.of(MariadbGtid.parse(item) for item in text.split(",") if item.strip())

    @classmethod
    def of(cls, gtids: Iterable[MariadbGtid]) -> "MariadbGtidSet":
        """From one GTID for each domain, in any order; Fatal MR-6001 for a domain that stands twice."""
        last = tuple(sorted(gtids, key=lambda gtid: gtid.domain))
        for before, after in pairwise(last):
            if before.domain == after.domain:
                raise Fatal(
                    "MR-6001",
                    f"domain {after.domain} stands twice in one position: {before} and {after}",
                )
        return cls(last)

    @property
    def flavour(self) -> Flavour:
        """Always MariaDB."""
        return Flavour.MARIADB

    @property
    def is_empty(self) -> bool:
        """True if no domain has a GTID."""
        return not self._last

    def gtids(self) -> tuple[MariadbGtid, ...]:
        """The last GTID of each domain, by domain."""
        return self._last

    def last(self, domain: int) -> MariadbGtid | None:
        """The domain's last GTID, if it has any."""
        for gtid in self._last:
            if gtid.domain == domain:
                return gtid
        return None

    def covers(self, gtid: object) -> bool:
        """True if its sequence is at or below the domain's last, whatever the server."""
        if not isinstance(gtid, MariadbGtid):
            raise Fatal("MR-6001", f"a MariaDB position was asked for {gtid}")
        last = self.last(gtid.domain)
        return last is not None and gtid.sequence <= last.sequence

    def advanced(self, gtid: object) -> "MariadbGtidSet":
        """``gtid`` becomes its domain's last; Fatal MR-6002 if that goes back or stands still."""
        if not isinstance(gtid, MariadbGtid):
            raise Fatal("MR-6001", f"a MariaDB position was advanced by {gtid}")
        for index, last in enumerate(self._last):
            if last.domain == gtid.domain:
                if gtid.sequence <= last.sequence:
                    raise Fatal(
                        "MR-6002", f"GTID {gtid} came after {last}", gtid=gtid, position=self
                    )
                return MariadbGtidSet((*self._last[:index], gtid, *self._last[index + 1 :]))
        return MariadbGtidSet.of((*self._last, gtid))

    advance = advanced

    def includes(self, other: GtidPosition) -> bool:
        """True if every domain of ``other`` is here at its sequence or beyond."""
        if not isinstance(other, MariadbGtidSet):
            raise Fatal("MR-6001", f"a MariaDB position was compared with {other}")
        return all(self.covers(gtid) for gtid in other._last)

    def __le__(self, other: "MariadbGtidSet") -> bool:
        return other.includes(self)

    def __str__(self) -> str:
        return ",".join(map(str, self._last))


def parse_binlog_state(text: str) -> tuple[MariadbGtid, ...]:
    """The text of ``@@gtid_binlog_state``: the last GTID of each domain *and server*; Fatal MR-6001."""
    return tuple(MariadbGtid.parse(item) for item in text.split(",") if item.strip())


def is_logged(gtid: MariadbGtid, state: Iterable[MariadbGtid], brought: MariadbGtidSet) -> bool:
    """Whether a server of this binlog state logged exactly this transaction.

    Also true where nobody can tell: in what a backup ``brought``, by a server of which nothing was logged since.
    """
    of_server = [
        last.sequence for last in state if (last.domain, last.server) == (gtid.domain, gtid.server)
    ]
    return gtid.sequence <= max(of_server) if of_server else brought.covers(gtid)
