"""The configuration of a publisher: where it writes, under which names, and its limits."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas.documents import TopicOptions
from schemas.gtid import Flavour


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherLimits:
    """Every timeout and bound of a publisher; the defaults are arithmetic on measurements, not taste."""

    # An idle topic still says every so often how far it is, so that its tail is found in one small read.
    resolved_interval_s: float = 5.0
    # Progress without records (filtered transactions) is written at most this often: 5 small commits a second.
    progress_interval_s: float = 0.2
    # librdkafka's retry back-off. A hidden retry takes at least 0.8 of it (its jitter is 20 %): see ``suspicious_s``.
    retry_backoff_ms: int = 1000
    # The coordinator aborts what its owner left open after this long.
    transaction_timeout_ms: int = 60_000
    # A broker that is away is reported after this long; a clean restart takes 5 to 10 s.
    publish_timeout_s: float = 20.0
    # After init_transactions the abort marker of the predecessor is awaited, milliseconds as a rule.
    stable_timeout_s: float = 10.0
    # A marker lands milliseconds after its commit returned; a broker that restarts meanwhile takes 5 to 10 s.
    audit_timeout_s: float = 30.0
    # Commits whose audit is outstanding; the stream waits when there are more (memory: one resolved record each).
    audit_commits_max: int = 256
    # max.message.bytes of a topic that we create. Two images of a 24 MiB row, with room; the broker's
    # socket.request.max.bytes (100 MiB) is the ceiling.
    record_bytes_max: int = 64 * 1024 * 1024

    @property
    def suspicious_s(self) -> float:
        """A commit slower than this may hide a retry, whose late duplicate could end a later transaction."""
        return 0.8 * self.retry_backoff_ms / 1000


def transactional_id(topic: str, partition: int = 0) -> str:
    """The one name under which a partition is written, whatever task, cluster or worker writes it.

    Kafka fences by it. A name that held the task's would let two tasks write side by side where nobody can know before
    that they meet: in two clusters, or under two addresses of one broker.
    """
    return f"millrace/{topic}/{partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherConfig:
    """One set topic and its one owner. ``client`` holds further librdkafka settings (security)."""

    bootstrap: str
    topic: str
    transactional_id: str  # as the function of this name makes it
    epoch: int  # the lease's
    worker: str
    set: str
    flavour: Flavour
    limits: PublisherLimits = field(default_factory=PublisherLimits)
    options: TopicOptions = field(default_factory=TopicOptions)
    client: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def connection(self) -> Mapping[str, str]:
        """How to reach the cluster, in librdkafka's settings: for every connection of this publisher."""
        return {**self.client, "bootstrap.servers": self.bootstrap}
