"""Checks that an apply task can read its topic. It joins no consumer group and changes nothing."""

from collections.abc import Iterator
from contextlib import closing

from drivers.kafka.reader import NoTopic, TopicReader
from millrace.checks.requirement import Area, Requirement, Subject
from millrace.errors import MillraceError
from schemas.documents import ApplyTask


def check_readable(task: ApplyTask, *, creator: str) -> Iterator[Requirement]:
    """MR-3501 if the topic can't be read. ``creator``: a capture task that creates it; empty if none is known."""
    subject = Subject(Area.KAFKA, f"topic {task.source.topic}")
    what = f"{task.name} can read it"
    with closing(TopicReader(task.source.brokers, task.source.topic)) as reader:
        try:
            ends = reader.ends()
        except MillraceError as error:
            if not creator or not isinstance(error, NoTopic):
                yield subject.error(what, error)
            else:
                yield subject.ok(what, f"once {creator} has created it")
            return
    yield subject.ok(what, f"offsets {ends.low} to {ends.stable}")
