"""Which member to read from: the admissible one with the lowest lag; a replica rather than the primary.

| a member is not admissible when                                                            | code            |
|--------------------------------------------------------------------------------------------|-----------------|
| it can't be reached or asked                                                               | MR-1001 … 1008  |
| its settings hide or cut changes                                                           | MR-1010 … 1023  |
| it purged what is wanted, or (start: first) its binlog begins later than another member's  | MR-1031         |
| it holds transactions that the primary lacks                                               | MR-1032         |
| it logged another transaction in the place of one that is done (MariaDB)                   | MR-1033         |

Lag is counted in transactions that the primary has and the member lacks. Asking takes milliseconds in which a busy
primary goes on, so replicas up to ``LAG_TRANSACTIONS_MAX`` behind count as caught up, and only when none is, the
primary is read. ``Seconds_Behind_Source`` breaks ties alone.

Pure and without a clock: the same answers give the same choice. Not done here: switching while a stream runs.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from millrace.errors import Fatal, MillraceError, Retryable
from producer.upstream.members import MemberBinlog, MemberFacts
from producer.upstream.preflight import PERSIST, Finding, check_settings
from schemas.documents.model import Member
from schemas.gtid import (
    Flavour,
    GtidPosition,
    GtidSet,
    MariadbGtid,
    MariadbGtidSet,
    is_logged,
    unite,
)

LAG_TRANSACTIONS_MAX = 1000


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found about a member; admissible when there are no ``reasons``."""

    member: Member
    role: str  # primary, replica, unknown
    reasons: tuple[Finding, ...]
    missing_count: int | None
    seconds_behind: float | None
    error: MillraceError | None = None

    @property
    def is_admissible(self) -> bool:
        """It may be read."""
        return not self.reasons

    def __str__(self) -> str:
        lag = "" if self.missing_count is None else f", {self.missing_count} transactions behind"
        why = "; ".join(map(str, self.reasons)) or "admissible"
        return f"{self.member} ({self.role}{lag}): {why}"


@dataclass(frozen=True, slots=True)
class Choice:
    """Whom to read from, and what was found about everybody."""

    member: Member
    flavour: Flavour
    verdicts: tuple[Verdict, ...]
    folds_names: bool = False  # lower_case_table_names 1 or 2: capital letters are small ones

    def reasons(self) -> dict[str, str]:
        """For the status: one line a member, the chosen one first."""
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
    avoided: Collection[Member] = (),
) -> Choice:
    """The member to read from; one that is ``avoided`` only if there is no other.

    Fatal MR-1020, MR-1030, MR-1033; Retryable MR-1030 when waiting can help, as for one primary in a switchover.
    """
    flavour = _common_flavour(facts)
    reference = _reference(facts)
    _check_lost_tail(facts, wanted)
    others = facts if wanted is None else ()
    verdicts = tuple(_judge(fact, reference, others=others) for fact in facts)
    admissible = [verdict for verdict in verdicts if verdict.is_admissible]
    if not admissible or flavour is None:
        raise _none_admissible(verdicts)
    order = {verdict.member: index for index, verdict in enumerate(verdicts)}
    best = min(
        admissible,
        key=lambda verdict: (verdict.member in avoided, *_rank(verdict), order[verdict.member]),
    )
    chosen = next(fact for fact in facts if fact.member == best.member)
    folds_names = chosen.variables.get("lower_case_table_names", "0") != "0"
    return Choice(best.member, flavour, verdicts, folds_names)


def _rank(verdict: Verdict) -> tuple[bool, bool, int, float]:
    missing = verdict.missing_count or 0
    is_far = missing > LAG_TRANSACTIONS_MAX
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
                reasons.append(Finding("MR-1032", f"it has {errant}, which the primary lacks", fix))
    seconds = fact.replication.seconds_behind if fact.replication is not None else 0.0
    role = "primary" if fact.is_primary else "replica"
    return Verdict(fact.member, role, tuple(reasons), missing, seconds)


