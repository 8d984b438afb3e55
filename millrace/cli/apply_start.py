"""Compares the start of an apply task with its source, before the task is created.

A task skips the rows of all source transactions in its start. A start that is ahead of the topic is usual, because
capture lags behind a load. One that is ahead of the source would skip rows that the source commits later.

The task itself can't check this: it knows only the topic, and the driver may have no account on the source. So the
command asks the primary. If that is not possible, the task is created with a note, and warns by MR-5038 until the topic
has reached its start.
"""

from millrace.cli.arrival import source_set_of
from millrace.cli.control import Control
from millrace.cli.primary import primary_history
from millrace.errors import Fatal, MillraceError
from schemas.documents import ApplyTask
from schemas.gtid import beyond, parse_any_gtid_set


def check_start(now: Control, task: ApplyTask) -> str:
    """Fatal MR-5037 if the source's primary does not have the start; MR-5008 for a start of the other flavour.

    Returns a note if the primary could not be asked, else "".
    """
    if task.start.is_first:
        return ""
    start = parse_any_gtid_set(task.start.gtid_set)
    try:
        document = now.store.set_entry(source_set_of(now, task)).document
        position = primary_history(document).position
    except MillraceError as error:
        return (
            f"`start` was not compared with the source: {error.code} {error.message}. If the source does not have"
            " it, rows are skipped."
        )
    if start.flavour is not position.flavour:
        raise Fatal(
            "MR-5008",
            f"`start` is a GTID set of {start.flavour}, the source has those of {position.flavour}",
        )
    if ahead := beyond(start, position):
        raise Fatal(
            "MR-5037",
            f"the primary of {document.name} does not have {ahead} of `start`",
            gtids=ahead,
        )
    return ""
