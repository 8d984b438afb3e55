"""Whether a start must execute an operator's decision (``schemas.requests.decision``). Decides; writes nothing.

The decision waits in ZooKeeper until its gap record is in the topic. Owners may die at any point in between:

    the topic's progress                    is                              and the start
    ``before`` of the decision              not executed yet                executes it with its fence
    ``result``, and its gap record is the   executed by an owner that died  continues
    last row or statement                   before it removed the decision
    any other                               made on another progress        Fatal MR-3022; nothing is written

An owner publishes nothing else before it has removed the decision. So the topic has the gap record exactly once, and
while the decision waits, no row follows the record.
"""

from collections.abc import Callable

from millrace.errors import Fatal
from schemas.progress import Progress
from schemas.requests.decision import Decision, DecisionKind


def adopted_progress(decision: Decision | None, *, reported: Progress | None) -> Progress | None:
    """The progress with which an operator adopts a topic without records; None if there is no such decision.

    It must be the one that the task's status reports, if there is one: only then is it what the operator has seen.
    """
    if decision is None or decision.kind is not DecisionKind.ADOPT_TOPIC:
        return None
    return decision.before if reported in (None, decision.before) else None


def must_execute(
    decision: Decision, progress: Progress, *, last_decision: Callable[[], str]
) -> bool:
    """Whether ``decision`` is still to be executed on a topic with ``progress``; Fatal MR-3022 if it does not fit.

    ``last_decision`` returns the ID of the decision whose gap record is the topic's last row or statement.
    """
    if progress == decision.before:
        return True
    if progress == decision.result and last_decision() == decision.id:
        return False
    raise Fatal(
        "MR-3022",
        f"{decision.kind} was decided at seq {decision.before.seq} after {decision.before.gtid_set or 'the beginning'},"
        f" and the topic is at seq {progress.seq} after {progress.gtid_set or 'the beginning'}",
        decision=decision.id,
        operator=decision.approval.operator,
    )