def _check_reach(binlog: MemberBinlog, others: Sequence[MemberFacts]) -> list[Finding]:
    """``others``: all members when the start is the first binlog there is, else nobody."""
    if binlog.wanted_error is not None:
        return [_finding(binlog.wanted_error)]
    for other in others:
        if other.binlog is not None and not other.binlog.oldest_before.includes(
            binlog.oldest_before
        ):
            message = (
                f"its binlog begins later than that of {other.member}: after {binlog.oldest_before}"
            )
            return [Finding("MR-1031", message, "read from the other member")]
    return []


def _finding(error: MillraceError) -> Finding:
    return Finding(error.code, error.message, error.fix, is_transient=not isinstance(error, Fatal))


def count_missing(reference: GtidPosition, position: GtidPosition) -> int:
    """How many transactions of ``reference`` are not in ``position`` (MariaDB: sequences, which may have gaps)."""
    if isinstance(reference, GtidSet) and isinstance(position, GtidSet):
        return (reference - position).count
    assert isinstance(reference, MariadbGtidSet)
    assert isinstance(position, MariadbGtidSet)
    missing = 0
    for gtid in reference.gtids():
        last = position.last(gtid.domain)
        missing += max(0, gtid.sequence - (last.sequence if last is not None else 0))
    return missing


def find_errant(position: GtidPosition, reference: MemberBinlog) -> str:
    """What ``position`` has and ``reference``, asked later, lacks; "" when there is nothing.

    Of a MariaDB only the last GTID of each domain is known, and looked for.
    """
    known = reference.position
    if isinstance(position, GtidSet) and isinstance(known, GtidSet):
        return str(position - known)
    assert isinstance(position, MariadbGtidSet)
    return ",".join(str(gtid) for gtid in position.gtids() if not _contains(reference, gtid))


def _contains(reference: MemberBinlog, gtid: MariadbGtid) -> bool:
    known, oldest = reference.position, reference.oldest_before
    assert isinstance(known, MariadbGtidSet)
    assert isinstance(oldest, MariadbGtidSet)
    last = known.last(gtid.domain)
    if last is None or last.sequence <= gtid.sequence:
        return last == gtid
    return not reference.state or is_logged(gtid, reference.state, oldest)


def _common_flavour(facts: Sequence[MemberFacts]) -> Flavour | None:
    flavours = {fact.identity.flavour for fact in facts if fact.identity is not None}
    if len(flavours) > 1:
        found = ", ".join(
            f"{fact.member} {fact.identity.version}" for fact in facts if fact.identity
        )
        raise Fatal("MR-1020", f"the set mixes MySQL and MariaDB: {found}")
    return next(iter(flavours), None)


def _reference(facts: Sequence[MemberFacts]) -> MemberBinlog | None:
    """What the primary has; without one, everything that any member has."""
    primaries = [fact for fact in facts if fact.is_primary]
    if len(primaries) > 1:
        names = ", ".join(str(fact.member) for fact in primaries)
        raise Retryable(
            "MR-1030",
            f"more than one member replicates from nobody: {names}",
            fix="wait until the switchover has ended, or name only members of one replication set",
        )
    if primaries and primaries[0].binlog is not None:
        return primaries[0].binlog
    held = [fact.binlog for fact in facts if fact.binlog is not None]
    if not held:
        return None
    united = reduce(unite, (binlog.position for binlog in held))
    return replace(held[0], position=united, state=())  # nobody's state has it all


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
                f"{fact.member} has {fact.binlog.position}, but {wanted} is done already",
                member=fact.member,
            )


def _none_admissible(verdicts: Sequence[Verdict]) -> MillraceError:
    """One member: its own error. Several: MR-1030. Retryable if all that is against one of them may pass."""
    text = "; ".join(map(str, verdicts))
    first = verdicts[0].reasons[0]
    kind: type[MillraceError] = Fatal
    if any(all(reason.is_transient for reason in verdict.reasons) for verdict in verdicts):
        kind = Retryable
    if len(verdicts) == 1:
        return verdicts[0].error or kind(first.code, str(verdicts[0]), fix=_fix_of_all(verdicts))
    if len({verdict.reasons[0].code for verdict in verdicts}) == 1:
        return kind(first.code, text, fix=_fix_of_all(verdicts))
    return kind("MR-1030", text, fix=_fix_of_all(verdicts))


def _fix_of_all(verdicts: Sequence[Verdict]) -> str:
    """Every statement that mends a reason, once; with the members that it is for, where it is not for all."""
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
