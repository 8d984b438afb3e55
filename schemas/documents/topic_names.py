"""The topics that tasks write, by name or by pattern, and whether two of them may be one topic. Pure.

A place of a pattern becomes an escaped name: one or more letters, digits and underscores (``schemas.record.names``).
So a dot or a hyphen is always of the pattern itself, and ``{database}.{table}`` never equals ``a.{database}.{table}``.
"""

from collections.abc import Iterator

from millrace.schemas.documents.model import CaptureTask, OnChange, PublishTask, TaskDocument
from millrace.schemas.view.view import places_of

_PLACE = ""  # a token for one or more characters of a name


def written_topics(task: TaskDocument) -> tuple[str, ...]:
    """The topics that a task writes. Those of a publish task may be patterns."""
    if isinstance(task, CaptureTask):
        return (task.output.topic,)
    if not isinstance(task, PublishTask):
        return ()
    pattern = task.topics.pattern_of(task.name)
    own = [pattern, task.progress_topic, *task.other_topics.values()]
    if task.on_change is OnChange.NEW_TOPICS:
        own.append(f"{pattern}.{{version}}")  # such as .v2
    return tuple(name for name in own if name)


def may_be_equal(one: str, other: str) -> bool:
    """Whether some database and table give both patterns the same name."""
    first, second = _tokens(one), _tokens(other)
    seen, waiting = {(0, 0)}, [(0, 0)]
    while waiting:
        at, beside = waiting.pop()
        if at == len(first) and beside == len(second):
            return True
        if at == len(first) or beside == len(second) or not _share(first[at], second[beside]):
            continue
        for after in _after(first[at], at):
            for after_beside in _after(second[beside], beside):
                if (after, after_beside) not in seen:
                    seen.add((after, after_beside))
                    waiting.append((after, after_beside))
    return False


def _tokens(pattern: str) -> list[str]:
    """The characters of a pattern, and ``_PLACE`` for each place."""
    for place in places_of(pattern):
        pattern = pattern.replace(f"{{{place}}}", "\0")
    return [_PLACE if character == "\0" else character for character in pattern]


def _share(one: str, other: str) -> bool:
    """Whether a character suits both tokens."""
    if _PLACE not in (one, other):
        return one == other
    literal = one or other
    return not literal or literal.isalnum() or literal == "_"


def _after(token: str, at: int) -> Iterator[int]:
    """Where a pattern is after a character of this token."""
    yield at + 1
    if token == _PLACE:
        yield at
