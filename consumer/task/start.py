"""The start of a run of an apply task on the target: the fence, and the progress from which it continues.

The view of a task that changes names, columns or rows is stored with its first mark. A later start with another view is
refused: rows above the mark may have been applied under the one that is stored.
"""

import json

from millrace.consumer.spark.session import FIRST_OFFSET, LANES_MAX
from millrace.consumer.target.conflicts import forget_blocking
from millrace.consumer.target.fence import raise_fence
from millrace.consumer.target.loads import LoadStream, begin_stream
from millrace.consumer.target.progress import (
    DATABASE,
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
from millrace.consumer.target.streams import is_partial
from millrace.consumer.target.wait_procedure import create_procedure
from millrace.consumer.turn.driver import BatchApplier
from millrace.consumer.turn.order import Assignment, Rules
from millrace.consumer.view.mask_keys import MaskKeys
from millrace.drivers.mysql.connection import Endpoint, MySqlSession
from millrace.errors import Fatal
from millrace.log import get_logger
from millrace.schemas.documents import ApplyTask, canonical_json
from millrace.schemas.gtid import parse_any_gtid_set
from millrace.schemas.view.view import View, plain_view

CONTENT_FORMAT = 1  # of ``millrace.view``
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


def applier_of(
    session: MySqlSession, endpoint: Endpoint, task: ApplyTask, owner: Owner
) -> BatchApplier:
    """Read the progress, or insert the first mark."""
    view = task.view.with_fingerprints(MaskKeys().fingerprints(task.view))
    found = read_mark(session, task.name)
    mark = found[0] if found else None
    if mark is None:
        mark = mark_after(task.start.gtid_set, task.source.topic)
        check_fence(session, owner)  # of two concurrent first starts, only one inserts the mark
        insert_mark(session, task.name, mark)
        _insert_view(session, task, view, mark)
    else:
        _check_view(session, task, view)
    if mark.topic.name != task.source.topic:
        raise Fatal(
            "MR-5022",
            f"the progress belongs to topic {mark.topic.name}, the task reads {task.source.topic}",
            fix=f"Set `topic` back to {mark.topic.name} (`millrace task create -f FILE --replace`), then `millrace"
            f" task resume {task.name}`. To apply {task.source.topic}, create a task with another name.",
        )
    partial = is_partial(session, task.name)
    session.commit()
    _log.info("apply begins", task=task.name, run=owner.run, seq=mark.seq, offset=mark.next_offset)
    rules = Rules(
        policy=task.rules.conflict,
        lane_count=min(task.rules.lanes, LANES_MAX),
        consistency=task.rules.consistency,
        safe_until=task.rules.safe_mode.until_gtid,
    )
    assignment = Assignment(endpoint=endpoint, source=task.source, rules=rules, view=view)
    return BatchApplier(assignment, owner, mark, is_partial=partial)


def _insert_view(session: MySqlSession, task: ApplyTask, view: View, mark: Mark) -> None:
    """Store the view of a task that begins, if it is more than a choice of tables. Does not commit."""
    if view.as_filter is None:
        session.query(
            f"REPLACE INTO {DATABASE}.view (task, begin_seq, content) VALUES (%s, %s, %s)",
            (task.name, mark.seq, canonical_json(_content(view))),
        )


def _check_view(session: MySqlSession, task: ApplyTask, view: View) -> None:
    """Fatal MR-5209 if rows were delivered under another view, MR-5203 if with another secret of a mask.

    Another choice of tables is possible.
    """
    rows = session.query(f"SELECT content FROM {DATABASE}.view WHERE task = %s", (task.name,))
    found = str(rows[0][0]) if rows else ""
    wanted = canonical_json(_content(view)) if view.as_filter is None else ""
    if found == wanted:
        return
    before = json.loads(found)["tables"] if found else "include and exclude"
    if before == plain_view(view):
        stored = json.loads(found)["secrets"]
        changed = [name for name, one in _secrets(view).items() if stored.get(name) != one]
        what = f"the secret {', '.join(changed)} is not the one of the view"
        raise Fatal("MR-5203", what, task=task.name)
    raise Fatal(
        "MR-5209",
        f"{task.name} has applied rows under another view: {json.dumps(before)[:SHOWN_CHARACTERS]}",
        task=task.name,
    )


def _content(view: View) -> dict[str, object]:
    return {"format": CONTENT_FORMAT, "tables": plain_view(view), "secrets": _secrets(view)}


def _secrets(view: View) -> dict[str, str]:
    """The fingerprints of the masks' secrets."""
    masks = (mask for rule in view.rules for _, mask in rule.masks)
    return {mask.secret: mask.fingerprint for mask in masks if mask.secret}


def mark_after(gtid_set: str, topic: str) -> Mark:
    """The first mark of a task that starts after a GTID set ("": at the beginning). Rows in it are skipped later."""
    if not gtid_set:
        return Mark(0, FIRST_OFFSET, topic=MarkTopic(topic))
    start = parse_any_gtid_set(gtid_set)
    return Mark(
        -1, FIRST_OFFSET, str(start), str(start.flavour), MarkTopic(topic), past_start=False
    )
