"""Chooses the member to read from: the admissible one with the lowest lag, and a replica rather than the primary.

| a member is not admissible if                                                              | code            |
|--------------------------------------------------------------------------------------------|-----------------|
| it can't be reached or queried                                                             | MR-1001 … 1008  |
| its settings hide or truncate changes                                                      | MR-1010 … 1023  |
| it purged wanted transactions, or (start: first) another member's binlog starts earlier    | MR-1031         |
| it has transactions that the primary does not have                                         | MR-1032         |
| it logged another transaction in place of one that is already processed (MariaDB)          | MR-1033         |
| an operator drained it                                                                     | MR-1035         |
| it does not have all received transactions yet (while a stream runs)                       | MR-1036         |

Lag is the number of transactions that the primary has and the member does not. The queries take milliseconds, in which
a busy primary commits more. So a replica counts as caught up if it misses at most ``LAG_TRANSACTIONS_MAX``
transactions. The primary is read only if no replica is caught up. ``Seconds_Behind_Source`` only breaks ties. A member
that an operator pinned is chosen if it is admissible.

Pure and without a clock: the same answers give the same choice. Not done here: when to choose again (``judge``).
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from millrace.drivers.mysql.members import MemberBinlog, MemberFacts, find_errant
from millrace.drivers.mysql.preflight import PERSIST, Finding, check_settings
from millrace.errors import Fatal, MillraceError, Retryable
from millrace.schemas.documents.model import Directives, Member
from millrace.schemas.gtid import (
    Flavour,
    GtidPosition,
    GtidSet,
    MariadbGtidSet,
    beyond,
    shortened,
    unite,
)
from millrace.wording import counted

LAG_TRANSACTIONS_MAX = 1000


@dataclass(frozen=True, slots=True)
class Verdict:
    """The findings about a member, which is admissible if there are no ``reasons``."""

    member: Member
    role: str  # primary, replica, unknown
    reasons: tuple[Finding, ...]
    missing_count: int | None
    seconds_behind: float | None
    error: MillraceError | None = None
    kept_s: float | None = None  # how long it keeps its binlogs; None: without a limit, or unknown
    tolerated: tuple[Finding, ...] = ()  # what would be reasons elsewhere (``Preferences``)

    def tolerating(self, codes: Collection[str]) -> "Verdict":
        """Findings with these codes are no reasons."""
        tolerated = tuple(reason for reason in self.reasons if reason.code in codes)
        reasons = tuple(reason for reason in self.reasons if reason.code not in codes)
        return replace(self, reasons=reasons, tolerated=tolerated)

    @property
    def is_admissible(self) -> bool:
        return not self.reasons

    def __str__(self) -> str:
        good = "readable" if self.tolerated else "admissible"
        return self._described("; ".join(map(str, self.reasons)) or good)

    def without(self, code: str) -> str:
        """As text where the code of its reasons is named already."""
        return self._described(
            "; ".join(
                reason.message if reason.code == code else str(reason) for reason in self.reasons
            )
        )

    def _described(self, why: str) -> str:
        lag = (
            ""
            if self.missing_count is None
            else f", {counted(self.missing_count, 'transaction')} behind"
        )
        return f"{self.member} ({self.role}{lag}): {why}"


@dataclass(frozen=True, slots=True)
class Preferences:
    """``avoided`` members are chosen only if no other is admissible, ``late`` ones if no other is caught up.

    Findings with codes of ``tolerated`` do not make a member inadmissible.
    """

    avoided: Collection[Member] = ()
    late: Collection[Member] = ()
    directives: Directives = field(default_factory=Directives)
    tolerated: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """The member to read from, and the findings about every member."""

    member: Member
    flavour: Flavour
    verdicts: tuple[Verdict, ...]
    folds_names: bool = False  # lower_case_table_names is 1 or 2: names ignore letter case

    def reasons(self) -> dict[str, str]:
        """One line per member for the status, the chosen member first."""
        ordered = sorted(self.verdicts, key=lambda verdict: verdict.member != self.member)
        return {
            str(verdict.member): f"chosen: {verdict}"
            if verdict.member == self.member
            else str(verdict)
            for verdict in ordered
        }


def choose(
    facts: Sequence[MemberFacts],
    *,
    wanted: GtidPosition | None,
    preferences: Preferences | None = None,
    is_live: bool = False,
) -> Choice:
    """Choose the member to read from.

    ``is_live``: a stream runs, and its readers continue after ``wanted`` on the chosen member.
    Fatal MR-1020, MR-1030, MR-1033; Retryable MR-1030 if waiting can help, for example during a switchover.
    """
    flavour = _common_flavour(facts)
    _check_lost_tail(facts, wanted)
    preferred = preferences or Preferences()
    directives = preferred.directives
    verdicts = tuple(
        verdict.tolerating(preferred.tolerated)
        for verdict in verdicts_of(facts, wanted=wanted, directives=directives, is_live=is_live)
    )
    admissible = [verdict for verdict in verdicts if verdict.is_admissible]
    if not admissible or flavour is None:
        raise _none_admissible(verdicts)
    order = {verdict.member: index for index, verdict in enumerate(verdicts)}
    best = min(
        admissible,
        key=lambda verdict: (
            verdict.member in preferred.avoided,
            verdict.member != directives.pinned,
            *_rank(verdict, is_late=verdict.member in preferred.late),
            order[verdict.member],
        ),
    )
    chosen = next(fact for fact in facts if fact.member == best.member)
    folds_names = chosen.variables.get("lower_case_table_names", "0") != "0"
    return Choice(best.member, flavour, verdicts, folds_names)


def verdicts_of(
    facts: Sequence[MemberFacts],
    *,
    wanted: GtidPosition | None,
    directives: Directives,
    is_live: bool,
) -> tuple[Verdict, ...]:
    """The findings about every member, in the same order. Retryable MR-1030 if two members are primaries."""
    reference = _reference(facts)
    others = facts if wanted is None else ()
    verdicts = (_judge(fact, reference, others=others) for fact in facts)
    return tuple(
        replace(
            verdict, reasons=verdict.reasons + tuple(_find_more(fact, wanted, directives, is_live))
        )
        for fact, verdict in zip(facts, verdicts, strict=True)
    )


def _find_more(
    fact: MemberFacts, wanted: GtidPosition | None, directives: Directives, is_live: bool
) -> Iterator[Finding]:
    """The findings that depend on the operator and on a running stream."""
    if fact.member in directives.drained:
        fix = f"`millrace replica undrain SET {fact.member}`"
        yield Finding("MR-1035", "an operator drained it", fix, is_transient=True)
    if is_live and wanted is not None and fact.binlog is not None:
        absent = beyond(wanted, fact.binlog.position)
        if absent:
            message = f"it does not have {shortened(absent)}, which is already received"
            yield Finding("MR-1036", message, "wait until it has caught up", is_transient=True)


def _rank(verdict: Verdict, *, is_late: bool) -> tuple[bool, bool, int, float]:
    missing = verdict.missing_count or 0
    is_far = is_late or missing > LAG_TRANSACTIONS_MAX
    seconds = float("inf") if verdict.seconds_behind is None else verdict.seconds_behind
    return is_far, verdict.role == "primary" and not is_far, missing, seconds


def _judge(
    fact: MemberFacts, reference: MemberBinlog | None, *, others: Sequence[MemberFacts]
) -> Verdict:
    if fact.error is not None:
        return Verdict(fact.member, "unknown", (_finding(fact.error),), None, None, fact.error)
    reasons = list(check_settings(fact))
    binlog = fact.binlog
    missing = None
    if binlog is not None:
        reasons += _check_reach(binlog, others)
        if reference is not None:
            missing = count_missing(reference.position, binlog.position)
            if errant := find_errant(binlog.position, reference):
                fix = (
                    "rebuild the member, or commit empty transactions of these GTIDs on the primary"
                )
                message = f"it has {errant}, which the primary does not have"
                reasons.append(Finding("MR-1032", message, fix))
    role = "primary" if fact.is_primary else "replica"
    return Verdict(fact.member, role, tuple(reasons), missing, fact.lag_s, kept_s=fact.kept_s)


def _check_reach(binlog: MemberBinlog, others: Sequence[MemberFacts]) -> list[Finding]:
    """``others`` is all members if the start is the oldest available binlog, else empty."""
    if binlog.wanted_error is not None:
        return [_finding(binlog.wanted_error)]
    for other in others:
        if other.binlog is not None and not other.binlog.oldest_before.includes(
            binlog.oldest_before
        ):
            message = (
                f"its binlog starts later than that of {other.member}: after {binlog.oldest_before}"
            )
            return [Finding("MR-1031", message, "read from the other member")]
    return []


def _finding(error: MillraceError) -> Finding:
    return Finding(error.code, error.message, error.fix, is_transient=not isinstance(error, Fatal))


def count_missing(reference: GtidPosition, position: GtidPosition) -> int:
    """Count the transactions of ``reference`` missing in ``position`` (MariaDB: sequences, which may have gaps)."""
    if isinstance(reference, GtidSet) and isinstance(position, GtidSet):
        return (reference - position).count
    assert isinstance(reference, MariadbGtidSet)
    assert isinstance(position, MariadbGtidSet)
    missing = 0
    for gtid in reference.gtids():
        last = position.last(gtid.domain)
        missing += max(0, gtid.sequence - (last.sequence if last is not None else 0))
    return missing


def _common_flavour(facts: Sequence[MemberFacts]) -> Flavour | None:
    flavours = {fact.identity.flavour for fact in facts if fact.identity is not None}
    if len(flavours) > 1:
        found = ", ".join(
            f"{fact.member} {fact.identity.version}" for fact in facts if fact.identity
        )
        raise Fatal("MR-1020", f"the set mixes MySQL and MariaDB: {found}")
    return next(iter(flavours), None)


def _reference(facts: Sequence[MemberFacts]) -> MemberBinlog | None:
    """The transactions of the primary; without a primary, those of all members together."""
    primaries = [fact for fact in facts if fact.is_primary]
    if len(primaries) > 1:
        names = ", ".join(str(fact.member) for fact in primaries)
        raise Retryable(
            "MR-1030",
            f"more than one member is a primary: {names}",
            fix="wait until the switchover has ended, or name only members of one replication set",
        )
    if primaries and primaries[0].binlog is not None:
        return primaries[0].binlog
    held = [fact.binlog for fact in facts if fact.binlog is not None]
    if not held:
        return None
    united = reduce(unite, (binlog.position for binlog in held))
    return replace(held[0], position=united, state=())  # no single member's state covers all


def _check_lost_tail(facts: Sequence[MemberFacts], wanted: GtidPosition | None) -> None:
    for fact in facts:
        if not fact.is_primary or fact.binlog is None or wanted is None:
            continue
        error = fact.binlog.wanted_error
        if error is not None and error.code == "MR-1033":
            raise error
        if not fact.binlog.position.includes(wanted):
            raise Fatal(
                "MR-1033",
                f"{fact.member} does not have {beyond(wanted, fact.binlog.position)},"
                " which is already processed",
                member=fact.member,
            )


def _none_admissible(verdicts: Sequence[Verdict]) -> MillraceError:
    """One member: its own error. Several: MR-1030. Retryable if all findings about some member are transient."""
    first = verdicts[0].reasons[0]
    kind: type[MillraceError] = Fatal
    if any(all(reason.is_transient for reason in verdict.reasons) for verdict in verdicts):
        kind = Retryable
    if len(verdicts) == 1:
        text = verdicts[0].without(first.code)
        return verdicts[0].error or kind(first.code, text, fix=_fix_of_all(verdicts))
    if len({verdict.reasons[0].code for verdict in verdicts}) == 1:
        text = "; ".join(verdict.without(first.code) for verdict in verdicts)
        return kind(first.code, text, fix=_fix_of_all(verdicts))
    return kind("MR-1030", "; ".join(map(str, verdicts)), fix=_fix_of_all(verdicts))


def _fix_of_all(verdicts: Sequence[Verdict]) -> str:
    """The statements that fix the reasons, each once, with their members unless they apply to all."""
    members: dict[str, list[str]] = {}
    for verdict in verdicts:
        for reason in verdict.reasons:
            members.setdefault(reason.fix.removesuffix(PERSIST), []).append(str(verdict.member))
    is_for_all = len(members) == 1 or all(len(named) == len(verdicts) for named in members.values())
    fixes = [
        fix if is_for_all else f"on {', '.join(named)}: {fix}" for fix, named in members.items()
    ]
    persists = any(r.fix.endswith(PERSIST) for verdict in verdicts for r in verdict.reasons)
    return ("; ".join(fix.rstrip(";. ") for fix in fixes)) + (f";{PERSIST}" if persists else ".")
