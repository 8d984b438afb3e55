"""Where a task begins in a topic, and requests that a run repeats while the topic or its broker is away."""

from collections.abc import Iterator
from contextlib import contextmanager

from millrace.drivers.kafka.reader import NoTopic, TopicReader, first_offset
from millrace.errors import Fatal, MillraceError, Retryable
from millrace.schemas.documents import TopicAddress
from millrace.schemas.gtid import GtidPosition, parse_gtid
from millrace.schemas.record.control import FenceRecord, RecordKind, ResolvedRecord
from millrace.schemas.record.framing import peek_kind
from millrace.schemas.record.record import decode_control


def topic_begin(address: TopicAddress) -> GtidPosition:
    """The GTID set of the first control record that has one. A task that starts there or later misses nothing.

    Retryable MR-5096 while the topic has no such record; MR-3501.
    """
    reader = TopicReader(address.brokers, address.topic)
    try:
        ends = reader.ends()
        for chunk in reader.chunks(ends.low, ends.stable):
            for record in chunk:
                if peek_kind(record.value) not in (RecordKind.FENCE, RecordKind.RESOLVED):
                    continue
                control = decode_control(record.value)
                assert isinstance(control, FenceRecord | ResolvedRecord)
                progress = control.progress
                if progress.open is None:
                    return progress.gtid_set
                opened = parse_gtid(progress.gtid_set.flavour, progress.open.gtid)
                return progress.gtid_set.advanced(opened)
    except Fatal as exc:
        raise Retryable(exc.code, exc.message, fix=exc.fix, **exc.context) from exc
    finally:
        reader.close()
    raise Retryable("MR-5096", f"{address} has no record yet")


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
