"""A subscriber of topics that tasks write: its consumer group, its user on Kafka, and its topics. Pure.

A pattern of ``topics`` is the name of a topic, or the beginning of names and ``*``: Kafka's ACLs know no other.
Without patterns, a subscriber reads the topics of tables of its tasks: those of transactions, heartbeats and changes of
structures must be named.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from millrace.errors import Fatal
from millrace.schemas.documents.model import PublishTask, TaskDocument
from millrace.schemas.documents.readers import NAME_WANTED, TOPIC_CHARACTERS_MAX, is_name
from millrace.schemas.documents.topic_names import may_be_equal, written_topics

GROUP_CHARACTERS_MAX = 255  # more than any name in use; Kafka has no limit of its own below 32 KiB
_PATTERN = re.compile(r"[A-Za-z0-9._-]+\*?")
_PRINCIPAL = re.compile(r"[A-Za-z]+:\S.*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """``principal``: as Kafka's ACLs name the user, such as ``User:reports``."""

    name: str
    tasks: tuple[str, ...]
    group: str
    principal: str
    topics: tuple[str, ...] = ()

    def reads(self, topic: str) -> bool:
        """Whether one of its patterns matches the topic."""
        return not self.topics or any(_matches(pattern, topic) for pattern in self.topics)


@dataclass(frozen=True, slots=True)
class TopicRange:
    """One topic, or with ``is_prefix`` all topics whose names begin with ``name``."""

    name: str
    is_prefix: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantedRight:
    """A right that was printed for a subscriber: the options of ``kafka-acls.sh``."""

    bootstrap: str
    principal: str
    resource: str
    name: str
    operation: str
    is_prefix: bool = False


def check_subscriber(subscriber: Subscriber) -> None:
    """Fatal MR-4101 with each wrong field."""
    problems = list(_problems(subscriber))
    if problems:
        raise Fatal("MR-4101", f"subscriber {subscriber.name[:60]!r}: {'; '.join(problems)}")


def _problems(subscriber: Subscriber) -> Iterator[str]:
    if not is_name(subscriber.name):
        yield f"name: wanted {NAME_WANTED}"
    if not subscriber.tasks:
        yield "task: wanted the name of a task"
    if not 0 < len(subscriber.group) <= GROUP_CHARACTERS_MAX or not subscriber.group.isprintable():
        yield f"group: wanted 1 to {GROUP_CHARACTERS_MAX} printable characters"
    if not _PRINCIPAL.fullmatch(subscriber.principal) or subscriber.principal == "User:*":
        yield f"principal: found {subscriber.principal!r}, wanted one user, such as User:reports"
    for pattern in subscriber.topics:
        if not _PATTERN.fullmatch(pattern) or len(pattern) > TOPIC_CHARACTERS_MAX:
            yield f"topic: found {pattern!r}, wanted a topic, or the beginning of names and *"


def topic_ranges(subscriber: Subscriber, task: TaskDocument) -> tuple[TopicRange, ...]:
    """The topics of this task that the subscriber reads, as Kafka's ACLs can name them.

    Fatal MR-4114 if the task writes none, or if their names have no common beginning and no pattern gives one.
    """
    written = _topics_of(subscriber, task)
    if not written:
        raise Fatal("MR-4114", f"task {task.name} writes no topic")
    if subscriber.topics:
        named = [_narrowed(pattern, one) for pattern in subscriber.topics for one in written]
        return tuple(dict.fromkeys(one for one in named if one is not None))
    ranges = tuple(dict.fromkeys(_range_of(one) for one in written))
    if any(one.is_prefix and not one.name for one in ranges):
        what = f"the topics of {task.name}, {written[0]}, have no common beginning"
        fix = "Name the topics of the subscriber with --topic, which may be repeated."
        raise Fatal("MR-4114", what, fix=fix)
    return ranges


def is_topic_of(subscriber: Subscriber, task: TaskDocument, topic: str) -> bool:
    """Whether the task may write this topic and the subscriber reads it."""
    return subscriber.reads(topic) and any(
        may_be_equal(pattern, topic) for pattern in _topics_of(subscriber, task)
    )


def _topics_of(subscriber: Subscriber, task: TaskDocument) -> tuple[str, ...]:
    """The topics that the task writes and from which the subscriber chooses, or their patterns."""
    if not isinstance(task, PublishTask):
        return written_topics(task)
    apart = {task.progress_topic, *(() if subscriber.topics else task.other_topics.values())}
    return tuple(topic for topic in written_topics(task) if topic not in apart)


def _range_of(written: str) -> TopicRange:
    """All topics of a pattern."""
    beginning, brace, _ = written.partition("{")  # only a place has braces
    return TopicRange(beginning, is_prefix=bool(brace))


def _narrowed(pattern: str, written: str) -> TopicRange | None:
    """The topics that suit both patterns; None if none does."""
    whole = _range_of(written)
    if not pattern.endswith("*"):
        return TopicRange(pattern) if may_be_equal(written, pattern) else None
    beginning = pattern[:-1]
    if not whole.is_prefix:
        return whole if whole.name.startswith(beginning) else None
    if whole.name.startswith(beginning):
        return whole
    return TopicRange(beginning, is_prefix=True) if beginning.startswith(whole.name) else None


def _matches(pattern: str, topic: str) -> bool:
    return topic.startswith(pattern[:-1]) if pattern.endswith("*") else topic == pattern
