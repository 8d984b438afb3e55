"""The record of an operator's decision in a topic: source transactions are missing here, on purpose.

It is a ``ddl`` record of the kind ``gap``, so it has a ``seq`` and every reader decodes it. Its statement is a comment:

    -- millrace gap: skip-gtid
    -- missing: 3e11fa47-71ca-11e1-9e33-c80aa9429562:7
    -- reason: the statement was logged without its rows
    -- operator: ann@db-ops
    -- decided: 2026-11-24T06:30:00Z

Its ``session`` has the same for programs (``decision``, ``gap``, ``missing``, ``reason``, ``operator``), and
``in_doubt``: apply never executes it, and blocks until an operator has repaired the target. It ends the source
transaction in its ``transaction``, of which some rows may be in the topic before it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from millrace.schemas.record.control import (
    DdlRecord,
    DdlStatement,
    EventPlace,
    Origin,
    RecordSource,
    RecordTransaction,
)
from millrace.schemas.requests.decision import Decision

GAP_KIND = "gap"
_DOUBT = "source transactions are missing here"


@dataclass(frozen=True, slots=True)
class Gap:
    """The decision's ID and kind, what is missing ("": nothing), the operator's reason."""

    decision: str
    kind: str
    missing: str
    reason: str


def gap_record(decision: Decision, *, set_name: str) -> DdlRecord:
    """The record for ``decision``; the same each time."""
    flavour, approval = decision.after.flavour, decision.approval
    place = EventPlace(approval.at_ms, 0, decision.gtid, "", 0, 0)
    origin = Origin(flavour, decision.task, set_name)
    decided = datetime.fromtimestamp(approval.at_ms / 1000, UTC)
    missing = decision.missing or "nothing"
    lines = {
        "millrace gap": decision.kind.value,
        "missing": missing,
        "reason": approval.reason,
        "operator": approval.operator,
        "decided": decided.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    session = {
        "in_doubt": _DOUBT,
        "decision": decision.id,
        "gap": decision.kind.value,
        "missing": decision.missing,
        "reason": approval.reason,
        "operator": approval.operator,
    }
    return DdlRecord(
        RecordSource(origin, "", "", place, 0, decision.result.seq),
        DdlStatement(_comment(lines), GAP_KIND, (), session),
        approval.at_ms,
        RecordTransaction(decision.gtid, decision.number, is_last=True),
    )


def gap_of(record: DdlRecord) -> Gap | None:
    """The gap that the record names; None for a statement of the source."""
    if record.statement.kind != GAP_KIND:
        return None
    found = record.statement.session
    return Gap(*(found.get(name, "") for name in ("decision", "gap", "missing", "reason")))


def _comment(lines: Mapping[str, str]) -> str:
    """One comment line each: a line end in a value must not end the comment."""
    return "\n".join(f"-- {name}: {' '.join(value.split())}" for name, value in lines.items())
