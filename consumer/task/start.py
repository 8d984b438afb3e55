"""The start of a run of an apply task on the target: the fence, and the progress from which it continues.

The view of a task that changes names, columns or rows is stored with its first mark. A later start with another view is
refused: rows above the mark may have been applied under the one that is stored. A first load stores its view with its
range, before it copies a row.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from millrace.consumer.spark.session import FIRST_OFFSET, LANES_MAX
from millrace.consumer.tables.table_plans import Notes
from millrace.consumer.target.aside import kept_size
from millrace.consumer.target.conflicts import forget_blocking
from millrace.consumer.target.fence import raise_fence
from millrace.consumer.target.loads import LoadStream, begin_stream, read_stream
from millrace.consumer.target.merged_tables import forget_task
from millrace.consumer.target.progress import (
    Mark,
    MarkTopic,
    Owner,
    add_missing_columns,
    check_fence,
    create_tables,
    insert_mark,
    read_mark,
)
from millrace.consumer.target.running_statement import Waiting, await_statement, pause
from millrace.consumer.target.stored_view import StoredView, insert_view, read_view, update_view
from millrace.consumer.target.streams import is_partial
from millrace.consumer.target.wait_procedure import create_procedure
from millrace.consumer.topic.structures import topic_tables
from millrace.consumer.turn.driver import BatchApplier
from millrace.consumer.turn.order import Assignment, Rules
from millrace.consumer.view.mask_keys import MaskKeys
from millrace.consumer.view.source_texts import compares_texts, read_source_texts, weighs_texts
from millrace.consumer.write.aside import AsideRule
from millrace.drivers.mysql.connection import Endpoint, MySqlSession
from millrace.errors import Fatal, MillraceError
from millrace.log import get_logger
from millrace.schemas.documents import (
    ApplyTask,
    CaptureTask,
    Consistency,
    RefusedPolicy,
    SetDocument,
)
from millrace.schemas.gtid import parse_any_gtid_set
from millrace.schemas.view.collation import CollationWeights
from millrace.schemas.view.view import View

SHOWN_CHARACTERS = 500

_log = get_logger("apply")


def take_over(
    session: MySqlSession, endpoint: Endpoint, task: ApplyTask, *, epoch: int
) -> BatchApplier:
    """Raise the fence and read the progress: all requests of a start to the target, unless it loads."""
    owner = owner_of(session, task, epoch=epoch)
    assert owner is not None  # nothing ends the wait
    return applier_of(session, endpoint, task, owner)


def owner_of(
    session: MySqlSession, task: ApplyTask, *, epoch: int, waiting: Waiting = pause
) -> Owner | None:
    """Raise the fence: afterwards no earlier run of the task writes or executes a statement.

    A statement that an earlier run has begun is waited for (``await_statement``); None if ``waiting`` ended the wait.
    """
    create_tables(session)
    create_procedure(session)
    owner = raise_fence(session, task=task.name, epoch=epoch)
    if not await_statement(session, task.name, waiting):
        return None
    add_missing_columns(session)
    forget_blocking(session, task.name)
    session.commit()
    return owner


def has_to_load(session: MySqlSession, task: ApplyTask) -> bool:
    """Whether the task starts with a load, and has no progress yet."""
    found = task.start.is_load and read_mark(session, task.name) is None
    session.rollback()
    return found


def end_load(session: MySqlSession, task: ApplyTask, owner: Owner, loaded: LoadStream) -> None:
    """Insert the first mark of a task whose load has ended."""
    begin_stream(session, owner, mark_after(loaded.begin, task.source.topic), loaded.end)


Weigh = Callable[[View, tuple[CollationWeights, ...]], View]


def _with_known(view: View, known: tuple[CollationWeights, ...]) -> View:
    return replace(view, collations=known)


def loading(session: MySqlSession, task: ApplyTask, *, weigh: Weigh = _with_known) -> ApplyTask:
    """The task of a first load, with the view that it copies under: that of its first run, if it has planned the load.

    Fatal MR-5209, MR-5203 if it has planned it under another view, or with another secret.
    """
    is_planned = read_stream(session, task.name) is not None
    stored = read_view(session, task.name) if is_planned else None
    view = task.view.with_fingerprints(MaskKeys().fingerprints(task.view))
    if is_planned:
        _check_view(task.name, view, stored)
    session.rollback()  # the source may take its time
    return replace(task, view=weigh(view, stored.weights if stored is not None else ()))


def applier_of(
    session: MySqlSession,
    endpoint: Endpoint,
    task: ApplyTask,
    owner: Owner,
    *,
    weigh: Weigh = _with_known,
) -> BatchApplier:
    """Read the progress, or insert the first mark. ``weigh``: ``weighed``, if the source can be asked."""
    found, stored = read_mark(session, task.name), read_view(session, task.name)
    mark, known = found[0] if found else None, stored.weights if stored is not None else ()
    view = task.view.with_fingerprints(MaskKeys().fingerprints(task.view))
    if mark is not None:
        _check_view(task.name, view, stored)
    session.rollback()  # the source may take its time
    view = weigh(view, known if mark is not None else ())
    if mark is None:
        mark = mark_after(task.start.gtid_set, task.source.topic)
        check_fence(session, owner)  # of two concurrent first starts, only one inserts the mark
        insert_mark(session, task.name, mark)
        insert_view(session, task.name, view, begin_seq=mark.seq)
        forget_task(session, task.name)
    elif view.collations != known:
        check_fence(session, owner)
        update_view(session, task.name, view)
    if mark.topic.name != task.source.topic:
        raise Fatal(
            "MR-5022",
            f"the progress belongs to topic {mark.topic.name}, the task reads {task.source.topic}",
            fix=f"Set `topic` back to {mark.topic.name} (`millrace task create -f FILE --replace`), then `millrace"
            f" task resume {task.name}`. To apply {task.source.topic}, create a task with another name.",
        )
    partial = is_partial(session, task.name)
    keeps = task.rules.refused is RefusedPolicy.ASIDE
    kept = kept_size(session, task.name).rows
    session.commit()
    if kept and task.rules.consistency is Consistency.TRANSACTIONAL:
        raise Fatal("MR-5046", "consistency: transactional waits for rows that are kept aside")
    _log.info("apply begins", task=task.name, run=owner.run, seq=mark.seq, offset=mark.next_offset)
    rules = Rules(
        policy=task.rules.conflict,
        lane_count=min(task.rules.lanes, LANES_MAX),
        consistency=task.rules.consistency,
        safe_until=task.rules.safe_mode.until_gtid,
        aside=AsideRule(keeps, keeps or kept > 0),
    )
    assignment = Assignment(endpoint=endpoint, source=task.source, rules=rules, view=view)
    applier = BatchApplier(assignment, owner, mark, is_partial=partial)
    applier.figures.notes = Notes(kept=kept)  # until the first turn ends
    return applier


def _check_view(task: str, view: View, stored: StoredView | None) -> None:
    """Fatal MR-5209 if rows were delivered under another view, MR-5203 if with another secret of a mask.

    Another choice of tables is possible.
    """
    wanted = StoredView.of(view)
    before, now = (one.tables if one is not None else None for one in (stored, wanted))
    if before != now:
        shown = json.dumps(before)[:SHOWN_CHARACTERS] if before else "`include` and `exclude`"
        raise Fatal("MR-5209", f"{task} has applied rows under another view: {shown}", task=task)
    if stored is not None and wanted is not None and stored.secrets != wanted.secrets:
        changed = [name for name, one in wanted.secrets.items() if stored.secrets.get(name) != one]
        what = f"the secret {', '.join(changed)} is not the one of the view"
        raise Fatal("MR-5203", what, task=task)


class Documents(Protocol):
    """The documents that a start asks for if a condition compares texts. Implemented by the runner's documents."""

    def set_document(self, name: str) -> SetDocument:
        """The current document of a set."""

    def capture_task_of(self, task: ApplyTask) -> CaptureTask:
        """The task that captures to the apply task's topic."""


