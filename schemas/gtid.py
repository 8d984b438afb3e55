"""What a server has executed, as a value: GTID sets of both flavours behind one Protocol.

    flavour   one transaction               a position, as the server prints it
    mysql     uuid:[tag:]number             3e11fa47-…-9562:1-5:8:blue:1-3   exact intervals, with tags
    mariadb   domain-server-sequence        0-1-23,1-2-5                     the last GTID of each domain

Guarantees: values are immutable and hashable; equal positions compare equal and print the same text; text round trips.
Not done here: asking servers, and noticing that a MariaDB source reused a sequence below the position (``covers``
says yes to it); ``advanced`` refuses to go back, so a caller that advances with what it did not skip finds out.
The binary forms of binlog events are in ``schemas.gtid_binary``.
"""

from schemas.gtid_mariadb import MariadbGtid, MariadbGtidSet, is_logged, parse_binlog_state
from schemas.gtid_mysql import Gtid, GtidSet
from schemas.gtid_position import AnyGtid, Flavour, GtidPosition

__all__ = [
    "AnyGtid",
    "Flavour",
    "Gtid",
    "GtidPosition",
    "GtidSet",
    "MariadbGtid",
    "MariadbGtidSet",
    "gives_other_servers",
    "is_logged",
    "parse_binlog_state",
    "parse_gtid",
    "parse_gtid_set",
    "unite",
]


def parse_gtid_set(flavour: Flavour, text: str) -> GtidPosition:
    """The position that a server of this flavour prints ("" is the beginning); Fatal MR-6001."""
    return GtidSet.parse(text) if flavour is Flavour.MYSQL else MariadbGtidSet.parse(text)


def parse_gtid(flavour: Flavour, text: str) -> Gtid | MariadbGtid:
    """One transaction of this flavour; Fatal MR-6001."""
    return Gtid.parse(text) if flavour is Flavour.MYSQL else MariadbGtid.parse(text)


def gives_other_servers(position: GtidPosition, other: GtidPosition) -> bool:
    """Whether both end a domain with one sequence that two servers gave (MariaDB): two histories, of equal length."""
    if not isinstance(position, MariadbGtidSet) or not isinstance(other, MariadbGtidSet):
        return False
    pairs = ((gtid, other.last(gtid.domain)) for gtid in position.gtids())
    return any(last and last.sequence == gtid.sequence and last != gtid for gtid, last in pairs)


def unite(known: GtidPosition, other: GtidPosition) -> GtidPosition:
    """Everything that is in one of the two; both are of one flavour."""
    if isinstance(known, GtidSet) and isinstance(other, GtidSet):
        return known | other
    assert isinstance(known, MariadbGtidSet)
    assert isinstance(other, MariadbGtidSet)
    for gtid in other.gtids():
        known = known if known.covers(gtid) else known.advanced(gtid)
    return known
