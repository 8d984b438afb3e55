"""The configuration of a publisher: where it writes, under which names, and its limits."""

from dataclasses import dataclass, field, replace

from millrace.drivers.kafka.access import KafkaAccess
from millrace.drivers.kafka.names import transactional_id
from millrace.schemas.documents import CaptureRules, CaptureTask, TopicCompression, TopicOptions
from millrace.schemas.gtid import Flavour


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherLimits:
    """All timeouts and bounds of a publisher. The defaults are derived from measurements."""

    # An idle topic gets a resolved record after this time, the next after twice as long, and so on up to
    # ``resolved_idle_s``: 17 in the first quarter of an hour. A change begins again with the first interval.
    resolved_interval_s: float = 5.0
    resolved_idle_s: float = CaptureRules().resolved_idle_s
    # Between them the end of the topic is compared: one request of a millisecond, which writes nothing. So another
    # writer, a deleted topic or a broker without an answer is noticed as early as with a record every five seconds.
    look_interval_s: float = 5.0
    # Progress without records (filtered transactions) is written at most this often: 5 small commits per second.
    progress_interval_s: float = 0.2
    # librdkafka's retry back-off. A hidden retry takes at least 0.8 of it (its jitter is 20 %): see ``suspicious_s``.
    retry_backoff_ms: int = 1000
    # After this time the coordinator aborts a transaction that its owner left open.
    transaction_timeout_ms: int = 60_000
    # An unavailable broker is reported after this time; a clean restart takes 5 to 10 s.
    publish_timeout_s: float = 20.0
    # The time to wait, after init_transactions, for the abort marker of the previous owner: usually milliseconds.
    stable_timeout_s: float = 10.0
    # A marker is written milliseconds after its commit returned; a broker that restarts meanwhile takes 5 to 10 s.
    audit_timeout_s: float = 30.0
    # Commits that wait for their audit. At the limit the publisher waits (memory: one resolved record each).
    audit_commits_max: int = 256
    # max.message.bytes of a topic that we create: two images of a 24 MiB row, with room. The broker's
    # socket.request.max.bytes (100 MiB) is the upper limit.
    record_bytes_max: int = 64 * 1024 * 1024

    @property
    def suspicious_s(self) -> float:
        """A commit slower than this may hide a retry, whose late duplicate could end a later transaction."""
        return 0.8 * self.retry_backoff_ms / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherConfig:
    """One set topic and its one owner."""

    brokers: KafkaAccess
    topic: str
    transactional_id: str  # made by ``drivers.kafka.names``
    epoch: int  # the lease's
    worker: str
    set: str
    flavour: Flavour
    limits: PublisherLimits = field(default_factory=PublisherLimits)
    options: TopicOptions = field(default_factory=TopicOptions)
    compression: TopicCompression = CaptureRules().compression


def publisher_config(
    task: CaptureTask, *, flavour: Flavour, epoch: int, worker: str
) -> PublisherConfig:
    """The configuration of a capture task's publisher."""
    return PublisherConfig(
        brokers=task.output.brokers,
        topic=task.output.topic,
        transactional_id=transactional_id(task.output.topic),
        epoch=epoch,
        worker=worker,
        set=task.set_name,
        flavour=flavour,
        limits=replace(PublisherLimits(), resolved_idle_s=task.rules.resolved_idle_s),
        options=task.topic_options,
        compression=task.rules.compression,
    )
