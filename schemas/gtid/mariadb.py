"""MariaDB's GTIDs: ``domain-server-sequence``, and a position as the exact last GTID of each domain.

A MariaDB server keeps only the last GTID of each domain, not the set of executed sequences. Every transaction of the
domain up to that sequence is done. The server id is part of the position, because the server looks for exactly this
GTID when a dump starts, but it does not affect the order.

    Gtid:     0-1-23
    Position: 0-1-23,1-2-5      one GTID for each domain, printed sorted by domain

Two servers that continue from the same position assign the same sequences in one domain. A position cannot distinguish
them, but a server's binlog state can (``parse_binlog_state``, ``is_logged``). ``covers`` and ``includes`` compare
sequences, so their result holds only for positions of one history. ``unproven`` uses the primary's binlog state to
decide whether two positions belong to one history. Import these names from ``schemas.gtid``.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from millrace.errors import Fatal
from millrace.schemas.gtid.position import Flavour, GtidPosition

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
            raise Fatal("MR-6001", f"{text!r} contains a number that is too large")
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
        """From the text of ``@@gtid_binlog_pos`` and similar variables; "" is the beginning. Fatal MR-6001."""
        return cls.of(MariadbGtid.parse(item) for item in text.split(",") if item.strip())

    @classmethod
    def of(cls, gtids: Iterable[MariadbGtid]) -> "MariadbGtidSet":
        """From one GTID for each domain, in any order; Fatal MR-6001 if a domain appears twice."""
        last = tuple(sorted(gtids, key=lambda gtid: gtid.domain))
        for before, after in pairwise(last):
            if before.domain == after.domain:
                raise Fatal(
                    "MR-6001",
                    f"domain {after.domain} appears twice in one position: {before} and {after}",
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
        """The last GTID of each domain, sorted by domain."""
        return self._last

    def last(self, domain: int) -> MariadbGtid | None:
        """The domain's last GTID; None if the domain has none."""
        for gtid in self._last:
            if gtid.domain == domain:
                return gtid
        return None

    def covers(self, gtid: object) -> bool:
        """True if its sequence is at or below the domain's last, from any server."""
        if not isinstance(gtid, MariadbGtid):
            raise Fatal("MR-6001", f"a MariaDB position cannot contain {gtid}")
        last = self.last(gtid.domain)
        return last is not None and gtid.sequence <= last.sequence

    def advanced(self, gtid: object) -> "MariadbGtidSet":
        """This position with ``gtid`` as its domain's last; Fatal MR-6002 if the sequence does not increase."""
        if not isinstance(gtid, MariadbGtid):
            raise Fatal("MR-6001", f"a MariaDB position cannot be advanced by {gtid}")
        for index, last in enumerate(self._last):
            if last.domain == gtid.domain:
                if gtid.sequence <= last.sequence:
                    raise Fatal(
                        "MR-6002", f"GTID {gtid} came after {last}", gtid=gtid, position=self
                    )
                return MariadbGtidSet((*self._last[:index], gtid, *self._last[index + 1 :]))
        return MariadbGtidSet.of((*self._last, gtid))

    def includes(self, other: GtidPosition) -> bool:
        """True if this position is at or after ``other`` in every domain of ``other``."""
        if not isinstance(other, MariadbGtidSet):
            raise Fatal("MR-6001", f"a MariaDB position cannot be compared with {other}")
        return all(self.covers(gtid) for gtid in other._last)

    def __le__(self, other: "MariadbGtidSet") -> bool:
        return other.includes(self)

    def __str__(self) -> str:
        return ",".join(map(str, self._last))


def parse_binlog_state(text: str) -> tuple[MariadbGtid, ...]:
    """The last GTID of each domain *and server*, from the text of ``@@gtid_binlog_state``; Fatal MR-6001."""
    return tuple(MariadbGtid.parse(item) for item in text.split(",") if item.strip())


def is_logged(gtid: MariadbGtid, state: Iterable[MariadbGtid], restored: MariadbGtidSet) -> bool:
    """Whether a server with this binlog state logged exactly this transaction.

    ``restored`` is the position that the server got from a backup. If ``state`` has no transaction of the GTID's domain
    and server, the log cannot answer; the result is then True if ``restored`` covers the GTID.
    """
    of_server = [
        last.sequence for last in state if (last.domain, last.server) == (gtid.domain, gtid.server)
    ]
    return gtid.sequence <= max(of_server) if of_server else restored.covers(gtid)


def unproven(
    wanted: MariadbGtidSet,
    reached: MariadbGtidSet,
    state: Iterable[MariadbGtid],
    slave_pos: MariadbGtidSet,
) -> tuple[MariadbGtid, ...]:
    """The GTIDs of ``wanted`` that are not proven to be in ``reached``, given the primary's state read afterwards.

    | last of a domain in ``reached``        | proof that it contains the wanted one                              |
    |----------------------------------------|--------------------------------------------------------------------|
    | the wanted GTID itself                 | none needed: one GTID names one transaction                        |
    | a greater sequence, from any server    | the primary logged both, and the greater comes later in its binlog |
    | the same sequence of another server    | none: two histories                                                |
    | a smaller sequence, or none            | none                                                               |

    ``state`` is the primary's binlog state. ``slave_pos`` is its ``gtid_slave_pos``: what it executed without logging.
    """
    logged = tuple(state)

    def is_on_primary(gtid: MariadbGtid) -> bool:
        of_server = [
            last.sequence
            for last in logged
            if (last.domain, last.server) == (gtid.domain, gtid.server)
        ]
        return gtid.sequence <= max(of_server, default=0) or slave_pos.last(gtid.domain) == gtid

    def is_proven(gtid: MariadbGtid) -> bool:
        last = reached.last(gtid.domain)
        if last is None or last.sequence <= gtid.sequence:
            return last == gtid
        return is_on_primary(last) and is_on_primary(gtid)

    return tuple(gtid for gtid in wanted.gtids() if not is_proven(gtid))
