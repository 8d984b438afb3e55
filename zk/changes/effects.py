"""The effect of each changed field of a document, in sentences for an operator. Pure.

The rules are those of docs/documents.md. A field without a rule of its own holds for the changes that are not captured
or applied yet, so a new field needs no code here.
"""

from collections.abc import Collection, Iterator

from millrace.errors import Fatal
from millrace.schemas.documents import (
    ApplyTask,
    CaptureTask,
    FieldChange,
    PublishTask,
    RelayMode,
    SetDocument,
    TaskDocument,
    address_of,
    set_of,
    stream_of,
)
from millrace.schemas.documents.fields import shortened
from millrace.schemas.status import TaskReport
from millrace.zk.changes.publish_effects import (
    left_topics,
    no_start_topic,
    of_changed_publish,
    refusal_of_change,
)

LATER = "holds for the changes that are not {done} yet"


def has_progress(report: TaskReport | None) -> bool:
    """Whether the task has published or applied a record."""
    return report is not None and bool(report.seq or report.gtid_set)


def topic_refusal(
    before: TaskDocument, after: TaskDocument, report: TaskReport | None
) -> Fatal | None:
    """MR-5022 if an apply task gets another topic than the one that it has applied; MR-4112 for a publish task.

    Its progress belongs to that topic. ``report``: the last one on the work of ``before``.
    """
    if isinstance(before, PublishTask) and isinstance(after, PublishTask):
        return refusal_of_change(before, after, report)
    known, wanted = address_of(before).topic, address_of(after).topic
    if (
        not isinstance(before, ApplyTask)
        or known == wanted
        or report is None
        or not has_progress(report)
    ):
        return None
    return Fatal(
        "MR-5022",
        f"{after.name} has applied the topic {known} up to seq {report.seq}, the document names {wanted}",
        fix=f"Set `topic` to {known}, or give the task of {wanted} another name.",
        task=after.name,
    )


def start_note(before: TaskDocument, after: TaskDocument, report: TaskReport | None) -> str:
    """A note that a changed ``start`` has no effect; "" when it has one, or did not change.

    ``report``: the last report on the work of ``after``; ``None`` when the task has not worked on this topic yet.
    """
    if before.start == after.start or report is None or not has_progress(report):
        return ""
    is_capture = isinstance(after, CaptureTask)
    topic = address_of(after).topic
    if isinstance(after, PublishTask):
        read = no_start_topic(after)
    elif is_capture:
        read = f"only while the topic {topic} has never held a record"
    else:
        read = f"only while the target {set_of(after)} has no progress of the task"
    where = f"after {report.gtid_set or 'the beginning'}, seq {report.seq}"
    name = "a new topic" if is_capture else "another name"
    return (
        f"`start` changed from {before.start} to {after.start} and has no effect: it is read {read}."
        f" The task resumes {where}. To start elsewhere, create a task with {name}."
    )


def of_new_task(task: TaskDocument) -> str:
    """Where a new task begins."""
    if isinstance(task, CaptureTask):
        topic = task.output.topic
        return f"begins {_start(task)} if the topic {topic} has no record, else after its last one"
    if isinstance(task, PublishTask):
        return f"begins {_start(task)}, or after the progress in the topic {task.progress_topic}"
    begins = (
        f"begins {_start(task)}, or after the progress of {task.name} on the target {task.target}"
    )
    until = task.rules.safe_mode.until_gtid
    return f"{begins}; {_repeated(until)}" if until else begins


def _repeated(until: str) -> str:
    """The effect of safe mode, for a sentence."""
    return (
        f"rows of source transactions in {shortened(until)} are written again with REPLACE and DELETE"
        " (`millrace check` names cascades that block the task then, MR-5025)"
    )


def _start(task: TaskDocument) -> str:
    """Where ``start`` is, for a sentence."""
    if task.start.is_load:
        return "with a load of all its tables"
    if task.start.is_snapshot:
        return "with a snapshot of the rows that exist"
    if not task.start.is_first:
        return f"after {shortened(task.start.gtid_set)}"
    return (
        "at the oldest binlog" if isinstance(task, CaptureTask) else "at the topic's first record"
    )


def of_deleted_task(task: TaskDocument | None) -> str:
    """The effect of a deletion: the parts that stay."""
    if isinstance(task, CaptureTask):
        return f"stops; the topic {task.output.topic} stays and gets no more records"
    if isinstance(task, ApplyTask):
        return f"stops; the rows and the progress on {task.target} stay: a later task of this name resumes there"
    if isinstance(task, PublishTask):
        return f"stops; {left_topics(task)}: a later task of this name resumes there"
    return "stops"


