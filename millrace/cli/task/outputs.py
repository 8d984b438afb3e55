"""Compares a publish task with the tables of its set topic, before the task is created or changed.

The view must suit each table, and each table must have its topic (``consumer.checks.outputs``). If the brokers do not
answer here, the task is created with a note: its runner refuses the same.
"""

from collections.abc import Iterable, Mapping

from millrace.cli.task.start import source_of
from millrace.errors import Fatal, MillraceError
from millrace.schemas.documents import PublishTask
from millrace.schemas.requests.snapshot_request import SnapshotRequest
from millrace.schemas.table.structure import TableSchema
from millrace.schemas.view.differences import differences
from millrace.zk.tree.documents import Document, DocumentKey

TABLES_NAMED = 10


def check_outputs(
    task: PublishTask,
    documents: Mapping[DocumentKey, Document | Fatal],
    before: PublishTask | None = None,
) -> str:
    """Fatal MR-5201 or MR-4113 with every problem.

    Returns a note if the topic could not be read, or the source that conditions need; else which tables get other rows
    than ``before``, or "".
    """
    from millrace.consumer.checks.conditions import compared_with_source
    from millrace.consumer.topic.structures import topic_tables

    try:
        tables = topic_tables(task.source)
        outputs = compared_with_source(task, tables, lambda: source_of(task, documents)[1])
    except MillraceError as error:
        return f"the view was not compared with the tables of {task.source.topic}: {error.code} {error.message}"
    outputs.refuse()
    if before is None or before.view == task.view or before.source.topic != task.source.topic:
        return ""
    return _changed_tables(before, task, tables)


def _changed_tables(before: PublishTask, after: PublishTask, tables: Iterable[TableSchema]) -> str:
    topic = after.source.topic
    names = [".".join(name) for name in differences(before.view, after.view, tables)]
    if not names:
        return f"no table of the topic {topic} gets other rows under the new view"
    more = len(names) - TABLES_NAMED
    shown = ", ".join(names[:TABLES_NAMED]) + (f" and {more} more" if more > 0 else "")
    return f"tables of the topic {topic} with other rows under the new view: {shown}"


def notes_of(
    task: PublishTask, before: object, documents: Mapping[DocumentKey, Document | Fatal]
) -> list[str]:
    """All notes about a task that is created, or changed from ``before``.

    Fatal MR-5201, MR-4113, MR-4240, and MR-1005 without a right on the source that the task needs.
    """
    known = before if isinstance(before, PublishTask) else None
    notes = []
    if known is None or (known.view, known.topics) != (task.view, task.topics):
        notes.append(check_outputs(task, documents, known))
    if task.start.is_snapshot and (known is None or known.start != task.start):
        notes.append(check_snapshot(task, documents))
    return [note for note in notes if note]


def check_snapshot(task: PublishTask, documents: Mapping[DocumentKey, Document | Fatal]) -> str:
    """Fatal MR-4240 if `start: snapshot` can't read a table that the view names without a star.

    Fatal MR-1005 if the account of the source must not read a table: the server hides it, so no note can name it.
    Returns a note that names the others that it can't read, or why that is not known; else "".
    """
    from millrace.producer.snapshot.request_check import check_request

    try:
        capture, document = source_of(task, documents)
        request = SnapshotRequest(task.name, task.snapshot_tables)
        checked = check_request(capture, document, request)
    except MillraceError as error:
        if error.code in ("MR-4240", "MR-1005"):
            raise
        return f"`start: snapshot` was not compared with the source: {error.code} {error.message}"
    unread = [
        f"{'.'.join(name)} ({why})" for name, why in checked.left_out if task.view.match(*name)
    ]
    return f"the snapshot has no rows of {', '.join(unread)}" if unread else ""
