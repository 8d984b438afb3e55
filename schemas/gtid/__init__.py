"""The transactions that a server has executed, as a value. The GTID sets of both flavours share one Protocol.

              one transaction               a position, as the server prints it
    mysql     uuid:[tag:]number             3e11fa47-…-9562:1-5:8:blue:1-3   exact intervals, with tags
    mariadb   domain-server-sequence        0-1-23,1-2-5                     the last GTID of each domain

Guarantees: values are immutable and hashable. Equal positions compare equal and print the same text. Text round trips.
Not done here: querying servers, and detecting that a MariaDB source reused a sequence below the position, for which
``covers`` returns True. ``advanced`` refuses to move back, so a caller that advances by every transaction that it
does not skip detects the reuse. The binary forms of binlog events are in ``schemas.gtid.binary``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from millrace.schemas.gtid.mariadb import (
    MariadbGtid,
    MariadbGtidSet,
    is_logged,
    parse_binlog_state,
    unproven,
)
from millrace.schemas.gtid.mysql import NO_SERVER, Gtid, GtidSet, next_number, without_numbers
from millrace.schemas.gtid.position import AnyGtid, Flavour, GtidPosition

SHOWN_MAX = 200


def parse_gtid_set(flavour: Flavour, text: str) -> GtidPosition:
    """The position from the text that a server of this flavour prints; "" is the beginning. Fatal MR-6001."""
    return GtidSet.parse(text) if flavour is Flavour.MYSQL else MariadbGtidSet.parse(text)


def parse_any_gtid_set(text: str) -> GtidPosition:
    """The position from a text that is not empty and is valid in one flavour; Fatal MR-6001."""
    return parse_gtid_set(Flavour.MYSQL if ":" in text else Flavour.MARIADB, text)


def parse_gtid(flavour: Flavour, text: str) -> Gtid | MariadbGtid:
    """The GTID of one transaction of this flavour; Fatal MR-6001."""
    return Gtid.parse(text) if flavour is Flavour.MYSQL else MariadbGtid.parse(text)


def has_same_sequence_from_other_server(position: GtidPosition, other: GtidPosition) -> bool:
    """Whether both end a domain at the same sequence from different servers (MariaDB), so their histories differ."""
    if not isinstance(position, MariadbGtidSet) or not isinstance(other, MariadbGtidSet):
        return False
    pairs = ((gtid, other.last(gtid.domain)) for gtid in position.gtids())
    return any(last and last.sequence == gtid.sequence and last != gtid for gtid, last in pairs)


def unite(known: GtidPosition, other: GtidPosition) -> GtidPosition:
    """The union of two positions of one flavour."""
    if isinstance(known, GtidSet) and isinstance(other, GtidSet):
        return known | other
    assert isinstance(known, MariadbGtidSet)
    assert isinstance(other, MariadbGtidSet)
    for gtid in other.gtids():
        known = known if known.covers(gtid) else known.advanced(gtid)
    return known


def earliest(positions: Sequence[GtidPosition | None]) -> GtidPosition | None:
    """The one of ``positions`` that all others include; None, the beginning, if one is None or none is earliest."""
    for candidate in positions:
        if candidate is None:
            return None
        if all(other is not None and other.includes(candidate) for other in positions):
            return candidate
    return None


def shortened(text: str) -> str:
    """A GTID set for a status or a warning: at most its first ``SHOWN_MAX`` characters."""
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


def beyond(position: GtidPosition, reached: GtidPosition) -> str:
    """The part of ``position`` whose numbers are not in ``reached``, of the same flavour, as text; "" if there is none.

    Of MariaDB the last GTIDs: its numbers don't count transactions.
    """
    if isinstance(position, GtidSet) and isinstance(reached, GtidSet):
        return str(position - reached)
    assert isinstance(position, MariadbGtidSet)
    return ",".join(str(gtid) for gtid in position.gtids() if not reached.covers(gtid))


@dataclass(frozen=True, slots=True)
class History:
    """A primary's position at one moment; ``state`` and ``slave_pos`` are empty for MySQL (see ``unproven``)."""

    position: GtidPosition
    state: tuple[MariadbGtid, ...] = ()
    slave_pos: MariadbGtidSet = field(default_factory=MariadbGtidSet)


def missing(wanted: GtidPosition, reached: GtidPosition, history: History) -> str:
    """The part of ``wanted`` that is not proven to be in ``reached``, as text; "" if all of it is.

    ``history`` is the primary's, read after ``reached``.
    """
    if isinstance(wanted, GtidSet) and isinstance(reached, GtidSet):
        return str(wanted - reached)
    assert isinstance(wanted, MariadbGtidSet)
    assert isinstance(reached, MariadbGtidSet)
    return ",".join(map(str, unproven(wanted, reached, history.state, history.slave_pos)))


def any_gtid_of(position: GtidPosition) -> str:
    """One transaction of the position, always the same; the number 0 of no server if it is empty.

    >>> any_gtid_of(parse_gtid_set(Flavour.MARIADB, "0-1-7,3-1-2"))
    '3-1-2'
    """
    if isinstance(position, GtidSet):
        found = list(position.intervals())
        if not found:
            return "00000000-0000-0000-0000-000000000000:1"
        (uuid, tag), (_, stop) = found[-1]
        return ":".join(filter(None, (str(uuid), tag, str(stop - 1))))
    assert isinstance(position, MariadbGtidSet)
    return str(position.gtids()[-1]) if position.gtids() else "0-0-0"
