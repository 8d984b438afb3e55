"""Compares the start of an apply or publish task with its source, before the task is created.

A task skips the rows of all source transactions in its start. A start that is ahead of the topic is usual, because
capture lags behind a load. One that is ahead of the source would skip rows that the source commits later.

The task itself can't check this: it knows only the topic, and the driver may have no account on the source. So the
command asks the primary. If that is not possible, the task is created with a note, and warns by MR-5038 until the topic
has reached its start.
"""

from collections.abc import Mapping

from millrace.cli.task.primary import primary_history
from millrace.errors import Fatal, MillraceError
from millrace.schemas.documents import CaptureTask, Reader, SetDocument
from millrace.schemas.gtid import beyond, parse_any_gtid_set
from millrace.zk.tree.documents import Document, DocumentKey, capture_task_among, set_key


def check_start(task: Reader, documents: Mapping[DocumentKey, Document | Fatal]) -> str:
    """Fatal MR-5037 if the source's primary does not have the start; MR-5008 for a start of the other flavour.

    ``documents``: those of the cluster, with the task. Returns a note if the primary could not be asked, else "".
    """
    if not task.start.gtid_set:
        return ""
    start = parse_any_gtid_set(task.start.gtid_set)
    try:
        _, document = source_of(task, documents)
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


def source_of(
    task: Reader, documents: Mapping[DocumentKey, Document | Fatal]
) -> tuple[CaptureTask, SetDocument]:
    """The task that captures to the topic, and its set. Fatal MR-4203 when there is none, MR-4104 without the set."""
    captured = capture_task_among(documents.values(), task)
    source = documents.get(set_key(captured.set_name))
    if isinstance(source, SetDocument):
        return captured, source
    raise source if isinstance(source, Fatal) else Fatal("MR-4104", f"no set {captured.set_name}")
