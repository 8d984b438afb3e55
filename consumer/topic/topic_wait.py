"""Requests to a topic that a run repeats while the topic or its broker is away."""

from collections.abc import Iterator
from contextlib import contextmanager

from drivers.kafka.reader import NoTopic, first_offset
from millrace.errors import MillraceError, Retryable
from schemas.documents import TopicAddress


def begin_at(source: TopicAddress, offset: int) -> int:
    """``offset``, or the first one that retention has left above it."""
    if offset < 0:
        return offset
    with waiting_for(source):
        return first_offset(source.brokers, source.topic, offset)


@contextmanager
def waiting_for(source: TopicAddress) -> Iterator[None]:
    """Makes a missing topic Retryable MR-5054 and an unavailable broker Retryable MR-5052."""
    try:
        yield
    except MillraceError as exc:
        if exc.code != "MR-3501":
            raise
        if isinstance(exc, NoTopic):
            raise Retryable("MR-5054", f"there is no {source}") from exc
        raise Retryable("MR-5052", f"{source}: {exc.message}") from exc
