"""The clients of a set topic."""

from millrace.drivers.kafka.access import Settings
from millrace.drivers.kafka.names import PUBLISHER_GROUP
from millrace.drivers.kafka.producer import WRITING, TransactionalProducer, compression
from millrace.drivers.kafka.reader import TopicReader
from millrace.drivers.kafka.topic import TopicAdmin
from millrace.producer.publish.config import PublisherConfig

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
            errors=WRITING,
            options=config.options,
            settings=self._settings,
        )

    def partition(self) -> TopicReader:
        settings = self._settings | _READER
        return TopicReader(
            self._config.brokers, self._config.topic, errors=WRITING, settings=settings
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
                **compression(self._config.compression.value),
            }
        )
        return TransactionalProducer(
            self._config.brokers,
            self._config.topic,
            errors=WRITING,
            settings=settings,
            timeout_s=limits.publish_timeout_s,
        )
