"""Guards of an operator's decision that are removed: in ``producer.publish.decision``."""

from millrace.errors import Fatal
from millrace.producer.publish import decision, opening
from millrace.schemas.progress import Progress
from millrace.schemas.requests.decision import Decision
from tests.mutants.mutant import Mutant, Patch


def executed_again(patch: Patch) -> None:
    """An executed decision counts as one that waits."""
    patch.setattr(
        opening, "must_execute", lambda decision, progress, **_: decided_on(decision, progress)
    )


def decided_on(decision: Decision, progress: Progress) -> bool:
    """Whether it was made on this progress, or has led to it."""
    if progress in (decision.before, decision.result):
        return True
    raise Fatal("MR-3022", "another progress")


def stale_ones_executed(patch: Patch) -> None:
    """The topic's progress is not compared."""
    patch.setattr(opening, "must_execute", lambda *_, **__: True)


def gaps_not_identified(patch: Patch) -> None:
    """The result's progress alone shows that the decision was executed."""
    patch.setattr(opening, "last_decision", lambda *_: "d1")


def statuses_not_compared(patch: Patch) -> None:
    """A topic is adopted whatever the status reports."""
    adopted = decision.adopted_progress
    patch.setattr(
        opening, "adopted_progress", lambda decision, **_: adopted(decision, reported=None)
    )


_FILE = "tests/unit/test_decision_opening.py"

MUTANTS = [
    Mutant(
        "decision executed once",
        executed_again,
        _FILE,
        {
            "test_unknown_commit_of_a_decision_leaves_one_gap_record[lost after]": "assert \\[",
        },
    ),
    Mutant(
        "decision on its progress",
        stale_ones_executed,
        _FILE,
        {"test_stale_decision_writes_nothing": "DID NOT RAISE"},
    ),
    Mutant(
        "decision known by its id",
        gaps_not_identified,
        _FILE,
        {"test_gap_of_another_progress_is_not_taken_for_this_decision": "DID NOT RAISE"},
    ),
    Mutant(
        "adopted by the reported progress",
        statuses_not_compared,
        _FILE,
        {"test_topic_is_not_adopted_after_the_status_moved": "DID NOT RAISE"},
    ),
]
