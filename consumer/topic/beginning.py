"""The source transactions before the first record of a topic, which it does not have. Apart: a rule of topics."""

from drivers.kafka.reader import TopicReader
from millrace.errors import Fatal, Retryable
from schemas.documents import TopicAddress
from schemas.gtid import GtidPosition, parse_gtid
from schemas.record.control import FenceRecord, RecordKind, ResolvedRecord
from schemas.record.framing import peek_kind
from schemas.record.record import decode_control


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
