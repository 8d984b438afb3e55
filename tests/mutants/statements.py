"""Guards of a statement that runs for long on the target, and of values that print one text, removed one by one."""

import math

from millrace.consumer.tables import digest
from millrace.consumer.target import running_statement
from tests.mutants.mutant import Mutant, Patch


def running_statement_ended(patch: Patch) -> None:
    """The next owner waits for no statement of an earlier run, and ends its session."""
    patch.setattr(running_statement, "_has_ended", lambda *_: True)


def silence_without_limit(patch: Patch) -> None:
    """A server that does not answer is never lost."""
    patch.setattr(running_statement, "LOST_S", math.inf)


def servers_not_compared(patch: Patch) -> None:
    """Another server that does not list the statement shows that it has ended."""
    patch.setattr(running_statement, "check_server", lambda *_: None)


def sets_compared_by_text(patch: Patch) -> None:
    """No label and the label '' of a SET are equal."""
    patch.setattr(digest, "is_ambiguous_set", lambda *_: False)


_WATCH = "tests/unit/test_statement_watch.py"

MUTANTS = [
    Mutant(
        "a running statement is waited for",
        running_statement_ended,
        _WATCH,
        {"test_next_owner_ends_only_an_idle_session": "assert"},
    ),
    Mutant(
        "a silent server is lost",
        silence_without_limit,
        _WATCH,
        {"test_silent_server_is_lost_after_a_minute": "DID NOT RAISE"},
    ),
    Mutant(
        "a statement ends on its own server",
        servers_not_compared,
        _WATCH,
        {"test_another_server_at_the_address_is_no_answer": "assert"},
    ),
    Mutant(
        "a SET with an empty label is compared with its number",
        sets_compared_by_text,
        "tests/unit/test_compare_digest.py",
        {"test_set_with_an_empty_label_is_compared_with_its_number": "assert"},
    ),
]
