"""The effect of each changed field of a publish task, in sentences for an operator. Pure.

A change of what is written is a new *definition*: it holds from the next ``seq`` on, and records before it stay as they
are. The slots, the set topic and the brokers of a task with progress are not changed: what it has written is there.
"""

from collections.abc import Callable, Collection, Iterator

from millrace.errors import Fatal
from millrace.schemas.documents import OnChange, PublishTask
from millrace.schemas.status import TaskReport
from millrace.schemas.view.differences import changed_patterns

PATTERNS_NAMED = 5
_OF_VIEW = ("tables", "include", "exclude")
_OF_DEFINITION = ("topics", "partition_by")


def refusal_of_change(
    before: PublishTask, after: PublishTask, report: TaskReport | None
) -> Fatal | None:
    """MR-4112 if a task that has published gets another set topic, other brokers or another number of slots.

    ``report``: the last one on the work of ``before``.
    """
    if report is None or not (report.seq or report.gtid_set):
        return None
    old, new = before.source, after.source
    if old.topic != new.topic:
        what = f"it has published the topic {old.topic} up to seq {report.seq}, the document names {new.topic}"
    elif not old.brokers.shares_address(new.brokers):
        what = f"it writes to the brokers {old.brokers}, the document names {new.brokers}"
    elif before.topics.slots != after.topics.slots:
        what = f"it has {before.topics.slots} slots, the document names {after.topics.slots}"
    else:
        return None
    return Fatal("MR-4112", f"{after.name}: {what}", task=after.name)


def of_changed_publish(
    before: PublishTask, after: PublishTask, paths: Collection[str], report: TaskReport | None
) -> Iterator[str]:
    """The effect of these fields. ``start`` is not among them."""
    left = list(paths)
    if view := _taken(left, lambda path: path in _OF_VIEW):
        rows = f"rows of {_tables(before, after)} are written by the new view {_from(report)}"
        yield f"{_named(view)}: {rows}; {_where(after)}"
    if _taken(left, lambda path: path == "partitions"):
        order = "the order of a key holds before and after it"
        yield f"`partitions`: {_partitions(before, after)} {_from(report)}: {order}"
    definition = _taken(left, lambda path: path in _OF_DEFINITION or path.startswith("records."))
    if definition:
        yield f"{_named(definition)}: records are written so {_from(report)}; {_where(after)}"
    if _taken(left, lambda path: path == "on_change"):
        yield f"`on_change`: changes of the view and of the format from now on: {_where(after)}"
    if _taken(left, lambda path: path == "topic"):
        yield f"`topic`: the task reads {after.source.topic} from its `start` on"
    if _taken(left, lambda path: path == "accept_ddl"):
        added = [str(seq) for seq in after.accept_ddl if seq not in before.accept_ddl]
        passing = f"statements that pass, and rows before them stay as they are: {', '.join(added)}"
        yield f"`accept_ddl`: {passing if added else 'nothing passes that did not before'}"
    if settings := _taken(left, lambda path: path.startswith("topic_settings.")):
        yield f"{_named(settings)}: holds for topics that are created from now on"
    if left:
        yield f"{_named(left)}: holds for the changes that are not published yet"


def left_topics(task: PublishTask) -> str:
    """The topics that stay after a deletion, for a sentence."""
    pattern = task.topics.pattern_of(task.name)
    return f"the topics {pattern} and the progress in {task.progress_topic} stay"


def no_start_topic(task: PublishTask) -> str:
    """When ``start`` is read, for a sentence."""
    return f"only while the topic {task.progress_topic} has no progress"


def _taken(left: list[str], is_meant: Callable[[str], bool]) -> list[str]:
    """The paths that are meant, which are removed."""
    taken = [path for path in left if is_meant(path)]
    left[:] = [path for path in left if path not in taken]
    return taken


def _named(paths: Collection[str]) -> str:
    return ", ".join(f"`{path}`" for path in paths)


def _from(report: TaskReport | None) -> str:
    """The place from which a definition holds."""
    if report is None or not report.seq:
        return "from its begin on"
    return f"from the next record on (it has published up to seq {report.seq})"


def _where(task: PublishTask) -> str:
    if task.on_change is OnChange.NEW_TOPICS:
        return "they go to new topics (`on_change: new_topics`)"
    return "they follow the older ones in the same topics (`on_change: continue`)"


def _tables(before: PublishTask, after: PublishTask) -> str:
    patterns = changed_patterns(before.view, after.view)
    more = len(patterns) - PATTERNS_NAMED
    return ", ".join(patterns[:PATTERNS_NAMED]) + (f" and {more} more patterns" if more > 0 else "")


def _partitions(before: PublishTask, after: PublishTask) -> str:
    count = after.topics.partitions
    if count > before.topics.partitions:
        return f"topics get {count} partitions and keys are spread over them"
    return f"keys are spread over the first {count} partitions, the others get no more records,"
