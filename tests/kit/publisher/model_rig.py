"""``Rig`` without a broker: the same publisher, records and verifier on a model of the topic."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from millrace.consumer.topic.verify import Summary, TopicVerifier
from millrace.errors import Retryable
from millrace.producer.publish.codec import RecordCodec
from millrace.producer.publish.config import PublisherLimits
from millrace.producer.publish.opening import Basis, TailHint
from millrace.producer.publish.publisher import Publisher
from millrace.schemas.documents.model import TopicOptions
from millrace.schemas.gtid import Flavour
from millrace.schemas.requests.decision import Decision
from tests.kit.capture.topic_rows import start_of
from tests.kit.publisher.model import Entry, KafkaTransaction, ModelDriver, ModelTopic, a_topic
from tests.kit.publisher.rig import Rig

SHORT = PublisherLimits(audit_timeout_s=0.3, stable_timeout_s=0.2, publish_timeout_s=1.0)


class ModelRig(Rig):
    """The model answers at once, so all limits are short."""

    def __init__(self, topic: str) -> None:
        super().__init__("model:0", topic)
        self.limits = SHORT
        self.options = TopicOptions()
        self.model = ModelTopic()

    def open(
        self,
        epoch: int = 7,
        *,
        verify_lease: Callable[[], None] = lambda: None,
        hint: TailHint | None = None,
        decision: Decision | None = None,
    ) -> Publisher:
        """A new publisher."""
        config = self.config(epoch)
        return Publisher.open_with(
            ModelDriver(self.model, config.transactional_id),
            config,
            codec=RecordCodec.register(config, self.ids),
            verify_lease=verify_lease,
            basis=Basis(start_of(Flavour.MYSQL), hint, decision),
        )

    @contextmanager
    def foreign_transaction(self) -> Iterator[None]:
        """Another writer's Kafka transaction with one record, open during the block."""
        foreign = KafkaTransaction("foreign")
        self.model.append(foreign, [(None, b"hello")])
        yield
        self.model.end(foreign, "aborted")

    def write_foreign(self, partition: int = 0) -> None:
        """Another client writes a record outside of any Kafka transaction."""
        assert partition == 0
        self.model.entries.append(Entry(b"hello", None))

    def recreate(self, config: dict[str, str] | None = None, *, partition_count: int = 1) -> None:
        """An empty topic with these settings."""
        size = int((config or {}).get("max.message.bytes", 1 << 20))
        settings = a_topic(partition_count=partition_count, record_bytes_max=size)
        self.model = ModelTopic(exists=True, settings=settings)

    def remove_before(self, offset: int = -1) -> int:
        """Remove records up to ``offset`` (-1: all); returns the first offset that is kept."""
        self.model.low = len(self.model.entries) if offset < 0 else offset
        return self.model.low

    def high_end(self) -> int:
        """The end of the log, open transactions included."""
        return len(self.model.entries)

    def wait_ended(self) -> None:
        """No Kafka transaction is open."""
        if self.model.stable != self.high_end():
            raise Retryable("MR-3501", "a Kafka transaction is open")

    def verdict(self) -> Summary:
        """The findings of `millrace topic verify`."""
        verifier = TopicVerifier(from_beginning=self.model.low == 0)
        for record in self.model.committed():
            verifier.feed(record.offset, record.key, record.value)
        return verifier.finish()
