"""The clients of a set topic, and the codes of their errors.

    branch     code      when
    Retryable  MR-3001   the broker, or something that it needs, is unavailable
    Retryable  MR-3002   the instance is unusable or the outcome unknown: a new instance and the tail decide
    Fenced     MR-3003   a newer instance of the same transactional ID exists
    Fatal      MR-3004   a record is over the limit
    Fatal      MR-3005   delegation tokens, principals
    Fatal      MR-3006   the broker or the client refuses a setting or has no such feature
    Retryable  MR-3007   the topic does not exist (the next start decides about it)
    Fatal      MR-3008   an error that a producer should never get
    Retryable  MR-3016   the next record to read back is no longer in the partition

Refused logins, certificates and rights are MR-70xx. ``drivers.kafka.errors`` has the kinds.
"""

from drivers.kafka.access import Settings
from drivers.kafka.errors import Errors, Kind
from drivers.kafka.names import PUBLISHER_GROUP
from drivers.kafka.producer import TransactionalProducer
from drivers.kafka.reader import RecordRemoved, TopicReader
from drivers.kafka.topic import TopicAdmin
from producer.publish.config import PublisherConfig

ERRORS = Errors(
    code="MR-3008",
    codes={
        Kind.AWAY: "MR-3001",
        Kind.SPOILED: "MR-3002",
        Kind.FENCED: "MR-3003",
        Kind.OVERSIZE: "MR-3004",
        Kind.UNAUTHORIZED: "MR-3005",
        Kind.UNSUPPORTED: "MR-3006",
        Kind.TOPIC_MISSING: "MR-3007",
        Kind.TOPIC_REPLACED: "MR-3007",
        Kind.OFFSET_REMOVED: "MR-3016",
    },
    branches={Kind.OFFSET_REMOVED: RecordRemoved},
)

_READER: Settings = {
    "group.id": PUBLISHER_GROUP,
    "fetch.queue.backoff.ms": 1,
    # The audit follows a busy writer and must not prefetch all of it. At least one batch arrives, whatever its size.
    "queued.min.messages": 1,
    "queued.max.messages.kbytes": 1024,
    "max.partition.fetch.bytes": 64 * 1024,
}


class KafkaDriver:
    def __init__(self, config: PublisherConfig) -> None:
        self._config = config
        self._settings: Settings = {
            "client.id": f"millrace-{config.worker}",
            "socket.nagle.disable": True,
            "reconnect.backoff.max.ms": 1000,
        }

    def admin(self) -> TopicAdmin:
        config = self._config
        return TopicAdmin(
            config.brokers,
            config.topic,
            errors=ERRORS,
            options=config.options,
            settings=self._settings,
        )

    def partition(self) -> TopicReader:
        settings = self._settings | _READER
        return TopicReader(
            self._config.brokers, self._config.topic, errors=ERRORS, settings=settings
        )

    def transactions(self, record_bytes_max: int) -> TransactionalProducer:
        limits = self._config.limits
        settings = (
            self._settings
            | {
                "transactional.id": self._config.transactional_id,
                "transaction.timeout.ms": limits.transaction_timeout_ms,
                "retry.backoff.ms": limits.retry_backoff_ms,
                "retry.backoff.max.ms": limits.retry_backoff_ms,
                "message.max.bytes": record_bytes_max,
                "linger.ms": 20,  # `flush` ends it; measured: 5 ms makes bulk batches small and costs a quarter
                "batch.size": 1024 * 1024,
                "compression.type": self._config.compression.value,
            }
        )
        return TransactionalProducer(
            self._config.brokers,
            self._config.topic,
            errors=ERRORS,
            settings=settings,
            timeout_s=limits.publish_timeout_s,
        )
