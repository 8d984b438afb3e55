"""An operator's decision about the progress of a capture task: the way out of a state that blocks it.

    kind             the progress after it                                   what is missing in the topic
    skip-gtid        with one source transaction done                        its rows, or the rest of them
    reset-position   a later GTID set                                        every transaction in between
    adopt-topic      the same, in a topic that has lost its records          nothing new: what the topic lost

The decision is made on an exact progress (``before``). The task's next owner executes it at its start, if the topic
has this progress: it writes a ``gap`` record (``schemas.record.gap``), and continues with the progress ``result``.

Layout in ZooKeeper: the field ``decision`` of ``tasks/<task>``, with the fields of ``decision_to_plain``.

Guarantees: ``result`` is never equal to ``before``, because the gap record has its own ``seq``. Pure values. Not done
here: the checks against the source (``producer.publish.decision``), the execution (``producer.publish.opening``).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from millrace.errors import Fatal
from millrace.schemas.gtid import (
    Flavour,
    GtidPosition,
    GtidSet,
    MariadbGtidSet,
    parse_gtid,
    parse_gtid_set,
    shortened,
)
from millrace.schemas.progress import OpenTransaction, Progress

REASON_CHARACTERS_MAX = 500


class DecisionKind(StrEnum):
    """The command that made it."""

    SKIP_GTID = "skip-gtid"
    RESET_POSITION = "reset-position"
    ADOPT_TOPIC = "adopt-topic"


@dataclass(frozen=True, slots=True)
class Approval:
    """The operator (``user@host``), the operator's reason, and the time (Unix time)."""

    operator: str
    reason: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """``id`` is unique. ``before``: the progress on which it was made. ``after``: the GTID set that counts as done."""

    id: str
    kind: DecisionKind
    task: str
    before: Progress
    after: GtidPosition
    approval: Approval

    @property
    def result(self) -> Progress:
        """The progress after its execution. The gap record counts in ``seq``."""
        return Progress(self.after, None, self.before.seq + 1)

    @property
    def missing(self) -> str:
        """The source transactions that count as done and are not in the topic, or not whole; "" if there is none."""
        return missing_between(self.before, self.after)

    @property
    def waits(self) -> str:
        """One sentence for a status while no worker has executed it."""
        missing = f" without {shortened(self.missing)}" if self.missing else ""
        return (
            f"{self.kind} by {self.approval.operator} waits for the task's next start, which continues{missing};"
            f" `millrace unsafe withdraw {self.task}` removes it."
        )

    @property
    def gtid(self) -> str:
        """The source transaction of the gap record: the open one, or one that is missing; else the last one done."""
        if self.before.open is not None:
            return self.before.open.gtid
        return _last_gtid(self.before.gtid_set, self.after)

    @property
    def number(self) -> int:
        """The gap record's number in that transaction, from 1."""
        return 1 if self.before.open is None else self.before.open.rows + 1


def missing_between(before: Progress, after: GtidPosition) -> str:
    """The transactions of ``after`` that ``before`` does not have, as text. Of MariaDB each domain's range.

    >>> before = Progress(parse_gtid_set(Flavour.MARIADB, "0-1-20"), None, 7)
    >>> missing_between(before, parse_gtid_set(Flavour.MARIADB, "0-1-24,3-1-2"))
    'the transactions after 0-1-20 up to 0-1-24, the transactions up to 3-1-2'
    >>> missing_between(before, parse_gtid_set(Flavour.MARIADB, "0-1-21"))
    '0-1-21'
    """
    known = before.gtid_set
    if isinstance(known, GtidSet) and isinstance(after, GtidSet):
        return str(after - known)
    assert isinstance(known, MariadbGtidSet)
    assert isinstance(after, MariadbGtidSet)
    ranges = []
    for gtid in after.gtids():
        last = known.last(gtid.domain)
        if last is None:
            ranges.append(f"the transactions up to {gtid}")
        elif last.sequence + 1 == gtid.sequence:  # no number is in between
            ranges.append(str(gtid))
        elif last != gtid:
            ranges.append(f"the transactions after {last} up to {gtid}")
    return ", ".join(ranges)


def _last_gtid(before: GtidPosition, after: GtidPosition) -> str:
    """One transaction of ``after``, not in ``before`` if there is such a one."""
    if isinstance(before, GtidSet) and isinstance(after, GtidSet):
        (uuid, tag), (_, stop) = list(((after - before) if before != after else after).intervals())[
            -1
        ]
        return ":".join(filter(None, (str(uuid), tag, str(stop - 1))))
    assert isinstance(before, MariadbGtidSet)
    assert isinstance(after, MariadbGtidSet)
    changed = [gtid for gtid in after.gtids() if before.last(gtid.domain) != gtid]
    return str((changed or after.gtids())[-1])


def is_forward(before: Progress, after: GtidPosition) -> bool:
    """Whether ``after`` has all that is delivered, and the source transaction that is delivered in part."""
    opened = before.open
    return after.includes(before.gtid_set) and (
        opened is None or after.covers(parse_gtid(after.flavour, opened.gtid))
    )


def decision_to_plain(decision: Decision) -> dict[str, object]:
    """The fields in ZooKeeper."""
    before, approval = decision.before, decision.approval
    return {
        "id": decision.id,
        "kind": decision.kind.value,
        "task": decision.task,
        "flavour": before.gtid_set.flavour.value,
        "gtid_set": str(before.gtid_set),
        "open_gtid": before.open.gtid if before.open else "",
        "open_rows": before.open.rows if before.open else 0,
        "seq": before.seq,
        "after": str(decision.after),
        "operator": approval.operator,
        "reason": approval.reason,
        "at_ms": approval.at_ms,
    }


def decision_of(plain: object, *, origin: str) -> Decision | None:
    """From the fields in ZooKeeper; None for null. Fatal MR-4011."""
    if plain is None:
        return None
    try:
        if not isinstance(plain, Mapping):
            raise TypeError("not an object")
        flavour = Flavour(plain["flavour"])
        opened = str(plain["open_gtid"])
        before = Progress(
            parse_gtid_set(flavour, str(plain["gtid_set"])),
            OpenTransaction(opened, int(plain["open_rows"])) if opened else None,
            int(plain["seq"]),
        )
        after = parse_gtid_set(flavour, str(plain["after"]))
        if after.is_empty:
            raise ValueError("its GTID set is empty")
        return Decision(
            id=str(plain["id"]),
            kind=DecisionKind(plain["kind"]),
            task=str(plain["task"]),
            before=before,
            after=after,
            approval=Approval(str(plain["operator"]), str(plain["reason"]), int(plain["at_ms"])),
        )
    except (ValueError, KeyError, TypeError, OverflowError, Fatal) as error:
        raise Fatal("MR-4011", f"{origin}: its decision can't be read: {error}") from error
