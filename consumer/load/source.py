"""Chooses the member of the source set whose rows a load or a comparison reads.

    admissible      answers, replicates without error, has the settings that capture demands (``preflight``: among them
                    no filters, and commits in the order of the primary, without gaps in its position), has the needed
                    transactions, and none that the primary does not have. The format of rows in the binlog does not
                    matter, because no load reads it
    the primary     only if the document says ``from_primary``, or if the set has no other member
    drained         never, as long as an operator has drained it (`millrace replica drain`)
    chosen          the pinned one (`millrace replica pin`), else that with the lowest lag, then the document's first

Lag is the replica's own opinion here: a load measures it while it reads, and pauses. Capture counts transactions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce

from millrace.drivers.mysql.connection import Endpoint, Side, connect
from millrace.drivers.mysql.members import MemberBinlog, MemberFacts, ask_members, find_errant
from millrace.drivers.mysql.preflight import check_settings
from millrace.drivers.mysql.primary import endpoints
from millrace.errors import Retryable
from millrace.log import get_logger
from millrace.schemas.documents import Directives, Member, SetDocument
from millrace.schemas.gtid import GtidPosition, beyond, shortened, unite

# binlog_format, binlog_row_image, binlog_row_metadata, binlog_row_value_options, binlog_checksum
_FORMATS = frozenset({"MR-1012", "MR-1013", "MR-1014", "MR-1015", "MR-1019"})

_log = get_logger("apply.load")


@dataclass(frozen=True, slots=True)
class SourceMember:
    """The member to read. ``newest``: what all members together had when it was chosen."""

    endpoint: Endpoint
    lag_s: float
    newest: GtidPosition

    @property
    def name(self) -> str:
        """As host:port."""
        return self.endpoint.name


@dataclass(frozen=True, slots=True)
class Wanted:
    """``needed``: what the member must have. ``primary``: the primary's binlog, asked last; None: it is away.

    ``directives``: an operator's wishes about the members.
    """

    needed: GtidPosition | None = None
    primary: MemberBinlog | None = None
    from_primary: bool = False
    is_alone: bool = False
    directives: Directives = field(default_factory=Directives)


def choose_source(
    document: SetDocument,
    directives: Directives,
    *,
    needed: GtidPosition | None = None,
    from_primary: bool = False,
) -> SourceMember:
    """The member to read. Retryable MR-5090 if none is admissible now, with the reason of each."""
    by_member = {member_of(one): one for one in endpoints(document, Side.SOURCE)}
    facts = ask_members(document.members, lambda member: connect(by_member[member]))
    writable = (one for one in facts if one.is_primary and one.variables.get("read_only") == "OFF")
    wanted = Wanted(
        needed,
        next((one.binlog for one in writable), None),
        from_primary,
        is_alone=len(facts) == 1,
        directives=directives,
    )
    chosen = choose(document.name, facts, wanted)
    assert chosen.binlog is not None
    flavour = chosen.binlog.position.flavour
    positions = [one.binlog.position for one in facts if one.binlog is not None]
    newest = reduce(unite, (one for one in positions if one.flavour is flavour))
    return SourceMember(by_member[chosen.member], chosen.lag_s or 0.0, newest)


def choose(set_name: str, facts: Sequence[MemberFacts], wanted: Wanted) -> MemberFacts:
    """The best member. Pure."""
    whys = {one.member: why_not(one, wanted) for one in facts}
    admissible = [one for one in facts if not whys[one.member]]
    if not admissible:
        texts = "; ".join(f"{member}: {why}" for member, why in whys.items())
        raise Retryable("MR-5090", f"no member of set {set_name} can be read: {texts}")
    pinned = wanted.directives.pinned
    return min(admissible, key=lambda one: (one.member != pinned, one.lag_s))


def member_of(endpoint: Endpoint) -> Member:
    """The member as its set's document names it."""
    return Member(endpoint.host, endpoint.port)


def check_not_drained(endpoint: Endpoint, directives: Directives) -> None:
    """Retryable MR-5090 if an operator has drained the member that is read: another one is chosen."""
    if why := _why_drained(member_of(endpoint), directives):
        raise Retryable("MR-5090", f"{endpoint.name}: {why}")


def check_still_not_drained(endpoint: Endpoint, wishes: Callable[[], Directives]) -> None:
    """As ``check_not_drained``, with the operator's wishes of now. The member is read on while they are unknown."""
    try:
        directives = wishes()
    except Retryable as exc:
        _log.warning("the wishes about the members are unknown", error=exc)
        return
    check_not_drained(endpoint, directives)


def _why_drained(member: Member, directives: Directives) -> str:
    if member not in directives.drained:
        return ""
    return f"an operator drained it (`millrace replica undrain SET {member}`)"


def why_not(fact: MemberFacts, wanted: Wanted) -> str:
    """Why a load does not read this member; "" if it may."""
    if fact.error is not None:
        return fact.error.message
    if fact.is_primary and not (wanted.from_primary or wanted.is_alone):
        return "it is the primary"
    if why := _why_drained(fact.member, wanted.directives):
        return why
    if fact.lag_s is None:
        stopped = [text for one in fact.replications for text in one.stopped]
        return f"it does not replicate: {'; '.join(stopped)}".rstrip(": ")
    for finding in check_settings(fact):
        if finding.code not in _FORMATS:
            return str(finding)
    assert fact.binlog is not None, "MR-1010 is among the findings"
    position = fact.binlog.position
    if wanted.needed is not None:
        if position.flavour is not wanted.needed.flavour:
            return f"it is a {position.flavour} server"
        if absent := beyond(wanted.needed, position):
            return f"it does not have {shortened(absent)} yet"
    if wanted.primary is None or fact.is_primary:
        return ""
    errant = find_errant(position, wanted.primary)
    return f"it has {shortened(errant)}, which the primary does not have" if errant else ""