def weighed(
    task: ApplyTask, documents: Documents, view: View, known: tuple[CollationWeights, ...]
) -> View:
    """The view with how the source weighs the literals of its conditions. ``known`` weights are kept.

    While the source does not answer, they are used alone; without any, only a table of the topic that needs weights
    stops the start. Fatal MR-5201 for a condition on a UUID.
    """
    if not compares_texts(view):
        return replace(view, collations=known)
    tables = topic_tables(task.source)
    try:
        document = documents.set_document(documents.capture_task_of(task).set_name)
        texts = read_source_texts(view, tables, document, known=known)
    except MillraceError as error:
        if not known and weighs_texts(view, tables):
            raise
        _log.warning("the source was not asked about its texts", task=task.name, error=error)
        return replace(view, collations=known)
    for problem in texts.problems:
        if problem.code == "MR-5201":
            raise problem
    return replace(view, collations=texts.weights)


def mark_after(gtid_set: str, topic: str) -> Mark:
    """The first mark of a task that starts after a GTID set ("": at the beginning). Rows in it are skipped later."""
    if not gtid_set:
        return Mark(0, FIRST_OFFSET, topic=MarkTopic(topic))
    start = parse_any_gtid_set(gtid_set)
    return Mark(
        -1, FIRST_OFFSET, str(start), str(start.flavour), MarkTopic(topic), past_start=False
    )