def of_changed_task(
    before: TaskDocument,
    after: TaskDocument,
    fields: Collection[FieldChange],
    report: TaskReport | None,
) -> Iterator[str]:
    """The effect of each changed field of a task. ``report``: the last one on the work of ``before``."""
    if type(before) is not type(after):
        yield "another kind of task: it begins at its `start`"
        return
    is_same_work = (set_of(before), address_of(before).topic) == (
        set_of(after),
        address_of(after).topic,
    )
    left = [field.path for field in fields]
    if "start" in left:
        left.remove("start")
        note = start_note(before, after, report) if is_same_work else ""
        yield note or f"`start`: {of_new_task(after)}"
    for path, text in _moves(before, after):
        left.remove(path)
        yield f"`{path}`: {text}"
    if isinstance(before, PublishTask) and isinstance(after, PublishTask):
        yield from of_changed_publish(before, after, left, report)
        return
    rules = [path for path in left if path.partition("[")[0].partition(".")[0] == "tables"]
    if rules:
        left = [path for path in left if path not in (*rules, "include", "exclude")]
        yield (
            "`tables`: a task that has applied rows does not start with another view (MR-5209); one that has not"
            " applies it from its `start`"
        )
    tables = [path for path in left if path in ("include", "exclude")]
    if tables:
        left = [path for path in left if path not in tables]
        names = " and ".join(f"`{path}`" for path in tables)
        yield f"{names}: rows of a table that is left out are skipped and not kept; " + _admitted(
            after
        )
    if isinstance(after, ApplyTask) and "safe_mode.until_gtid" in left:
        left.remove("safe_mode.until_gtid")
        until = after.rules.safe_mode.until_gtid
        yield "`safe_mode`: " + (
            f"replay: {_repeated(until)}" if until else "ends: rows are written as always"
        )
    if isinstance(after, ApplyTask) and "load.new_tables" in left:
        left.remove("load.new_tables")
        done = "" if after.rules.load.new_tables else "not "
        yield f"`load.new_tables`: tables that `include` and `exclude` admit with this change or later are {done}loaded"
    if load := [path for path in left if path.startswith("load.")]:
        left = [path for path in left if path not in load]
        names = ", ".join(f"`{path}`" for path in load)
        yield f"{names}: holds for the chunks that are not copied yet"
    if limits := [path for path in left if path.startswith("snapshot_limits.")]:
        left = [path for path in left if path not in limits]
        names = ", ".join(f"`{path}`" for path in limits)
        yield f"{names}: holds for the chunks that are not read yet"
    if isinstance(after, CaptureTask) and "compression" in left:
        left.remove("compression")
        yield "`compression`: holds for the records that are not published yet; the others stay as they are"
    if isinstance(after, CaptureTask) and "resolved_idle_s" in left:
        left.remove("resolved_idle_s")
        idle_s = after.rules.resolved_idle_s
        yield f"`resolved_idle_s`: while nothing changes, a resolved record is written every {idle_s:g} s at least"
    if compare := [path for path in left if path.startswith("compare.")]:
        left = [path for path in left if path not in compare]
        names = ", ".join(f"`{path}`" for path in compare)
        yield f"{names}: {_compared(before, after)}"
    if left:
        done = "published" if isinstance(after, CaptureTask) else "applied"
        names = ", ".join(f"`{path}`" for path in left)
        yield f"{names}: " + LATER.format(done=done)


def _compared(before: TaskDocument, after: TaskDocument) -> str:
    """The effect of changed rules of the comparisons beside a task."""
    if not isinstance(after, ApplyTask) or not after.rules.compare.every_h:
        return "source and target are not compared any more"
    if isinstance(before, ApplyTask) and before.rules.compare.every_h:
        return "holds for the chunks that are not compared yet"
    return f"source and target are compared every {after.rules.compare.every_h} h, beside the task"


def _admitted(after: TaskDocument) -> str:
    """The effect on a table that the changed filter admits."""
    if not isinstance(after, ApplyTask):
        return "a table that is admitted again misses them"
    if not after.rules.load.new_tables:
        return "no table that is admitted now is loaded (`load.new_tables`): each must be on the target, with its rows"
    return (
        "a table that is admitted and not on the target is loaded, and with it all that foreign keys relate to it:"
        " readers miss their rows meanwhile. Any other one that is there misses the skipped rows"
    )


def _moves(before: TaskDocument, after: TaskDocument) -> Iterator[tuple[str, str]]:
    """The effect of another set or topic: the task begins there, so rows come again."""
    old, new = address_of(before).topic, address_of(after).topic
    if isinstance(after, CaptureTask):
        if old != new:
            yield "topic", f"replay: the task {of_new_task(after)}; {old} gets no more records"
        if set_of(before) != set_of(after):
            yield "set", f"the task reads {set_of(after)}; {set_of(before)} is read no more"
        return
    if old != new:
        yield "topic", f"replay: the task begins {_start(after)}"
    if set_of(before) != set_of(after):
        yield (
            "target",
            f"the task resumes from its progress on {set_of(after)}; without progress it begins {_start(after)}"
            f" (a replay). {set_of(before)} gets no more changes",
        )


def restarts_tasks(before: SetDocument, after: SetDocument) -> bool:
    """Whether the running tasks of a set restart with its new document."""
    return stream_of(before) != stream_of(after)


def restarting_fields(
    before: SetDocument, after: SetDocument, fields: Collection[FieldChange]
) -> tuple[str, ...]:
    """The fields because of which the tasks of a set restart; none if they do not."""
    if not restarts_tasks(before, after):
        return ()
    modes = {before.relay.mode, after.relay.mode}
    quiet = {"relay.start"} | (set() if RelayMode.OFF in modes else {"relay.mode"})
    return tuple(field.path for field in fields if field.path not in quiet)


def of_changed_set(before: SetDocument, after: SetDocument) -> Iterator[str]:
    """The effects of a changed set, apart from restarts of its tasks."""
    was, now = before.relay.mode, after.relay.mode
    if was is not now:
        yield {
            RelayMode.ALWAYS: "a worker receives its binlog from now on, also while no task runs",
            RelayMode.WITH_TASKS: "its binlog is received only while a task of the set runs",
            RelayMode.OFF: "relay files are deleted as soon as the running tasks have read them",
        }[now]
    if not restarts_tasks(before, after):
        yield "no task restarts"


def of_new_set(document: SetDocument) -> Iterator[str]:
    """The effects of a new set by itself."""
    if document.relay.mode is RelayMode.ALWAYS:
        yield "a worker receives its binlog, also while no task runs"
